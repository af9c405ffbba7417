"""Number of training runs needed: a rule of thumb, and estimates from the data.

The rule of thumb takes the first n at which the coefficient of variation of the first n runs is
below a threshold. It is reported because it is in common use. The estimates are the standard
error relative to the mean, the runs until it is below the threshold, and the runs that detect a
difference of that size. Each has a range that reflects the uncertainty of a small pilot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.intervals import Interval
from assay.stats.learning_curves import Summary, SummarySpec, summarize_curve
from assay.stats.power import Needed, first_n_below, trials_for_precision, trials_needed
from assay.stats.variance import relative_standard_error, sd_interval
from assay.training.gather import LoadedRun, SkippedRun, format_reasons

_MIN_VALUE = 1e-70
"""Smallest nonzero summary; below it, fourth powers underflow."""

WHY_THE_RULE_MISLEADS = (
    "The plain rule misleads: sd / mean estimates a constant that more runs do not shrink, so "
    "the first n below the threshold is luck, most often at n = 2; what shrinks is the "
    "standard error, sd / (sqrt(n) mean)."
)
"""Sentence for every report that shows the rule of thumb."""


@dataclass(frozen=True, kw_only=True)
class VarianceSettings:
    """Settings for estimating how many runs are needed."""

    threshold: float = 0.05
    """Threshold of relative errors and differences, as a share of the mean."""
    auc: SummarySpec
    """Window of the AUC; the slope is of the whole curve, unless this has step bounds."""
    power: float = 0.8
    alpha: float = 0.05
    correlation: float = 0.5
    """Assumed correlation of two arms with the same seeds, for the paired design."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise UsageError(
                f"threshold must be a finite number above 0 (got {self.threshold!r}); 0.05 "
                "means 5 % of the mean"
            )
        if not -1 < self.correlation < 1:
            raise UsageError(
                f"correlation {self.correlation!r} is not between -1 and 1; the default is 0.5"
            )
        if not 0 < self.alpha < 1:
            raise UsageError(f"alpha {self.alpha!r} is not between 0 and 1; 0.05 is usual")
        if not self.alpha < self.power < 1:
            raise UsageError(
                f"power {self.power!r} is not between alpha ({self.alpha:g}) and 1; 0.8 is "
                "usual"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummaryVariance:
    """Variance of one summary over all runs."""

    name: str
    summary: SummarySpec
    values_R: NDArray[np.float64]
    """The summary of each run, in the given order."""
    mean: float
    sd: float
    rule_n: int | None
    """First n at which sd / mean of the first n runs is below the threshold; None: never."""
    rule: tuple[tuple[int, float], ...]
    """Pairs of n (from 2) and sd / mean of the first n runs."""
    error: Interval
    """Relative standard error with the given runs."""
    precision: Needed | None
    """Runs until the relative standard error is below the threshold."""
    two_arms: Needed | None
    """Runs per arm to detect a difference of the threshold times the mean."""
    paired: Needed | None
    """Pairs to detect this difference, with the assumed correlation."""
    note: str | None = None
    """Reason why values are missing or uninformative."""


def summarize_runs(runs: Sequence[LoadedRun], spec: SummarySpec) -> NDArray[np.float64]:
    """Return the summary of each run, infinity if it never reaches a threshold; shape (R,).

    Raises:
        UsageError: A curve does not cover the window; the message names the run.
    """
    values_R = np.empty(len(runs))
    for index, run in enumerate(runs):
        try:
            values_R[index] = summarize_curve(run.curve.steps_P, run.curve.values_P, spec)
        except UsageError as error:
            raise UsageError(f"run {run.name!r}: {error}") from error
        if 0 < abs(values_R[index]) < _MIN_VALUE:
            raise UsageError(
                f"run {run.name!r}: {values_R[index]:.4g} is too small to compute with; give "
                "values in another unit"
            )
    return values_R


def analyse_variance(
    runs: Sequence[LoadedRun],
    settings: VarianceSettings,
    unusable: Sequence[SkippedRun] = (),
) -> tuple[SummaryVariance, SummaryVariance]:
    """Analyse the AUC and the slope of all runs; `unusable` runs are only named in the error.

    Raises:
        UsageError: There are fewer than two runs.
    """
    if len(runs) < 2:
        raise UsageError(
            f"only {len(runs)} of {len(runs) + len(unusable)} runs can be used, and a variance "
            f"needs two; name more runs{format_reasons(unusable)}"
        )
    auc = settings.auc
    slope = SummarySpec(type=Summary.SLOPE, step_min=auc.step_min, step_max=auc.step_max)
    return (
        _analyse_summary("AUC", auc, summarize_runs(runs, auc), settings),
        _analyse_summary("slope", slope, summarize_runs(runs, slope), settings),
    )


def _analyse_summary(
    name: str, spec: SummarySpec, values_R: NDArray[np.float64], settings: VarianceSettings
) -> SummaryVariance:
    n, mean = len(values_R), float(values_R.mean())
    equal = values_R.min() == values_R.max()
    sd = 0.0 if equal else float(values_R.std(ddof=1))
    error = relative_standard_error(values_R, level=0.95)
    precision = two_arms = paired = note = None
    if mean == 0 or not math.isfinite(error.high):
        note = (
            f"the mean {name} ({mean:.4g}) is not clearly different from zero, so relative "
            "errors are meaningless and no number of runs is given"
        )
    else:
        precision = trials_for_precision(sd, mean, settings.threshold, n)
        effect = settings.threshold * abs(mean)
        two_arms = _compute_runs_needed(effect, sd, n, settings, paired=False)
        # The sd of the difference of two values with correlation r is sd sqrt(2 (1 - r)).
        factor = math.sqrt(2 * (1 - settings.correlation))
        paired = _compute_runs_needed(effect, sd * factor, n, settings, paired=True)
        if equal:
            note = f"all runs have the same {name}, so there is no variation to plan with"
    return SummaryVariance(
        name=name,
        summary=spec,
        values_R=values_R,
        mean=mean,
        sd=sd,
        rule_n=first_n_below(values_R, settings.threshold),
        rule=tuple((k, _compute_variation(values_R[:k])) for k in range(2, n + 1)),
        error=error,
        precision=precision,
        two_arms=two_arms,
        paired=paired,
        note=note,
    )


def _compute_runs_needed(
    effect: float, sd: float, n: int, settings: VarianceSettings, *, paired: bool
) -> Needed:
    """Return the runs that detect an effect, with a range for the uncertainty of the sd."""
    spread = sd_interval(sd, n)
    point, low, high = (
        trials_needed(effect, s, paired=paired, power=settings.power, alpha=settings.alpha)
        for s in spread
    )
    return Needed(point.trials, low.trials, high.trials, point.plain, n, 0.95)


def _compute_variation(values: NDArray[np.float64]) -> float:
    mean = abs(float(values.mean()))
    return float(values.std(ddof=1)) / mean if mean > 1e-10 else math.inf
