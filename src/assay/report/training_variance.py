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
    Paragraph,
    ReportTable,
    Section,
)
from assay.report.files import interval_columns, to_json_value
from assay.report.numbers import DASH
from assay.report.provenance import provenance_lines, software_versions
from assay.report.training_analysis import (
    format_number,
    needed_values,
    run_sources,
    run_values,
    skipped_runs_section,
)
from assay.stats.intervals import Interval
from assay.stats.power import Needed
from assay.training.analysis_settings import describe_summary
from assay.training.gather import RunSet
from assay.training.variance import WHY_THE_RULE_MISLEADS, SummaryVariance, VarianceSettings

if TYPE_CHECKING:
    from assay.report.figures.curves import VariancePanel
    from assay.report.figures.drawing import Drawing

_MAX_CURVE_FACTOR: Final = 4
"""Longest precision curve, as a multiple of the number of runs."""
_MIN_CURVE_RUNS: Final = 5
"""Shortest precision curve, because two runs alone would be a point."""


_HEADS: Final = {"slope": "slope (Derivative)"}


def variance_document(
    gathered: RunSet, summaries: Sequence[SummaryVariance], settings: VarianceSettings
) -> Document:
    """Build the report: the spread of two summaries, and the number of runs needed."""
    runs, share = len(gathered.runs), _format_percent(settings.threshold)
    taken = "; ".join(describe_summary(summary.summary) for summary in summaries)
    blocks: list[Block] = [
        ReportTable(
            "",
            ["", *(_HEADS.get(summary.name, summary.name) for summary in summaries)],
            _table_rows(summaries, settings, runs),
        ),
        Paragraph(WHY_THE_RULE_MISLEADS),
        Paragraph(
            f"In brackets: about 95 % ranges; {runs} runs determine the spread only roughly."
            f" {taken}."
        ),
    ]
    notes = [summary.note for summary in summaries if summary.note]
    if notes := [*notes, *gathered.notes]:
        blocks.append(Items(notes))
    blocks.append(Figures(lambda: [draw_variance(gathered, summaries, settings)]))
    return Document(
        title=f"{gathered.metric}: {runs} runs, threshold {share}",
        sections=[Section("How many runs", blocks), *skipped_runs_section(gathered.unusable)],
        origin=provenance_lines(_settings_values(settings), run_sources(gathered.runs)),
        values=lambda: _json_values(gathered, summaries, settings),
        rows=lambda: [_csv_row(gathered, summary, settings) for summary in summaries],
    )


def draw_variance(
    gathered: RunSet, summaries: Sequence[SummaryVariance], settings: VarianceSettings
) -> "Drawing":
    """Draw a panel for the area and one for the slope."""
    from assay.report.figures.curves import draw_variance_panels

    return draw_variance_panels(
        [_build_panel(summary) for summary in summaries],
        threshold=settings.threshold,
        runs=len(gathered.runs),
        metric=gathered.metric,
    )


def _table_rows(
    summaries: Sequence[SummaryVariance], settings: VarianceSettings, runs: int
) -> list[list[str | Cell]]:
    share, power = _format_percent(settings.threshold), _format_percent(settings.power)
    return [
        ["mean", *(format_number(summary.mean) for summary in summaries)],
        ["standard deviation", *(format_number(summary.sd) for summary in summaries)],
        [
            f"plain rule: minimum N, sd / mean below {share}",
            *(str(summary.rule_n or "never") for summary in summaries),
        ],
        [
            f"relative standard error at N = {runs}",
            *(_error_cell(summary.error) for summary in summaries),
        ],
        [
            f"N for a standard error below {share}",
            *(_needed_cell(summary.precision) for summary in summaries),
        ],
        [
            f"N per arm, difference of {share}, power {power}",
            *(_needed_cell(summary.two_arms) for summary in summaries),
        ],
        [
            f"pairs for that, if seeds correlate at {settings.correlation:g}",
            *(_needed_cell(summary.paired) for summary in summaries),
        ],
    ]


def _format_percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _error_cell(interval: Interval) -> Cell:
    if math.isnan(interval.point):
        return Cell(DASH)
    low, high = (f"{100 * bound:.3g}" for bound in interval[1:])
    ends = f"{low} to {high} %" if math.isfinite(interval.high) else f"{low} % or more"
    return Cell(f"{100 * interval.point:.3g} %", f"({ends})")


def _needed_bounds(needed: Needed | None) -> tuple[int, int | None, int | None] | None:
    return None if needed is None else (needed.trials, needed.low, needed.high)


def _needed_cell(needed: Needed | None) -> Cell:
    if needed is None:
        return Cell(DASH)
    if needed.low is None:
        return Cell(str(needed.trials))
    high = "no limit" if needed.high is None else f"{needed.high:,}"
    return Cell(f"{needed.trials:,}", f"({needed.low:,} to {high})")


def _settings_values(settings: VarianceSettings) -> dict[str, Any]:
    return {
        "threshold": settings.threshold,
        "power": settings.power,
        "alpha": settings.alpha,
        "supposed_correlation": settings.correlation,
    }


def _json_values(
    gathered: RunSet, summaries: Sequence[SummaryVariance], settings: VarianceSettings
) -> dict[str, Any]:
    return {
        "metric": gathered.metric,
        "threshold": settings.threshold,
        "runs": [run_values(loaded) for loaded in gathered.runs],
        "left_out": to_json_value(gathered.unusable),
        "summaries": {summary.name.lower(): _summary_values(summary) for summary in summaries},
        "power": settings.power,
        "alpha": settings.alpha,
        "supposed_correlation": settings.correlation,
        "why_the_rule_misleads": WHY_THE_RULE_MISLEADS,
        "notes": list(gathered.notes),
        "versions": software_versions(),
    }


def _summary_values(summary: SummaryVariance) -> dict[str, Any]:
    return {
        "summary": describe_summary(summary.summary),
        "values": summary.values_R.tolist(),
        "mean": summary.mean,
        "sd": summary.sd,
        "plain_rule_n": summary.rule_n,
        "relative_standard_error": to_json_value(summary.error),
        "n_for_precision": needed_values(summary.precision),
        "n_two_arms": needed_values(summary.two_arms),
        "n_paired": needed_values(summary.paired),
        "note": summary.note,
    }


def _csv_row(
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
        **interval_columns("n_for_precision", _needed_bounds(summary.precision)),
        **interval_columns("n_two_arms", _needed_bounds(summary.two_arms)),
        **interval_columns("n_paired", _needed_bounds(summary.paired)),
        "note": summary.note,
        **_settings_values(settings),
        "run_ids": json.dumps([loaded.run.id for loaded in gathered.runs], ensure_ascii=False),
        **{f"analysed_by_{name}": value for name, value in software_versions().items()},
    }


def _build_panel(summary: SummaryVariance) -> "VariancePanel":
    from assay.report.figures.curves import PrecisionPoint, VariancePanel

    runs, needed = len(summary.values_R), summary.precision
    last = runs
    if needed is not None:
        last = min(max(runs, needed.trials), _MAX_CURVE_FACTOR * runs)
    # The spread is estimated from all runs; only the square root of n varies along the axis.
    points = [
        PrecisionPoint(n, *(bound * math.sqrt(runs / n) for bound in summary.error))
        for n in range(2, max(last, _MIN_CURVE_RUNS) + 1)
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
