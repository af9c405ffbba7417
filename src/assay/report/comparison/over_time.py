"""A metric over the versions of a series: in words, as a table, a figure and files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from assay.judge.over_time import OverTime, VersionFacts
from assay.report.cells import DASH, Cell, count
from assay.report.comparison.document import Document, Section, Sheet, Words
from assay.report.comparison.files import write_files
from assay.report.comparison.markdown import as_markdown
from assay.report.comparison.numbers import level_text, mean_cell, p_text, unit_name, value
from assay.report.comparison.origin import configuration, made_by, versions
from assay.report.comparison.tabular import to_csv
from assay.report.comparison.values import contrast_values, interval_columns, jsonable
from assay.report.comparison.words import verdict_word
from assay.stats.intervals import Interval

__all__ = ["over_time_document", "over_time_values", "write_over_time"]

OVER_TIME_FORMAT: Final = "assay-over-time/1"


def over_time_document(found: OverTime) -> Document:
    """The same as words and a table."""
    metric, level = found.setup.primary, level_text(found.setup.level)
    sheet = Sheet(
        f"{metric} by version",
        ["Version", "Trials", "Mean", "Change", "p", "Verdict", "Commit", "Note"],
        [(row.version, _cells(row, metric)) for row in found.rows],
        f"In brackets: {level} intervals. Change: beside the version before; p is adjusted for"
        " all changes (Holm).",
    )
    subjects = [one for row in found.rows for one in row.experiments]
    return Document(
        title=f"{found.series} over time",
        summary=[_summary(found)],
        sections=[
            Section("versions", "Versions", [sheet, *(Words(note) for note in found.notes)])
        ],
        made=made_by(found.setup, subjects),
    )


def over_time_values(found: OverTime) -> dict[str, Any]:
    """The same for a program to read."""
    return {
        "format": OVER_TIME_FORMAT,
        "made": versions(),
        "configuration": configuration(found.setup),
        "series": found.series,
        "metric": found.setup.primary,
        "versions": [
            {
                "version": row.version,
                "experiments": [one.id for one in row.experiments],
                "trials": row.trials,
                "mean": jsonable(row.mean),
                "change": row.change and contrast_values(replace(row.change, pairs=())),
            }
            for row in found.rows
        ],
        "notes": list(found.notes),
    }


def write_over_time(found: OverTime, *paths: Path) -> None:
    """Write it to files, by their endings.

    Raises:
        UsageError: An ending is not known.
        OutputError: A file cannot be written.
    """
    write_files(
        {
            ".html": lambda: _html(found),
            ".md": lambda: as_markdown(over_time_document(found)),
            ".json": lambda: json.dumps(over_time_values(found), indent=1, allow_nan=False),
            ".csv": lambda: to_csv([_columns(found, row) for row in found.rows]),
        },
        paths,
    )


def _cells(row: VersionFacts, metric: str) -> list[Cell]:
    change, last = row.change, row.experiments[-1]
    tests = None if change is None else change.tests
    return [
        count(row.trials),
        mean_cell(metric, row.mean),
        mean_cell(metric, None if change is None else change.difference, signed=True),
        Cell(
            DASH if tests is None else p_text(tests.p_adjusted).removeprefix("p ").lstrip("= ")
        ),
        Cell(DASH if change is None else verdict_word(change)),
        Cell((last.commit or DASH)[:10]),
        Cell(last.note or DASH),
    ]


def _summary(found: OverTime) -> str:
    first, last, metric = found.rows[0], found.rows[-1], found.setup.primary
    if first is last:
        return f"One version, {first.version}: {metric} {value(metric, first.mean.point)}."
    return (
        f"{metric} from {value(metric, first.mean.point)} ({first.version}) to"
        f" {value(metric, last.mean.point)} ({last.version}) over {len(found.rows)} versions."
    )


def _columns(found: OverTime, row: VersionFacts) -> dict[str, Any]:
    change, made = row.change, versions()
    nothing = Interval(float("nan"), float("nan"), float("nan"))
    tests = None if change is None else change.tests
    return {
        "series": found.series,
        "version": row.version,
        "metric": found.setup.primary,
        "trials": row.trials,
        **interval_columns("mean", row.mean),
        **interval_columns("change", nothing if change is None else change.difference),
        "p_adjusted": tests and tests.p_adjusted,
        "verdict": change and change.verdict.value,
        "experiments": " ".join(one.id for one in row.experiments),
        "commit": row.experiments[-1].commit,
        "note": row.experiments[-1].note,
        "level": found.setup.level,
        "generator_seed": found.setup.seed,
        "assay": made["assay"],
        "assay_commit": made["commit"],
        "configuration": json.dumps(configuration(found.setup)),
    }


def _html(found: OverTime) -> str:
    # Drawing takes a second to import, and only pages need it.
    from assay.report.comparison.html import as_html
    from assay.report.figures.versions import VersionRow, versions_over_time

    drawing = versions_over_time(
        [
            VersionRow(row.version, row.mean, row.trials, row.experiments[-1].note or "")
            for row in found.rows
        ],
        unit_name(found.setup.primary),
        meaning=f"{level_text(found.setup.level)} interval of the mean",
    )
    return as_html(over_time_document(found), {"versions": [drawing]})
