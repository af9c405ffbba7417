"""The exact interval of a share, beside Wilson's in `assay.stats.intervals`.

Wilson's is close to its level on average over shares, and a little below it at some; the
exact one is never below it, and wider for that. Neither knows of trials that depend on each
other. Library only: no command calls it.
"""

from assay.stats.intervals import Interval, check_share
from assay.stats.samples import check_level

__all__ = ["exact_share"]


def exact_share(successes: int, trials: int, level: float = 0.95) -> Interval:
    """A share with the exact interval, which holds the truth at least as often as `level`.

    Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, 1934, with the bounds as quantiles of beta distributions. A share of 0 has
    the lower bound 0 and a share of 1 the upper bound 1.
    """
    # SciPy takes a while to import, and most of assay does without.
    from scipy.special import betaincinv

    check_level(level)
    check_share(successes, trials)
    tail, failures = (1 - level) / 2, trials - successes
    low = 0.0 if successes == 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 1, failures, 1 - tail))
    return Interval(successes / trials, low, high)
