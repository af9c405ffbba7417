"""Reads a configuration file: which settings it gives, and where each of them stands.

Files of several layouts are read, even mixed. Every table and key must be known, and one
setting may not be given two values. What is here knows of no command line and no defaults.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay._util.names import unknown_name
from assay.errors import UsageError
from assay.rollouts.kinds import file_text
from assay.rollouts.settings import DIFFICULTY_TABLE, SETTINGS, TABLES, Setting

__all__ = ["Given", "read_config_file"]

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Given:
    """A value for a setting, and who gave it."""

    value: Any
    """In the type used inside."""
    source: str
    """Such as `assay.toml [experiment] episodes`."""


def read_config_file(path: Path) -> dict[str, Given]:
    """What a file gives, by the names of the settings; UsageError if it is not in order."""
    document = _document(path)
    given: dict[str, Given] = {}
    for setting, where, raw in _entries(path, document):
        found = Given(setting.read(raw, f"{path}: {where}"), f"{path} {where}")
        before = given.setdefault(setting.name, found)
        if before.value != found.value:
            raise UsageError(
                f"{path}: {before.source.removeprefix(f'{path} ')} and {where} set the same "
                "thing to different values; remove one of them"
            )
    return given


def _document(path: Path) -> dict[str, Any]:
    if not os.path.exists(path):  # unlike Path.exists, it takes any name
        raise UsageError(
            f"there is no configuration file {str(path)!r}; 'assay init' writes one"
        )
    text = file_text(path).removeprefix("\ufeff")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}{_reason(error)}; see https://toml.io") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return ": tables or lists are nested too deeply"
    message = str(error)
    place = _PLACE.search(message)
    if place is None:
        return f": not valid TOML: {message}"
    reason = message[: place.start()]
    if place[1] is None:
        return f", at its end: not valid TOML: {reason}"
    return f", line {place[1]}, column {place[2]}: not valid TOML: {reason}"


def _entries(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[Setting, str, Any]]:
    for table, content in document.items():
        if table == DIFFICULTY_TABLE and isinstance(content, dict):
            # A heading with nothing below it says nothing.
            if content:
                yield SETTINGS["difficulty"], f"[{table}]", content
        elif table not in TABLES:
            raise UsageError(f"{path}: {_unknown_table(table, content)}")
        elif not isinstance(content, dict):
            raise UsageError(
                f"{path}: {table} = {content!r} is not allowed; "
                f"write it as a table: [{table}], and below it {', '.join(TABLES[table])}"
            )
        else:
            for key, raw in content.items():
                if key not in TABLES[table]:
                    raise UsageError(f"{path}: {_unknown_key(table, key)}")
                yield TABLES[table][key], f"[{table}] {key}", raw


def _unknown_table(name: str, content: object) -> str:
    if not isinstance(content, dict):
        homes = _homes(name)
        if homes:
            return f"{name!r} stands outside a table; write it below {homes}"
    return unknown_name("table", name, [*TABLES, DIFFICULTY_TABLE])


def _unknown_key(table: str, key: str) -> str:
    message = unknown_name(f"key in [{table}]", key, TABLES[table])
    homes = _homes(key)
    return f"{message}; {key!r} belongs below {homes}" if homes else message


def _homes(key: str) -> str:
    """The tables that have a key, or in which the setting of that name has its first place."""
    tables = [table for table, keys in TABLES.items() if key in keys]
    if tables:
        return " or ".join(f"[{table}]" for table in tables)
    if key in SETTINGS:
        table, home = SETTINGS[key].places[0].split(".")
        return f"[{table}] as {home!r}"
    return ""
