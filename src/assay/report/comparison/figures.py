"""The figures of a comparison, by the section they belong to."""

from collections.abc import Iterator, Sequence

from assay.judge.facts import Comparison, Contrast
from assay.judge.matching import trial_values
from assay.report.comparison.numbers import level_text, unit_name
from assay.report.comparison.words import sample_words
from assay.report.figures.cost import CostPoint, cost_quality
from assay.report.figures.curves import learning_curves
from assay.report.figures.distributions import box_plot, histogram
from assay.report.figures.drawing import Drawing
from assay.report.figures.instances import (
    CompletionRow,
    SuccessRow,
    completion_times,
    success_bars,
    success_heat_map,
)
from assay.report.figures.intervals import ForestRow, forest
from assay.report.figures.pairs import PairRow, pair_differences, pair_lines
from assay.report.figures.radial import LEAST_AXES, radial, scaled_to_best

__all__ = ["drawings"]

_MOST_CANDIDATES = 6
"""Candidates that get figures of their own."""
_MOST_AXES = 12
_MOST_POINTS = 2_000
"""Trials that are drawn as single points; a page of more is slow to open."""


def drawings(comparison: Comparison) -> dict[str, list[Drawing]]:
    """The drawings of each section that has some."""
    found = {
        "answers": [*_forest(comparison)],
        "values": [*_values(comparison)],
        "metrics": [*_radial(comparison)],
        "instances": [*_instances(comparison)],
        "pairs": [*_pairs(comparison)],
        "cost": [*_cost(comparison)],
        "curves": [*_curves(comparison)],
    }
    return {section: drawn for section, drawn in found.items() if drawn}


def _forest(comparison: Comparison) -> Iterator[Drawing]:
    metric, level = comparison.setup.primary, level_text(comparison.setup.level)
    yield forest(
        [
            ForestRow(comparison.of(one.candidate).name, one.difference, sample_words(one))
            for one in comparison.decisive
        ],
        f"difference in {unit_name(metric)}",
        meaning=f"{level} interval of the difference",
        title=f"Difference in {metric} from {comparison.baseline.name}",
    )


def _values(comparison: Comparison) -> Iterator[Drawing]:
    for metric in dict.fromkeys(["achievements", comparison.setup.primary]):
        groups = {
            one.name: trial_values(one.subject.trials, metric)
            for one in comparison.subjects
            if metric in one.metrics
        }
        if groups:
            yield histogram(groups, unit_name(metric))
            if max(map(len, groups.values())) <= _MOST_POINTS:
                yield box_plot(groups, unit_name(metric))


def _radial(comparison: Comparison) -> Iterator[Drawing]:
    axes = comparison.setup.metrics[:_MOST_AXES]
    raw: dict[str, Sequence[float | None]] = {
        one.name: [one.metrics[metric].mean.point for metric in axes]
        for one in comparison.subjects
        if one.judged
    }
    if len(axes) >= LEAST_AXES:
        lower = comparison.setup.lower_is_better
        yield radial(axes, scaled_to_best(axes, raw, lower_is_better=lower), raw=raw)


def _instances(comparison: Comparison) -> Iterator[Drawing]:
    rows = comparison.instances
    if not rows:
        return
    name = {one.id: one.name for one in comparison.subjects}
    yield success_bars(
        [SuccessRow(row.task, name[row.subject], row.success, row.n) for row in rows],
        meaning=f"{level_text(comparison.setup.level)} Wilson interval",
    )
    tasks = list(dict.fromkeys(row.task for row in rows))
    if len(tasks) > 1:
        cells = {(row.task, row.subject): row for row in rows}
        ids = list(dict.fromkeys(row.subject for row in rows))
        yield success_heat_map(
            tasks,
            [name[one] for one in ids],
            [
                [
                    cells[task, one].success.point if (task, one) in cells else float("nan")
                    for one in ids
                ]
                for task in tasks
            ],
            counts=[
                [cells[task, one].n if (task, one) in cells else 0 for one in ids]
                for task in tasks
            ],
        )
    times = [
        CompletionRow(name[row.subject], row.task, time.seconds, not time.reached)
        for row in rows
        for time in row.times
    ]
    if 0 < len(times) <= _MOST_POINTS:
        yield completion_times(times)


def _pairs(comparison: Comparison) -> Iterator[Drawing]:
    for one in comparison.decisive[:_MOST_CANDIDATES]:
        if one.paired and len(one.pairs) <= _MOST_POINTS:
            yield from _pair_drawings(comparison, one)


def _pair_drawings(comparison: Comparison, one: Contrast) -> Iterator[Drawing]:
    a, b = (comparison.of(each).name for each in (one.baseline, one.candidate))
    rows = [PairRow(row.pair, row.baseline, row.candidate) for row in one.pairs]
    yield pair_lines(rows, a, b, unit_name(one.metric))
    level = level_text(comparison.setup.level)
    yield pair_differences(
        rows,
        a,
        b,
        unit_name(one.metric),
        interval=one.difference,
        meaning=f"{level} interval of the mean difference",
    )


def _cost(comparison: Comparison) -> Iterator[Drawing]:
    metric = comparison.setup.primary
    for priced, label in (
        ("cost_usd", "cost per trial ($)"),
        ("duration_s", "time per trial (s)"),
    ):
        if metric == priced or not any(priced in one.metrics for one in comparison.subjects):
            continue
        yield cost_quality(
            [
                CostPoint(
                    one.name,
                    one.metrics[priced].mean if priced in one.metrics else None,
                    one.metrics[metric].mean,
                    one.metrics[metric].n,
                )
                for one in comparison.subjects
            ],
            unit_name(metric),
            cost_label=label,
            higher_is_better=metric not in comparison.setup.lower_is_better,
            meaning=f"{level_text(comparison.setup.level)} intervals",
            title=f"{metric} and {label}",
        )
        return


def _curves(comparison: Comparison) -> Iterator[Drawing]:
    metrics = dict.fromkeys(curve.metric for one in comparison.subjects for curve in one.curves)
    for metric in metrics:
        groups = {
            one.name: [(c.steps, c.values) for c in one.curves if c.metric == metric]
            for one in comparison.subjects
        }
        yield learning_curves(
            {name: runs for name, runs in groups.items() if runs},
            metric,
            level=comparison.setup.level,
        )
