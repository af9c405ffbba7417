"""What comparisons of two samples share: checks, pairs, and Welch's standard error.

Numbers up to 1e305 in size are compared like any other: where their squares would
overflow or vanish, samples are scaled by a power of two first, which rounds nothing.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay._util.names import unknown_name
from assay.errors import UsageError
from assay.stats.means import Method, Side
from assay.stats.samples import as_sample

__all__ = [
    "Floats",
    "Sample",
    "Welch",
    "as_method",
    "as_pairs",
    "as_side",
    "as_two",
    "check_size",
    "deviation_of",
    "mean_of",
    "pair_differences",
    "scaled",
    "t_quantile",
    "welch",
]

Sample = Sequence[float] | NDArray[Any]
"""What every function here takes as one sample, shape (N,)."""
Floats = NDArray[np.float64]

_ROUNDING = 1e-14
"""Differences below this part of the largest value are rounding."""
_LARGEST = 1e305
"""Beyond it sums and differences of a few values overflow."""
_SAFE = (1e-60, 1e60)
"""Sizes whose fourth powers, and sums of many of them, are numbers."""


class Welch(NamedTuple):
    """A difference of means with its standard error and degrees of freedom."""

    difference: float
    error: float
    freedom: float
    """Infinite where neither sample varies."""


def as_two(a: Sample, b: Sample) -> tuple[Floats, Floats]:
    """Both samples as checked arrays, of any lengths from one on."""
    first = as_sample(a, "the values of the first sample")
    second = as_sample(b, "the values of the second sample")
    for sample in (first, second):
        check_size(float(np.abs(sample).max()))
    return first, second


def check_size(size: float) -> None:
    """Refuse a size of values that cannot be added up."""
    if size > _LARGEST:
        raise UsageError(
            f"a value of size {size:.4g} is too large to compare; give values in a unit"
            f" in which they are below {_LARGEST:g}"
        )


def as_pairs(a: Sample, b: Sample) -> tuple[Floats, Floats]:
    """Both samples as checked arrays of one length, in pair order."""
    first, second = as_two(a, b)
    if len(first) != len(second):
        raise UsageError(
            f"{len(first)} values cannot be paired with {len(second)}; give one value of each"
            " per pair, or compare them unpaired"
        )
    return first, second


def pair_differences(a: Sample, b: Sample) -> Floats:
    """`b - a` pair by pair, without the spread that rounding alone makes; shape (N,)."""
    first, second = as_pairs(a, b)
    differences = second - first
    size = max(float(np.abs(first).max()), float(np.abs(second).max()))
    if float(np.ptp(differences)) <= _ROUNDING * size:
        # 0.3 - 0.2 and 0.2 - 0.1 differ in the last digit; no test should live on that.
        differences[:] = np.median(differences)
    return differences


def scaled(*samples: Floats) -> tuple[tuple[Floats, ...], int]:
    """The samples over one power of two, where their size asks for it, and its exponent.

    A result in the unit of the samples is `np.ldexp(result, exponent)`.
    """
    size = max(float(np.abs(sample).max()) for sample in samples)
    if size == 0 or _SAFE[0] < size < _SAFE[1]:
        return samples, 0
    exponent = math.frexp(size)[1]
    return tuple(np.ldexp(sample, -exponent) for sample in samples), exponent


def welch(a: Floats, b: Floats) -> Welch:
    """The difference of two means with unequal variances, of samples of two or more.

    Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", Biometrika 34, 1947.
    """
    errors = [deviation_of(sample) / math.sqrt(len(sample)) for sample in (a, b)]
    error = math.hypot(*errors)
    if error == 0:
        return Welch(float(b[0] - a[0]), 0.0, math.inf)
    # Shares of the variance instead of its squares, which underflow for tiny values.
    spread = sum(
        (part / error) ** 4 / (len(sample) - 1)
        for part, sample in zip(errors, (a, b), strict=True)
    )
    return Welch(mean_of(b) - mean_of(a), error, 1 / spread)


def as_method(name: Method | str) -> Method:
    """The method of this name."""
    try:
        return Method(name)
    except ValueError:
        raise UsageError(unknown_name("method of an interval", str(name), Method)) from None


def as_side(name: Side | str) -> Side:
    """The side of this name."""
    try:
        return Side(name)
    except ValueError:
        raise UsageError(unknown_name("side", str(name), Side)) from None


def mean_of(sample: Floats) -> float:
    """The mean."""
    # Equal values are their own mean; a sum of them would be off in the last digit.
    return float(sample[0] if sample.min() == sample.max() else sample.mean())


def deviation_of(sample: Floats) -> float:
    """The standard deviation with n - 1; 0 for equal values."""
    if sample.min() == sample.max():
        return 0.0
    (shrunk,), exponent = scaled(sample)
    return float(np.ldexp(shrunk.std(ddof=1), exponent))


def t_quantile(freedom: float, probability: float) -> float:
    """Student's t below which it stays with this probability."""
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import ndtri, stdtrit

    if math.isinf(freedom):
        return float(ndtri(probability))
    return float(stdtrit(freedom, probability))
