"""Measure two sides in turns, and compute their ratio.

A side is a function of the number of the round that returns seconds, or bytes, or a
count, per unit of work. The sides of a topic take turns (A B C A B C …), so that whatever
else the machine does falls on all of them; a ratio pairs the two sides of one round. Every
side gets a turn that does not count before the first, unless each of its turns starts a
process anyway.
"""

import os
import statistics
import sys
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from .processes import PeerFailed

__all__ = ["QUICK", "WARMUP", "Agreement", "Row", "Side", "Topic", "measure", "size"]

Side = Callable[[int], float]

WARMUP: Final = -1
"""Number of the warm-up round, which is not counted."""
QUICK: Final = "ASSAY_PERF_QUICK" in os.environ
"""Whether rows are only tried out, with little work and in one round: `--quick`."""


def size(full: int, quick: int) -> int:
    """Return how much work a side does: all of it, or a little with `--quick`."""
    return quick if QUICK else full


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: two sides, and later their times."""

    name: str
    what: str
    ours: str
    """The key of our side in its topic."""
    peer: str
    """The key of the other side."""
    against: str
    """Description of the other side."""
    target: float | None = None
    """Minimum for the median ratio."""
    most: float | None = None
    """Maximum for the median ratio, if it is a cost."""
    cost: str | None = None
    """Set where the ratio says how many of these ours costs, not how much quicker it is."""
    peer_unit: str | None = None
    """What a value of the peer is for, where it is not what ours is for."""
    ours_values: tuple[float, ...] = ()
    """Per unit of work, a value per round."""
    peer_values: tuple[float, ...] = ()
    skipped: str | None = None
    """Reason why it was skipped."""
    problem: str | None = None
    """Reason why the measurement failed."""

    @property
    def ratios(self) -> list[float]:
        """How many times quicker or smaller we are, or our cost, a value per round."""
        pairs = zip(self.ours_values, self.peer_values, strict=True)
        return [ours / peer if self.cost else peer / ours for ours, peer in pairs]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one, or without values."""
        if not self.ours_values:
            return None
        if self.most is not None:
            return self.median <= self.most
        return None if self.target is None else self.median >= self.target


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Rows whose sides are measured together."""

    name: str
    unit: str
    """What a value is for: a step, a reset, …"""
    sides: Mapping[str, Side]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """How it was measured, for the lines below the table."""
    rounds_at_most: int | None = None
    """For what takes long, and has no target or hardly varies."""
    in_bytes: bool = False
    """Whether values are bytes, not seconds."""
    counted: str | None = None
    """What values count, where they are neither bytes nor seconds."""
    warmup: bool = True


def measure(
    topic: Topic,
    chosen: Sequence[Row],
    rounds: int,
    missing: Mapping[str, str],
    report: Callable[[str], None],
) -> list[Row]:
    """Measure rows of a topic.

    A side that raises is not measured again, and its rows say why; the others go on. With
    `--quick` our side is tried out even where its peer is missing.

    Args:
        topic: Whose rows.
        chosen: Which of them.
        rounds: How many turns each side has.
        missing: Sides to leave out, and why.
        report: Called with what is measured next.
    """
    if topic.rounds_at_most is not None:
        rounds = min(rounds, topic.rounds_at_most)
    problems: dict[str, str] = {}
    wanted = {
        side
        for row in chosen
        if QUICK or _find_missing_reason(row, missing) is None
        for side in _list_sides(row)
        if side not in missing
    }
    names = [name for name in topic.sides if name in wanted]
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(WARMUP if topic.warmup and not QUICK else 0, rounds):
        for name in names:
            if name in problems:
                continue
            place = "warming up" if turn == WARMUP else f"round {turn + 1} of {rounds}"
            report(f"{topic.name}: {place}, {name}")
            try:
                seconds = topic.sides[name](turn)
            except PeerFailed as error:
                problems[name] = str(error)
            except Exception as error:  # the rows before and after it are not lost
                traceback.print_exc(file=sys.stderr)
                problems[name] = f"{type(error).__name__}: {error}"
            else:
                if turn != WARMUP:
                    times[name].append(seconds)
    return [_fill_row(row, times, missing, problems) for row in chosen]


def _list_sides(row: Row) -> tuple[str, str]:
    return row.ours, row.peer


def _find_missing_reason(row: Row, reasons: Mapping[str, str]) -> str | None:
    return next((reasons[side] for side in _list_sides(row) if side in reasons), None)


def _fill_row(
    row: Row,
    times: Mapping[str, list[float]],
    missing: Mapping[str, str],
    problems: Mapping[str, str],
) -> Row:
    skipped, problem = _find_missing_reason(row, missing), _find_missing_reason(row, problems)
    if skipped is not None or problem is not None:
        return replace(row, skipped=skipped, problem=problem)
    ours, peer = tuple(times[row.ours]), tuple(times[row.peer])
    if 0 in (peer if row.cost else ours):
        return replace(row, problem="a ratio to 0: nothing was measured")
    return replace(row, ours_values=ours, peer_values=peer)


@dataclass(frozen=True)
class Agreement:
    """Checks that both sides give the same result, so that their times are comparable."""

    _seen: dict[Hashable, Any] = field(default_factory=dict)

    def check(self, key: Hashable, result: Any) -> None:
        """Compare with the earlier result under the same key."""
        before = self._seen.setdefault(key, result)
        if not np.array_equal(before, result):
            raise AssertionError(f"the sides differ at {key}: {before!r} and {result!r}")
