"""Configuration files: one with every setting commented out, and one with settings that count.

In the first a line that begins with `#` and a key is a setting at its default, or an example
where the default shows nothing; without the `#` it counts.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from assay._util.settings import Configuration, Setting, settings_of

__all__ = ["configuration_file", "template"]

_WIDTH = 96


def template(configuration: type[Configuration], head: str, tail: str = "") -> str:
    """The text of the file.

    Args:
        configuration: Whose settings it has, each in its first place.
        head: What stands before them, as lines of comment.
        tail: What stands after them, such as a table that as a whole is one setting.
    """
    tables: dict[str, list[str]] = {}
    for setting in settings_of(configuration).values():
        if not setting.places:
            continue  # nothing that a person would write
        table, key = setting.places[0]
        if not key:
            continue  # a whole table, which the tail shows
        lines = tables.setdefault(table, [f"[{table}]"])
        lines += wrap(_comment(setting), _WIDTH, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"#{key} = {_toml(_shown(setting))}")
    return "\n\n".join(filter(None, (head, *map("\n".join, tables.values()), tail))) + "\n"


def configuration_file(
    configuration: type[Configuration], values: Mapping[str, Any], head: str
) -> str:
    """The text of a file with settings that count.

    Args:
        configuration: Whose settings they are.
        values: By the names of the settings, each of which has a place in a file.
        head: What stands before them, as lines of comment.
    """
    tables: dict[str, list[str]] = {}
    for name, value in values.items():
        table, key = settings_of(configuration)[name].places[0]
        tables.setdefault(table, [f"[{table}]"]).append(f"{key} = {_toml(value)}")
    return "\n\n".join((head, *map("\n".join, tables.values()))) + "\n"


def _shown(setting: Setting) -> Any:
    if setting.example is not None:
        return setting.example
    return setting.takes.none[0] if setting.default is None else setting.default


def _comment(setting: Setting) -> str:
    takes = setting.given or setting.takes
    hint = takes.hint if setting.default is not None else f"{_toml(takes.none[0])} for none"
    if setting.variable is not None:
        hint = f"without it, the variable {setting.variable} counts"
    return f"{setting.text} ({hint})." if hint else f"{setting.text}."


def _toml(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value) if isinstance(value, Path) else value)
