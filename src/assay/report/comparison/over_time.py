"""A metric from version to version of one series.

The experiments of a version are taken together: trials of the same pair are averaged, so that
playing a version again makes its mean surer only where it played other worlds. Each version
is compared with the one before it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from assay.errors import UsageError
from assay.report.cells import DASH, Cell, count
from assay.report.comparison.comparing import check_choices, common_metrics
from assay.report.comparison.contrasts import contrast
from assay.report.comparison.describing import lower_ones
from assay.report.comparison.document import Document, Section, Sheet, Words
from assay.report.comparison.facts import Contrast, Setup
from assay.report.comparison.files import write_files
from assay.report.comparison.markdown import as_markdown
from assay.report.comparison.matching import independent_values, trial_values
from assay.report.comparison.notes import empty_reason
from assay.report.comparison.numbers import level_text, mean_cell, p_text, unit_name, value
from assay.report.comparison.origin import configuration, made_by, versions
from assay.report.comparison.tabular import to_csv
from assay.report.comparison.values import interval_columns, jsonable
from assay.report.comparison.verdicts import decided
from assay.report.comparison.words import verdict_word
from assay.stats.intervals import Interval, t_interval
from assay.stats.many import Correction
from assay.stats.means import Method
from assay.traces.subjects import Subject

__all__ = [
    "OverTime",
    "VersionFacts",
    "over_time",
    "over_time_document",
    "over_time_values",
    "write_over_time",
]

OVER_TIME_FORMAT: Final = "assay-over-time/1"
_NO_VERSION = "(no version)"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What one version of a series earned."""

    version: str
    experiments: tuple[Subject, ...]
    trials: int
    mean: Interval
    change: Contrast | None
    """Beside the version before it; None for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """One metric over the versions of a series, the oldest first."""

    series: str
    setup: Setup
    rows: tuple[VersionFacts, ...]
    notes: tuple[str, ...]


def over_time(
    subjects: Sequence[Subject],
    *,
    metric: str | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> OverTime:
    """Follow a metric over the versions of a series.

    Args:
        subjects: The experiments of the series, the oldest first.
        metric: What to follow; without it achievements, or the first that all have.
        level: Of the intervals.
        seed: Of the generator.

    Raises:
        UsageError: No experiment has results, or one lacks the metric.
    """
    check_choices(level, seed=seed)
    empty = [one for one in subjects if not any(trial.values for trial in one.trials)]
    usable = [one for one in subjects if one not in empty]
    if not usable:
        reasons = "; ".join(map(empty_reason, empty)) or "it has no experiments"
        raise UsageError(f"there is nothing to follow over time: {reasons}")
    chosen, _ = common_metrics(usable, None if metric is None else [metric])
    setup = Setup(
        metrics=chosen[:1],
        baseline=usable[0].id,
        level=level,
        min_effect=None,
        success_achievements=3,
        seed=seed,
        method=Method.AUTO,
        correction=Correction.HOLM,
        lower_is_better=lower_ones(usable),
    )
    return OverTime(
        series=usable[0].series or usable[0].name,
        setup=setup,
        rows=_rows(usable, setup),
        notes=tuple(f"Left out: {empty_reason(one)}." for one in empty),
    )


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
                "change": row.change and jsonable(replace(row.change, pairs=())),
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


def _rows(subjects: Sequence[Subject], setup: Setup) -> tuple[VersionFacts, ...]:
    groups: dict[str, list[Subject]] = {}
    for one in subjects:
        groups.setdefault(one.version or _NO_VERSION, []).append(one)
    merged = [_merged(version, group) for version, group in groups.items()]
    metric = setup.primary
    changes = decided(
        [contrast(before, after, metric, setup) for before, after in pairwise(merged)],
        setup,
    )
    return tuple(
        VersionFacts(
            version=version,
            experiments=tuple(groups[version]),
            trials=len(trial_values(one.trials, metric)),
            mean=t_interval(independent_values(one.trials, metric).tolist(), setup.level),
            change=change,
        )
        for version, one, change in zip(groups, merged, (None, *changes), strict=True)
    )


def _merged(version: str, group: Sequence[Subject]) -> Subject:
    trials = tuple(trial for one in group for trial in one.trials)
    return Subject(id=f"{group[0].id} {version}", name=version, trials=trials)


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
