"""Report of a metric over the versions of a series."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from assay.judge.versions import OverTime, VersionFacts
from assay.report.comparison.sentences import describe_differences, verdict_word
from assay.report.comparison.values import contrast_values
from assay.report.document import Document, Figures, Paragraph, ReportTable, Row, Section, Tone
from assay.report.files import interval_columns, to_json_value
from assay.report.numbers import (
    DASH,
    axis_label,
    format_count,
    format_p_value,
    format_value,
    level_text,
    mean_cell,
)
from assay.report.provenance import (
    comparison_configuration,
    provenance_columns,
    provenance_lines,
    software_versions,
    subject_sources,
    terminal_footer,
)

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

OVER_TIME_FORMAT: Final = "assay-over-time/1"


def over_time_document(series: OverTime) -> Document:
    """Build the report that compares every version with the previous one."""
    setup = series.setup
    table = ReportTable(
        f"{setup.primary} by version",
        ["Version", "Trials", "Mean", "Change", "p", "Verdict", "Commit", "Note"],
        [_table_row(version, setup.primary) for version in series.rows],
        f"In brackets: about {level_text(setup.level)} intervals. Change: from the previous"
        " version; p is adjusted for all changes (Holm).",
    )
    notes = [
        Paragraph(note, Tone.NOTE)
        for note in (
            *(
                f"{row.version}: {describe_differences(row.change.design)}."
                for row in series.rows
                if row.change is not None and row.change.design
            ),
            *(
                _explain_missing_verdict(row)
                for row in series.rows
                if row.change and row.change.confounds
            ),
            *series.notes,
        )
    ]
    subjects = [subject for version in series.rows for subject in version.experiments]
    return Document(
        title=f"{series.series} over time",
        summary=[_summarize_series(series)],
        sections=[Section("Versions", [table, *notes, Figures(lambda: _draw_figures(series))])],
        origin=provenance_lines(
            comparison_configuration(setup), subject_sources(subjects), setup.seed
        ),
        more=terminal_footer(setup.seed),
        values=lambda: _json_values(series),
        rows=lambda: [_csv_row(series, version) for version in series.rows],
    )


def _table_row(version: VersionFacts, metric: str) -> Row:
    change, last = version.change, version.experiments[-1]
    tests = None if change is None or change.look is not None else change.tests
    return [
        version.version,
        format_count(version.trials),
        mean_cell(metric, version.mean),
        mean_cell(metric, None if change is None else change.difference, signed=True),
        DASH if tests is None else format_p_value(tests.p_adjusted),
        DASH if change is None else verdict_word(change),
        (last.commit or DASH)[:10],
        last.note or DASH,
    ]


def _explain_missing_verdict(row: VersionFacts) -> str:
    assert row.change is not None
    names = [confound.name for confound in row.change.confounds]
    options = " ".join(f"--allow-different {name}" for name in names)
    return (
        f"{row.version} has a different task from the previous version ({', '.join(names)}):"
        " a change may be due to the task, so no verdict is given. To get one, add"
        f" {options}."
    )


def _summarize_series(series: OverTime) -> str:
    first, last, metric = series.rows[0], series.rows[-1], series.setup.primary
    if first is last:
        return (
            f"One version, {first.version}: {metric} {format_value(metric, first.mean.point)}."
        )
    return (
        f"{metric} from {format_value(metric, first.mean.point)} ({first.version}) to"
        f" {format_value(metric, last.mean.point)} ({last.version})"
        f" over {len(series.rows)} versions."
    )


def _draw_figures(series: OverTime) -> "Iterator[Drawing]":
    from assay.report.figures.intervals import VersionRow, draw_versions_over_time

    yield draw_versions_over_time(
        [
            VersionRow(row.version, row.mean, row.trials, row.experiments[-1].note or "")
            for row in series.rows
        ],
        axis_label(series.setup.primary),
        meaning=f"about {level_text(series.setup.level)} interval of the mean",
    )


def _json_values(series: OverTime) -> dict[str, Any]:
    return {
        "format": OVER_TIME_FORMAT,
        "made": software_versions(),
        "configuration": comparison_configuration(series.setup),
        "series": series.series,
        "metric": series.setup.primary,
        "versions": [
            {
                "version": row.version,
                "experiments": [subject.id for subject in row.experiments],
                "trials": row.trials,
                "mean": to_json_value(row.mean),
                "change": row.change and contrast_values(replace(row.change, pairs=())),
            }
            for row in series.rows
        ],
        "notes": list(series.notes),
    }


def _csv_row(series: OverTime, row: VersionFacts) -> dict[str, Any]:
    change = row.change
    tests = change and change.tests
    return {
        "series": series.series,
        "version": row.version,
        "metric": series.setup.primary,
        "trials": row.trials,
        **interval_columns("mean", row.mean),
        **interval_columns("change", None if change is None else change.difference),
        "p_adjusted": tests and tests.p_adjusted,
        "verdict": change and change.verdict.value,
        "experiments": " ".join(subject.id for subject in row.experiments),
        "commit": row.experiments[-1].commit,
        "note": row.experiments[-1].note,
        "level": series.setup.level,
        "generator_seed": series.setup.seed,
        **provenance_columns(series.setup),
    }
