"""Reading of the registry files: the one that comes with assay, then the user's.

Both are TOML files with the same rules. Unknown keys and invalid values are errors. A row of
the user that names its provider is complete by itself; a row without a provider changes keys of
the existing row with its name. No provider is contacted.
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
_RESERVED: Final = ("model", "messages", "tools", "stream", "n", *_SENT, *_LIMITS)
"""Fields that assay sets itself, or that would change the form of the response."""
_SECRET_KEYS: Final = ("key", "key_variable", "base_url")
"""Keys whose values may be secrets, even by mistake, and are not shown in messages."""
_VARIABLE_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*\Z")

Reader = Callable[[Any], Any]
"""Converts a value of a file to the internal type, or raises ValueError."""


def read_row(
    row: Mapping[str, Any], keys: Mapping[str, tuple[Reader, str]], place: str
) -> dict[str, Any]:
    """Read the values of a row.

    Args:
        row: The row in the file.
        keys: The reader of each key, and a description of the allowed values.
        place: The place of the row, for messages.

    Raises:
        UsageError: A key is unknown, or a value is invalid.
    """
    values = {}
    for key, raw in row.items():
        if key not in keys:
            raise UsageError(f"{place} {unknown_name('key', key, keys)}")
        read, allowed = keys[key]
        try:
            values[key] = read(raw)
        except (ValueError, TypeError) as error:
            shown = "this" if key in _SECRET_KEYS else f"{raw!r}"
            raise UsageError(
                f"{place} {key}: {shown} is not allowed; give {str(error) or allowed}"
            ) from None
    return values


def is_name(text: object) -> bool:
    """Return whether a text is a valid name of a model or a provider."""
    return (
        isinstance(text, str)
        and text.isprintable()
        and text == text.strip()
        and 0 < len(text) <= _LONGEST
    )


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError
    return value


def _read_variable(value: Any) -> str | None:
    text = _read_text(value)
    if text and not _VARIABLE_NAME.match(text):
        raise ValueError
    return text or None


def _read_name(value: Any) -> str:
    if not is_name(value):
        raise ValueError
    return str(value)


def _read_url(value: Any) -> str:
    if not isinstance(value, str) or not is_address(value):
        raise ValueError
    return value.rstrip("/")


def _read_path(value: Any) -> str:
    text = _read_text(value).rstrip("/")
    if text and not text.startswith("/"):
        raise ValueError
    return text


def _read_secret(value: Any) -> Secret:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError
    if not value or " " in value:
        raise ValueError
    return Secret(value)


def _read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _read_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _read_day(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError
    return value


def _read_dollars(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return float(value)


def _read_limit_field(value: Any) -> str:
    if value not in _LIMITS:
        raise ValueError
    return str(value)


def _read_fields(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or any(name not in _SENT for name in value):
        raise ValueError
    return tuple(value)


def _read_prefixes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_read_name(prefix).lower() for prefix in value)


def _read_send(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    for key, item in value.items():
        if key in _RESERVED:
            raise ValueError(f"other fields: {key!r} is set by assay")
        if not isinstance(item, (str, bool, int, float)):
            raise ValueError
    return value


def _read_price(value: Any) -> Price:
    kinds: dict[str, Reader] = {
        "input": _read_dollars,
        "output": _read_dollars,
        "cached": _read_dollars,
        "cache_write": _read_dollars,
        "up_to": _read_count,
        "dated": _read_day,
    }
    if not isinstance(value, dict):
        raise ValueError
    for key in value:
        if key not in kinds:
            raise ValueError(f"a valid price: {unknown_name('key', key, kinds)}")
    for key in ("input", "output", "dated"):
        if key not in value:
            raise ValueError(f"a price with {key!r} too, such as {_PRICE_EXAMPLE}")
    return Price(**{key: kinds[key](item) for key, item in value.items()})


_PRICE_EXAMPLE: Final = "{ input = 0.15, cached = 0.075, output = 0.60, dated = 2026-11-16 }"
_DAY: Final = "a day such as 2026-11-16, without quotes"
_VARIABLE: Final = "the name of an environment variable in capitals, or '' for none"

PROVIDER_KEYS: Final[Mapping[str, tuple[Reader, str]]] = {
    "base_url": (
        _read_url,
        "a URL such as http://localhost:8000/v1, without a user name or password",
    ),
    "base_url_variable": (_read_variable, _VARIABLE),
    "path": (_read_path, "the end of an address, such as '/v1'"),
    "key_variable": (_read_variable, _VARIABLE),
    "key_optional": (_read_flag, "true or false"),
    "key": (_read_secret, "printable ASCII characters without blanks"),
    "limit_field": (_read_limit_field, " or ".join(map(repr, _LIMITS))),
    "unsupported": (_read_fields, f"a list of some of {', '.join(_SENT)}"),
    "fine_tuned": (_read_prefixes, "a list of prefixes of base model names"),
    "timeout_s": (_read_count, "a whole number of at least 1"),
    "note": (_read_text, f"a text of at most {_LONGEST} characters, on one line"),
}
"""Reader and allowed values of each key of a provider."""
MODEL_KEYS: Final[Mapping[str, tuple[Reader, str]]] = {
    "provider": (_read_name, "the name of a provider"),
    "remote_name": (_read_name, "its name at the provider"),
    "price": (_read_price, f"dollars per million tokens, such as {_PRICE_EXAMPLE}"),
    "context": (_read_count, "a whole number of tokens"),
    "tools": (_read_flag, "true or false"),
    "requests_per_minute": (_read_count, "a whole number of at least 1"),
    "unsupported": (_read_fields, f"a list of some of {', '.join(_SENT)}"),
    "send": (
        _read_send,
        "a table of fields and their values, such as { reasoning_effort = 'none' }",
    ),
    "retired": (_read_day, _DAY),
    "successor": (_read_name, "the name of another model"),
    "looked_up": (_read_day, _DAY),
    "note": (_read_text, f"a text of at most {_LONGEST} characters, on one line"),
}
"""Reader and allowed values of each key of a model."""

USER_ROWS_VARIABLE: Final = "ASSAY_MODELS"
"""Environment variable with the path of the user's file."""


def load_registry(
    extra: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Registry:
    """Load the rows that come with assay, overridden by those of the user's file.

    Args:
        extra: The user's file (default: the one that `user_rows` finds).
        environment: Environment variables (default: those of the process).

    Raises:
        UsageError: The user's file is invalid or cannot be read.
    """
    text = resources.files(__package__).joinpath("registry.toml").read_text("utf-8")
    registry = _extend(Registry({}, {}), _parse(text, "registry.toml"), "registry.toml")
    path = extra if extra is not None else user_rows(environment)
    if path is None:
        return registry
    return _extend(registry, _parse(_read_file(path), str(path)), str(path))


def user_rows(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the user's file: `$ASSAY_MODELS`, or `models.toml` in the settings folder."""
    variables = os.environ if environment is None else environment
    if path := variables.get(USER_ROWS_VARIABLE):
        return Path(path)
    from platformdirs import user_config_path

    default = user_config_path("assay", appauthor=False) / "models.toml"
    return default if os.path.exists(default) else None


def _read_file(path: Path) -> str:
    try:
        return path.read_text("utf-8").removeprefix("\ufeff")
    except FileNotFoundError:
        reason = f"file not found; correct {USER_ROWS_VARIABLE}, or create the file"
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
    for name, row in _get_rows(document, "providers", source):
        place = f"{source}: [providers.{name}]"
        providers[name] = _make_provider(providers.get(name), name, row, place)
        if "key" in row:
            warnings.append(
                f"{place} key is a secret in a file that others may read; "
                "remove it and set key_variable to an environment variable instead"
            )
    entries = {
        name: _update_provider(entry, providers[entry.provider.name])
        for name, entry in registry.entries.items()
    }
    for name, row in _get_rows(document, "models", source):
        place = f'{source}: [models."{name}"]'
        entries[name] = _make_entry(entries.get(name), name, row, providers, place)
    return Registry(entries, providers, tuple(warnings))


def _get_rows(
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
            raise UsageError(f"{source}: {name!r} in [{table}] is not a valid name")
    return list(rows.items())


def _make_provider(
    old: Provider | None, name: str, row: Mapping[str, Any], place: str
) -> Provider:
    values = read_row(row, PROVIDER_KEYS, place)
    new = replace(old or Provider(name=name), **values)
    if new.base_url is None and new.base_url_variable is None:
        raise UsageError(f"{place} has no address; give base_url or base_url_variable")
    return new


def _update_provider(entry: ModelEntry, provider: Provider) -> ModelEntry:
    own = [field for field in entry.unsupported if field not in entry.provider.unsupported]
    return replace(entry, provider=provider, unsupported=_union(provider.unsupported, own))


def _make_entry(
    old: ModelEntry | None,
    name: str,
    row: Mapping[str, Any],
    providers: Mapping[str, Provider],
    place: str,
) -> ModelEntry:
    values = read_row(row, MODEL_KEYS, place)
    if "provider" not in values:
        if old is None:
            raise UsageError(f"{place} has no provider; choose from: {', '.join(providers)}")
        provider, start = old.provider, old
    else:
        if values["provider"] not in providers:
            problem = unknown_name("provider", values["provider"], providers)
            raise UsageError(f"{place} {problem}")
        provider = providers[values.pop("provider")]
        start = ModelEntry(name=name, provider=provider, remote_name=name)
    own = values.pop("unsupported", start.unsupported)
    return replace(start, unsupported=_union(provider.unsupported, own), **values)


def _union(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
