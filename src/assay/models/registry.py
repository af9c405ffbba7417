"""Which models there are: where each is asked, by which name, and what it costs.

A registry is data that was read before (see `rows`); asking it opens no file and no
connection. A name that stands in a row means that row, whatever it looks like; only then is
what stands before the first `/` taken for a provider.
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
"""The providers that fine-tune, and whether each is on this machine and nowhere else."""
_FINE_TUNED: Final = "ft:"
_SNAPSHOT: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{4})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A service that answers the chat protocol of OpenAI."""

    name: str
    base_url: str | None = None
    """Where it is; None if only `base_url_variable` tells."""
    base_url_variable: str | None = None
    """The environment variable that names another place."""
    path: str = ""
    """The end of the address; added where the variable names the host alone."""
    key_variable: str | None = None
    """The environment variable that holds the key; None: no key is needed."""
    key_optional: bool = False
    """Whether it can be asked without a key too."""
    key: Secret | None = None
    """A key from a file; one in the environment counts before it."""
    limit_field: str = "max_tokens"
    """The field of a request that holds the most tokens a reply may have."""
    unsupported: tuple[str, ...] = ()
    """Fields that must not be in a request: temperature, seed."""
    fine_tuned: tuple[str, ...] = ()
    """How the base models begin whose `ft:` names are answered here."""
    timeout_s: float = 120.0
    """How long it is waited for an answer."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What tokens cost, in dollars per million."""

    input: float
    output: float
    cached: float | None = None
    """Of a prompt token that the provider had seen; None: as any other."""
    cache_write: float | None = None
    """Of a prompt token that the provider keeps for later; None: as any other."""
    up_to: int | None = None
    """Prompts of more tokens than this cost more than is said here."""
    dated: date | None = None
    """When the provider asked this; None if the user gave the price for one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model, as the registry knows it."""

    name: str
    """What users call it."""
    provider: Provider
    remote_name: str
    """What the provider calls it."""
    price: Price | None = None
    """None if it is not known; a budget then needs one from the user."""
    context: int | None = None
    """Tokens of prompt and reply together."""
    tools: bool = True
    """Whether it can call tools."""
    requests_per_minute: int | None = None
    """A limit that is known beforehand."""
    unsupported: tuple[str, ...] = ()
    """Fields that must not be in a request, those of the provider among them."""
    send: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Fields that go into every request as they are, such as reasoning_effort."""
    retired: date | None = None
    """The day from which on it is not answered; it may lie ahead."""
    successor: str | None = None
    """A model to ask in its place."""
    looked_up: date | None = None
    """When the row was compared with what the provider says."""
    note: str = ""

    def is_retired(self, today: date | None = None) -> bool:
        """Whether the day of its retirement has come."""
        return self.retired is not None and self.retired <= (today or date.today())

    def check_callable(self, today: date | None = None) -> None:
        """Refuse a model that is gone.

        Raises:
            ModelRejected: Says since when, and which model comes after it.
        """
        if not self.is_retired(today):
            return
        after = f"; its successor is {self.successor!r}" if self.successor else ""
        raise ModelRejected(
            f"model {self.name!r} was retired on {self.retired} and is not answered any more"
            f"{after}; --model-map {self.name}={self.successor or 'NEW'} replaces it in a run;"
            " see 'assay models'"
        )


@dataclass(frozen=True, slots=True)
class Registry:
    """All rows, by name."""

    entries: Mapping[str, ModelEntry]
    providers: Mapping[str, Provider]
    warnings: tuple[str, ...] = ()
    """What the user should know about the rows, though nothing is wrong."""

    @property
    def key_variables(self) -> frozenset[str]:
        """All environment variables that hold keys of providers."""
        named = {one.key_variable for one in self.providers.values() if one.key_variable}
        return frozenset({"OPENAI_API_KEY", *named})

    def resolve(self, name: str, *, also: Iterable[str] = ()) -> ModelEntry:
        """The model a name means: a row, `provider/any-name`, or a fine-tuned `ft:` name.

        Args:
            name: What the user wrote.
            also: Names that others know; they are suggested too.

        Raises:
            ModelRejected: No row and no provider has this name.
        """
        if name in self.entries:
            return self.entries[name]
        if name.casefold().startswith(_FINE_TUNED):
            # Whoever writes it in capitals means a row too.
            name = self.spelled(f"{_FINE_TUNED}{name[len(_FINE_TUNED) :]}")
            if name in self.entries:
                return self.entries[name]
        found = self._fine_tuned(name) or self._of_provider(name)
        if found is None:
            raise ModelRejected(self._unknown(name, also))
        return found

    def with_tuned(self, name: str, base: str, provider: Provider) -> "Registry":
        """Return a registry that also has a model that was made from another one."""
        row = self._tuned(name, provider, base)
        return replace(self, entries={**self.entries, name: row})

    def spelled(self, name: str, *, also: Iterable[str] = ()) -> str:
        """A name as its row has it, if upper and lower case are all that differs."""
        known = [*self.entries, *also]
        same = [one for one in known if one.casefold() == name.casefold()]
        return name if name in known or len(same) != 1 else same[0]

    def _of_provider(self, name: str) -> ModelEntry | None:
        prefix, _, remote = name.partition("/")
        provider = self.providers.get(prefix)
        if provider is None or not remote.strip():
            return None
        for entry in self.entries.values():
            if entry.provider.name == prefix and remote in (entry.remote_name, entry.name):
                return replace(entry, name=name)
        tuned = self._fine_tuned(remote)
        if tuned is not None and tuned.provider == provider:
            return replace(tuned, name=name)
        return _bare(name, provider, remote)

    def _fine_tuned(self, name: str) -> ModelEntry | None:
        if not name.startswith(_FINE_TUNED):
            return None
        base = name.removeprefix(_FINE_TUNED).partition(":")[0]
        for provider in self.providers.values():
            if provider.fine_tuned and base.lower().startswith(provider.fine_tuned):
                return self._tuned(name, provider, base)
        return None

    def _tuned(self, name: str, provider: Provider, base: str) -> ModelEntry:
        wanted = _slug(base)
        for entry in self.entries.values():
            if entry.provider.name == provider.name and _slug(entry.name) == wanted:
                # It goes when its base model goes, but it has a price of its own.
                free = entry.price is not None and not entry.price.input + entry.price.output
                return replace(
                    entry,
                    name=name,
                    remote_name=name,
                    provider=provider,
                    price=entry.price if free else None,
                )
        return _bare(name, provider, name)

    def _unknown(self, name: str, also: Iterable[str]) -> str:
        known = [*self.entries, *also]
        near = get_close_matches(name, known, n=3, cutoff=0.6)
        prefix, slash, remote = name.partition("/")
        if slash and not near:
            alike = get_close_matches(prefix.lower(), self.providers, n=1)
            near = [f"{one}/{remote or 'NAME'}" for one in alike]
        hint = f"did you mean {' or '.join(repr(one) for one in near)}? " if near else ""
        providers = ", ".join(self.providers)
        return (
            f"unknown model {name!r}; {hint}'assay models' lists those that are known, and "
            f"PROVIDER/NAME means any model of one of these providers: {providers}"
        )


def _slug(name: str) -> str:
    """A base model's name as fine-tuned ones have it: no owner, no date, no dots."""
    return _SNAPSHOT.sub("", name.rpartition("/")[2].casefold()).replace(".", "-")


def _bare(name: str, provider: Provider, remote: str) -> ModelEntry:
    return ModelEntry(
        name=name, provider=provider, remote_name=remote, unsupported=provider.unsupported
    )


def find_key(provider: Provider, environment: Mapping[str, str] | None = None) -> Secret | None:
    """The key for a provider; None if it needs none.

    Raises:
        ModelRejected: It needs one and there is none, or what is there cannot be a key.
    """
    variable = provider.key_variable
    text = "" if variable is None else _value(variable, environment)
    if text and not (text.isascii() and text.isprintable() and " " not in text):
        raise ModelRejected(
            f"the variable {variable} does not hold a key: "
            "a key has printable ASCII characters only, and no blanks between them"
        )
    if text:
        return Secret(text)
    if provider.key is not None:
        return provider.key
    if variable is None or provider.key_optional:
        return None
    raise ModelRejected(
        f"there is no key for provider {provider.name!r}; set the variable {variable}"
    )


def find_base_url(provider: Provider, environment: Mapping[str, str] | None = None) -> str:
    """The address of a provider, without a slash at its end.

    Raises:
        ModelRejected: Nobody says where it is, or what is said is no address.
    """
    variable = provider.base_url_variable
    text = "" if variable is None else _value(variable, environment)
    if text and not is_address(text):
        raise ModelRejected(
            f"the variable {variable} does not hold a URL such as "
            "http://localhost:8000/v1, without a name or password in it"
        )
    if text and provider.path and not text.rstrip("/").endswith(provider.path):
        text = text.rstrip("/") + provider.path
    address = text or provider.base_url
    if address is None:
        step = f"set the variable {variable}" if variable else "give its row a base_url"
        raise ModelRejected(f"nobody says where provider {provider.name!r} is; {step}")
    return address.rstrip("/")


def is_address(text: str) -> bool:
    """Whether a text is a URL of a service, with no name or password in it."""
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


def _value(variable: str, environment: Mapping[str, str] | None) -> str:
    return (os.environ if environment is None else environment).get(variable, "").strip()
