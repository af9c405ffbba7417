"""Variance components (world, subject, interaction, rest) and the precision of sd and mean.

Results are arranged as subjects by worlds, with one or more values per cell. Worlds are a
random factor, subjects a fixed one. The estimates are from the analysis of variance of cell
means (Searle, Casella and McCulloch, Variance Components, 1992, chapter 4; unweighted means if
cells differ in size). The intervals are generalised confidence intervals (Weerahandi,
"Generalized confidence intervals", 1993): mean squares are drawn from their chi-squared
distributions, the mean square of subjects from its noncentral one, and proportions are computed
for each draw. They assume normal effects.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.effects import noncentrality_interval
from assay.stats.intervals import Interval, as_sample, check_level

_DRAWS = 2_000
Floats = NDArray[np.float64]


class VarianceShares(NamedTuple):
    """Proportions of the variance of a result, from 0 to 1, with sum 1."""

    world: Interval
    subject: Interval
    """With one subject the point is 0 and the bounds are NaN."""
    interaction: Interval | None
    """None if each cell has one value: then it is part of `rest`."""
    rest: Interval
    total: float
    """Total variance."""


def variance_shares(
    cells: Sequence[Sequence[Sequence[float]]],
    *,
    level: float = 0.95,
    rng: np.random.Generator,
) -> VarianceShares | None:
    """Return the proportions of the variance; None if worlds cannot be separated from chance.

    Args:
        cells: Values of each subject in each world, [subject][world][replicate]; every cell has
            one or more, and there are at least two worlds. A single subject needs replicates.
        level: Confidence level of the intervals.
        rng: Random generator.

    Raises:
        UsageError: A cell is empty, or there are fewer than two worlds.
    """
    check_level(level)
    subjects, worlds = len(cells), len(cells[0]) if cells else 0
    if worlds < 2 or any(len(line) != worlds or not all(line) for line in cells):
        raise UsageError(
            "variance is shared among two worlds or more, of which every subject has a value"
        )
    means_S_W = np.array([[np.mean(cell) for cell in line] for line in cells])
    within = [np.asarray(cell, float) - np.mean(cell) for line in cells for cell in line]
    freedom_e = sum(len(cell) - 1 for cell in within)
    plays = len(within) / sum(1 / len(cell) for cell in within)
    mean_e = sum(float((cell**2).sum()) for cell in within) / freedom_e if freedom_e else 0.0
    if subjects == 1 and not freedom_e:
        return None
    by_world = means_S_W.mean(axis=0)
    by_subject = means_S_W.mean(axis=1)
    freedom_w, freedom_i = worlds - 1, (subjects - 1) * (worlds - 1)
    mean_w = subjects * float(by_world.var(ddof=1))
    left = means_S_W - by_world - by_subject[:, None] + means_S_W.mean()
    # With one subject, worlds are compared with the variance of replicates.
    mean_i = float((left**2).sum()) / freedom_i if freedom_i else mean_e / plays
    spread_s = float(by_subject.var(ddof=1)) if subjects > 1 else 0.0
    if mean_w + mean_i + spread_s + mean_e == 0:
        return None

    def shares(w: Any, i: Any, e: Any, s: Any) -> Floats:
        """Return the variances of world, subject, interaction and rest from mean squares."""
        world = np.maximum(0.0, (w - i) / subjects)
        both = np.maximum(0.0, i - e / plays) if freedom_e and subjects > 1 else 0.0 * i
        rest = e if freedom_e else i
        parts: Floats = np.array(np.broadcast_arrays(world, s, both, rest), float)
        return parts

    subject = max(0.0, spread_s - mean_i / worlds)
    point = shares(mean_w, mean_i, mean_e, subject)
    draw_w = mean_w * freedom_w / rng.chisquare(freedom_w, _DRAWS)
    draw_e = mean_e * freedom_e / rng.chisquare(freedom_e, _DRAWS) if freedom_e else 0.0
    draw_i = (
        mean_i * freedom_i / rng.chisquare(freedom_i, _DRAWS)
        if freedom_i
        else np.asarray(draw_e) / plays
    )
    draw_s = _subject_draws(spread_s, subjects, worlds, np.asarray(draw_i, float), rng)
    drawn = shares(draw_w, draw_i, draw_e, draw_s)
    drawn = drawn / drawn.sum(axis=0)
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=1)
    found = [
        Interval(float(p), min(float(p), float(a)), max(float(p), float(b)))
        for p, a, b in zip(point / point.sum(), low, high, strict=True)
    ]
    return VarianceShares(
        found[0],
        found[1] if subjects > 1 else Interval(0.0, math.nan, math.nan),
        found[2] if freedom_e and subjects > 1 else None,
        found[3],
        float(point.sum()),
    )


def _subject_draws(
    spread: float, subjects: int, worlds: int, noise: Floats, rng: np.random.Generator
) -> Floats:
    """Return the variance of the subjects' true means, for each draw of the noise in a mean.

    The sum of squares of observed means over the noise is noncentral chi-squared. Its
    noncentrality is solved for a uniform quantile, which gives a confidence distribution.
    """
    if subjects < 2:
        return np.zeros(1)
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import chdtr, chndtrinc

    freedom = subjects - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where(noise > 0, worlds * freedom * spread / noise, np.inf)
    quantile = rng.uniform(size=len(noise))
    # A quantile above its value at zero noncentrality means zero variance.
    some = (quantile < chdtr(freedom, squares)) & np.isfinite(squares)
    found = np.zeros(len(noise))
    found[some] = chndtrinc(squares[some], freedom, quantile[some])
    found = np.where(np.isfinite(squares), found * noise / (worlds * freedom), spread)
    return np.nan_to_num(found, nan=spread)


def sd_interval(sd: float, n: int, *, level: float = 0.95) -> Interval:
    """Return the interval of the true standard deviation, given the sd of n normal values.

    The chi-square interval, sd sqrt((n - 1) / quantile): Snedecor and Cochran, Statistical
    Methods, 8th ed. 1989. At n = 15 it is from 0.73 to 1.58 times sd, so a sample size
    proportional to the variance is uncertain from 0.54 to 2.49 times.
    """
    low, high = sd_sampling_factors(n, level=level)
    return Interval(checked_sd(sd), sd / high, sd / low)


def sd_sampling_factors(n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the multiples of the true sd between which the sd of n normal values falls.

    The square roots of the chi-square quantiles over n - 1. At n = 15 from 0.63 to 1.37: a
    planned sample size is between 0.40 and 1.87 times the right one. This is the distribution
    of the pilot given the truth; `sd_interval` is the inverse.
    """
    check_level(level)
    if n < 2:
        raise UsageError(f"the spread of {n} values is not known; give 2 or more")
    # SciPy is slow to import, and most of assay does not need it.
    from scipy.special import chdtri

    tail = (1 - level) / 2
    low, high = (float(chdtri(n - 1, above)) for above in (1 - tail, tail))
    return math.sqrt(low / (n - 1)), math.sqrt(high / (n - 1))


def checked_sd(sd: float) -> float:
    """Return the standard deviation; raise UsageError if it is negative or not finite."""
    if not (sd >= 0 and math.isfinite(sd)):
        raise UsageError(f"standard deviation {sd!r} is not a finite number from 0 on")
    return float(sd)


def relative_standard_error(
    values: Sequence[float] | NDArray[Any], *, level: float = 0.95
) -> Interval:
    """Return the standard error of a mean relative to the mean, sd / (sqrt(n) |mean|).

    Its inverse is the noncentrality of Student's t. The bounds come from inverting the
    noncentral t (Lehmann, Testing Statistical Hypotheses, 2nd ed. 1986, section 6.8), so they
    are exact for normal values and include the error of both the mean and the sd. The upper
    bound is infinite if the interval of the mean contains 0. All values are NaN if the mean is
    0 or there is only one value.
    """
    check_level(level)
    sample = as_sample(values, "the values of a mean")
    n, mean = len(sample), float(sample.mean())
    if n < 2 or mean == 0:
        return Interval(math.nan, math.nan, math.nan)
    if sample.min() == sample.max():
        return Interval(0.0, 0.0, 0.0)
    # Divided by the mean first, so that squares neither overflow nor underflow.
    error = float((sample / mean).std(ddof=1)) / math.sqrt(n)
    low, high = noncentrality_interval(1 / error, n - 1, level)
    return Interval(error, 1 / high, 1 / low if low > 0 else math.inf)
