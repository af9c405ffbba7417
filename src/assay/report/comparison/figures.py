"""Figures of a comparison, by the section they belong to."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from assay.crafter.rules import EASIEST_FIRST, REFERENCES
from assay.judge.matching import MeasuredTrials, mean_over_worlds, measured_trials, trial_values
from assay.judge.outcomes import UNLOCKED
from assay.judge.results import Comparison, Contrast
from assay.judge.subjects import death_cause, ordered_causes
from assay.report.comparison.sentences import sample_words
from assay.report.figures.achievements import RateRow, rate_bars
from assay.report.figures.cost import CostPoint, cost_quality
from assay.report.figures.curves import learning_curves
from assay.report.figures.deaths import DeathRow, causes_of_death
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
from assay.report.figures.pairs import pair_differences, pair_lines
from assay.report.figures.radial import LEAST_AXES, radial, scaled_to_best
from assay.report.numbers import level_text, unit_name
from assay.types import TrialState

_MOST_CANDIDATES = 6
"""Number of candidates that get separate figures."""
_MOST_AXES = 12
_MOST_POINTS = 2_000
"""Maximum number of trials drawn as single points; with more, a page is slow to open."""


def drawings(comparison: Comparison, section: str) -> Iterator[Drawing]:
    """Yield the drawings of a section, by its title."""
    if section in _DRAWN:
        yield from _DRAWN[section](comparison)


def _about(contrasts: Sequence[Contrast]) -> str:
    return "" if all(contrast.promised for contrast in contrasts) else "about "


def _forest(comparison: Comparison) -> Iterator[Drawing]:
    metric, level = comparison.setup.primary, level_text(comparison.setup.level)
    yield forest(
        [
            ForestRow(
                comparison.of(contrast.candidate).name,
                contrast.difference,
                sample_words(contrast),
            )
            for contrast in comparison.decisive
        ],
        f"difference in {unit_name(metric)}",
        meaning=f"{_about(comparison.decisive)}{level} interval of the difference",
        title=f"Difference in {metric} from {comparison.baseline.name}",
    )


def _values(comparison: Comparison) -> Iterator[Drawing]:
    for metric in dict.fromkeys(["achievements", comparison.setup.primary]):
        groups = {
            facts.name: trial_values(facts.subject.trials, metric)
            for facts in comparison.subjects
            if metric in facts.metrics
        }
        if groups:
            yield histogram(groups, unit_name(metric))
            if max(map(len, groups.values())) <= _MOST_POINTS:
                yield box_plot(groups, unit_name(metric))


def _radial(comparison: Comparison) -> Iterator[Drawing]:
    axes = comparison.setup.metrics[:_MOST_AXES]
    raw: dict[str, Sequence[float | None]] = {
        facts.name: [facts.metrics[metric].mean.point for metric in axes]
        for facts in comparison.subjects
        if facts.judged
    }
    if len(axes) >= LEAST_AXES:
        lower = comparison.setup.lower_is_better
        yield radial(axes, scaled_to_best(axes, raw, lower_is_better=lower), raw=raw)


def _instances(comparison: Comparison) -> Iterator[Drawing]:
    rows = comparison.instances
    name = {facts.id: facts.name for facts in comparison.subjects}
    yield success_bars(
        [SuccessRow(row.task, name[row.subject], row.success, row.n) for row in rows],
        meaning=f"about {level_text(comparison.setup.level)} interval",
    )
    tasks = list(dict.fromkeys(row.task for row in rows))
    if len(tasks) > 1:
        cells = {(row.task, row.subject): row for row in rows}
        ids = list(dict.fromkeys(row.subject for row in rows))
        grid = [[cells.get((task, id)) for id in ids] for task in tasks]
        yield success_heat_map(
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
    if 0 < len(times) <= _MOST_POINTS:
        yield completion_times(times, unit=next(row.unit for row in rows if row.times))


def _pairs(comparison: Comparison) -> Iterator[Drawing]:
    for contrast in comparison.decisive[:_MOST_CANDIDATES]:
        if contrast.paired and len(contrast.pairs) <= _MOST_POINTS:
            yield from _pair_drawings(comparison, contrast)


def _pair_drawings(comparison: Comparison, contrast: Contrast) -> Iterator[Drawing]:
    baseline, candidate = (
        comparison.of(id).name for id in (contrast.baseline, contrast.candidate)
    )
    label = unit_name(contrast.metric)
    yield pair_lines(contrast.pairs, baseline, candidate, label)
    yield pair_differences(
        contrast.pairs,
        baseline,
        candidate,
        label,
        interval=contrast.difference,
        meaning=f"{_about([contrast])}{level_text(comparison.setup.level)} interval of the mean"
        " difference",
    )


def _achievements(comparison: Comparison) -> Iterator[Drawing]:
    rows = []
    for facts in comparison.subjects:
        measured = {
            name: measured_trials(facts.subject.trials, f"{UNLOCKED}{name}")
            for name in EASIEST_FIRST
        }
        if all(len(found.values) for found in measured.values()):
            rates = {
                name: mean_over_worlds(found, f"{UNLOCKED}{name}", comparison.setup.level)
                for name, found in measured.items()
            }
            rows.append(RateRow(facts.name, rates, len(measured[EASIEST_FIRST[0]].values)))
    if rows:
        yield rate_bars(
            rows,
            EASIEST_FIRST,
            {f"{one.name} (n = {one.episodes:,})": one.rates for one in REFERENCES},
        )


def _endings(comparison: Comparison) -> Iterator[Drawing]:
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
        yield causes_of_death(
            rows, ordered_causes(cause for row in rows for cause in row.causes)
        )


def _cost(comparison: Comparison) -> Iterator[Drawing]:
    metric = comparison.setup.primary
    for priced, label in (
        ("cost_usd", "cost per trial ($)"),
        ("duration_s", "time per trial (s)"),
    ):
        known = [facts.metrics.get(priced) for facts in comparison.subjects]
        if metric == priced or not any(one is not None and one.mean.point for one in known):
            continue  # a figure of zeros has no information
        yield cost_quality(
            [
                CostPoint(
                    facts.name,
                    facts.metrics[priced].mean if priced in facts.metrics else None,
                    facts.metrics[metric].mean,
                    facts.metrics[metric].n,
                )
                for facts in comparison.subjects
            ],
            unit_name(metric),
            cost_label=label,
            higher_is_better=metric not in comparison.setup.lower_is_better,
            meaning=f"about {level_text(comparison.setup.level)} intervals",
            title=f"{metric} and {label}",
        )
        return


def _curves(comparison: Comparison) -> Iterator[Drawing]:
    for metric in dict.fromkeys(
        curve.metric for facts in comparison.subjects for curve in facts.curves
    ):
        groups = {
            facts.name: [
                (curve.steps, curve.values) for curve in facts.curves if curve.metric == metric
            ]
            for facts in comparison.subjects
        }
        yield learning_curves(
            {name: runs for name, runs in groups.items() if runs},
            metric,
            level=comparison.setup.level,
        )


_DRAWN: Mapping[str, Callable[[Comparison], Iterator[Drawing]]] = {
    "Leaderboard": _forest,
    "Values": _values,
    "Crafter score": _achievements,
    "Instances": _instances,
    "Endings": _endings,
    "Pair by pair": _pairs,
    "Cost beside quality": _cost,
    "Learning curves": _curves,
    "Other metrics": _radial,
}
