"""A configuration file with every setting, commented out: as written it changes nothing.

A line that begins with `#` and a key is a setting at its default, or an example where the
default shows nothing; without the `#` it counts.
"""

import json
from pathlib import Path
from textwrap import wrap
from typing import Any

from assay._util.settings import Configuration, Setting, settings_of

__all__ = ["template"]

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
