"""Bounds of Student's t at looks while values come, exact for normal data.

Let W be the sum of n values over the root of their sum of squares, which is t in another
form. Without an effect, the squares tell nothing about the past of W, so that

    W' = W cos(f) + sin(f),   tan(f) = T / sqrt(n),   T is Student's t with n degrees,

and one density on a line is all that has to be followed from look to look: Jennison &
Turnbull, "Exact calculations for sequential t, chi-square and F tests", Biometrika 1991.
Taking the bounds of a z for those of a t by their p-values instead, as is usual, spends more
than it says at small n, since successive t are less alike than successive z.

The alpha of each look at a comparison that is made more than once, as its pairs get more.

An alpha is two-sided, and that of Student's t by itself: the interval of level 1 - alpha at
each look is the repeated confidence interval of Jennison & Turnbull, "Interim analyses: the
repeated confidence interval approach", 1989. Exact for normal differences up to `EXACT_TO`
pairs; where looks cannot be followed, their alphas are added up, which is never too little.

How much of the allowed error each look may spend, and the bounds that follow for a z.

A test that is made again and again as data comes keeps its error if every look has a bound of
its own. Bounds are two-sided and symmetric. Looks are told by their share of the largest
sample. The bounds here are for a statistic whose variance is known; `t_bounds` has those of
Student's t.
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
"""A look that may spend less than this has no bound; a later one has it then."""
_WIDEST = 8.5
"""Standard deviations beyond which nothing is followed: 2e-17 of the probability."""
_NODES_PER_SD = 1.6
_FEWEST_NODES = 60


class Spending(StrEnum):
    """How the error is spread over the looks."""

    OBRIEN_FLEMING = "obrien-fleming"
    """Hardly any at first: early bounds are wide, the last is almost that of one look."""
    POCOCK = "pocock"
    """About the same at all times: it stops earlier, and pays for that at the end."""


def cumulative_spending(
    kind: Spending, shares: NDArray[np.float64] | Sequence[float], alpha: float = 0.05
) -> NDArray[np.float64]:
    """The two-sided error that may have been spent once these shares of the data are seen.

    Half of it on each side. Lan & DeMets, "Discrete sequential boundaries for clinical
    trials", Biometrika 1983: for one side at level a, 2 - 2 Phi(z(a/2) / sqrt(share)) is of
    the O'Brien-Fleming type and a ln(1 + (e - 1) share) of the Pocock type.
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
    """The bound of |z| at each look; infinite where a look may spend nothing yet.

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
    """A Brownian motion seen at a few times, as far as it has passed no bound yet."""

    def __init__(
        self,
        share: float = 0.0,
        places: NDArray[np.float64] | None = None,
        masses: NDArray[np.float64] | None = None,
    ) -> None:
        """Begin at 0, or at a later share with masses at z * sqrt(share)."""
        self._time = share
        self._places = np.zeros(1) if places is None else places
        self._masses = np.ones(1) if masses is None else masses

    def step(self, share: float, bound: float) -> float:
        """Go on to a share of the data; the probability of passing |z| = bound just there."""
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
        """The bound of |z| that is passed first at this share with a probability."""
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
    """Nodes and weights of the Gauss-Legendre rule on (-1, 1)."""
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
"""Up to so many values the bounds are exact; beyond, W is taken for a z of the same p-value."""

LARGEST_ALPHA: Final = 0.3
"""With more error than this a bound could lie below |W| = 1, where the integrals change."""

_LEAST_CROSSING: Final = 1e-10
_LOST: Final = 1e-14
"""Probability that may be left out at the edge of what is followed."""
_TERMS: Final = 64
_ANGLES: Final = 48
_TAIL_NODES: Final = 48


@lru_cache(maxsize=128)
def t_bounds(
    kind: Spending, counts: tuple[int, ...], alpha: float = 0.05
) -> NDArray[np.float64]:
    """The bound of |t| at looks after so many values; infinite where there is none yet.

    Args:
        kind: How the error is spread; at n values it is that of the share n / counts[-1].
        counts: The looks, the first after 3 to `EXACT_TO` values.
        alpha: The two-sided error of all looks together.
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
    """The probability that |t| passes its bound at one look or more, without an effect.

    Args:
        looks: After how many values, and the bound; 3 to `EXACT_TO` values, rising.
    """
    return _walked(tuple(looks))[1]


def next_t_bound(looks: Sequence[tuple[int, float]], count: int, spend: float) -> float:
    """The bound of |t| at one more look, which is passed first there with a probability.

    Args:
        looks: The earlier ones, as for `t_error`; none are allowed.
        count: After how many values there is a look now; 3 to `EXACT_TO`, more than before.
        spend: The probability, two-sided.
    """
    walk, _ = _walked((*looks, (count, math.inf)))
    return _bound(walk.find(spend), count)


def _walked(looks: tuple[tuple[int, float], ...]) -> "tuple[_Walk, float]":
    """The walk at the last of these looks, and how much has passed by then."""
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
    """The t of a W."""
    if edge == math.inf:
        return math.inf
    return edge * math.sqrt((count - 1) / (count - edge * edge))


def _later(
    before: "_Walk", counts: tuple[int, ...], targets: NDArray[np.float64], spent: float
) -> NDArray[np.float64]:
    """The bounds after the exact ones: Jennison & Turnbull, 1999, section 4.4, has the idea."""
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
    # The quantile of no probability is not what SciPy says it is.
    t = -stdtrit(freedom, np.maximum(ndtr(-bounds), 1e-300))
    return np.where(np.isfinite(bounds), t, math.inf)


class _Walk:
    """The density of W among those that have passed no bound, before and after a look.

    It is even, so a Chebyshev series in (w / edge) squared has it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._before: _Density | None = None
        """Of the last look, after it; None at the first one."""
        self._now: _Density | None = None

    def find(self, probability: float) -> float:
        """The W at which so much passes at this look."""
        from scipy.optimize import brentq
        from scipy.special import stdtrit

        if self._before is None:
            t = -float(stdtrit(self._count - 1, probability / 2))
            return t * math.sqrt(self._count / (t * t + self._count - 1))

        def excess(edge: float) -> float:
            return self.passed(edge) - probability

        # Bounds move little from look to look; 1 is passed far too often.
        low, high = self._before.edge - 0.1, math.hypot(1.0, self._before.edge)
        low = low if low > 1 and excess(low) > 0 else 1.0
        return float(brentq(excess, low, high, xtol=1e-10))

    def passed(self, edge: float) -> float:
        """How much is beyond |W| = edge at this look and was not before."""
        from scipy.special import stdtr

        n = self._count
        if edge >= math.sqrt(n):
            return 0.0
        if self._before is None:
            return 2 * float(stdtr(n - 1, -edge * math.sqrt((n - 1) / (n - edge * edge))))
        return self._before.beyond(edge, n - 1)

    def stop_at(self, edge: float) -> None:
        """Leave out what is beyond the bound of this look."""
        n = self._count
        edge = min(edge, _farthest(n))
        if self._before is None:
            self._now = _Density.first(n, edge)
        else:
            reach = math.hypot(1.0, self._before.edge)
            self._now = self._before.after(min(edge, reach), n - 1)

    def advance(self, count: int) -> None:
        """Go on to so many values; where none has settled its bound, there is no look."""
        while self._count < count:
            if self._now is None:
                self.stop_at(math.inf)
            self._before, self._now = self._now, None
            self._count += 1

    def as_brownian(self, most: int) -> BrownianWalk:
        """The state as a z, on its way to so many values."""
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
    """A density of W within (-edge, edge)."""

    def __init__(self, edge: float, values: NDArray[np.float64]) -> None:
        """Take the values at `_places(edge)`."""
        self.edge = edge
        self._series = _TO_SERIES @ values

    @classmethod
    def first(cls, count: int, edge: float) -> "_Density":
        """That of W of so many values: its square over n is Beta(1/2, (n - 1) / 2)."""
        from scipy.special import beta

        inside = 1 - _places(edge) ** 2 / count
        scale = math.sqrt(count) * float(beta(0.5, (count - 1) / 2))
        return cls(edge, inside ** ((count - 3) / 2) / scale)

    def at(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """The density at places within the edge."""
        return np.asarray(chebyshev.chebval(2 * (places / self.edge) ** 2 - 1, self._series))

    def after(self, edge: float, count: int) -> "_Density":
        """That of the next look, of count + 1 values, within its edge.

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
        """How much goes beyond |W'| = edge > 1 with the next value."""
        from scipy.special import stdtr

        nearest = math.sqrt(edge * edge - 1)
        if nearest >= self.edge:
            return 0.0
        nodes, weights = gauss_legendre(_TAIL_NODES)
        # Near the nearest place the chance grows like a root, which squares make smooth.
        roots = (nodes + 1) / 2
        span = self.edge - nearest
        places = nearest + span * roots**2
        lean = np.arcsin(np.minimum(edge / np.hypot(1.0, places), 1.0))
        tilt = np.arctan(places)
        root = math.sqrt(count)
        chance = stdtr(count, -root * np.tan(lean - tilt))
        # Its tangent must not change sign by rounding.
        farthest = np.minimum(math.pi - lean - tilt, math.pi / 2 - 1e-12)
        chance -= stdtr(count, -root * np.tan(farthest))
        # Twice, for both sides; the steps are 2 roots d(roots), and d(roots) is half a node.
        return float(2 * span * (self.at(places) * chance * roots) @ weights)


def _farthest(count: int) -> float:
    """The W beyond which next to nothing is, or the largest that there is."""
    from scipy.special import stdtrit

    t = -float(stdtrit(count - 1, _LOST))
    return t * math.sqrt(count / (t * t + count - 1))


_X = np.cos(math.pi * (np.arange(_TERMS) + 0.5) / _TERMS)
_TO_SERIES = np.linalg.inv(chebyshev.chebvander(_X, _TERMS - 1))


def _places(edge: float) -> NDArray[np.float64]:
    return edge * np.sqrt((_X + 1) / 2)


_LEAST = 1e-9
"""Below it an alpha is next to nothing, and bounds are not found to its digits."""


def planned_alphas(kind: Spending, counts: Sequence[int], total: float) -> list[float]:
    """The alpha of each look that was planned, so that all looks together have the total.

    Lan & DeMets, "Discrete sequential boundaries for clinical trials", 1983, with the exact
    bounds of `t_bounds`.

    Args:
        kind: How the total is spread.
        counts: After how many pairs; rising, the first after 3 to `EXACT_TO`.
        total: The two-sided error of all looks.
    """
    bounds = t_bounds(kind, tuple(counts), total)
    return [
        max(_alpha(float(bound), count), _LEAST)
        for bound, count in zip(bounds, counts, strict=True)
    ]


def next_alpha(looks: Sequence[tuple[int, float]], count: int, spend: float) -> float:
    """The alpha of one more look, which adds so much to the error of the earlier ones.

    It is more than what it adds, because what passes now would often have passed before. By
    the exact distribution of Jennison & Turnbull, 1991 (`t_bounds`).

    Args:
        looks: The earlier ones, each after how many pairs and at which alpha; rising.
        count: After how many pairs this one is.
        spend: The two-sided error that it may add.
    """
    spend = max(spend, _LEAST)
    if not _followed([*looks, (count, spend)]):
        return spend
    return max(spend, _alpha(next_t_bound(_bounds(looks), count, spend), count))


def error_of_looks(looks: Sequence[tuple[int, float]]) -> float:
    """The probability that one look or more shows a difference where there is none.

    By the exact distribution of Jennison & Turnbull, 1991 (`t_bounds`).

    Args:
        looks: Each after how many pairs and at which alpha; rising.
    """
    if not _followed(looks):
        return min(1.0, sum(alpha for _, alpha in looks))
    return t_error(_bounds(looks))


def _followed(looks: Sequence[tuple[int, float]]) -> bool:
    return all(3 <= count <= EXACT_TO and alpha <= LARGEST_ALPHA for count, alpha in looks)


def _bounds(looks: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(count, t_quantile(count - 1, 1 - alpha / 2)) for count, alpha in looks]


def _alpha(bound: float, count: int) -> float:
    """The two-sided p-value of a t at its bound."""
    from scipy.special import stdtr

    return 2 * float(stdtr(count - 1, -bound))
