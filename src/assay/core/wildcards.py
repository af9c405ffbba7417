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
        return any(_compiled(pattern).match(path) for pattern in self.patterns)

    def idle(self, paths: Iterable[str]) -> list[str]:
        """Return the patterns that match none of the paths."""
        known = list(paths)
        return [
            pattern
            for pattern in self.patterns
            if not any(_compiled(pattern).match(path) for path in known)
        ]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = [part for part in pattern.split("/") if part]
    *folders, name = parts or ["**"]
    before = "".join("(?:[^/]+/)*" if part == "**" else f"{_name(part)}/" for part in folders)
    last = ".+" if name == "**" else _name(name)
    return re.compile(rf"{before}{last}(?:/.*)?\Z", re.DOTALL)


def _name(part: str) -> str:
    """Return the regular expression for one name in a pattern."""
    out, at = "", 0
    while at < len(part):
        end = part.find("]", at + 2) if part[at] == "[" else -1
        if end > 0:
            inside = part[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            inside = f"^{inside[1:]}" if inside[0] in "!^" else inside
            out, at = f"{out}(?!/)[{inside}]", end + 1
            continue
        out += {"*": "[^/]*", "?": "[^/]"}.get(part[at], re.escape(part[at]))
        at += 1
    return out
