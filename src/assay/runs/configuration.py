"""Resolution of a configuration from options, a file, a stored run and the environment.

Each value is parsed where it is read, so that errors name its source. Every table and key of
a file must be known, and a file may not give one setting two values. Files in several layouts
are accepted, also mixed. Works for every `Configuration`.

This module also writes two kinds of configuration files: a template in which every setting is
commented out (removing the `#` activates it), and a file with given values.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Generic, NamedTuple, TypeVar

from assay.core.settings import Configuration, Counts, Setting, list_settings
from assay.core.text import unknown_name
from assay.core.values import file_text
from assay.errors import UsageError

COMMAND_LINE: Final = "command line"
"""Source name of values given as options."""

_PLACEHOLDER: Final = "your-api-key"
_POSITION: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

C = TypeVar("C", bound=Configuration)


class SourcedValue(NamedTuple):
    """A parsed value and its source."""

    value: Any
    source: str
    """Such as `assay.toml [experiment] episodes`."""


class Resolved(NamedTuple, Generic[C]):
    """A configuration and the sources of its values."""

    config: C
    sources: Mapping[str, str]
    """Source of each setting: `command line`, `default`, a place in a file, and so on."""
    warnings: tuple[str, ...]
    """Warnings for the user; none of them is an error."""


def resolve(
    configuration: type[C],
    overrides: Mapping[str, Any],
    file: Path | None = None,
    *,
    source: str = COMMAND_LINE,
    stored: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Resolved[C]:
    """Resolve all settings: given values override the file, and the file overrides defaults.

    Args:
        configuration: Class of the configuration.
        overrides: Values by setting name; None means not given.
        file: Configuration file, if any.
        source: Source of `overrides`. Error messages use option names only if it is the command
            line.
        stored: Configuration of a run to be resumed, as returned by `Configuration.stored`;
            replaces the defaults.
        environment: Environment variables; default: those of this process.
    """
    settings = list_settings(configuration)
    variables = os.environ if environment is None else environment
    values: dict[str, SourcedValue] = {}
    for name, setting in settings.items():
        stored_values = (
            (stored or {}).get(setting.section, {}) if setting.section else stored or {}
        )
        if setting.variable is None and name in stored_values:
            value = setting.read(stored_values[name], f"{name} of the run", is_stored=True)
            values[name] = SourcedValue(value, "the run")
        elif setting.variable and (text := variables.get(setting.variable)):
            origin = f"environment {setting.variable}"
            values[name] = SourcedValue(setting.read(text, setting.variable), origin)
    from_file = {} if file is None else _read_file(configuration, file)
    warnings = list(_check_secrets(settings, from_file))
    values |= from_file
    for name, value_given in overrides.items():
        if name not in settings:
            raise UsageError(unknown_name("setting", name, settings))
        if value_given is not None:
            label = settings[name].option if source == COMMAND_LINE else name
            values[name] = SourcedValue(settings[name].read(value_given, label), source)
    config = configuration.of({name: sourced.value for name, sourced in values.items()})
    sources = {name: values[name].source if name in values else "default" for name in settings}
    return Resolved(config, sources, (*warnings, *config.warnings()))


def list_differences(
    configuration: type[Configuration], old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[str]:
    """List the differences between two stored configurations that make them different runs.

    Lines look like `episodes: 10 -> 20`. The list is empty if there are none.
    """
    keys = [key for key, counts in configuration.counted().items() if counts >= Counts.RUN]
    before, after = (dict(_flatten(keys, stored)) for stored in (old, new))
    lines = []
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            texts = [_shorten(values.get(key)) for values in (before, after)]
            lines.append(
                f"{key}: " + ("changed" if len(set(texts)) == 1 else " -> ".join(texts))
            )
    return lines


def list_tables(configuration: type[Configuration]) -> Mapping[str, Mapping[str, Setting]]:
    """Return the tables of a configuration file, each with its settings by key.

    A table that is a single setting as a whole has it under the key "".
    """
    tables: dict[str, dict[str, Setting]] = {}
    for setting in list_settings(configuration).values():
        for table, key in setting.places:
            tables.setdefault(table, {})[key] = setting
    return tables


def _read_file(configuration: type[Configuration], path: Path) -> dict[str, SourcedValue]:
    values: dict[str, SourcedValue] = {}
    for setting, place, raw in _iterate_entries(configuration, path):
        new = SourcedValue(setting.read(raw, f"{path}: {place}"), f"{path} {place}")
        old = values.setdefault(setting.name, new)
        if old.value != new.value:
            raise UsageError(
                f"{path}: {old.source.removeprefix(f'{path} ')} and {place} set the same "
                "setting to different values; remove one of them"
            )
    tables = _read_document(path)
    for name, setting in list_settings(configuration).items():
        if setting.beside is not None and setting.beside[0] in tables and name not in values:
            table, raw = setting.beside
            place = f"[{table}]"
            values[name] = SourcedValue(setting.read(raw, place), f"{path} {place}")
    return values


def _iterate_entries(
    configuration: type[Configuration], path: Path
) -> Iterator[tuple[Setting, str, Any]]:
    tables = list_tables(configuration)
    for table, content in _read_document(path).items():
        keys = tables.get(table, {})
        is_table = isinstance(content, dict) or ("" in keys and isinstance(content, list))
        correct_tables = "" if is_table else _describe_tables(configuration, table)
        if correct_tables:
            raise UsageError(
                f"{path}: {table!r} is outside a table; write it below {correct_tables}"
            )
        if not keys:
            raise UsageError(f"{path}: {unknown_name('table', table, tables)}")
        if not is_table:
            raise UsageError(
                # It may be an API key, so the value is not repeated.
                f"{path}: {table} is not a table; "
                f"write it as a table: [{table}], and below it {', '.join(keys)}"
            )
        if "" in keys:
            # A heading with nothing below it is ignored.
            yield from [(keys[""], f"[{table}]", content)] if content else ()
            continue
        for key, raw in content.items():
            if key not in keys:
                message = unknown_name(f"key in [{table}]", key, keys)
                correct_tables = _describe_tables(configuration, key)
                hint = f"; {key!r} belongs below {correct_tables}" if correct_tables else ""
                raise UsageError(f"{path}: {message}{hint}")
            yield keys[key], f"[{table}] {key}", raw


def _read_document(path: Path) -> dict[str, Any]:
    if not os.path.exists(path):  # unlike Path.exists, this accepts any name
        raise UsageError(f"configuration file {str(path)!r} not found; 'assay init' writes one")
    text = file_text(path).removeprefix("\ufeff")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        reason = ": tables or lists are nested too deeply"
        raise UsageError(f"{path}{reason}; see https://toml.io") from error
    except ValueError as error:
        reason, position = str(error), _POSITION.search(str(error))
        location = ""
        if position is not None:
            reason = reason[: position.start()]
            location = f", line {position[1]}, column {position[2]}"
            location = location if position[1] else ", at its end"
        raise UsageError(
            f"{path}{location}: not valid TOML: {reason}; see https://toml.io"
        ) from error


def _describe_tables(configuration: type[Configuration], key: str) -> str:
    """Name the tables that contain a key, or the first place of the setting with that name."""
    tables = [table for table, keys in list_tables(configuration).items() if key in keys]
    if tables:
        return " or ".join(f"[{table}]" for table in tables)
    setting = list_settings(configuration).get(key)
    if setting is None:
        return ""
    table, key_in_table = setting.places[0]
    return f"[{table}] as {key_in_table!r}"


def _check_secrets(
    settings: Mapping[str, Setting], from_file: dict[str, SourcedValue]
) -> Iterator[str]:
    """Warn about secrets in a file, and drop placeholders."""
    for name, (secret, place) in list(from_file.items()):
        variable = settings[name].secret
        if variable is None or secret is None:
            continue
        if secret.reveal() == _PLACEHOLDER:
            del from_file[name]
            yield f"{place} is a placeholder, not a key; it is ignored"
        else:
            yield (
                f"{place} is a secret in a file that others may read; "
                f"remove it there and set the variable {variable}"
            )


def _flatten(keys: list[str], stored: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in keys:
        value = stored.get(key)
        if isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", leaf) for inner, leaf in value.items())
        else:
            yield key, value


def _shorten(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


_WIDTH = 96


def format_template(configuration: type[Configuration], head: str, tail: str = "") -> str:
    """Return the text of a configuration file in which every setting is commented out.

    Args:
        configuration: Class of the configuration; each setting is listed in its first place.
        head: Comment lines before the settings.
        tail: Text after the settings, such as a table that is a single setting as a whole.
    """
    tables: dict[str, list[str]] = {}
    for setting in list_settings(configuration).values():
        if not setting.places:
            continue  # cannot be set in a file
        table, key = setting.places[0]
        if not key:
            continue  # a whole table, which the tail shows
        lines = tables.setdefault(table, [f"[{table}]"])
        lines += wrap(
            _format_comment(setting), _WIDTH, initial_indent="# ", subsequent_indent="# "
        )
        lines.append(f"#{key} = {_format_toml(_choose_example(setting))}")
    return "\n\n".join(filter(None, (head, *map("\n".join, tables.values()), tail))) + "\n"


def format_configuration(
    configuration: type[Configuration], values: Mapping[str, Any], head: str
) -> str:
    """Return the text of a configuration file with the given values.

    Args:
        configuration: Class of the configuration.
        values: Values by setting name; each setting must have a place in a file.
        head: Comment lines before the settings.
    """
    tables: dict[str, list[str]] = {}
    for name, value in values.items():
        table, key = list_settings(configuration)[name].places[0]
        tables.setdefault(table, [f"[{table}]"]).append(f"{key} = {_format_toml(value)}")
    return "\n\n".join((head, *map("\n".join, tables.values()))) + "\n"


def _choose_example(setting: Setting) -> Any:
    if setting.example is not None:
        return setting.example
    return setting.takes.none[0] if setting.default is None else setting.default


def _format_comment(setting: Setting) -> str:
    accepted = setting.given or setting.takes
    hint = (
        accepted.hint
        if setting.default is not None
        else f"{_format_toml(accepted.none[0])} for none"
    )
    if setting.variable is not None:
        hint = f"default: environment variable {setting.variable}"
    return f"{setting.text} ({hint})." if hint else f"{setting.text}."


def _format_toml(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_format_toml, value))}]"
    return json.dumps(str(value) if isinstance(value, Path) else value)
