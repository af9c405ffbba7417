"""pass@k and pass^k: the chance that one of k attempts succeeds, and that all of them do.

From n attempts of a task, of which c succeeded, both are estimated without bias for every
k up to n; to put c / n to the power of k would be biased. Tasks weigh the same. The attempts of
a task are taken to be independent of each other.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.estimates import mean_estimate
from assay.stats.intervals import Interval, check_share
from assay.stats.shares import exact_share

__all__ = ["pass_all", "pass_any"]

Counts = Sequence[int] | NDArray[Any]


def pass_any(successes: Counts, attempts: Counts, k: int, *, level: float = 0.95) -> Interval:
    """pass@k: the chance that at least one of k attempts at a task succeeds.

    1 - C(n - c, k) / C(n, k) by task, and the mean over tasks: Chen et al., "Evaluating large
    language models trained on code", 2021. The interval of several tasks is Student's over
    tasks, as a sample of many, within [0, 1] and with width; that of one task is the exact one
    of its share of successes (Clopper and Pearson, 1934), put to the power.

    Args:
        successes: How many attempts succeeded, by task.
        attempts: How many there were, by task; k or more.
        k: How many attempts somebody has.
        level: Of confidence.
    """
    failures = [int(n) - int(c) for c, n in zip(successes, attempts, strict=True)]
    found = pass_all(failures, attempts, k, level=level)
    return Interval(1 - found.point, 1 - found.high, 1 - found.low)


def pass_all(successes: Counts, attempts: Counts, k: int, *, level: float = 0.95) -> Interval:
    """pass^k: the chance that all of k attempts at a task succeed.

    C(c, k) / C(n, k) by task, and the mean over tasks: Yao et al., "tau-bench: a benchmark for
    tool-agent-user interaction in real-world domains", 2024. Arguments and interval are those
    of `pass_any`.
    """
    pairs = [(int(c), int(n)) for c, n in zip(successes, attempts, strict=True)]
    if not pairs:
        raise UsageError("pass^k of no task; give successes and attempts of one or more")
    for c, n in pairs:
        check_share(c, n)
        if not 1 <= k <= n:
            raise UsageError(
                f"{k} attempts cannot be judged from {n} of a task; give 1 to {n}, or run more"
            )
    shares = [math.comb(c, k) / math.comb(n, k) for c, n in pairs]
    if len(pairs) > 1:
        return mean_estimate(np.array(shares), step=1.0).interval(level, low=0, high=1)
    low, high = (bound**k for bound in exact_share(*pairs[0], level)[1:])
    return Interval(shares[0], min(low, shares[0]), max(high, shares[0]))
