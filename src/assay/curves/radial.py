"""Five summaries of one metric beside each other: what a radial plot shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay.curves.design import Design
from assay.curves.gather import FoundRun
from assay.curves.variance import summarize_runs
from assay.errors import UsageError
from assay.stats.learning import Summary, SummarySpec

__all__ = ["RadialAxis", "radial_axes"]


@dataclass(frozen=True, slots=True)
class RadialAxis:
    """A summary of the curves, as the mean of each arm."""

    name: str
    control: float | None
    candidate: float | None
    """None where a run has no such number."""
    lower_is_better: bool = False


def radial_axes(design: Design, chosen: SummarySpec) -> tuple[RadialAxis, ...]:
    """The five summaries of the metric.

    The area has the window that was chosen. Without a threshold of the user's, that of the
    time is half of the way from the mean first to the mean last value of all runs. A metric
    that falls on the whole is taken for a loss: less of it is better.
    """
    curves = [one.curve for one in (*design.control, *design.candidate)]
    first, last = (float(np.mean([one.values_P[at] for one in curves])) for at in (0, -1))
    falling = chosen.falling if chosen.threshold is not None else last < first
    threshold = (first + last) / 2 if chosen.threshold is None else chosen.threshold
    n = min(chosen.n, *(len(curve) for curve in curves))
    specs = {
        "AUC": SummarySpec(
            percent=chosen.percent,
            percent_window=chosen.percent_window,
            step_min=chosen.step_min,
            step_max=chosen.step_max,
        ),
        f"last {n}": SummarySpec(type=Summary.LAST_N, n=n),
        "final": SummarySpec(type=Summary.FINAL),
        "slope": SummarySpec(type=Summary.SLOPE),
        f"steps to {threshold:.3g}": SummarySpec(
            type=Summary.TIME_TO_THRESHOLD, threshold=threshold, falling=falling
        ),
    }
    return tuple(
        RadialAxis(
            name,
            _mean(design.control, spec),
            _mean(design.candidate, spec),
            lower_is_better=falling or spec.type is Summary.TIME_TO_THRESHOLD,
        )
        for name, spec in specs.items()
    )


def _mean(runs: Sequence[FoundRun], spec: SummarySpec) -> float | None:
    # A window or a threshold that one of the runs does not reach: the axis has a gap.
    try:
        mean = float(np.mean(summarize_runs(runs, spec)))
    except UsageError:
        return None
    return mean if math.isfinite(mean) else None
