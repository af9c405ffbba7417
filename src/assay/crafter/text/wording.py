"""Wording and parsing shared by the full and the short form."""

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
"""Steps and directions from the player to each cell, along one or two axes."""

_BY_DISTANCE: Final = tuple(
    sorted(
        (i for i in range(ACROSS * DOWN) if i != CENTER),
        key=lambda i: sum(steps for steps, _ in OFFSETS[i]),
    )
)
# Among cells at the same distance, the one in front comes first: it needs no turn.
_SEARCH: Final = {way: (CENTER + STEPS[way], *_BY_DISTANCE) for way in DIRECTIONS}


def nearest(observation: Observation) -> dict[str, int]:
    """Return the index of the nearest visible cell of each kind, nearest first."""
    found: dict[str, int] = {}
    cells = observation.cells
    for i in _SEARCH[observation.facing]:
        cell = cells[i]
        kind = cell.kind if cell.detail else cell.thing or cell.material
        if kind not in found:
            found[kind] = i
    return found


def join(names: Iterable[str], word: str = "and") -> str:
    """Join names for a sentence: `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def last_action(observation: Observation) -> str:
    """Return the last action, with the reason if it changed nothing."""
    action, reason = observation.action, observation.no_effect
    if action is None or reason is None:
        return action or ""
    return f"{action} did nothing: {explain(observation, action, reason)}"


def explain(observation: Observation, action: str, reason: NoEffect) -> str:
    """Describe why an action had no effect, after the step.

    Creatures have moved since then, so the current content of the cell in front is given as the
    reason only if a creature cannot have been the cause.
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
            return _describe_missing_nearby(observation, MAKE[name].nearby)
        case NoEffect.NEEDS_ITEMS:
            recipe = PLACE[name] if action.startswith("place_") else MAKE[name]
            return _describe_missing_items(observation, recipe.uses)
        case NoEffect.ASLEEP:
            return "you were asleep"


def _describe_missing_items(observation: Observation, uses: Mapping[str, int]) -> str:
    lacking = {item: n for item, n in uses.items() if observation.count(item) < n}
    return "; ".join(
        f"needs {n} {item}, you have {observation.count(item)}"
        for item, n in (lacking or uses).items()
    )


def _describe_missing_nearby(observation: Observation, needed: tuple[str, ...]) -> str:
    around = {cell.material for cell in observation.around}
    lacking = [name for name in needed if name not in around]
    if lacking:
        return f"no {join(lacking, 'and no')} within one cell"
    # As in the reference, nothing is near in the first column and row.
    return f"no {join(needed, 'or')} counts at the left and top edge of the world"


ACTION: Final = f"({'|'.join(FAILURES)})(?: did nothing: (.+))?"
"""The last action and why it did nothing; on the second line in both forms."""
_ACTION_LINE, _ACHIEVED_LINE = 1, 2


class Lines:
    """Reads a text line by line; raises UsageError with the line that does not match."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._next = 0

    def fail(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise UsageError for a line counted from 0, by default the last one read."""
        line = self._next - 1 if line is None else line
        found = repr(self._lines[line]) if line < len(self._lines) else "missing"
        raise UsageError(f"not an observation: line {line + 1} is {found}; {reason}")

    def match_next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read the next line if it matches, else return None."""
        if self._next == len(self._lines):
            return None
        found = pattern.fullmatch(self._lines[self._next])
        if found:
            self._next += 1
        return found

    def expect(self, pattern: re.Pattern[str], like: str) -> re.Match[str]:
        """Read the next line, which must match."""
        return self.match_next(pattern) or self.fail(f"expected one like {like!r}", self._next)

    def read_cells(
        self, known: Mapping[str, MapCell], player: tuple[str, MapCell], gap: str
    ) -> list[MapCell]:
        """Read the rows of the map: symbols of known cells, with the player in the middle."""
        cells: list[MapCell] = []
        for first in range(0, ACROSS * DOWN, ACROSS):
            line = self._lines[self._next] if self._next < len(self._lines) else ""
            symbols = line.split(gap) if gap else [*line]
            self._next += 1
            if len(symbols) != ACROSS:
                self.fail(f"expected a row of {ACROSS} cells")
            for i, symbol in enumerate(symbols, first):
                cell = known.get(symbol)
                if i == CENTER:
                    cell = player[1] if symbol == player[0] else None
                if cell is None:
                    where = "the middle" if i == CENTER else "a cell"
                    self.fail(f"{symbol!r} cannot be {where} of the map")
                cells.append(cell)
        return cells

    def compare(self, text: str) -> None:
        """Raise UsageError for the first of these lines that differs from `text`."""
        other = text.split("\n")
        for i in range(max(len(self._lines), len(other))):
            if self._lines[i : i + 1] != other[i : i + 1]:
                expected = repr(other[i]) if i < len(other) else "nothing"
                self.fail(f"by the rest of the text it would be {expected}", i)


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
    """Build the observation from the parts of a text; `head` has its step and daylight."""
    for name in achieved:
        if name not in ACHIEVEMENTS:
            lines.fail(f"{name!r} is not an achievement", _ACHIEVED_LINE)
    action, reason = last.groups() if last else (None, None)
    parsed = Observation(
        step=int(head[0]),
        daylight=int(head[1]),
        sleeping=sleeping,
        inventory=tuple(counts.get(item, 0) for item in ITEMS),
        cells=tuple(cells),
        action=action,
        achieved=tuple(achieved),
    )
    return replace(parsed, no_effect=_parse_reason(lines, parsed, reason)) if reason else parsed


def _parse_reason(lines: Lines, parsed: Observation, reason: str) -> NoEffect:
    action = parsed.action or ""
    by_text = {explain(parsed, action, no_effect): no_effect for no_effect in FAILURES[action]}
    if reason not in by_text:
        lines.fail(f"expected {', '.join(map(repr, by_text)) or 'no reason'}", _ACTION_LINE)
    return by_text[reason]
