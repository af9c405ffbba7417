"""The registry of models: address, name at the provider and price of each.

A registry is read by `registry_file`; using it opens no file and no connection. A name that is
in a row always refers to that row; only otherwise is the part before the first `/` a provider.

`find_base_url` and `find_key` read the address and the key of a provider from the environment.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

from assay.core.secrets import Secret
from assay.errors import ModelRejected

FINE_TUNING: Final[Mapping[str, bool]] = {"openai": False, "synth": False, "local": True}
"""Providers that offer fine-tuning, and whether each runs on this machine."""
_FINE_TUNED: Final = "ft:"
_SNAPSHOT: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{4})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A service with the chat protocol of OpenAI."""

    name: str
    base_url: str | None = None
    """Address; None if it is only in `base_url_variable`."""
    base_url_variable: str | None = None
    """Environment variable with another address."""
    path: str = ""
    """End of the address, added if the variable has only the host."""
    key_variable: str | None = None
    """Environment variable with the key; None: no key is needed."""
    key_optional: bool = False
    """Whether it also works without a key."""
    key: Secret | None = None
    """Key from a file; one in the environment takes precedence."""
    limit_field: str = "max_tokens"
    """Request field for the maximum number of tokens in a reply."""
    unsupported: tuple[str, ...] = ()
    """Fields that must not be in a request: temperature, seed."""
    fine_tuned: tuple[str, ...] = ()
    """Prefixes of the base models whose `ft:` models are served here."""
    timeout_s: float = 120.0
    """Timeout of a call."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of tokens, in dollars per million."""

    input: float
    output: float
    cached: float | None = None
    """Price of a cached prompt token; None: as any other."""
    cache_write: float | None = None
    """Price of a prompt token written to the cache; None: as any other."""
    up_to: int | None = None
    """Number of prompt tokens up to which the price is valid."""
    dated: date | None = None
    """Date of the price; None if the user gave it for one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model in the registry."""

    name: str
    """Name used by users."""
    provider: Provider
    remote_name: str
    """Name at the provider."""
    price: Price | None = None
    """None if unknown; a budget then needs one from the user."""
    context: int | None = None
    """Maximum tokens of prompt and reply together."""
    tools: bool = True
    """Whether it can call tools."""
    requests_per_minute: int | None = None
    """Known rate limit."""
    unsupported: tuple[str, ...] = ()
    """Fields that must not be in a request, including those of the provider."""
    send: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Fields added to every request, such as reasoning_effort."""
    retired: date | None = None
    """Retirement date, which may be in the future."""
    successor: str | None = None
    """Model to use instead."""
    looked_up: date | None = None
    """When the row was last compared with the provider's documentation."""
    note: str = ""

    def is_retired(self, today: date | None = None) -> bool:
        """Return whether its retirement date has passed."""
        return self.retired is not None and self.retired <= (today or date.today())

    def check_callable(self, today: date | None = None) -> None:
        """Raise ModelRejected, with the date and the successor, if the model is retired."""
        if not self.is_retired(today):
            return
        after = f"; its successor is {self.successor!r}" if self.successor else ""
        raise ModelRejected(
            f"model {self.name!r} was retired on {self.retired} and is no longer available"
            f"{after}; replace it in a run with --model-map {self.name}="
            f"{self.successor or 'NEW'}; see 'assay models'"
        )


@dataclass(frozen=True, slots=True)
class Registry:
    """All known models and providers, by name."""

    entries: Mapping[str, ModelEntry]
    providers: Mapping[str, Provider]
    warnings: tuple[str, ...] = ()
    """Warnings about the rows, for the user."""

    @property
    def key_variables(self) -> frozenset[str]:
        """Environment variables that contain keys of providers."""
        variables = {provider.key_variable for provider in self.providers.values()}
        return frozenset({"OPENAI_API_KEY", *filter(None, variables)})

    def resolve(self, name: str, *, also: Iterable[str] = ()) -> ModelEntry:
        """Find a model by the name of its row, `provider/any-name`, or an `ft:` name.

        Args:
            name: Name as given by the user.
            also: Other valid names, to suggest for an unknown one.

        Raises:
            ModelRejected: No row and no provider matches.
        """
        if name in self.entries:
            return self.entries[name]
        if name.casefold().startswith(_FINE_TUNED):
            # Upper and lower case are not distinguished.
            name = self.correct_case(f"{_FINE_TUNED}{name[len(_FINE_TUNED) :]}")
            if name in self.entries:
                return self.entries[name]
        found = self._find_fine_tuned(name) or self._find_provider_model(name)
        if found is None:
            raise ModelRejected(self._format_unknown(name, also))
        return found

    def with_fine_tuned(self, name: str, base: str, provider: Provider) -> "Registry":
        """Return a registry with a row added for a fine-tuned model."""
        row = self._make_tuned(name, provider, base)
        return replace(self, entries={**self.entries, name: row})

    def correct_case(self, name: str, *, also: Iterable[str] = ()) -> str:
        """Correct the upper and lower case of a name, if exactly one known name matches."""
        known = [*self.entries, *also]
        same = [other for other in known if other.casefold() == name.casefold()]
        return name if name in known or len(same) != 1 else same[0]

    def _find_provider_model(self, name: str) -> ModelEntry | None:
        prefix, _, remote = name.partition("/")
        provider = self.providers.get(prefix)
        if provider is None or not remote.strip():
            return None
        for entry in self.entries.values():
            if entry.provider.name == prefix and remote in (entry.remote_name, entry.name):
                return replace(entry, name=name)
        tuned = self._find_fine_tuned(remote)
        if tuned is not None and tuned.provider == provider:
            return replace(tuned, name=name)
        return _make_entry(name, provider, remote)

    def _find_fine_tuned(self, name: str) -> ModelEntry | None:
        if not name.startswith(_FINE_TUNED):
            return None
        base = name.removeprefix(_FINE_TUNED).partition(":")[0]
        for provider in self.providers.values():
            if provider.fine_tuned and base.lower().startswith(provider.fine_tuned):
                return self._make_tuned(name, provider, base)
        return None

    def _make_tuned(self, name: str, provider: Provider, base: str) -> ModelEntry:
        wanted = _normalize(base)
        for entry in self.entries.values():
            if entry.provider.name == provider.name and _normalize(entry.name) == wanted:
                # It is retired with its base model, but has its own price unless that is 0.
                free = entry.price is not None and not entry.price.input + entry.price.output
                return replace(
                    entry,
                    name=name,
                    remote_name=name,
                    provider=provider,
                    price=entry.price if free else None,
                )
        return _make_entry(name, provider, name)

    def _format_unknown(self, name: str, also: Iterable[str]) -> str:
        known = [*self.entries, *also]
        near = get_close_matches(name, known, n=3, cutoff=0.6)
        prefix, slash, remote = name.partition("/")
        if slash and not near:
            alike = get_close_matches(prefix.lower(), self.providers, n=1)
            near = [f"{provider}/{remote or 'NAME'}" for provider in alike]
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        providers = ", ".join(self.providers)
        return (
            f"unknown model {name!r}; {hint}'assay models' lists the known models; "
            f"PROVIDER/NAME is any model of one of these providers: {providers}"
        )


def _normalize(name: str) -> str:
    """Remove owner, date and dots from a base model's name, as names of `ft:` models do."""
    return _SNAPSHOT.sub("", name.rpartition("/")[2].casefold()).replace(".", "-")


def _make_entry(name: str, provider: Provider, remote: str) -> ModelEntry:
    return ModelEntry(
        name=name, provider=provider, remote_name=remote, unsupported=provider.unsupported
    )


def find_key(provider: Provider, environment: Mapping[str, str] | None = None) -> Secret | None:
    """Return the key for a provider; None if it needs none.

    Raises:
        ModelRejected: A required key is missing, or the key is invalid.
    """
    variable = provider.key_variable
    text = "" if variable is None else _get_variable(variable, environment)
    if text and not (text.isascii() and text.isprintable() and " " not in text):
        raise ModelRejected(
            f"the variable {variable} does not contain a valid key: "
            "a key has only printable ASCII characters, without spaces"
        )
    if text:
        return Secret(text)
    if provider.key is not None:
        return provider.key
    if variable is None or provider.key_optional:
        return None
    raise ModelRejected(f"no key for provider {provider.name!r}; set the variable {variable}")


def find_base_url(provider: Provider, environment: Mapping[str, str] | None = None) -> str:
    """Return the address of a provider, without a trailing slash.

    Raises:
        ModelRejected: The address is missing or invalid.
    """
    variable = provider.base_url_variable
    text = "" if variable is None else _get_variable(variable, environment)
    if text and not is_address(text):
        raise ModelRejected(
            f"the variable {variable} does not contain a valid URL; give one such as "
            "http://localhost:8000/v1, without a user name or password"
        )
    if text and provider.path and not text.rstrip("/").endswith(provider.path):
        text = text.rstrip("/") + provider.path
    address = text or provider.base_url
    if address is None:
        step = f"set the variable {variable}" if variable else "give its row a base_url"
        raise ModelRejected(f"provider {provider.name!r} has no address; {step}")
    return address.rstrip("/")


def is_address(text: str) -> bool:
    """Return whether a text is an http(s) URL without user name, password or query."""
    if not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and "@" not in parts.netloc
        and port != 0
        and not parts.query
        and not parts.fragment
    )


def _get_variable(variable: str, environment: Mapping[str, str] | None) -> str:
    return (os.environ if environment is None else environment).get(variable, "").strip()
