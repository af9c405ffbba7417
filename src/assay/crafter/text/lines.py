"""What reading the full and the short form has in common: lines, and what they come to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from assay.errors import UsageError

from ..rules import ACHIEVEMENTS, ITEMS, NoEffect
from .observation import ACROSS, CENTER, DOWN, FAILURES, MapCell, Observation
from .words import why

__all__ = ["ACTION", "Lines", "assemble"]

ACTION: Final = f"({'|'.join(FAILURES)})(?: did nothing: (.+))?"
"""The last action and why it did nothing; in both forms it is on the second line."""
_ACTION_LINE, _ACHIEVED_LINE = 1, 2


class Lines:
    """Takes one line after the other; what does not fit is a UsageError that names it."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._next = 0

    def wrong(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise the error about a line counted from 0; without one, the last taken."""
        line = self._next - 1 if line is None else line
        found = repr(self._lines[line]) if line < len(self._lines) else "missing"
        raise UsageError(f"not an observation: line {line + 1} is {found}; {reason}")

    def maybe(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The next line, if it fits."""
        if self._next == len(self._lines):
            return None
        found = pattern.fullmatch(self._lines[self._next])
        if found:
            self._next += 1
        return found

    def take(self, pattern: re.Pattern[str], like: str) -> re.Match[str]:
        """The next line, which must fit."""
        return self.maybe(pattern) or self.wrong(f"expected one like {like!r}", self._next)

    def cells(
        self, known: Mapping[str, MapCell], player: tuple[str, MapCell], gap: str
    ) -> list[MapCell]:
        """The rows of the map: signs of known cells, and the player's in the middle."""
        cells: list[MapCell] = []
        for first in range(0, ACROSS * DOWN, ACROSS):
            line = self._lines[self._next] if self._next < len(self._lines) else ""
            signs = line.split(gap) if gap else [*line]
            self._next += 1
            if len(signs) != ACROSS:
                self.wrong(f"expected a row of {ACROSS} cells")
            for i, sign in enumerate(signs, first):
                cell = known.get(sign)
                if i == CENTER:
                    cell = player[1] if sign == player[0] else None
                if cell is None:
                    where = "the middle" if i == CENTER else "a cell"
                    self.wrong(f"{sign!r} cannot be {where} of the map")
                cells.append(cell)
        return cells

    def compare(self, text: str) -> None:
        """Raise the error about the first line that differs from a text."""
        other = text.split("\n")
        for i in range(max(len(self._lines), len(other))):
            if self._lines[i : i + 1] != other[i : i + 1]:
                said = repr(other[i]) if i < len(other) else "nothing"
                self.wrong(f"by the rest of the text it would be {said}", i)


def assemble(
    lines: Lines,
    *,
    head: Sequence[str],
    sleeping: bool,
    counts: Mapping[str, int],
    cells: Sequence[MapCell],
    last: re.Match[str] | None,
    achieved: Sequence[str],
) -> Observation:
    """The observation that the parts of a text come to; `head` is its step and daylight."""
    for name in achieved:
        if name not in ACHIEVEMENTS:
            lines.wrong(f"{name!r} is not an achievement", _ACHIEVED_LINE)
    action, reason = last.groups() if last else (None, None)
    told = Observation(
        step=int(head[0]),
        daylight=int(head[1]),
        sleeping=sleeping,
        inventory=tuple(counts.get(item, 0) for item in ITEMS),
        cells=tuple(cells),
        action=action,
        achieved=tuple(achieved),
    )
    return replace(told, no_effect=_no_effect(lines, told, reason)) if reason else told


def _no_effect(lines: Lines, told: Observation, reason: str) -> NoEffect:
    action = told.action or ""
    could_be = {why(told, action, no_effect): no_effect for no_effect in FAILURES[action]}
    if reason not in could_be:
        lines.wrong(f"expected {', '.join(map(repr, could_be)) or 'no reason'}", _ACTION_LINE)
    return could_be[reason]
