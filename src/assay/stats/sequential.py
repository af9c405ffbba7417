"""Looking at pairs as they come, and when to stop: designs, looks and decisions.

Intervals of all looks of a design hold together with its confidence, so that one may look
after each pair and stop at any of them. A decision, once made, stands: looking while data
comes and going through all of it afterwards give the same.

A confidence sequence for a mean: an interval after each value, all of them right at once.

Exact for normal data whose spread is not known, with no largest sample and no plan of looks.
The price is width: where the largest sample is known, `spending` gives narrower intervals.
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
from assay.stats.intervals import Interval, as_sample
from assay.stats.look_bounds import LARGEST_ALPHA, Spending, t_bounds
from assay.stats.shares import bonett_price
from assay.types import Verdict

EFFECT_VARIANCE: Final = 0.5
"""The variance of the mixture over effects, in squares of the standard deviation.

The sequence is narrowest for effects of about this size, and right for all.
"""


def anytime_bounds(
    counts: NDArray[np.int_] | Sequence[int],
    alpha: float = 0.05,
    effect_variance: float = EFFECT_VARIANCE,
) -> NDArray[np.float64]:
    """The bound of |t| after so many values; infinite where nothing can be said yet.

    With a normal mixture of variance g over the standardised effect and the right Haar measure
    over the scale, the mixed likelihood ratio of n values with the statistic t is

        (1 + n g)^(-1/2) [(1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1)(1 + n g)))]^(n / 2),

    a martingale for what does not depend on the scale, and it exceeds 1 / alpha at some n with
    a probability of at most alpha (Ville). Solved for t. Lai, "On confidence sequences", 1976;
    Wang & Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with
    unknown variance", 2023, whose normal mixture this is.
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
    # Before that even an infinite t says too little.
    enough = ratio < spread
    left = np.where(enough, 1 - ratio / spread, 1.0)
    return np.where(enough, np.sqrt((n - 1) * (ratio - 1) / left), math.inf)


FEWEST_PAIRS: Final = 5
"""How many pairs the first look has, unless a design says otherwise."""
_EACH: Final = 200
"""Up to so many pairs there is a look after each; then one per hundredth more."""
_MOST: Final = 10_000_000


class Boundary(StrEnum):
    """What the intervals of a design go by."""

    OBRIEN_FLEMING = "obrien-fleming"
    """Spends next to nothing early: almost the power of one look, and late to stop."""
    POCOCK = "pocock"
    """Spends evenly: stops earliest, and needs a larger effect at the last look."""
    ANYTIME = "anytime"
    """A confidence sequence: needs no largest number of pairs."""


class LookResult(NamedTuple):
    """What one look found."""

    pairs: int
    interval: Interval
    """Of the mean difference; its bounds are NaN where the look cannot say yet."""
    decision: Verdict | None
    """None: go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDesign:
    """How pairs are looked at; made before the first of them is seen."""

    kind: Boundary = Boundary.OBRIEN_FLEMING
    alpha: float = 0.05
    """The probability of a wrong decision, over all looks and all comparisons."""
    first: int = FEWEST_PAIRS
    """Pairs at the first look."""
    most: int | None = None
    """Pairs at the last look; only a confidence sequence goes without."""
    comparisons: int = 1
    """Candidates that are compared with the baseline; alpha is divided by it (Bonferroni)."""
    min_effect: float | None = None
    """The smallest difference that matters; without it, no look ends with no difference."""
    lower_is_better: bool = False
    shares: bool = False
    """Whether the values are 0 and 1, so that their differences are -1, 0 and 1."""

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
        """The design as JSON has it; `shares` only where it is true, as older ones lack it."""
        found = asdict(self) | {"kind": self.kind.value}
        return found if self.shares else {k: v for k, v in found.items() if k != "shares"}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "SequentialDesign":
        """The design that `stored` gave; what is not known here is left out."""
        names = {one.name for one in fields(cls)}
        try:
            return cls(**{name: value for name, value in stored.items() if name in names})
        except (TypeError, ValueError) as error:
            raise UsageError(f"{dict(stored)!r} is no design of looks: {error}") from error

    @property
    def level(self) -> float:
        """The confidence of the intervals of one comparison, over all its looks."""
        return 1 - self.alpha / self.comparisons

    def is_look(self, pairs: int) -> bool:
        """Whether there is a look after so many pairs."""
        return pairs in self.counts(pairs)[-1:]

    def counts(self, pairs: int) -> Sequence[int]:
        """After how many pairs there are looks, up to a number of pairs."""
        if self.most is None or self.kind is Boundary.ANYTIME:
            return range(self.first, min(pairs, self.most or pairs) + 1)
        planned = look_counts(self.first, self.most)
        return planned[: bisect_right(planned, pairs)]

    def bounds(self, counts: Sequence[int]) -> NDArray[np.float64]:
        """The bound of |t| after so many pairs; infinite where there is no look."""
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
        """The repeated confidence interval of the mean difference at this look.

        Jennison & Turnbull, "Interim analyses: the repeated confidence interval approach",
        1989. Where there is no look, or it cannot say anything yet, the bounds are NaN. So
        are they while all differences are equal and so few that a coin would have done the
        same at the level of this look; with more of them the error is that of one pair more
        without a difference, or at the smallest one that matters. Shares have the bounds of
        Bonett and Price, 2012, with the bound of this look as quantile and a pair's correction
        for continuity (see `share_equivalence`): a few equal outcomes are no proof.
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
            step = max(abs(mean), self.min_effect or 0.0)
            if not step or 2.0 ** (1 - n) > _level(bound, n - 1):
                return Interval(mean, math.nan, math.nan)
            half = bound * step / (n + 1)
        else:
            half = bound * float(sample.std(ddof=1)) / math.sqrt(n)
        return Interval(mean, mean - half, mean + half)


def decide(
    differences: Sequence[float] | NDArray[np.float64], design: SequentialDesign
) -> LookResult:
    """Look once, at all pairs there are; see `looks` for what earlier ones said.

    The interval is the repeated one of Jennison & Turnbull, 1989 (see
    `SequentialDesign.interval_at`). An interval within the smallest effect that matters is no
    difference, even beside zero.
    """
    interval = design.interval_at(differences)
    pairs = len(differences)
    if design.most is not None and pairs > design.most:
        raise UsageError(f"{pairs} pairs, and the design ends at {design.most}; leave out more")
    decision = _judged(interval, design)
    if decision is None and pairs == design.most:
        decision = Verdict.UNDECIDED
    return LookResult(pairs, interval, decision)


def looks(
    differences: Sequence[float] | NDArray[np.float64],
    design: SequentialDesign,
    *,
    ended: bool = False,
) -> tuple[LookResult, ...]:
    """Every look in order, up to the one that decided.

    Args:
        differences: Candidate minus baseline, in the order in which pairs are looked at.
        design: How they are looked at.
        ended: Whether no more pairs will come, though there are fewer than the most. The
            last look is then undecided, if nothing was decided; with too few pairs for a
            look it is one without an interval.
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
    """After how many pairs there is a look: each one at first, later each hundredth more."""
    counts = list(range(first, min(most, _EACH) + 1))
    while counts[-1] < most:
        counts.append(min(most, counts[-1] + counts[-1] // 100))
    return tuple(counts)


def _judged(interval: Interval, design: SequentialDesign) -> Verdict | None:
    if not interval.known:
        return None
    margin = design.min_effect
    if margin is not None and -margin < interval.low and interval.high < margin:
        return Verdict.NO_DIFFERENCE
    if interval.low <= 0 <= interval.high:
        return None
    return Verdict.BETTER if (interval.low > 0) != design.lower_is_better else Verdict.WORSE


def _level(bound: float, freedom: int) -> float:
    """The two-sided p-value of a t at its bound."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -bound))
