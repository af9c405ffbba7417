"""What the full and the short form share: words, reasons, and how lines are read back."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from assay.crafter.rules import ACHIEVEMENTS, COLLECT, ITEMS, MAKE, PLACE, WALKABLE, NoEffect
from assay.crafter.text.observation import (
    ACROSS,
    CENTER,
    DIRECTIONS,
    DOWN,
    FAILURES,
    STEPS,
    MapCell,
    Observation,
)
from assay.errors import UsageError

OFFSETS: Final = tuple(
    tuple(
        (abs(away), DIRECTIONS[2 * axis + (away > 0)])
        for axis, away in enumerate((i % ACROSS - ACROSS // 2, i // ACROSS - DOWN // 2))
        if away
    )
    for i in range(ACROSS * DOWN)
)
"""How each cell is reached from the player's: so many steps in one or two directions."""

_BY_DISTANCE: Final = tuple(
    sorted(
        (i for i in range(ACROSS * DOWN) if i != CENTER),
        key=lambda i: sum(steps for steps, _ in OFFSETS[i]),
    )
)
# Of cells equally far away, the one in front needs no turn.
_SEARCH: Final = {way: (CENTER + STEPS[way], *_BY_DISTANCE) for way in DIRECTIONS}


def nearest(observation: Observation) -> dict[str, int]:
    """The index of the nearest cell of each kind in view, nearest first."""
    found: dict[str, int] = {}
    cells = observation.cells
    for i in _SEARCH[observation.facing]:
        cell = cells[i]
        kind = cell.kind if cell.detail else cell.thing or cell.material
        if kind not in found:
            found[kind] = i
    return found


def join(names: Iterable[str], word: str = "and") -> str:
    """Names as a list in a sentence: `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def last_action(observation: Observation) -> str:
    """The last action and, where it changed nothing, why."""
    action, reason = observation.action, observation.no_effect
    if action is None or reason is None:
        return action or ""
    return f"{action} did nothing: {why(observation, action, reason)}"


def why(observation: Observation, action: str, reason: NoEffect) -> str:
    """Why an action had no effect, told after the step.

    Creatures have moved since then, so what is in front now is only blamed where no
    creature can have been the cause.
    """
    ahead = observation.ahead
    material = "the edge of the world" if ahead.material == "outside" else ahead.material
    name = action.partition("_")[2]
    match reason:
        case NoEffect.BLOCKED:
            open_ground = ahead.material in (*WALKABLE, "lava")
            return f"{'something' if open_ground else material} was in the way"
        case NoEffect.NOTHING_THERE:
            if ahead.thing or ahead.material in COLLECT:
                return "nothing there to collect, fight or eat"
            return f"{material} gives nothing"
        case NoEffect.NOT_RIPE:
            return "the plant was not ripe"
        case NoEffect.NEEDS_TOOL:
            rule = COLLECT.get(ahead.material)
            return f"{material} needs {(rule and rule.tool) or 'a tool'}"
        case NoEffect.NO_ROOM:
            return f"needs free {join(PLACE[name].where, 'or')} in front"
        case NoEffect.NEEDS_NEARBY:
            return _not_nearby(observation, MAKE[name].nearby)
        case NoEffect.NEEDS_ITEMS:
            recipe = PLACE[name] if action.startswith("place_") else MAKE[name]
            lacking = {
                item: n for item, n in recipe.uses.items() if observation.count(item) < n
            }
            return "; ".join(
                f"needs {n} {item}, you have {observation.count(item)}"
                for item, n in (lacking or recipe.uses).items()
            )
        case NoEffect.ASLEEP:
            return "you were asleep"


def _not_nearby(observation: Observation, needed: tuple[str, ...]) -> str:
    around = {cell.material for cell in observation.around}
    lacking = [name for name in needed if name not in around]
    if lacking:
        return f"no {join(lacking, 'and no')} within one cell"
    # As in the reference, nothing counts as near in the first column and row.
    return f"no {join(needed, 'or')} counts at the left and top edge of the world"


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
