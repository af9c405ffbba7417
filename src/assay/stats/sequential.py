"""Sequential tests: designs, interim analyses ("looks") at pairs as they arrive, decisions.

The intervals of all looks of a design have its confidence simultaneously, so one may look after
each pair and stop at any look. A decision is final: looking while data arrive and analysing all
of it afterwards give the same result.

`anytime_bounds` gives a confidence sequence for a mean: an interval after each value, all valid
simultaneously. It is exact for normal data of unknown variance and needs neither a largest
sample nor planned looks. Its intervals are wider: if the largest sample is known, the spending
functions of `assay.stats.look_bounds` give narrower ones.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.bounded import bounded_tost
from assay.stats.intervals import Interval, as_sample
from assay.stats.look_bounds import LARGEST_ALPHA, Spending, t_bounds
from assay.stats.shares import bonett_price
from assay.stats.significance import FEWEST_EQUIVALENT
from assay.types import Verdict

EFFECT_VARIANCE: Final = 0.5
"""Variance of the mixture over standardised effects.

The sequence is narrowest for effects of about this size, and valid for all.
"""


def anytime_bounds(
    counts: NDArray[np.int_] | Sequence[int],
    alpha: float = 0.05,
    effect_variance: float = EFFECT_VARIANCE,
) -> NDArray[np.float64]:
    """Return the bound of |t| after each number of values; infinite while there are too few.

    With a normal mixture of variance g over the standardised effect and the right Haar measure
    over the scale, the mixed likelihood ratio of n values with the statistic t is

        (1 + n g)^(-1/2) [(1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1)(1 + n g)))]^(n / 2),

    a martingale for scale-invariant statistics, and it exceeds 1 / alpha at some n with a
    probability of at most alpha (Ville). The bound is the solution for t. Lai, "On confidence
    sequences", 1976; Wang & Ramdas, "Anytime-valid t-tests and confidence sequences for
    Gaussian means with unknown variance", 2023, whose normal mixture this is.
    """
    if not 0 < alpha < 1:
        raise UsageError(f"alpha {alpha!r} is not between 0 and 1; 0.05 is usual")
    if not 0 < effect_variance < math.inf:
        raise UsageError(f"effect variance {effect_variance!r} is no number above 0")
    n = np.asarray(counts, np.float64)
    if not (n >= 2).all():
        raise UsageError("a spread needs 2 values or more; ask for counts from 2 on")
    spread = 1 + n * effect_variance
    ratio = np.exp((np.log(spread) - 2 * math.log(alpha)) / n)
    # With fewer values, even an infinite t does not exceed 1 / alpha.
    enough = ratio < spread
    left = np.where(enough, 1 - ratio / spread, 1.0)
    return np.where(enough, np.sqrt((n - 1) * (ratio - 1) / left), math.inf)


FEWEST_PAIRS: Final = 5
"""Default number of pairs at the first look."""
_EACH: Final = 200
"""Up to this many pairs there is a look after each, then in steps of 1 %."""
_MOST: Final = 10_000_000


class Boundary(StrEnum):
    """Type of the bounds of a design."""

    OBRIEN_FLEMING = "obrien-fleming"
    """Spends little error early: almost the power of a single look, and late to stop."""
    POCOCK = "pocock"
    """Spends error evenly: stops earliest, and needs a larger effect at the last look."""
    ANYTIME = "anytime"
    """Confidence sequence: needs no largest number of pairs."""


class LookResult(NamedTuple):
    """Result of one look."""

    pairs: int
    interval: Interval
    """Interval of the mean difference; the bounds are NaN if the look cannot decide yet."""
    decision: Verdict | None
    """Verdict; None means continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDesign:
    """Design of a sequential test of pairs; fixed before the first pair is observed."""

    kind: Boundary = Boundary.OBRIEN_FLEMING
    alpha: float = 0.05
    """Probability of a wrong decision, over all looks and all comparisons."""
    first: int = FEWEST_PAIRS
    """Pairs at the first look."""
    most: int | None = None
    """Pairs at the last look; optional for a confidence sequence only."""
    comparisons: int = 1
    """Candidates that are compared with the baseline; alpha is divided by it (Bonferroni)."""
    min_effect: float | None = None
    """Smallest difference that matters; without it no look ends with "no difference"."""
    lower_is_better: bool = False
    shares: bool = False
    """Whether the values are 0 and 1, so that their differences are -1, 0 and 1."""
    ends: tuple[float, float] | None = None
    """Lowest and highest possible value of a trial, if they are known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Boundary(self.kind))
        if not 0 < self.alpha <= LARGEST_ALPHA:
            raise UsageError(
                f"alpha {self.alpha!r} is not allowed; give a number above 0 and up to"
                f" {LARGEST_ALPHA:g}, 0.05 is usual"
            )
        if not 3 <= self.first <= _EACH:
            raise UsageError(f"a first look at {self.first} pairs; it needs 3 to {_EACH}")
        if self.most is None and self.kind is not Boundary.ANYTIME:
            raise UsageError(f"{self.kind} needs the largest number of pairs; 'anytime' not")
        if self.most is not None and not self.first <= self.most <= _MOST:
            raise UsageError(
                f"at most {self.most} pairs with a first look at {self.first}; "
                f"allow {self.first} to {_MOST}"
            )
        if self.comparisons < 1:
            raise UsageError(f"{self.comparisons} comparisons are none; give 1 or more")
        if self.min_effect is not None and not 0 < self.min_effect < math.inf:
            raise UsageError(f"min effect {self.min_effect!r} is no number above 0")

    def stored(self) -> dict[str, Any]:
        """Return the design for JSON, without what older designs lack and this has not set."""
        found = asdict(self) | {"kind": self.kind.value}
        unset = {"shares": False, "ends": None}
        return {k: v for k, v in found.items() if k not in unset or v != unset[k]}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "SequentialDesign":
        """Return the design from the output of `stored`; unknown fields are ignored."""
        names = {one.name for one in fields(cls)}
        try:
            return cls(**{name: value for name, value in stored.items() if name in names})
        except (TypeError, ValueError) as error:
            raise UsageError(f"{dict(stored)!r} is no design of looks: {error}") from error

    @property
    def level(self) -> float:
        """Confidence level of the intervals of one comparison, over all its looks."""
        return 1 - self.alpha / self.comparisons

    def is_look(self, pairs: int) -> bool:
        """Return whether there is a look after this number of pairs."""
        return pairs in self.counts(pairs)[-1:]

    def counts(self, pairs: int) -> Sequence[int]:
        """Return the numbers of pairs after which there are looks, up to a number of pairs."""
        if self.most is None or self.kind is Boundary.ANYTIME:
            return range(self.first, min(pairs, self.most or pairs) + 1)
        planned = look_counts(self.first, self.most)
        return planned[: bisect_right(planned, pairs)]

    def bounds(self, counts: Sequence[int]) -> NDArray[np.float64]:
        """Return the bound of |t| after each number of pairs; infinite without a look."""
        alpha = self.alpha / self.comparisons
        asked = np.asarray(counts, np.int_)
        found = np.full(asked.shape, math.inf)
        if self.kind is Boundary.ANYTIME or self.most is None:
            allowed = asked >= self.first
            found[allowed] = anytime_bounds(asked[allowed], alpha)
            return found
        planned = look_counts(self.first, self.most)
        known = t_bounds(Spending(self.kind.value), planned, alpha)
        at = np.searchsorted(planned, asked)
        is_look = (at < len(planned)) & (np.array(planned)[at % len(planned)] == asked)
        found[is_look] = known[at[is_look]]
        return found

    def interval_at(self, differences: Sequence[float] | NDArray[np.float64]) -> Interval:
        """Return the repeated confidence interval of the mean difference at this look.

        Jennison & Turnbull, "Interim analyses: the repeated confidence interval approach",
        1989. The bounds are NaN without a look, or if it cannot decide yet. If all n
        differences are equal, they are also NaN if n coin flips would agree more often than the
        level of this look allows. Otherwise the standard error is step / (n + 1), as if one
        more pair had deviated by the size of the mean difference. Proportions have the bounds
        of Bonett and Price, 2012, with the bound of this look as quantile and a continuity
        correction of one pair (see `share_equivalence`): a few equal outcomes are not proof.
        """
        sample = as_sample(differences, "differences")
        bound = float(self.bounds([len(sample)])[0])
        n, mean = len(sample), float(sample.mean())
        if math.isinf(bound):
            return Interval(mean, math.nan, math.nan)
        if self.shares:
            won, lost = int((sample > 0).sum()), int((sample < 0).sum())
            low, high = bonett_price(won, lost, n, bound, 1.0)
            return Interval(mean, min(mean, low), max(mean, high))
        if sample.min() == sample.max():
            mean = float(sample[0])
            step = abs(mean)
            if not step or 2.0 ** (1 - n) > _level(bound, n - 1):
                return Interval(mean, math.nan, math.nan)
            half = bound * step / (n + 1)
        else:
            half = bound * float(sample.std(ddof=1)) / math.sqrt(n)
        return Interval(mean, mean - half, mean + half)


def decide(
    differences: Sequence[float] | NDArray[np.float64], design: SequentialDesign
) -> LookResult:
    """Analyse all pairs in one look; `looks` also takes earlier looks into account.

    The interval is the repeated one of Jennison & Turnbull, 1989 (see
    `SequentialDesign.interval_at`). The verdict is NO_DIFFERENCE if the pairs show that the
    mean lies within the smallest effect that matters, even if the interval excludes zero: by
    the interval for proportions, by `bounded_tost` for values with a range, which holds at
    every look. Without a range the interval must lie within the margin, from 20 pairs on, and
    3 / n times the largest difference must, too (see `open_equivalence_test`).
    """
    interval = design.interval_at(differences)
    pairs = len(differences)
    if design.most is not None and pairs > design.most:
        raise UsageError(f"{pairs} pairs, and the design ends at {design.most}; leave out more")
    decision = _judged(interval, design)
    margin = design.min_effect
    if margin is not None and -margin < interval.low <= interval.high < margin:
        # A difference that may not matter is not reported before it is known not to.
        decision = decision if pairs == design.most else None
    if design.is_look(pairs) and _equivalent(np.asarray(differences), interval, design):
        decision = Verdict.NO_DIFFERENCE
    if decision is None and pairs == design.most:
        decision = Verdict.UNDECIDED
    return LookResult(pairs, interval, decision)


def looks(
    differences: Sequence[float] | NDArray[np.float64],
    design: SequentialDesign,
    *,
    ended: bool = False,
) -> tuple[LookResult, ...]:
    """Return every look in order, up to the one that decided.

    Args:
        differences: Candidate minus baseline, in the order in which pairs are analysed.
        design: Design of the sequential test.
        ended: Whether no more pairs will be added, even if there are fewer than `design.most`.
            If nothing was decided, the last look is then undecided; with too few pairs for a
            look it has no interval.
    """
    sample = np.asarray(differences, np.float64)
    last = len(sample) if design.most is None else min(len(sample), design.most)
    found: list[LookResult] = []
    for pairs in design.counts(len(sample)):
        found.append(decide(sample[:pairs], design))
        if found[-1].decision is not None:
            return tuple(found)
    if ended:
        point = float(sample[:last].mean()) if last else math.nan
        before = found.pop() if found else None
        interval = before.interval if before else Interval(point, math.nan, math.nan)
        found.append(LookResult(before.pairs if before else last, interval, Verdict.UNDECIDED))
    return tuple(found)


@lru_cache(maxsize=64)
def look_counts(first: int, most: int) -> tuple[int, ...]:
    """Return the numbers of pairs with a look: every one up to 200, then in steps of 1 %."""
    counts = list(range(first, min(most, _EACH) + 1))
    while counts[-1] < most:
        counts.append(min(most, counts[-1] + counts[-1] // 100))
    return tuple(counts)


def _judged(interval: Interval, design: SequentialDesign) -> Verdict | None:
    if not interval.known:
        return None
    if interval.low <= 0 <= interval.high:
        return None
    return Verdict.BETTER if (interval.low > 0) != design.lower_is_better else Verdict.WORSE


def _equivalent(
    differences: NDArray[np.float64], interval: Interval, design: SequentialDesign
) -> bool:
    """Return whether the pairs show that the difference is smaller than one that matters."""
    margin, n = design.min_effect, len(differences)
    if margin is None:
        return False
    within = interval.known and -margin < interval.low and interval.high < margin
    if design.shares:
        return within
    if design.ends is not None:
        most = design.ends[1] - design.ends[0]
        if np.abs(differences).max(initial=0) <= most:
            planned = design.most or max(n, _MOST)
            return bounded_tost(
                differences, -most, most, margin, design.level, planned=planned
            ).equivalent
    largest = float(np.abs(differences).max(initial=0))
    rare = -math.log(1 - design.level) * largest / n if n else math.inf
    return within and n >= FEWEST_EQUIVALENT and rare < margin


def _level(bound: float, freedom: int) -> float:
    """Return the two-sided p-value of a t at its bound."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -bound))
