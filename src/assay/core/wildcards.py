"""Shell wildcards that select paths."""

import re
from collections.abc import Iterable
from functools import cache


class Wildcards:
    """Shell patterns: `*`, `?` and `[…]` within a name, `**` for any folders.

    A pattern that matches a folder also matches its content. A name that begins with a dot is
    matched like any other.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(self, path: str) -> bool:
        """Return whether a pattern matches a path or a folder that contains it."""
        return any(_compile(pattern).match(path) for pattern in self.patterns)

    def idle(self, paths: Iterable[str]) -> list[str]:
        """Return the patterns that match none of the paths."""
        all_paths = list(paths)
        return [
            pattern
            for pattern in self.patterns
            if not any(_compile(pattern).match(path) for path in all_paths)
        ]


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    parts = [part for part in pattern.split("/") if part]
    *folders, name = parts or ["**"]
    prefix = "".join(
        "(?:[^/]+/)*" if part == "**" else f"{_translate_name(part)}/" for part in folders
    )
    last = ".+" if name == "**" else _translate_name(name)
    return re.compile(rf"{prefix}{last}(?:/.*)?\Z", re.DOTALL)


def _translate_name(part: str) -> str:
    """Return the regular expression for one name in a pattern."""
    expression, position = "", 0
    while position < len(part):
        end = part.find("]", position + 2) if part[position] == "[" else -1
        if end > 0:
            characters = part[position + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            characters = f"^{characters[1:]}" if characters[0] in "!^" else characters
            expression, position = f"{expression}(?!/)[{characters}]", end + 1
            continue
        expression += {"*": "[^/]*", "?": "[^/]"}.get(part[position], re.escape(part[position]))
        position += 1
    return expression
