"""Catalogue of outcomes: meaning, direction, unit and range of every built-in metric.

Verdicts, tables and figures read the properties of a metric here and keep no lists of names. A
metric that is not in the catalogue is user-defined: it is a proportion if all its values are 0
or 1, and its range is unknown otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.crafter.rules import ACHIEVEMENTS

UNLOCKED: Final = "unlocked/"
"""Prefix of the outcomes that record whether an episode unlocked an achievement."""


class Direction(StrEnum):
    """The direction in which values of an outcome are better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"
    """The outcome is only described: a verdict calls it higher or lower, not better or worse.
    """


class Unit(StrEnum):
    """The unit in which values of an outcome are shown."""

    NONE = ""
    DOLLARS = "$"
    SECONDS = "s"
    PERCENT = "%"
    """Values are fractions, shown as percentages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A numeric outcome of a trial, and how to interpret it."""

    name: str
    meaning: str = ""
    direction: Direction = Direction.HIGHER
    unit: Unit = Unit.NONE
    label: str = ""
    """Axis label with the unit; if empty, the name is used."""
    low: float = -math.inf
    """The lowest value that a trial can have."""
    high: float = math.inf
    whole: bool = False
    """Whether values are counts."""
    share: bool = False
    """Whether values are 1 (true) or 0 (false)."""
    is_cost: bool = False
    """Whether the outcome measures the resources a trial used, not its quality."""


def _fraction(name: str, meaning: str) -> Outcome:
    return Outcome(name=name, meaning=meaning, low=0, high=1)


def _count_used(name: str, meaning: str, direction: Direction = Direction.NEITHER) -> Outcome:
    return Outcome(
        name=name, meaning=meaning, direction=direction, low=0, whole=True, is_cost=True
    )


def _share(name: str, meaning: str = "") -> Outcome:
    return Outcome(name=name, meaning=meaning, low=0, high=1, share=True)


_OF_EPISODES = (
    Outcome(
        name="achievements",
        meaning="how many of the 22 achievements were unlocked",
        low=0,
        high=len(ACHIEVEMENTS),
        whole=True,
    ),
    Outcome(name="reward", meaning="the sum of all rewards"),
    _count_used("steps", "steps of the environment"),
    _count_used("turns", "decisions, each with no, one or several calls of a model"),
    Outcome(
        name="invalid_rate",
        meaning="actions that do not exist or had no effect, over actions asked for",
        direction=Direction.LOWER,
        unit=Unit.PERCENT,
        label="invalid rate (%)",
        low=0,
        high=1,
    ),
    _count_used("tokens", "prompt and completion tokens of all calls", Direction.LOWER),
    Outcome(
        name="cost_usd",
        meaning="what all calls cost; missing where a price is not known",
        direction=Direction.LOWER,
        unit=Unit.DOLLARS,
        label="cost (dollars)",
        low=0,
        is_cost=True,
    ),
    Outcome(
        name="duration_s",
        meaning="seconds played, without waiting for a turn",
        direction=Direction.LOWER,
        unit=Unit.SECONDS,
        label="duration (s)",
        low=0,
        is_cost=True,
    ),
    _fraction("achievement_rate", "achievements, as a share of the 22"),
    _fraction("efficiency_score", "achievement_rate times time_efficiency"),
    _fraction(
        "rule_understanding", "share of the actions asked for that exist and had an effect"
    ),
    _fraction("time_efficiency", "share of actions and malformed replies that was no waste"),
    _fraction("time_management", "share of the 22 that was unlocked, averaged over all steps"),
    *(
        _share(f"{UNLOCKED}{name}", f"1 if {name} was unlocked, else 0")
        for name in ACHIEVEMENTS
    ),
)

OUTCOMES: Final[Mapping[str, Outcome]] = MappingProxyType(
    {outcome.name: outcome for outcome in _OF_EPISODES}
)
"""Outcomes of an episode by public name.

Those that rate the play are computed in `assay.episodes.metrics`.
"""

_OTHERS: Final = {
    "success": _share("success", "1 if the trial succeeded, else 0"),
    "score": _fraction("score", "score of a coding task, or of a benchmark's trial"),
}

LOWER_IS_BETTER: Final = frozenset(
    outcome.name for outcome in _OF_EPISODES if outcome.direction is Direction.LOWER
)
"""Names of the outcomes where lower values are better."""


def outcome_of(metric: str) -> Outcome:
    """Return the outcome with this name; outcomes outside the catalogue have no range."""
    known = OUTCOMES.get(metric) or _OTHERS.get(metric)
    if known is None:
        known = _share(metric) if metric.startswith(UNLOCKED) else Outcome(name=metric)
    return known


class Scale(NamedTuple):
    """Possible values of one trial, given the observed ones."""

    low: float = -math.inf
    high: float = math.inf
    step: float = 0.0
    """Smallest difference between two unequal values; 0 if unknown."""
    share: bool = False
    """Whether values are 1 (true) or 0 (false)."""

    @property
    def known_ends(self) -> bool:
        """Whether the lowest and the highest possible value are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def scale_of(metric: str, values: Sequence[float] | NDArray[np.float64]) -> Scale:
    """Return the scale of a metric, given the values of trials."""
    found = np.asarray(values, np.float64)
    outcome = outcome_of(metric)
    if ((found == 0) | (found == 1)).all() and (outcome.share or metric not in OUTCOMES):
        return Scale(0.0, 1.0, 1.0, share=True)
    above, below = bool((found >= outcome.low).all()), bool((found <= outcome.high).all())
    if not outcome.whole:
        # A fraction outside its range is in another unit, so neither end applies.
        above = below = above and below
    return Scale(
        float(outcome.low) if above else -math.inf,
        float(outcome.high) if below else math.inf,
        float(outcome.whole and (found == np.rint(found)).all()),
    )
