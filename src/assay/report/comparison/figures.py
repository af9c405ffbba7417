"""Figures of a comparison, by the section they belong to."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from assay.crafter.rules import EASIEST_FIRST, REFERENCES
from assay.judge.matching import MeasuredTrials, mean_over_worlds, measured_trials, trial_values
from assay.judge.outcomes import UNLOCKED
from assay.judge.results import Comparison, Contrast
from assay.judge.subjects import death_cause, ordered_causes
from assay.report.comparison.sentences import describe_sample
from assay.report.figures.achievements import RateRow, draw_rate_bars
from assay.report.figures.cost import CostPoint, draw_cost_quality
from assay.report.figures.curves import draw_learning_curves
from assay.report.figures.deaths import DeathRow, draw_causes_of_death
from assay.report.figures.distributions import draw_box_plot, draw_histogram
from assay.report.figures.drawing import Drawing
from assay.report.figures.instances import (
    CompletionRow,
    SuccessRow,
    draw_completion_times,
    draw_success_bars,
    draw_success_heat_map,
)
from assay.report.figures.intervals import ForestRow, draw_forest
from assay.report.figures.pairs import draw_pair_differences, draw_pair_lines
from assay.report.figures.radial import MIN_AXES, draw_radial, scale_to_best
from assay.report.numbers import axis_label, level_text
from assay.types import TrialState

_MAX_CANDIDATES = 6
"""Number of candidates that get separate figures."""
_MAX_AXES = 12
_MAX_POINTS = 2_000
"""Maximum number of trials drawn as single points; with more, a page is slow to open."""


def draw_section(comparison: Comparison, section: str) -> Iterator[Drawing]:
    """Yield the drawings of a section, by its title."""
    if section in _DRAW_BY_SECTION:
        yield from _DRAW_BY_SECTION[section](comparison)


def _level_prefix(contrasts: Sequence[Contrast]) -> str:
    return "" if all(contrast.promised for contrast in contrasts) else "about "


def _draw_differences(comparison: Comparison) -> Iterator[Drawing]:
    metric, level = comparison.setup.primary, level_text(comparison.setup.level)
    yield draw_forest(
        [
            ForestRow(
                comparison.of(contrast.candidate).name,
                contrast.difference,
                describe_sample(contrast),
            )
            for contrast in comparison.decisive
        ],
        f"difference in {axis_label(metric)}",
        meaning=f"{_level_prefix(comparison.decisive)}{level} interval of the difference",
        title=f"Difference in {metric} from {comparison.baseline.name}",
    )


def _draw_values(comparison: Comparison) -> Iterator[Drawing]:
    for metric in dict.fromkeys(["achievements", comparison.setup.primary]):
        groups = {
            facts.name: trial_values(facts.subject.trials, metric)
            for facts in comparison.subjects
            if metric in facts.metrics
        }
        if groups:
            yield draw_histogram(groups, axis_label(metric))
            if max(map(len, groups.values())) <= _MAX_POINTS:
                yield draw_box_plot(groups, axis_label(metric))


def _draw_radial(comparison: Comparison) -> Iterator[Drawing]:
    axes = comparison.setup.metrics[:_MAX_AXES]
    raw: dict[str, Sequence[float | None]] = {
        facts.name: [facts.metrics[metric].mean.point for metric in axes]
        for facts in comparison.subjects
        if facts.judged
    }
    if len(axes) >= MIN_AXES:
        lower = comparison.setup.lower_is_better
        yield draw_radial(axes, scale_to_best(axes, raw, lower_is_better=lower), raw=raw)


def _draw_instances(comparison: Comparison) -> Iterator[Drawing]:
    rows = comparison.instances
    name = {facts.id: facts.name for facts in comparison.subjects}
    yield draw_success_bars(
        [SuccessRow(row.task, name[row.subject], row.success, row.n) for row in rows],
        meaning=f"about {level_text(comparison.setup.level)} interval",
    )
    tasks = list(dict.fromkeys(row.task for row in rows))
    if len(tasks) > 1:
        cells = {(row.task, row.subject): row for row in rows}
        ids = list(dict.fromkeys(row.subject for row in rows))
        grid = [[cells.get((task, id)) for id in ids] for task in tasks]
        yield draw_success_heat_map(
            tasks,
            [name[id] for id in ids],
            [[row.success.point if row else float("nan") for row in line] for line in grid],
            counts=[[row.n if row else 0 for row in line] for line in grid],
        )
    times = [
        CompletionRow(
            name[row.subject],
            row.task,
            time.seconds if time.steps is None or row.unit == "s" else time.steps,
            not time.reached,
        )
        for row in rows
        for time in row.times
    ]
    if 0 < len(times) <= _MAX_POINTS:
        yield draw_completion_times(times, unit=next(row.unit for row in rows if row.times))


def _draw_pairs(comparison: Comparison) -> Iterator[Drawing]:
    for contrast in comparison.decisive[:_MAX_CANDIDATES]:
        if contrast.paired and len(contrast.pairs) <= _MAX_POINTS:
            yield from _draw_pair(comparison, contrast)


def _draw_pair(comparison: Comparison, contrast: Contrast) -> Iterator[Drawing]:
    baseline, candidate = (
        comparison.of(id).name for id in (contrast.baseline, contrast.candidate)
    )
    label = axis_label(contrast.metric)
    yield draw_pair_lines(contrast.pairs, baseline, candidate, label)
    yield draw_pair_differences(
        contrast.pairs,
        baseline,
        candidate,
        label,
        interval=contrast.difference,
        meaning=f"{_level_prefix([contrast])}{level_text(comparison.setup.level)} interval of"
        " the mean difference",
    )


def _draw_achievements(comparison: Comparison) -> Iterator[Drawing]:
    rows = []
    for facts in comparison.subjects:
        measured = {
            name: measured_trials(facts.subject.trials, f"{UNLOCKED}{name}")
            for name in EASIEST_FIRST
        }
        if all(len(trials.values) for trials in measured.values()):
            rates = {
                name: mean_over_worlds(trials, f"{UNLOCKED}{name}", comparison.setup.level)
                for name, trials in measured.items()
            }
            rows.append(RateRow(facts.name, rates, len(measured[EASIEST_FIRST[0]].values)))
    if rows:
        yield draw_rate_bars(
            rows,
            EASIEST_FIRST,
            {
                f"{reference.name} (n = {reference.episodes:,})": reference.rates
                for reference in REFERENCES
            },
        )


def _draw_endings(comparison: Comparison) -> Iterator[Drawing]:
    rows = []
    for facts in comparison.subjects:
        trials = [
            trial
            for trial in facts.subject.trials
            if trial.state is TrialState.RESULT and trial.ended is not None
        ]
        if not trials:
            continue
        died_of = [death_cause(trial.ended or "") for trial in trials]
        counts = Counter(cause for cause in died_of if cause is not None)
        died = MeasuredTrials.of(trials, [float(cause is not None) for cause in died_of])
        rows.append(
            DeathRow(
                facts.name,
                len(trials),
                mean_over_worlds(died, "died", comparison.setup.level),
                {cause: count / len(trials) for cause, count in counts.items()},
            )
        )
    if any(row.causes for row in rows):
        yield draw_causes_of_death(
            rows, ordered_causes(cause for row in rows for cause in row.causes)
        )


def _draw_cost(comparison: Comparison) -> Iterator[Drawing]:
    metric = comparison.setup.primary
    for priced, label in (
        ("cost_usd", "cost per trial ($)"),
        ("duration_s", "time per trial (s)"),
    ):
        summaries = [facts.metrics.get(priced) for facts in comparison.subjects]
        if metric == priced or not any(
            summary is not None and summary.mean.point for summary in summaries
        ):
            continue  # All values are zero.
        yield draw_cost_quality(
            [
                CostPoint(
                    facts.name,
                    facts.metrics[priced].mean if priced in facts.metrics else None,
                    facts.metrics[metric].mean,
                    facts.metrics[metric].n,
                )
                for facts in comparison.subjects
            ],
            axis_label(metric),
            cost_label=label,
            higher_is_better=metric not in comparison.setup.lower_is_better,
            meaning=f"about {level_text(comparison.setup.level)} intervals",
            title=f"{metric} and {label}",
        )
        return


def _draw_curves(comparison: Comparison) -> Iterator[Drawing]:
    for metric in dict.fromkeys(
        curve.metric for facts in comparison.subjects for curve in facts.curves
    ):
        groups = {
            facts.name: [
                (curve.steps, curve.values) for curve in facts.curves if curve.metric == metric
            ]
            for facts in comparison.subjects
        }
        yield draw_learning_curves(
            {name: runs for name, runs in groups.items() if runs},
            metric,
            level=comparison.setup.level,
        )


_DRAW_BY_SECTION: Mapping[str, Callable[[Comparison], Iterator[Drawing]]] = {
    "Leaderboard": _draw_differences,
    "Values": _draw_values,
    "Crafter score": _draw_achievements,
    "Instances": _draw_instances,
    "Endings": _draw_endings,
    "Pair by pair": _draw_pairs,
    "Cost and quality": _draw_cost,
    "Learning curves": _draw_curves,
    "Other metrics": _draw_radial,
}
