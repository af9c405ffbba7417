"""Two groups within strata: what differs between them, among those that are otherwise alike."""

import math
from collections.abc import Sequence

import numpy as np

from assay.errors import UsageError
from assay.stats.clusters import Labels, codes_of
from assay.stats.estimates import Estimate
from assay.stats.samples import as_sample
from assay.stats.two_samples import Sample

__all__ = ["difference_within"]


def difference_within(
    values: Sample, marked: Sequence[bool], strata: Labels, clusters: Labels
) -> Estimate:
    """The mean of the marked values less that of the others, within strata.

    The differences within strata, each weighted by n1 n0 / (n1 + n0): the least squares
    estimate with a constant for every stratum. The error allows for clusters (Liang and Zeger,
    "Longitudinal data analysis using generalized linear models", 1986), with the correction
    C / (C - 1) and C - 1 degrees of freedom for C clusters (Cameron and Miller, 2015). Where no
    stratum has both kinds, nothing can be said: all of it is NaN.
    """
    sample = as_sample(values, "the values")
    marks = np.asarray(marked, np.float64)
    if len(marks) != len(sample):
        raise UsageError(f"{len(sample)} values have {len(marks)} marks; give as many")
    layers = codes_of(strata, len(sample), "the values")
    units = codes_of(clusters, len(sample), "the values")
    sizes = np.bincount(layers)
    mark = marks - (np.bincount(layers, marks) / sizes)[layers]
    value = sample - (np.bincount(layers, sample) / sizes)[layers]
    squares = float(mark @ mark)
    if squares < 1e-12:
        return Estimate(math.nan, math.nan, math.nan)
    point = float(mark @ value) / squares
    count = int(units.max()) + 1
    if count < 2:
        return Estimate(point, math.nan, math.nan)
    pulls = np.bincount(units, mark * (value - point * mark))
    error = math.sqrt(float(pulls @ pulls) * count / (count - 1)) / squares
    return Estimate(point, error, count - 1)
