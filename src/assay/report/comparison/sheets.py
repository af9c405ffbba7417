"""The tables of a report that describe: values, instances, versions, pairs, costs, curves."""

from collections.abc import Iterator, Sequence

from assay.judge.facts import Comparison, InstanceRow
from assay.report.cells import DASH, Cell, count
from assay.report.comparison.document import Block, Sheet
from assay.report.comparison.numbers import (
    change,
    digits_like,
    level_text,
    mean_cell,
    plain,
    share_cell,
    value,
)

__all__ = [
    "MOST_PAIRS",
    "cost_sheets",
    "curves_sheets",
    "instances_sheets",
    "pairs_sheets",
    "scores_sheets",
    "values_sheets",
    "versions_sheet",
    "whole_sheets",
]

MOST_PAIRS = 200
"""Pairs that a table shows; JSON has all of them."""


def values_sheets(comparison: Comparison, metrics: Sequence[str]) -> Iterator[Block]:
    """Mean, median, spread and range of each subject, a table per metric."""
    for metric in metrics:
        rows = []
        for one in comparison.subjects:
            found = one.metrics.get(metric)
            if found is None:
                continue
            marks = (found.median, found.sd, found.least, found.most)
            rows.append(
                (
                    _marked(comparison, one.id),
                    [
                        count(found.n),
                        mean_cell(metric, found.mean),
                        *(Cell(value(metric, mark, digits_like(found.mean))) for mark in marks),
                    ],
                )
            )
        heads = ["Subject", "Trials", "Mean", "Median", "SD", "Lowest", "Highest"]
        note = "* played only to compare with." if len(_judged(comparison)) < len(rows) else ""
        if rows:
            yield Sheet(metric, heads, rows, note)


def _judged(comparison: Comparison) -> list[str]:
    return [one.id for one in comparison.subjects if one.judged]


def _marked(comparison: Comparison, subject: str) -> str:
    one = comparison.of(subject)
    return one.name if one.judged else f"{one.name}*"


def scores_sheets(comparison: Comparison) -> Iterator[Block]:
    """The Crafter scores, where episodes say what they unlocked."""
    if not comparison.scores:
        return
    at = comparison.scores[0].at
    yield Sheet(
        "Crafter score (%)",
        ["Subject", "Episodes", "Score", f"At {at:,} episodes", "Corrected"],
        [
            (
                _marked(comparison, one.subject),
                [
                    count(one.n),
                    mean_cell("", one.interval),
                    Cell(plain(one.matched)),
                    Cell(plain(one.corrected)),
                ],
            )
            for one in comparison.scores
        ],
        "The score grows with the number of episodes: read across only the column that takes"
        f" {at:,} episodes of each. Corrected is the jackknife's guess at very many episodes.",
    )


def instances_sheets(comparison: Comparison) -> Iterator[Block]:
    """Success and time by task, where trials tell."""
    rows = comparison.instances
    if not rows:
        return
    enough = plain(comparison.setup.success_achievements).removesuffix(".00")
    timed = any(row.times for row in rows)
    heads = ["Task", "Subject", "Trials", "Successes", "Success rate"]
    yield Sheet(
        "Success and time by task",
        [*heads, "Median time", "Censored"] if timed else heads,
        [(row.task, _instance_cells(comparison, row, timed=timed)) for row in rows],
        f"A success: {enough} achievements or more, unless the trial says itself whether it was"
        f" one. In brackets: the {level_text(comparison.setup.level)} interval of Wilson."
        + (
            " A trial without success is censored: success would have taken it longer, so the"
            " median is that of Kaplan and Meier; a dash: fewer than half succeeded."
            if timed
            else ""
        ),
    )


def _instance_cells(comparison: Comparison, row: InstanceRow, *, timed: bool) -> list[Cell]:
    cells = [
        Cell(_marked(comparison, row.subject)),
        count(row.n),
        count(row.successes),
        share_cell(row.success),
    ]
    if timed:
        cells += [
            Cell(value("duration_s", row.median_time)),
            Cell(f"{row.censored:,} of {len(row.times):,}" if row.times else DASH),
        ]
    return cells


def whole_sheets(comparison: Comparison) -> Iterator[Block]:
    """Numbers that subjects have as a whole, if any; nothing is known of their spread."""
    names = list(dict.fromkeys(name for one in comparison.subjects for name in one.whole))
    if names:
        yield Sheet(
            "Numbers of all trials together",
            ["Subject", *names],
            [
                (one.name, [Cell(value(name, one.whole.get(name))) for name in names])
                for one in comparison.subjects
            ],
            "Made by metrics that take all trials at once: one number a subject, which has no"
            " interval and is not judged.",
        )


def versions_sheet(comparison: Comparison) -> Sheet:
    """Who was compared: series, version, commit, note and source."""
    return Sheet(
        "Who was compared",
        ["Subject", "Series", "Version", "Model", "Commit", "Created", "Note", "Source"],
        [
            (
                one.name,
                [
                    Cell(text or DASH)
                    for text in (
                        one.subject.series,
                        one.subject.version,
                        one.subject.model,
                        _short_commit(one.subject.commit),
                        f"{one.subject.created_at:%Y-%m-%d}"
                        if one.subject.created_at
                        else None,
                        one.subject.note,
                        one.subject.source,
                    )
                ],
            )
            for one in comparison.subjects
        ],
    )


def _short_commit(commit: str | None) -> str | None:
    return commit and commit[:10] + ("+" if commit[10:].endswith("+") else "")


def pairs_sheets(comparison: Comparison) -> Iterator[Block]:
    """The metric that decides, pair by pair, a table per candidate."""
    for one in comparison.decisive:
        if not one.paired:
            continue
        name, metric = comparison.of(one.candidate).name, one.metric
        rest = len(one.pairs) - MOST_PAIRS
        yield Sheet(
            f"{metric}, pair by pair: {name} against {comparison.baseline.name}",
            ["Pair", "Baseline", "Candidate", "Difference"],
            [
                (
                    row.pair,
                    [
                        Cell(value(metric, row.baseline)),
                        Cell(value(metric, row.candidate)),
                        Cell(change(metric, row.difference)),
                    ],
                )
                for row in one.pairs[:MOST_PAIRS]
            ],
            f"{rest:,} more pairs are in the JSON output." if rest > 0 else "",
        )


def cost_sheets(comparison: Comparison) -> Iterator[Block]:
    """What a trial costs, beside the metric that decides."""
    priced = ("cost_usd", "duration_s", "tokens")
    shown = [
        metric
        for metric in priced
        if metric != comparison.setup.primary
        and any(metric in one.metrics for one in comparison.subjects)
    ]
    if not shown:
        return
    metric = comparison.setup.primary
    heads = {"cost_usd": "Cost per trial", "duration_s": "Time per trial", "tokens": "Tokens"}
    yield Sheet(
        f"{metric} and what it costs",
        ["Subject", metric, *(heads[one] for one in shown)],
        [
            (
                _marked(comparison, one.id),
                [
                    mean_cell(name, one.metrics[name].mean if name in one.metrics else None)
                    for name in (metric, *shown)
                ],
            )
            for one in comparison.subjects
        ],
        f"Means with {level_text(comparison.setup.level)} intervals.",
    )


def curves_sheets(comparison: Comparison) -> Iterator[Block]:
    """Where learning curves begin and end, where a file has some."""
    rows: list[tuple[str, Sequence[Cell]]] = []
    for one in comparison.subjects:
        for curve in one.curves:
            rows.append(
                (
                    one.name,
                    [
                        Cell(curve.metric),
                        count(len(curve.steps)),
                        Cell(plain(curve.steps[-1])),
                        Cell(plain(curve.values[0])),
                        Cell(plain(curve.values[-1])),
                    ],
                )
            )
    if rows:
        yield Sheet(
            "Learning curves",
            ["Subject", "Metric", "Points", "Last step", "First value", "Last value"],
            rows,
        )
