"""One number a run, and what becomes of those that never get to a threshold.

Such a run is cut off, not late. To take a threshold that all reach, once the curves were seen,
would choose by the result.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.curves.design import Design
from assay.curves.settings import AnalysisSettings
from assay.curves.variance import summarize_runs
from assay.errors import UsageError
from assay.stats.learning import SummarySpec, time_to_threshold
from assay.stats.significance import TestResult
from assay.stats.survival import incidence_test, restricted_times

__all__ = ["LateRuns", "log_rank", "summaries"]

Values = NDArray[np.float64]


class LateRuns(NamedTuple):
    """Times to a threshold that some runs never get to: those stand at their ends."""

    control_R: Values
    candidate_R: Values
    reached: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    note: str


def summaries(design: Design, spec: SummarySpec) -> tuple[Values, Values, LateRuns | None]:
    """The summary of each run of both arms.

    A run that never gets to a threshold is not late, it is cut off: it stands at the horizon,
    the shortest end of all such runs, and so does whoever gets there later.
    """
    arms = [summarize_runs(runs, spec) for runs in (design.control, design.candidate)]
    reached = [np.isfinite(arm) for arm in arms]
    late = sum(int((~arm).sum()) for arm in reached)
    if not late:
        return arms[0], arms[1], None
    runs = [*design.control, *design.candidate]
    assert spec.threshold is not None
    if late == len(runs):
        raise UsageError(
            f"no run gets to {spec.threshold:g}, so no time to it is known; choose another "
            "--summary.threshold, or another --summary.type"
        )
    ends = np.array(
        [
            time_to_threshold(
                one.curve.steps_P,
                one.curve.values_P,
                spec.threshold,
                falling=spec.falling,
                **spec.window,
            ).value
            for one in runs
        ]
    )
    horizon = float(ends[~np.concatenate(reached)].min())
    times = np.split(ends, [len(arms[0])])
    a, b = (
        restricted_times(own, there, ~there, horizon=horizon)
        for own, there in zip(times, reached, strict=True)
    )
    note = (
        f"{late} of {len(runs)} runs never get to {spec.threshold:g}: they stand at step"
        f" {horizon:g}, where the first of them ends, and the means are those up to there; the"
        " log-rank test takes all steps"
    )
    return a, b, LateRuns(times[0], times[1], (reached[0], reached[1]), note)


def log_rank(late: LateRuns, settings: AnalysisSettings, paired: bool) -> TestResult:
    """Whether one arm gets there earlier or more often, over all steps."""
    here, there = late.reached
    return incidence_test(
        late.control_R,
        here,
        late.candidate_R,
        there,
        ~here,
        ~there,
        paired=paired,
        side=settings.side,
        rng=np.random.default_rng(settings.seed),
        n_resamples=settings.n_resamples,
    )
