"""Bounds and alphas of interim analyses ("looks") at accumulating data.

A test that is repeated as data accumulate keeps its type I error if every look has its own
bound. Bounds are two-sided and symmetric. A spending function defines how much of the type I
error may be spent up to each look, given the fraction of the largest sample seen so far.

`z_bounds` are for a statistic of known variance. `t_bounds` are for Student's t and exact for
normal data. Let W be the sum of n values over the square root of their sum of squares, which is
a function of t. Without an effect, the sum of squares is independent of the past of W, so

    W' = W cos(f) + sin(f),   tan(f) = T / sqrt(n),   T is Student's t with n degrees,

and a one-dimensional density is enough to go from look to look: Jennison & Turnbull, "Exact
calculations for sequential t, chi-square and F tests", Biometrika 1991. The usual method
converts the bounds of z to bounds of t with equal p-values. At small n it spends more error
than it states, because successive t are less correlated than successive z.

`planned_alphas`, `next_alpha` and `error_of_looks` express the bounds as two-sided alphas of
single t tests: the interval of level 1 - alpha at each look is the repeated confidence interval
of Jennison & Turnbull, "Interim analyses: the repeated confidence interval approach", 1989.
They are exact for normal differences up to `EXACT_TO` pairs. If the exact computation is not
possible, the alphas of all looks are added, which never underestimates the error.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.intervals import t_quantile

_LEAST_SPENT = 1e-11
"""A look that may spend less than this has no bound; the error is left for later looks."""
_WIDEST = 8.5
"""Densities are cut off beyond this many standard deviations: 2e-17 of the probability."""
_NODES_PER_SD = 1.6
_FEWEST_NODES = 60


class Spending(StrEnum):
    """Spending function: how the type I error is distributed over the looks."""

    OBRIEN_FLEMING = "obrien-fleming"
    """Little error at first: early bounds are wide, the last is almost as for one look."""
    POCOCK = "pocock"
    """Nearly constant rate: it stops earlier, with a wider bound at the end."""


def cumulative_spending(
    kind: Spending, shares: NDArray[np.float64] | Sequence[float], alpha: float = 0.05
) -> NDArray[np.float64]:
    """Return the two-sided error that may be spent up to each of these fractions of the data.

    Half of it on each side. Lan & DeMets, "Discrete sequential boundaries for clinical trials",
    Biometrika 1983: for one side at level a, 2 - 2 Phi(z(a/2) / sqrt(share)) is of the
    O'Brien-Fleming type and a ln(1 + (e - 1) share) of the Pocock type, where share is the
    fraction of the data.
    """
    from scipy.special import ndtr, ndtri

    seen = np.asarray(shares, np.float64)
    _check(seen, alpha)
    if kind is Spending.POCOCK:
        return alpha * np.log1p((math.e - 1) * seen)
    return np.asarray(4 * ndtr(ndtri(alpha / 4) / np.sqrt(seen)))


def z_bounds(
    kind: Spending, shares: Sequence[float], alpha: float = 0.05
) -> NDArray[np.float64]:
    """Return the bound of |z| at each look; infinite while a look may not spend any error.

    By numerical integration from look to look: Armitage, McPherson & Rowe, "Repeated
    significance tests on accumulating data", 1969; Jennison & Turnbull, "Group Sequential
    Methods", 1999, chapter 19, with Gauss-Legendre nodes in place of Simpson's.
    """
    targets = cumulative_spending(kind, shares, alpha)
    return _z_bounds(tuple(map(float, shares)), tuple(map(float, targets)))


@lru_cache(maxsize=64)
def _z_bounds(shares: tuple[float, ...], targets: tuple[float, ...]) -> NDArray[np.float64]:
    walk = BrownianWalk()
    bounds = np.full(len(shares), math.inf)
    spent = 0.0
    for look, (share, target) in enumerate(zip(shares, targets, strict=True)):
        may_spend = target - spent
        if may_spend > _LEAST_SPENT:
            bounds[look] = walk.find(share, may_spend)
        spent += walk.step(share, bounds[look])
    bounds.flags.writeable = False
    return bounds


class BrownianWalk:
    """Brownian motion observed at the looks, restricted to paths that crossed no bound."""

    def __init__(
        self,
        share: float = 0.0,
        places: NDArray[np.float64] | None = None,
        masses: NDArray[np.float64] | None = None,
    ) -> None:
        """Start at 0, or at a later fraction of the data with masses at z * sqrt(share)."""
        self._time = share
        self._places = np.zeros(1) if places is None else places
        self._masses = np.ones(1) if masses is None else masses

    def step(self, share: float, bound: float) -> float:
        """Advance to a fraction of the data; return the probability of a first crossing."""
        sd = math.sqrt(share - self._time)
        passed = self._beyond(bound * math.sqrt(share), sd)
        edge = min(bound, _WIDEST) * math.sqrt(share)
        count = _FEWEST_NODES * math.ceil(_NODES_PER_SD * 2 * edge / sd / _FEWEST_NODES)
        nodes, weights = gauss_legendre(count)
        places = edge * nodes
        steps = (places[:, None] - self._places) / sd
        density = np.exp(-0.5 * steps**2) @ self._masses / (sd * math.sqrt(2 * math.pi))
        self._time, self._places, self._masses = share, places, density * edge * weights
        return passed

    def find(self, share: float, probability: float) -> float:
        """Return the bound of |z| that has this probability of a first crossing."""
        sd, root = math.sqrt(share - self._time), math.sqrt(share)
        from scipy.optimize import brentq

        def excess(z: float) -> float:
            return self._beyond(z * root, sd) - probability

        return 12.0 if excess(12.0) > 0 else float(brentq(excess, 0.0, 12.0, xtol=1e-9))

    def _beyond(self, edge: float, sd: float) -> float:
        from scipy.special import ndtr

        tails = ndtr((self._places - edge) / sd) + ndtr((-edge - self._places) / sd)
        return float(tails @ self._masses)


@lru_cache(maxsize=64)
def gauss_legendre(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights of the Gauss-Legendre rule on (-1, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return nodes, weights


def _check(shares: NDArray[np.float64], alpha: float) -> None:
    if not 0 < alpha < 1:
        raise UsageError(f"alpha {alpha!r} is not between 0 and 1; 0.05 is usual")
    rising = shares.size > 0 and np.all(np.diff(shares, prepend=0.0) > 0)
    if not (rising and shares[-1] <= 1):
        some = shares[:5].tolist()
        raise UsageError(
            f"shares of the data that begin with {some} are not allowed; give numbers above 0"
            " and up to 1, each larger than the one before"
        )


EXACT_TO: Final = 200
"""Bounds are exact up to this many values; beyond, W is treated as a z of equal p-value."""

LARGEST_ALPHA: Final = 0.3
"""With a larger alpha, a bound could be below |W| = 1, where the integrals change."""

_LEAST_CROSSING: Final = 1e-10
_LOST: Final = 1e-14
"""Probability that may be cut off at the edge of a density."""
_TERMS: Final = 64
_ANGLES: Final = 48
_TAIL_NODES: Final = 48


@lru_cache(maxsize=128)
def t_bounds(
    kind: Spending, counts: tuple[int, ...], alpha: float = 0.05
) -> NDArray[np.float64]:
    """Return the bound of |t| at each look; infinite while a look may not spend any error.

    Exact up to `EXACT_TO` values, by the distribution of Jennison & Turnbull, 1991.

    Args:
        kind: Spending function, evaluated at the fraction n / counts[-1] after n values.
        counts: Number of values at each look; the first is 3 to `EXACT_TO`.
        alpha: Two-sided type I error of all looks together.
    """
    if not 0 < alpha <= LARGEST_ALPHA:
        raise UsageError(f"alpha {alpha!r} is not allowed; up to {LARGEST_ALPHA:g} is")
    if not (counts and 3 <= counts[0] <= EXACT_TO):
        raise UsageError(
            f"looks after {counts[:3]} … values are not allowed: begin with a look after 3 to"
            f" {EXACT_TO} values"
        )
    exact = [count for count in counts if count <= EXACT_TO]
    targets = cumulative_spending(kind, np.array(counts) / counts[-1], alpha)
    bounds = np.full(len(counts), math.inf)
    walk, spent = _Walk(counts[0]), 0.0
    for look, count in enumerate(exact):
        walk.advance(count)
        edge = (
            walk.find(targets[look] - spent)
            if targets[look] - spent > _LEAST_CROSSING
            else math.inf
        )
        spent += walk.passed(edge)
        walk.stop_at(edge)
        bounds[look] = _bound(edge, count)
    if len(counts) > len(exact):
        bounds[len(exact) :] = _later(walk, counts, targets, spent)
    bounds.flags.writeable = False
    return bounds


def t_error(looks: Sequence[tuple[int, float]]) -> float:
    """Return the probability that |t| crosses its bound at any of the looks, without an effect.

    Args:
        looks: Number of values and bound of each look; 3 to `EXACT_TO` values, increasing.
    """
    return _walked(tuple(looks))[1]


def next_t_bound(looks: Sequence[tuple[int, float]], count: int, spend: float) -> float:
    """Return the bound of |t| at one more look, for a given probability of a first crossing.

    Args:
        looks: Earlier looks, as for `t_error`; may be empty.
        count: Number of values at this look; 3 to `EXACT_TO`, more than before.
        spend: Probability of crossing first at this look, two-sided.
    """
    walk, _ = _walked((*looks, (count, math.inf)))
    return _bound(walk.find(spend), count)


def _walked(looks: tuple[tuple[int, float], ...]) -> "tuple[_Walk, float]":
    """Return the walk at the last look, and the probability of a crossing up to then."""
    counts = [count for count, _ in looks]
    if counts[0] < 3 or counts[-1] > EXACT_TO or counts != sorted(set(counts)):
        raise UsageError(
            f"looks after {counts} values cannot be followed; give numbers from 3 to"
            f" {EXACT_TO}, each larger than the one before"
        )
    walk, spent = _Walk(counts[0]), 0.0
    for count, bound in looks:
        walk.advance(count)
        edge = math.inf
        if bound < math.inf:
            edge = bound * math.sqrt(count / (bound * bound + count - 1))
        spent += walk.passed(edge)
        walk.stop_at(edge)
    return walk, spent


def _bound(edge: float, count: int) -> float:
    """Convert W to t."""
    if edge == math.inf:
        return math.inf
    return edge * math.sqrt((count - 1) / (count - edge * edge))


def _later(
    before: "_Walk", counts: tuple[int, ...], targets: NDArray[np.float64], spent: float
) -> NDArray[np.float64]:
    """Return the approximate later bounds; see Jennison & Turnbull, 1999, section 4.4."""
    from scipy.special import ndtr, stdtrit

    walk = before.as_brownian(counts[-1])
    later = [look for look, count in enumerate(counts) if count > EXACT_TO]
    bounds = np.full(len(later), math.inf)
    for at, look in enumerate(later):
        share = counts[look] / counts[-1]
        if targets[look] - spent > _LEAST_CROSSING:
            bounds[at] = walk.find(share, targets[look] - spent)
        spent += walk.step(share, bounds[at])
    freedom = np.array([counts[look] - 1 for look in later])
    # SciPy's quantile at probability 0 is wrong.
    t = -stdtrit(freedom, np.maximum(ndtr(-bounds), 1e-300))
    return np.where(np.isfinite(bounds), t, math.inf)


class _Walk:
    """Density of the statistic W on paths that crossed no bound, before and after a look.

    It is even, so a Chebyshev series in (w / edge) squared represents it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._before: _Density | None = None
        """Density after the previous look; None at the first one."""
        self._now: _Density | None = None

    def find(self, probability: float) -> float:
        """Return the W that has this probability of a first crossing at this look."""
        from scipy.optimize import brentq
        from scipy.special import stdtrit

        if self._before is None:
            t = -float(stdtrit(self._count - 1, probability / 2))
            return t * math.sqrt(self._count / (t * t + self._count - 1))

        def excess(edge: float) -> float:
            return self.passed(edge) - probability

        # Bounds change little from look to look; 1 is crossed far too often.
        low, high = self._before.edge - 0.1, math.hypot(1.0, self._before.edge)
        low = low if low > 1 and excess(low) > 0 else 1.0
        return float(brentq(excess, low, high, xtol=1e-10))

    def passed(self, edge: float) -> float:
        """Return the probability of crossing |W| = edge at this look and not before."""
        from scipy.special import stdtr

        n = self._count
        if edge >= math.sqrt(n):
            return 0.0
        if self._before is None:
            return 2 * float(stdtr(n - 1, -edge * math.sqrt((n - 1) / (n - edge * edge))))
        return self._before.beyond(edge, n - 1)

    def stop_at(self, edge: float) -> None:
        """Remove the paths beyond the bound of this look."""
        n = self._count
        edge = min(edge, _farthest(n))
        if self._before is None:
            self._now = _Density.first(n, edge)
        else:
            reach = math.hypot(1.0, self._before.edge)
            self._now = self._before.after(min(edge, reach), n - 1)

    def advance(self, count: int) -> None:
        """Advance to `count` values; counts without a call of `stop_at` have no bound."""
        while self._count < count:
            if self._now is None:
                self.stop_at(math.inf)
            self._before, self._now = self._now, None
            self._count += 1

    def as_brownian(self, most: int) -> BrownianWalk:
        """Return the state as a Brownian walk of z towards `most` values."""
        from scipy.special import ndtri, stdtr

        assert self._now is not None, "the bound of this look is not settled"
        nodes, weights = gauss_legendre(2 * _TERMS)
        places = self._now.edge * nodes
        n = self._count
        t = places * np.sqrt((n - 1) / (n - places**2))
        z = -np.sign(t) * ndtri(stdtr(n - 1, -np.abs(t)))
        masses = self._now.at(places) * self._now.edge * weights
        return BrownianWalk(n / most, z * math.sqrt(n / most), masses)


class _Density:
    """Density of W within (-edge, edge)."""

    def __init__(self, edge: float, values: NDArray[np.float64]) -> None:
        """Take the values at `_places(edge)`."""
        self.edge = edge
        self._series = _TO_SERIES @ values

    @classmethod
    def first(cls, count: int, edge: float) -> "_Density":
        """Return the density of W of n values: its square over n is Beta(1/2, (n - 1) / 2)."""
        from scipy.special import beta

        inside = 1 - _places(edge) ** 2 / count
        scale = math.sqrt(count) * float(beta(0.5, (count - 1) / 2))
        return cls(edge, inside ** ((count - 3) / 2) / scale)

    def at(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the density at places within the edge."""
        return np.asarray(chebyshev.chebval(2 * (places / self.edge) ** 2 - 1, self._series))

    def after(self, edge: float, count: int) -> "_Density":
        """Return the density at the next look, of count + 1 values, within its edge.

        f'(w') is the integral of f(w) p(angle) / cos(angle) over the angles for which
        w = (w' - sin) / cos lies within the edge here.
        """
        from scipy.special import beta

        places = _places(edge)
        lean = np.arcsin(np.minimum(places / math.hypot(1.0, self.edge), 1.0))
        tilt = math.atan(self.edge)
        farthest = min(math.pi / 2, 9.5 / math.sqrt(count))
        low = np.maximum(lean - tilt, -farthest)
        high = np.minimum(np.minimum(lean + tilt, math.pi - lean - tilt), farthest)
        nodes, weights = gauss_legendre(_ANGLES)
        half = np.maximum(high - low, 0.0)[:, None] / 2
        angles = (low + high)[:, None] / 2 + half * nodes
        cosines = np.cos(angles)
        came_from = np.clip((places[:, None] - np.sin(angles)) / cosines, -self.edge, self.edge)
        chance = cosines ** (count - 2) / float(beta(0.5, count / 2))
        return _Density(edge, (self.at(came_from) * chance * half) @ weights)

    def beyond(self, edge: float, count: int) -> float:
        """Return the probability of crossing |W'| = edge > 1 with the next value."""
        from scipy.special import stdtr

        nearest = math.sqrt(edge * edge - 1)
        if nearest >= self.edge:
            return 0.0
        nodes, weights = gauss_legendre(_TAIL_NODES)
        # Near `nearest` the probability grows like a square root; squared nodes make it smooth.
        roots = (nodes + 1) / 2
        span = self.edge - nearest
        places = nearest + span * roots**2
        lean = np.arcsin(np.minimum(edge / np.hypot(1.0, places), 1.0))
        tilt = np.arctan(places)
        root = math.sqrt(count)
        chance = stdtr(count, -root * np.tan(lean - tilt))
        # Kept below pi / 2, so that rounding does not change the sign of the tangent.
        farthest = np.minimum(math.pi - lean - tilt, math.pi / 2 - 1e-12)
        chance -= stdtr(count, -root * np.tan(farthest))
        # Twice, for both sides; d(places) is 2 span roots d(roots), d(roots) half a node.
        return float(2 * span * (self.at(places) * chance * roots) @ weights)


def _farthest(count: int) -> float:
    """Return the W beyond which the probability is negligible."""
    from scipy.special import stdtrit

    t = -float(stdtrit(count - 1, _LOST))
    return t * math.sqrt(count / (t * t + count - 1))


_X = np.cos(math.pi * (np.arange(_TERMS) + 0.5) / _TERMS)
_TO_SERIES = np.linalg.inv(chebyshev.chebvander(_X, _TERMS - 1))


def _places(edge: float) -> NDArray[np.float64]:
    return edge * np.sqrt((_X + 1) / 2)


_LEAST = 1e-9
"""Smallest alpha; for smaller ones the bounds are not accurate."""


def planned_alphas(kind: Spending, counts: Sequence[int], total: float) -> list[float]:
    """Return the alpha of each planned look, so that all looks together have the total error.

    Lan & DeMets, "Discrete sequential boundaries for clinical trials", 1983, with the exact
    bounds of `t_bounds`.

    Args:
        kind: Spending function.
        counts: Number of pairs at each look; increasing, the first is 3 to `EXACT_TO`.
        total: Two-sided type I error of all looks together.
    """
    bounds = t_bounds(kind, tuple(counts), total)
    return [
        max(_alpha(float(bound), count), _LEAST)
        for bound, count in zip(bounds, counts, strict=True)
    ]


def next_alpha(looks: Sequence[tuple[int, float]], count: int, spend: float) -> float:
    """Return the alpha of one more look that adds `spend` to the error of the earlier looks.

    It is at least `spend`, and usually larger, because a result that crosses the bound now
    would often have crossed an earlier one. By the exact distribution of Jennison & Turnbull,
    1991 (`t_bounds`).

    Args:
        looks: Number of pairs and alpha of each earlier look; increasing.
        count: Number of pairs at this look.
        spend: Two-sided error that this look may add.
    """
    spend = max(spend, _LEAST)
    if not _followed([*looks, (count, spend)]):
        return spend
    return max(spend, _alpha(next_t_bound(_bounds(looks), count, spend), count))


def error_of_looks(looks: Sequence[tuple[int, float]]) -> float:
    """Return the probability that any look shows a difference if there is none.

    By the exact distribution of Jennison & Turnbull, 1991 (`t_bounds`).

    Args:
        looks: Number of pairs and alpha of each look; increasing.
    """
    if not _followed(looks):
        return min(1.0, sum(alpha for _, alpha in looks))
    return t_error(_bounds(looks))


def _followed(looks: Sequence[tuple[int, float]]) -> bool:
    return all(3 <= count <= EXACT_TO and alpha <= LARGEST_ALPHA for count, alpha in looks)


def _bounds(looks: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(count, t_quantile(count - 1, 1 - alpha / 2)) for count, alpha in looks]


def _alpha(bound: float, count: int) -> float:
    """Return the two-sided p-value of a t at its bound."""
    from scipy.special import stdtr

    return 2 * float(stdtr(count - 1, -bound))
