"""What differs between two configurations, key by key. Opens nothing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from assay._util.canonical import canonical_json, content_hash
from assay._util.settings import written
from assay._util.text import printable
from assay.crafter.difficulty import DIFFICULTIES

__all__ = ["Change", "changes_between", "short_value"]

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was."""

    what: str
    """A key of the configuration, with dots between levels, or `model`."""
    before: str
    """In short, safe to print; a long text by its start, length and hash."""
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} -> {self.after}"


def changes_between(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    unlogged: Collection[str] = (),
    path: str = "",
) -> list[Change]:
    """What differs between two configurations, key by key, in the order of the keys.

    Keys that are `unlogged` are passed over.
    """
    found: list[Change] = []
    for key in dict.fromkeys((*before, *after)):
        if key in unlogged:
            continue
        old, new = before.get(key), after.get(key)
        label = f"{path}{key}"
        if label == "difficulty" and old != new:
            found.append(Change(label, *(_difficulty(value) for value in (old, new))))
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changes_between(old, new, path=f"{label}.")
        elif old != new:
            found.append(Change(printable(label), short_value(old), short_value(new)))
    return found


def _difficulty(value: Any) -> str:
    """The name of a difficulty, whose numbers are too many for a line."""
    names = (name for name, known in DIFFICULTIES.items() if value == written(known))
    return next(names, None) or short_value(value)


def short_value(value: Any) -> str:
    """A value in a few words."""
    text = value if isinstance(value, str) else canonical_json(value).decode()
    if value is None:
        return "none"
    if len(text) <= _LONGEST_VALUE:
        return printable(text) or "''"
    start = printable(text[: _LONGEST_VALUE // 2])
    return f"{start}… ({len(text):,} letters, {content_hash(canonical_json(text))[:6]})"
