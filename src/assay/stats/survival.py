"""Times to an event that some trials never reach (survival analysis with competing risks).

A trial that ended for another reason, such as death, will not reach the event: its end is a
competing risk. A trial that was cut off while it could still have reached the event is
censored: its time is only known to be longer. A mean over the trials that reached the event
would make slow entries look fast. Treating competing ends as censored would assume that dead
players could still reach the event. Times are measured to the event, not to the end of the
trial: for an achievement, the step that unlocked it.

All functions take, for each trial, the time to the event or to its end, whether it `reached`
the event, and whether it was `censored`. By default no trial is censored, so a trial that did
not reach the event ended for another reason.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.estimates import Sample
from assay.stats.intervals import Side, as_sample
from assay.stats.significance import TestResult, permutation_test, sign_flip_test

Floats = NDArray[np.float64]
Marks = Sequence[int] | NDArray[Any]


class Incidence(NamedTuple):
    """Proportion of trials that have reached the event, by time."""

    times: Floats
    """Times at which the proportion increases, in order."""
    shares: Floats
    """Proportion from each of these times on."""


def cumulative_incidence(
    times: Sample, reached: Marks, censored: Marks | None = None
) -> Incidence:
    """Return the proportion of trials that have reached the event by each time.

    Aalen and Johansen, "An empirical transition matrix for non-homogeneous Markov chains based
    on censored observations", 1978. At equal times, ends come before censoring. Without
    competing ends it is 1 minus the survival of Kaplan and Meier, 1958; without censoring it is
    the plain proportion of all trials.
    """
    sample, happened, open_ = _trials(times, reached, censored)
    ends = np.unique(sample[~open_])
    at_risk = len(sample) - np.searchsorted(np.sort(sample), ends)
    events, others = (
        np.bincount(np.searchsorted(ends, sample[mark]), minlength=len(ends))
        for mark in (happened, ~happened & ~open_)
    )
    going = np.cumprod(1 - (events + others) / at_risk)
    before = np.concatenate([[1.0], going[:-1]])
    shares = np.cumsum(before * events / at_risk)
    return Incidence(ends[events > 0], shares[events > 0])


def median_time(times: Sample, reached: Marks, censored: Marks | None = None) -> float:
    """Return the time by which half of all trials have reached the event; NaN if they never do.

    The first time at which the cumulative incidence (Aalen and Johansen, 1978) is 1/2 or more.
    """
    found = cumulative_incidence(times, reached, censored)
    # A sum of fractions equal to one half may be below it by a rounding error.
    half = np.flatnonzero(found.shares >= 0.5 - 1e-12)
    return float(found.times[half[0]]) if len(half) else math.nan


def restricted_times(
    times: Sample,
    reached: Marks,
    censored: Marks | None = None,
    *,
    horizon: float | None = None,
) -> Floats:
    """Return a time per trial whose mean is the restricted mean time to the event; shape (N,).

    It is the mean time to the event up to the horizon; trials that have not reached it by then
    count with the horizon (Royston and Parmar, "Restricted mean survival time", 2013). Without
    censoring before the horizon, the value of a trial is its time, or the horizon. With
    censoring, the values are the pseudo-values of Andersen, Hansen and Klein, "Regression
    analysis of restricted mean survival time based on pseudo-observations", 2004:
    n mean - (n - 1) (mean without this trial). The values can be used in every interval and
    test of means, paired or not. For the `time_to_threshold` of a curve, a run that did not
    reach the threshold is censored.

    Args:
        times: Time to the event, or to the end.
        reached: Whether the trial reached the event.
        censored: Whether the trial was cut off.
        horizon: Must be equal for all entries that are compared. None: the shortest censored
            time, or the longest of all times if none is censored.
    """
    sample, happened, open_ = _trials(times, reached, censored)
    if horizon is None:
        horizon = float(sample[open_].min() if open_.any() else sample.max())
    if not 0 < horizon < math.inf:
        raise UsageError(f"horizon {horizon!r} is not a time above 0; give a finite one")
    if not (open_ & (sample < horizon)).any():
        return np.where(happened, np.minimum(sample, horizon), horizon)
    if horizon > sample.max():
        raise UsageError(
            f"horizon {horizon:g} is after the end of every trial, and some were censored"
            f" before it; give at most {sample.max():g}"
        )
    n = len(sample)
    whole = _restricted_mean(sample, happened, open_, horizon)
    others = [np.arange(n) != trial for trial in range(n)]
    without = [
        _restricted_mean(sample[rest], happened[rest], open_[rest], horizon) for rest in others
    ]
    return n * whole - (n - 1) * np.array(without)


def incidence_test(
    times_a: Sample,
    reached_a: Marks,
    times_b: Sample,
    reached_b: Marks,
    censored_a: Marks | None = None,
    censored_b: Marks | None = None,
    *,
    paired: bool = False,
    side: Side | str = Side.TWO_SIDED,
    rng: np.random.Generator | None = None,
    n_resamples: int = 10_000,
) -> TestResult:
    """Test whether one side reaches the event earlier or more often, with a log-rank test.

    The scores of Peto and Peto, "Asymptotically efficient rank invariant test procedures",
    1972: 1 for the event, minus the hazard of both sides together up to the trial's end. Trials
    with a competing end stay in the risk set, as in Gray, "A class of K-sample tests for
    comparing the cumulative incidence of a competing risk", 1988, so the test compares
    incidences; if trials were also censored, this is approximate, and close if censoring came
    late. The p-value is from shuffled or flipped scores, so it is valid for few trials. The
    statistic is the mean score of b minus the mean score of a, positive if b is earlier.
    """
    sides = [_trials(times_a, reached_a, censored_a), _trials(times_b, reached_b, censored_b)]
    sample, happened, open_ = (np.concatenate(both) for both in zip(*sides, strict=True))
    stays = np.where(happened | open_, sample, np.inf)
    events, counts = np.unique(sample[happened], return_counts=True)
    at_risk = len(stays) - np.searchsorted(np.sort(stays), events)
    hazard = np.concatenate([[0.0], np.cumsum(counts / at_risk)])
    scores = happened - hazard[np.searchsorted(events, stays, "right")]
    a, b = np.split(scores, [len(sides[0][0])])
    if paired:
        if len(a) != len(b):
            raise UsageError(
                f"{len(a)} trials cannot be paired with {len(b)}; give one of each per pair"
            )
        found = sign_flip_test(b - a, side=side, rng=rng, n_resamples=n_resamples)
    else:
        found = permutation_test(a, b, side=side, rng=rng, n_resamples=n_resamples)
    return found._replace(name=f"log-rank test by {'flips' if paired else 'permutation'}")


def _restricted_mean(
    times: Floats, happened: NDArray[np.bool_], open_: NDArray[np.bool_], horizon: float
) -> float:
    found = cumulative_incidence(times, happened, open_)
    inside = found.times < horizon
    return horizon - float(
        np.diff(found.shares[inside], prepend=0.0) @ (horizon - found.times[inside])
    )


def _trials(
    times: Sample, reached: Marks, censored: Marks | None
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    sample = as_sample(times, "times")
    happened = np.asarray(reached, bool)
    open_ = np.zeros(len(sample), bool) if censored is None else np.asarray(censored, bool)
    for marks, what in ((happened, "what was reached"), (open_, "what was censored")):
        if len(marks) != len(sample):
            raise UsageError(
                f"{len(sample)} times and {len(marks)} marks of {what}; give as many"
            )
    if (happened & open_).any():
        raise UsageError("a trial both reached the event and was censored; mark one of them")
    return sample, happened, open_
