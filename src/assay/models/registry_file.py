"""Reads the rows of the registry: those that come with assay, then those of the user.

Both are TOML and read by the same rules. Every key must be known and every value in order.
A row of the user that names its provider stands for itself; one that does not changes keys
of the row with the same name. What is here asks no provider anything.
"""

import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Final

from assay.core.secrets import Secret
from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.models.registry import ModelEntry, Price, Provider, Registry, is_address

_LONGEST: Final = 200
_SENT: Final = ("temperature", "seed")
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_OURS: Final = ("model", "messages", "tools", "stream", "n", *_SENT, *_LIMITS)
"""Fields that every request has anyway, or that would change how it is answered."""
_HIDDEN: Final = ("key", "key_variable", "base_url")
"""Keys whose values may be secrets, given in the right place or in a wrong one."""
_VARIABLE_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*\Z")

Reader = Callable[[Any], Any]
"""Turns what stands in a file into the type used inside, or raises ValueError."""


def read_row(
    row: Mapping[str, Any], keys: Mapping[str, tuple[Reader, str]], place: str
) -> dict[str, Any]:
    """Read the values of a row, each by the reader of its key.

    Raises:
        UsageError: A key is not known, or a value not allowed.
    """
    values = {}
    for key, raw in row.items():
        if key not in keys:
            raise UsageError(f"{place} {unknown_name('key', key, keys)}")
        read, allowed = keys[key]
        try:
            values[key] = read(raw)
        except (ValueError, TypeError) as error:
            shown = "this" if key in _HIDDEN else f"{raw!r}"
            raise UsageError(
                f"{place} {key}: {shown} is not allowed; give {str(error) or allowed}"
            ) from None
    return values


def is_name(text: object) -> bool:
    """Whether a model or a provider can be called this."""
    return (
        isinstance(text, str)
        and text.isprintable()
        and text == text.strip()
        and 0 < len(text) <= _LONGEST
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError
    return value


def _variable(value: Any) -> str | None:
    text = _text(value)
    if text and not _VARIABLE_NAME.match(text):
        raise ValueError
    return text or None


def _named(value: Any) -> str:
    if not is_name(value):
        raise ValueError
    return str(value)


def _url(value: Any) -> str:
    if not isinstance(value, str) or not is_address(value):
        raise ValueError
    return value.rstrip("/")


def _path(value: Any) -> str:
    text = _text(value).rstrip("/")
    if text and not text.startswith("/"):
        raise ValueError
    return text


def _secret(value: Any) -> Secret:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError
    if not value or " " in value:
        raise ValueError
    return Secret(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _day(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError
    return value


def _dollars(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def _limit(value: Any) -> str:
    if value not in _LIMITS:
        raise ValueError
    return str(value)


def _fields(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or any(one not in _SENT for one in value):
        raise ValueError
    return tuple(value)


def _beginnings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_named(one).lower() for one in value)


def _sent(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    for key, one in value.items():
        if key in _OURS:
            raise ValueError(f"other fields: {key!r} is filled in by assay")
        if not isinstance(one, (str, bool, int, float)):
            raise ValueError
    return value


def _price(value: Any) -> Price:
    kinds: dict[str, Reader] = {
        "input": _dollars,
        "output": _dollars,
        "cached": _dollars,
        "cache_write": _dollars,
        "up_to": _count,
        "dated": _day,
    }
    if not isinstance(value, dict):
        raise ValueError
    for key in value:
        if key not in kinds:
            raise ValueError(f"a price without this: {unknown_name('key', key, kinds)}")
    for key in ("input", "output", "dated"):
        if key not in value:
            raise ValueError(f"a price with {key!r} too, such as {_PRICE_EXAMPLE}")
    return Price(**{key: kinds[key](one) for key, one in value.items()})


_PRICE_EXAMPLE: Final = "{ input = 0.15, cached = 0.075, output = 0.60, dated = 2026-11-16 }"
_DAY: Final = "a day such as 2026-11-16, without quotes"
_VARIABLE: Final = "the name of an environment variable in capitals, or '' for none"

PROVIDER_KEYS: Final[Mapping[str, tuple[Reader, str]]] = {
    "base_url": (_url, "a URL such as http://localhost:8000/v1, without a name or password"),
    "base_url_variable": (_variable, _VARIABLE),
    "path": (_path, "the end of an address, such as '/v1'"),
    "key_variable": (_variable, _VARIABLE),
    "key_optional": (_flag, "true or false"),
    "key": (_secret, "printable ASCII characters without blanks"),
    "limit_field": (_limit, " or ".join(repr(one) for one in _LIMITS)),
    "unsupported": (_fields, f"a list of some of {', '.join(_SENT)}"),
    "fine_tuned": (_beginnings, "a list of texts that names of base models begin with"),
    "timeout_s": (_count, "a whole number from 1 on"),
    "note": (_text, f"a text of at most {_LONGEST} characters, on one line"),
}
"""How each key of a provider is read, and what it takes."""
MODEL_KEYS: Final[Mapping[str, tuple[Reader, str]]] = {
    "provider": (_named, "the name of a provider"),
    "remote_name": (_named, "the name that the provider has for it"),
    "price": (_price, f"dollars per million tokens, such as {_PRICE_EXAMPLE}"),
    "context": (_count, "a whole number of tokens"),
    "tools": (_flag, "true or false"),
    "requests_per_minute": (_count, "a whole number from 1 on"),
    "unsupported": (_fields, f"a list of some of {', '.join(_SENT)}"),
    "send": (
        _sent,
        "a table of fields and their values, such as { reasoning_effort = 'none' }",
    ),
    "retired": (_day, _DAY),
    "successor": (_named, "the name of another model"),
    "looked_up": (_day, _DAY),
    "note": (_text, f"a text of at most {_LONGEST} characters, on one line"),
}
"""How each key of a model is read, and what it takes."""

USER_ROWS_VARIABLE: Final = "ASSAY_MODELS"
"""The environment variable that names the user's file."""


def load_registry(
    extra: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Registry:
    """The rows that come with assay, and those of the user's file over them.

    Args:
        extra: The user's file, if it is not where `user_rows` looks for it.
        environment: Variables to look at; those of the process unless given.

    Raises:
        UsageError: The user's file cannot be read or is not in order.
    """
    text = resources.files(__package__).joinpath("registry.toml").read_text("utf-8")
    registry = _extend(Registry({}, {}), _parse(text, "registry.toml"), "registry.toml")
    path = extra if extra is not None else user_rows(environment)
    if path is None:
        return registry
    return _extend(registry, _parse(_read(path), str(path)), str(path))


def user_rows(environment: Mapping[str, str] | None = None) -> Path | None:
    """The user's file: `$ASSAY_MODELS`, else `models.toml` in the folder of settings."""
    variables = os.environ if environment is None else environment
    named = variables.get(USER_ROWS_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_config_path

    usual = user_config_path("assay", appauthor=False) / "models.toml"
    return usual if os.path.exists(usual) else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").removeprefix("\ufeff")
    except FileNotFoundError:
        reason = f"there is no such file; correct {USER_ROWS_VARIABLE}, or write it"
    except UnicodeDecodeError:
        reason = "the file is not text in UTF-8"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise UsageError(f"cannot read the models in {str(path)!r}: {reason}")


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise UsageError(f"{source}: not valid TOML: {reason}; see https://toml.io") from error


def _extend(registry: Registry, document: Mapping[str, Any], source: str) -> Registry:
    for table in document:
        if table not in ("providers", "models"):
            raise UsageError(
                f"{source}: {unknown_name('table', table, ['models', 'providers'])}"
            )
    providers = dict(registry.providers)
    warnings = list(registry.warnings)
    for name, row in _rows(document, "providers", source):
        place = f"{source}: [providers.{name}]"
        providers[name] = _provider(providers.get(name), name, row, place)
        if "key" in row:
            warnings.append(
                f"{place} key is a secret in a file that others may read; "
                "remove it there and name a variable with key_variable"
            )
    entries = {
        name: _moved(entry, providers[entry.provider.name])
        for name, entry in registry.entries.items()
    }
    for name, row in _rows(document, "models", source):
        place = f'{source}: [models."{name}"]'
        entries[name] = _entry(entries.get(name), name, row, providers, place)
    return Registry(entries, providers, tuple(warnings))


def _rows(
    document: Mapping[str, Any], table: str, source: str
) -> list[tuple[str, Mapping[str, Any]]]:
    rows = document.get(table, {})
    if not isinstance(rows, dict):
        raise UsageError(f"{source}: {table} must be a table: write [{table}.NAME]")
    for name, row in rows.items():
        if not isinstance(row, dict):
            heading = f'[{table}."NAME"]' if table == "models" else f"[{table}.NAME]"
            raise UsageError(
                f"{source}: {table}.{name} must be a table: write its keys below {heading}"
            )
        if not is_name(name) or (table == "providers" and "/" in name):
            raise UsageError(f"{source}: {name!r} in [{table}] is not a name that can be used")
    return list(rows.items())


def _provider(old: Provider | None, name: str, row: Mapping[str, Any], place: str) -> Provider:
    values = read_row(row, PROVIDER_KEYS, place)
    new = replace(old or Provider(name=name), **values)
    if new.base_url is None and new.base_url_variable is None:
        raise UsageError(f"{place} says not where it is; give base_url or base_url_variable")
    return new


def _moved(entry: ModelEntry, provider: Provider) -> ModelEntry:
    """A row that was there, with its provider as it is after a change."""
    own = [field for field in entry.unsupported if field not in entry.provider.unsupported]
    return replace(entry, provider=provider, unsupported=_united(provider.unsupported, own))


def _entry(
    old: ModelEntry | None,
    name: str,
    row: Mapping[str, Any],
    providers: Mapping[str, Provider],
    place: str,
) -> ModelEntry:
    values = read_row(row, MODEL_KEYS, place)
    if "provider" not in values:
        if old is None:
            raise UsageError(f"{place} names no provider; choose from: {', '.join(providers)}")
        provider, start = old.provider, old
    else:
        if values["provider"] not in providers:
            named = unknown_name("provider", values["provider"], providers)
            raise UsageError(f"{place} {named}")
        provider = providers[values.pop("provider")]
        start = ModelEntry(name=name, provider=provider, remote_name=name)
    own = values.pop("unsupported", start.unsupported)
    return replace(start, unsupported=_united(provider.unsupported, own), **values)


def _united(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
