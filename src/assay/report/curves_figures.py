"""The figures of training runs: what was found, handed to those who draw."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from assay.curves.analysis import Analysis
from assay.curves.gather import FoundRun, Gathered
from assay.curves.variance import SummaryVariance, VarianceSettings
from assay.report.figures.curves import learning_curves
from assay.report.figures.distributions import bootstrap_distribution
from assay.report.figures.drawing import Drawing, save_png
from assay.report.figures.radial import radial, scaled_to_best
from assay.report.figures.variance import PrecisionPoint, VariancePanel, variance_panels
from assay.stats.learning import Summary
from assay.stats.means import Method

__all__ = ["analysis_drawings", "save_drawings", "variance_drawing"]

_FURTHEST: Final = 4
"""How many times the runs at hand a curve of precision goes at most."""
_NEAREST: Final = 5
"""Where it ends at least, since two runs alone would draw a point."""
_SHORT = {
    Summary.AUC: "AUC",
    Summary.LAST_N: "the last points",
    Summary.FINAL: "the final value",
    Summary.SLOPE: "slope",
    Summary.TIME_TO_THRESHOLD: "steps to the threshold",
}
_METHODS = {Method.AUTO: "Student's t", Method.T: "Student's t"}


def variance_drawing(
    gathered: Gathered, found: Sequence[SummaryVariance], settings: VarianceSettings
) -> Drawing:
    """A panel for the area and one for the slope."""
    return variance_panels(
        [_panel(one) for one in found],
        threshold=settings.threshold,
        runs=len(gathered.runs),
        metric=gathered.metric,
    )


def analysis_drawings(found: Analysis) -> dict[str, Drawing]:
    """The figures of an analysis by the names of their files."""
    settings, design = found.settings, found.design
    summary = settings.summary.type
    groups = {"control": _runs(design.control), "candidate": _runs(design.candidate)}
    names = [axis.name for axis in found.radial]
    raw = {
        "control": [axis.control for axis in found.radial],
        "candidate": [axis.candidate for axis in found.radial],
    }
    lower = [axis.name for axis in found.radial if axis.lower_is_better]
    drawings = {
        "learning_curves.png": learning_curves(groups, settings.metric, level=settings.level),
        "bootstrap_distribution.png": bootstrap_distribution(
            found.estimates_B,
            found.difference,
            "candidate minus control",
            level=settings.level,
            method=_METHODS.get(settings.method, str(settings.method)),
            title=f"{settings.metric}: bootstrap of the difference in {_SHORT[summary]}",
        ),
    }
    if any(value is not None for values in raw.values() for value in values):
        drawings["radial.png"] = radial(
            names,
            scaled_to_best(names, raw, lower_is_better=lower),
            raw=raw,
            scale="each axis is scaled to the better arm",
            title=f"{settings.metric}: five summaries of the curves",
        )
    return drawings


def save_drawings(drawings: dict[str, Drawing], folder: Path) -> list[Path]:
    """Write figures into a folder, made if missing; the paths."""
    paths = [folder / name for name in drawings]
    for path, drawing in zip(paths, drawings.values(), strict=True):
        save_png(drawing, path)
    return paths


def _runs(runs: Sequence[FoundRun]) -> list[tuple[Sequence[float], Sequence[float]]]:
    return [(one.curve.steps_P.tolist(), one.curve.values_P.tolist()) for one in runs]


def _panel(one: SummaryVariance) -> VariancePanel:
    runs, needed = len(one.values_R), one.precision
    last = runs
    if needed is not None:
        last = min(max(runs, needed.trials), _FURTHEST * runs)
    last = max(last, _NEAREST)
    # The spread is that of all runs; only the square root of n changes along the axis.
    points = [
        PrecisionPoint(n, *(bound * math.sqrt(runs / n) for bound in one.error))
        for n in range(2, last + 1)
    ]
    return VariancePanel(
        name=one.name,
        precision=points if math.isfinite(one.error.point) else [],
        rule=one.rule,
        rule_n=one.rule_n,
        needed=None if needed is None else needed.trials,
        needed_low=None if needed is None else needed.low,
        needed_high=None if needed is None else needed.high,
    )
