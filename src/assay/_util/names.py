"""Which of the known things a name means, and what to say if it means none or several."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from assay._util.text import printable
from assay.errors import AmbiguousName, UsageError

__all__ = ["Meaning", "choose", "natural_key", "unknown", "unknown_name"]

_SHOWN = 12
"""How many candidates a message about an unknown name gives at most."""
_AMBIGUOUS = 5
"""And one about an ambiguous name."""


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Say that there is no such `kind`, which name was perhaps meant, and which there are."""
    names = list(allowed)
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}; {hint}choose from: {', '.join(names)}"


def natural_key(name: str) -> tuple[tuple[str | tuple[int, str], ...], str]:
    """What names are sorted by so that they come as people count: run2 before run10."""
    parts = re.split(r"([0-9]+)", name)
    # Digits stand at every second place; their count comes first, as they may be any number.
    numbers = (digits.lstrip("0") for digits in parts[1::2])
    parts_and_numbers: list[str | tuple[int, str]] = [*parts]
    parts_and_numbers[1::2] = [(len(number), number) for number in numbers]
    return tuple(parts_and_numbers), name


class Meaning(NamedTuple):
    """What a name stands for."""

    kind: str
    """session, experiment or run."""
    id: str
    rank: int
    """How well it fits: 0 for a whole id, 1 for a whole name, more for a start."""


def choose(
    kind: str,
    name: str,
    candidates: Iterable[tuple[str, str]],
    starts: Callable[[str, str], bool] = lambda text, start: (
        bool(start) and text.startswith(start)
    ),
) -> Meaning | None:
    """The candidate that a name means; None if it means none of them.

    Args:
        kind: What the candidates are, for a message.
        name: An id, a name, or the start of one.
        candidates: Ids and names; the same twice where there is only an id.
        starts: Whether the first begins with the second, in whatever sense.

    Raises:
        AmbiguousName: It means several.
    """
    known = list(candidates)
    for rank, (part, fits) in enumerate(
        ((0, str.__eq__), (1, str.__eq__), (0, starts), (1, starts))
    ):
        near = dict(pair for pair in known if fits(pair[part], name))
        if len(near) == 1:
            return Meaning(kind, next(iter(near)), rank)
        if near:
            labels = [
                printable(label if label == key else f"{label} ({key})")
                for key, label in near.items()
            ]
            more = ", …" if len(labels) > _AMBIGUOUS else ""
            raise AmbiguousName(
                f"{kind} {name!r} is ambiguous: {', '.join(labels[:_AMBIGUOUS])}{more}; "
                "give more of it"
            )
    return None


def unknown(
    kind: str, name: str, names: Sequence[str], *, empty: str = "", see: str = ""
) -> UsageError:
    """The error of a name that means nothing: the near one, and some of those there are."""
    if not names:
        empty = empty or "the store is empty, start with 'assay run'"
        return UsageError(f"unknown {kind} {name!r}; {empty}")
    # What was perhaps meant is among those that are named, however many there are.
    first = dict.fromkeys([*get_close_matches(name.lower(), names, n=3), *names])
    said = unknown_name(kind, name, [printable(label) for label in [*first][:_SHOWN]])
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return UsageError(f"{said}{more}{see and f'; see {see!r}'}")
