"""Report of the number of training runs that are sufficient."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from assay.report.document import (
    Block,
    Cell,
    Document,
    Figures,
    Items,
    ReportTable,
    Section,
    Words,
)
from assay.report.files import interval_columns, jsonable
from assay.report.numbers import DASH
from assay.report.provenance import made_by, versions
from assay.report.training_analysis import (
    left_out,
    needed_values,
    number,
    run_sources,
    run_values,
)
from assay.stats.intervals import Interval
from assay.stats.power import Needed
from assay.training.analysis_settings import describe_summary
from assay.training.gather import RunSet
from assay.training.variance import WHY_THE_RULE_MISLEADS, SummaryVariance, VarianceSettings

if TYPE_CHECKING:
    from assay.report.figures.curves import VariancePanel
    from assay.report.figures.drawing import Drawing

_FURTHEST: Final = 4
"""Longest precision curve, as a multiple of the number of runs."""
_NEAREST: Final = 5
"""Shortest precision curve, because two runs alone would be a point."""


_HEADS: Final = {"slope": "slope (Derivative)"}


def variance_document(
    gathered: RunSet, summaries: Sequence[SummaryVariance], settings: VarianceSettings
) -> Document:
    """Build the report: the spread of two summaries, and the number of runs needed."""
    runs, share = len(gathered.runs), _percent(settings.threshold)
    taken = "; ".join(describe_summary(summary.summary) for summary in summaries)
    blocks: list[Block] = [
        ReportTable(
            "",
            ["", *(_HEADS.get(summary.name, summary.name) for summary in summaries)],
            _rows(summaries, settings, runs),
        ),
        Words(WHY_THE_RULE_MISLEADS),
        Words(
            f"In brackets: about 95 % ranges, from how little {runs} runs say about the spread."
            f" {taken}."
        ),
    ]
    notes = [summary.note for summary in summaries if summary.note]
    if notes := [*notes, *gathered.notes]:
        blocks.append(Items(notes))
    blocks.append(Figures(lambda: [variance_drawing(gathered, summaries, settings)]))
    return Document(
        title=f"{gathered.metric}: {runs} runs, threshold {share}",
        sections=[Section("How many runs", blocks), *left_out(gathered.unusable)],
        origin=made_by(_settings(settings), run_sources(gathered.runs)),
        values=lambda: _values(gathered, summaries, settings),
        rows=lambda: [_columns(gathered, summary, settings) for summary in summaries],
    )


def variance_drawing(
    gathered: RunSet, summaries: Sequence[SummaryVariance], settings: VarianceSettings
) -> "Drawing":
    """Draw a panel for the area and one for the slope."""
    from assay.report.figures.curves import variance_panels

    return variance_panels(
        [_panel(summary) for summary in summaries],
        threshold=settings.threshold,
        runs=len(gathered.runs),
        metric=gathered.metric,
    )


def _rows(
    summaries: Sequence[SummaryVariance], settings: VarianceSettings, runs: int
) -> list[list[str | Cell]]:
    share, power = _percent(settings.threshold), _percent(settings.power)
    return [
        ["mean", *(number(summary.mean) for summary in summaries)],
        ["standard deviation", *(number(summary.sd) for summary in summaries)],
        [
            f"plain rule: minimum N, sd / mean below {share}",
            *(str(summary.rule_n or "never") for summary in summaries),
        ],
        [
            f"relative standard error at N = {runs}",
            *(_error(summary.error) for summary in summaries),
        ],
        [
            f"N for a standard error below {share}",
            *(_needed(summary.precision) for summary in summaries),
        ],
        [
            f"N per arm, difference of {share}, power {power}",
            *(_needed(summary.two_arms) for summary in summaries),
        ],
        [
            f"pairs for that, if seeds correlate at {settings.correlation:g}",
            *(_needed(summary.paired) for summary in summaries),
        ],
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _error(interval: Interval) -> Cell:
    if math.isnan(interval.point):
        return Cell(DASH)
    low, high = (f"{100 * bound:.3g}" for bound in interval[1:])
    ends = f"{low} to {high} %" if math.isfinite(interval.high) else f"{low} % or more"
    return Cell(f"{100 * interval.point:.3g} %", f"({ends})")


def _bounded(needed: Needed | None) -> tuple[int, int | None, int | None] | None:
    return None if needed is None else (needed.trials, needed.low, needed.high)


def _needed(needed: Needed | None) -> Cell:
    if needed is None:
        return Cell(DASH)
    if needed.low is None:
        return Cell(str(needed.trials))
    high = "no limit" if needed.high is None else f"{needed.high:,}"
    return Cell(f"{needed.trials:,}", f"({needed.low:,} to {high})")


def _settings(settings: VarianceSettings) -> dict[str, Any]:
    return {
        "threshold": settings.threshold,
        "power": settings.power,
        "alpha": settings.alpha,
        "supposed_correlation": settings.correlation,
    }


def _values(
    gathered: RunSet, summaries: Sequence[SummaryVariance], settings: VarianceSettings
) -> dict[str, Any]:
    return {
        "metric": gathered.metric,
        "threshold": settings.threshold,
        "runs": [run_values(found) for found in gathered.runs],
        "left_out": jsonable(gathered.unusable),
        "summaries": {summary.name.lower(): _summary(summary) for summary in summaries},
        "power": settings.power,
        "alpha": settings.alpha,
        "supposed_correlation": settings.correlation,
        "why_the_rule_misleads": WHY_THE_RULE_MISLEADS,
        "notes": list(gathered.notes),
        "versions": versions(),
    }


def _summary(summary: SummaryVariance) -> dict[str, Any]:
    return {
        "summary": describe_summary(summary.summary),
        "values": summary.values_R.tolist(),
        "mean": summary.mean,
        "sd": summary.sd,
        "plain_rule_n": summary.rule_n,
        "relative_standard_error": jsonable(summary.error),
        "n_for_precision": needed_values(summary.precision),
        "n_two_arms": needed_values(summary.two_arms),
        "n_paired": needed_values(summary.paired),
        "note": summary.note,
    }


def _columns(
    gathered: RunSet, summary: SummaryVariance, settings: VarianceSettings
) -> dict[str, Any]:
    return {
        "metric": gathered.metric,
        "summary": describe_summary(summary.summary),
        "runs": len(gathered.runs),
        "mean": summary.mean,
        "sd": summary.sd,
        "plain_rule_n": summary.rule_n,
        **interval_columns("relative_standard_error", summary.error),
        **interval_columns("n_for_precision", _bounded(summary.precision)),
        **interval_columns("n_two_arms", _bounded(summary.two_arms)),
        **interval_columns("n_paired", _bounded(summary.paired)),
        "note": summary.note,
        **_settings(settings),
        "run_ids": json.dumps([found.run.id for found in gathered.runs], ensure_ascii=False),
        **{f"analysed_by_{name}": value for name, value in versions().items()},
    }


def _panel(summary: SummaryVariance) -> "VariancePanel":
    from assay.report.figures.curves import PrecisionPoint, VariancePanel

    runs, needed = len(summary.values_R), summary.precision
    last = runs
    if needed is not None:
        last = min(max(runs, needed.trials), _FURTHEST * runs)
    # The spread is estimated from all runs; only the square root of n varies along the axis.
    points = [
        PrecisionPoint(n, *(bound * math.sqrt(runs / n) for bound in summary.error))
        for n in range(2, max(last, _NEAREST) + 1)
    ]
    return VariancePanel(
        name=summary.name,
        precision=points if math.isfinite(summary.error.point) else [],
        rule=summary.rule,
        rule_n=summary.rule_n,
        needed=None if needed is None else needed.trials,
        needed_low=None if needed is None else needed.low,
        needed_high=None if needed is None else needed.high,
    )
