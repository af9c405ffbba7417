"""How much of the allowed error each look may spend, and the bounds that follow for a z.

A test that is made again and again as data comes keeps its error if every look has a bound of
its own. Bounds are two-sided and symmetric. Looks are told by their share of the largest
sample. The bounds here are for a statistic whose variance is known; `t_bounds` has those of
Student's t.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError

__all__ = [
    "BrownianWalk",
    "Spending",
    "cumulative_spending",
    "gauss_legendre",
    "z_bounds",
]

_NEVER = 1e-11
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
        if may_spend > _NEVER:
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
