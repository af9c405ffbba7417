"""Report of a metric over the versions of a series."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from assay.judge.versions import OverTime, VersionFacts
from assay.report.comparison.sentences import compared_words, verdict_word
from assay.report.comparison.values import contrast_values
from assay.report.document import Document, Figures, ReportTable, Row, Section, Tone, Words
from assay.report.files import interval_columns, jsonable
from assay.report.numbers import DASH, count, level_text, mean_cell, p_number, unit_name, value
from assay.report.provenance import (
    configuration,
    made_by,
    made_columns,
    more_in_files,
    subject_sources,
    versions,
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
        [_row(version, setup.primary) for version in series.rows],
        f"In brackets: about {level_text(setup.level)} intervals. Change: beside the version"
        " before; p is adjusted for all changes (Holm).",
    )
    notes = [
        Words(note, Tone.NOTE)
        for note in (
            *(
                f"{row.version}: {compared_words(row.change.design)}."
                for row in series.rows
                if row.change is not None and row.change.design
            ),
            *(
                _not_comparable(row)
                for row in series.rows
                if row.change and row.change.confounds
            ),
            *series.notes,
        )
    ]
    subjects = [subject for version in series.rows for subject in version.experiments]
    return Document(
        title=f"{series.series} over time",
        summary=[_summary(series)],
        sections=[Section("Versions", [table, *notes, Figures(lambda: _figures(series))])],
        origin=made_by(configuration(setup), subject_sources(subjects), setup.seed),
        more=more_in_files(setup.seed),
        values=lambda: _values(series),
        rows=lambda: [_columns(series, version) for version in series.rows],
    )


def _row(version: VersionFacts, metric: str) -> Row:
    change, last = version.change, version.experiments[-1]
    tests = None if change is None or change.look is not None else change.tests
    return [
        version.version,
        count(version.trials),
        mean_cell(metric, version.mean),
        mean_cell(metric, None if change is None else change.difference, signed=True),
        DASH if tests is None else p_number(tests.p_adjusted),
        DASH if change is None else verdict_word(change),
        (last.commit or DASH)[:10],
        last.note or DASH,
    ]


def _not_comparable(row: VersionFacts) -> str:
    assert row.change is not None
    names = [one.name for one in row.change.confounds]
    options = " ".join(f"--allow-different {name}" for name in names)
    return (
        f"{row.version} had another task than the version before ({', '.join(names)}), so a"
        f" change may be that of the task, and there is no verdict; {options} gives one."
    )


def _summary(series: OverTime) -> str:
    first, last, metric = series.rows[0], series.rows[-1], series.setup.primary
    if first is last:
        return f"One version, {first.version}: {metric} {value(metric, first.mean.point)}."
    return (
        f"{metric} from {value(metric, first.mean.point)} ({first.version}) to"
        f" {value(metric, last.mean.point)} ({last.version}) over {len(series.rows)} versions."
    )


def _figures(series: OverTime) -> "Iterator[Drawing]":
    from assay.report.figures.intervals import VersionRow, versions_over_time

    yield versions_over_time(
        [
            VersionRow(row.version, row.mean, row.trials, row.experiments[-1].note or "")
            for row in series.rows
        ],
        unit_name(series.setup.primary),
        meaning=f"about {level_text(series.setup.level)} interval of the mean",
    )


def _values(series: OverTime) -> dict[str, Any]:
    return {
        "format": OVER_TIME_FORMAT,
        "made": versions(),
        "configuration": configuration(series.setup),
        "series": series.series,
        "metric": series.setup.primary,
        "versions": [
            {
                "version": row.version,
                "experiments": [subject.id for subject in row.experiments],
                "trials": row.trials,
                "mean": jsonable(row.mean),
                "change": row.change and contrast_values(replace(row.change, pairs=())),
            }
            for row in series.rows
        ],
        "notes": list(series.notes),
    }


def _columns(series: OverTime, row: VersionFacts) -> dict[str, Any]:
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
        **made_columns(series.setup),
    }
