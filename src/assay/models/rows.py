"""Reads the rows of the registry: those that come with assay, then those of the user.

Both are TOML and read by the same rules. Every key must be known and every value in order.
A row of the user that names its provider stands for itself; one that does not changes keys
of the row with the same name. What is here asks no provider anything.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

from assay._util.names import unknown_name
from assay.errors import UsageError

from .registry import ModelEntry, Provider, Registry
from .row_values import MODEL_KEYS, PROVIDER_KEYS, is_name, read_row

__all__ = ["USER_ROWS_VARIABLE", "load_registry", "user_rows"]

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
