"""Catalogue of outcomes: meaning, direction, unit and range of every built-in metric.

Verdicts, tables and figures read the properties of a metric here and keep no lists of names. A
metric that is not in the catalogue is user-defined. Its author declares its direction, range
and unit; without a direction it is called higher or lower, never better or worse. It is a
proportion if all its values are 0 or 1, and its range is unknown unless declared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.core.text import shown, unknown_name
from assay.crafter.rules import ACHIEVEMENTS
from assay.errors import UsageError

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

    @property
    def ends(self) -> tuple[float, float] | None:
        """The lowest and the highest value if both are known; None for proportions."""
        known = math.isfinite(self.low) and math.isfinite(self.high) and not self.share
        return (float(self.low), float(self.high)) if known else None


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
    "overview/reward": Outcome(name="overview/reward", meaning="mean reward per episode"),
}
_SUMMARIES: Final = ("auc", "final", "last_n", "slope")
"""Suffixes of summaries of a curve, which have the direction of its metric."""
_USUALLY_LOWER: Final = ("loss", "error", "cost", "latency", "regret", "perplexity")
"""Parts of names of metrics that are usually better if lower."""

LOWER_IS_BETTER: Final = frozenset(
    outcome.name for outcome in _OF_EPISODES if outcome.direction is Direction.LOWER
)
"""Names of the outcomes where lower values are better."""


def outcome_of(metric: str, declared: Mapping[str, Outcome] | None = None) -> Outcome:
    """Return the outcome with this name: declared, built-in, or without direction and range.

    The summary of a curve, such as `reward.auc`, has the direction of its metric.
    """
    known = (declared or {}).get(metric) or OUTCOMES.get(metric) or _OTHERS.get(metric)
    if known is not None:
        return known
    if metric.startswith(UNLOCKED):
        return _share(metric)
    base, _, summary = metric.rpartition(".")
    direction = Direction.NEITHER
    if summary in _SUMMARIES and base:
        direction = outcome_of(base, declared).direction
    return Outcome(name=metric, direction=direction)


_PROPERTIES: Final = ("better", "low", "high", "unit")


def parse_outcome(metric: str, stated: Any, where: str = "") -> Outcome:
    """Return a declared outcome, from `"lower"` or an object with `better` and the range.

    Raises:
        UsageError: A key or a value is not allowed.
    """
    stated = {"better": stated} if isinstance(stated, str) else stated
    about = f"{where}metric {shown(metric)}"
    if not isinstance(stated, Mapping):
        raise UsageError(f"{about} is declared as {shown(stated)}; give higher or lower")
    for key in stated:
        if key not in _PROPERTIES:
            raise UsageError(f"{about}: {unknown_name('property', str(key), _PROPERTIES)}")
    better, unit = stated.get("better") or Direction.NEITHER, stated.get("unit") or ""
    if better not in [*Direction]:
        raise UsageError(f"{about}: better is {shown(better)}; give higher, lower or neither")
    if unit not in [*Unit]:
        raise UsageError(f"{about}: unit is {shown(unit)}; give $, s or %, or leave it out")
    ends = [stated.get("low"), stated.get("high")]
    for end in ends:
        if end is not None and (isinstance(end, bool) or not isinstance(end, int | float)):
            raise UsageError(f"{about}: its range has {shown(end)}; give numbers")
    low = -math.inf if ends[0] is None else float(ends[0])
    high = math.inf if ends[1] is None else float(ends[1])
    if not low < high:
        raise UsageError(f"{about}: low {low:g} is not below high {high:g}")
    return Outcome(
        name=metric, direction=Direction(better), unit=Unit(unit), low=low, high=high
    )


def written_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the declared properties of an outcome for a file; `parse_outcome` reads them."""
    ends = {"low": outcome.low, "high": outcome.high}
    return {
        "better": outcome.direction.value,
        **{name: end for name, end in ends.items() if math.isfinite(end)},
        **({"unit": outcome.unit.value} if outcome.unit else {}),
    }


def merge_declared(
    declared: Iterable[Mapping[str, Outcome]],
    higher: Iterable[str] = (),
    lower: Iterable[str] = (),
) -> dict[str, Outcome]:
    """Merge the outcomes that several subjects declare; the named directions take precedence.

    Raises:
        UsageError: A metric is named as both, or two subjects declare opposite directions.
    """
    named = {**dict.fromkeys(higher, Direction.HIGHER), **dict.fromkeys(lower, Direction.LOWER)}
    if both := sorted({*higher} & {*lower}):
        raise UsageError(f"{both[0]!r} is named as higher and as lower is better; name it once")
    merged: dict[str, Outcome] = {}
    for own in declared:
        for name, outcome in own.items():
            before = merged.setdefault(name, outcome)
            if name not in named and {before.direction, outcome.direction} == _OPPOSITE:
                raise UsageError(
                    f"{name!r} is declared higher for one and lower for another; say which with"
                    f" --higher-is-better {name} or --lower-is-better {name}"
                )
            if before.direction is Direction.NEITHER:
                merged[name] = outcome
    for name, direction in named.items():
        merged[name] = replace(outcome_of(name, merged), direction=direction)
    return merged


_OPPOSITE = {Direction.HIGHER, Direction.LOWER}


def direction_advice(metric: str) -> str:
    """Return how to declare the direction of a metric."""
    if any(word in metric.lower() for word in _USUALLY_LOWER):
        return (
            f"lower {metric} is usually better: add --lower-is-better {metric}, or"
            f" --higher-is-better {metric}"
        )
    return f"add --higher-is-better {metric} or --lower-is-better {metric}"


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


def scale_of(metric: str | Outcome, values: Sequence[float] | NDArray[np.float64]) -> Scale:
    """Return the scale of a metric, given the values of trials."""
    found = np.asarray(values, np.float64)
    outcome = outcome_of(metric) if isinstance(metric, str) else metric
    may_be_share = outcome.name not in OUTCOMES and outcome.high in (1, math.inf)
    if ((found == 0) | (found == 1)).all() and (outcome.share or may_be_share):
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
