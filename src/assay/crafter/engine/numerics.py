"""exp and the daylight curve, computed with + - * / only.

IEEE 754 defines the result of these four operations (and of sqrt) to the last bit, while `exp`,
`cos` and `pow` differ between CPUs and libraries. Compiled without fast-math, these functions
therefore give the same bits everywhere. Daylight is computed in double-double precision until
its last rounding, so it is the correctly rounded value, which the reference computes wherever
its own `cos` and `pow` round correctly.
"""

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.crafter.engine.jit import kernel

MAX_LENGTH: Final = 100_000
"""Maximum length of an episode, in steps."""

_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_HALF_PI: Final = 1.5707963267948966
_HALF_PI_REST: Final = 6.123233995736766e-17


_POWERS_OF_TWO: Final = 2.0 ** np.arange(-200, 201)
_INVERSE_FACTORIALS: Final = 1 / np.cumprod([1.0, *range(1, 15)])


@kernel
def exp(x: float) -> float:
    """Return e^x to within an ulp or two, for -130 < x < 130."""
    power = int(np.floor(x * 1.4426950408889634 + 0.5))
    rest = (x - power * _LN2_HIGH) - power * _LN2_LOW
    # |rest| < 0.35, where the error of fourteen terms of the series is below 1e-17.
    total: float = 0.0
    for n in range(14, -1, -1):
        total = total * rest + _INVERSE_FACTORIALS[n]
    return float(total * _POWERS_OF_TWO[200 + power])


# Double-double arithmetic (Dekker 1971): a value is the exact sum of two floats.
def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    def halves(value: Any) -> tuple[Any, Any]:
        scaled = 134217729.0 * value
        high = scaled - (scaled - value)
        return high, value - high

    (a1, a2), (b1, b2) = halves(a), halves(b)
    total = a * b
    return total, ((a1 * b1 - total) + a1 * b2 + a2 * b1) + a2 * b2


def _multiply(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    high, low = _product(a[0], b[0])
    return _sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def _sine(x: tuple[Any, Any]) -> Any:
    """Return the sine of a double-double in [0, pi/2], correctly rounded."""
    square = _multiply(x, x)
    term = total = x
    for n in range(2, 26, 2):
        term = _multiply(term, square)
        divisor = -float(n * (n + 1))
        high = term[0] / divisor
        back = _product(high, divisor)
        term = _sum(high, ((term[0] - back[0]) - back[1] + term[1]) / divisor)
        high, low = _sum(total[0], term[0])
        total = _sum(high, low + total[1] + term[1])
    return total[0] + total[1]


def _compute_daylight(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the daylight after each of the given numbers of steps."""
    angle = np.pi * ((steps / 300) % 1 + 0.3)
    # |cos(a)| = |sin(a - pi/2)|, and sin(x) = sin(pi - x).
    high, low = _sum(angle, -_HALF_PI)
    x = _sum(high, low - _HALF_PI_REST)
    sign = np.where(x[0] < 0, -1.0, 1.0)
    x = (x[0] * sign, x[1] * sign)
    high, low = _sum(2 * _HALF_PI, -x[0])
    mirrored = _sum(high, low - x[1] + 2 * _HALF_PI_REST)
    beyond = x[0] > _HALF_PI
    cosine = _sine((np.where(beyond, mirrored[0], x[0]), np.where(beyond, mirrored[1], x[1])))
    cube = _multiply(_product(cosine, cosine), (cosine, np.zeros_like(cosine)))
    return np.asarray(1 - (cube[0] + cube[1]))


@cache
def _compute_day(number: int) -> list[float]:
    """Return the daylight at each step of a day."""
    steps = np.arange(300 * number, 300 * number + 300, dtype=np.float64)
    return list(_compute_daylight(steps).tolist())


def daylight(step: int) -> float:
    """Return the daylight after `step` steps, from 0 in the deepest night to 1 at noon."""
    return _compute_day(step // 300)[step % 300]


@cache
def _compute_days(count: int) -> NDArray[np.float64]:
    return np.array([light for number in range(count) for light in _compute_day(number)])


def daylights(steps: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the daylight for the step numbers of many worlds."""
    return _compute_days(int(steps.max()) // 300 + 1)[steps]


TENTH_DAYLIGHT: Final = _compute_daylight(np.arange(0, MAX_LENGTH + 1, 10, dtype=np.float64))
"""Daylight at every tenth step, when creatures spawn and despawn."""
