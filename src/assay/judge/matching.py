"""Which trials of two subjects are compared, and what is independent among them.

A world, one task with one seed, is the unit: a subject's trials in it are averaged, and worlds
of two subjects are paired. Where some worlds are shared and others not, and both did the tasks
in the same proportions, all of them are used: what a shared world does to both cancels. A trial
that failed or ended by an infrastructure error has no value: it is counted, never scored, and
its partner is not used. With several tasks a rule says what the tasks are: a sample of many, or
the ones that are meant; the point estimate is the mean over worlds by any rule.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.facts import LeftOut, PairRow, TaskRule, Units
from assay.judge.scales import Scale, scale_of
from assay.stats import Estimate
from assay.stats.clusters import (
    clustered_difference_estimate,
    clustered_estimate,
    stratified_difference_estimate,
    stratified_estimate,
)
from assay.stats.estimates import difference_estimate, mean_estimate
from assay.stats.intervals import Interval
from assay.stats.shares import exact_share
from assay.stats.significance import welch_t_test
from assay.types import TrialState

__all__ = [
    "FEWEST_PAIRS",
    "MANY_TASKS",
    "Matched",
    "MeasuredTrials",
    "bounded",
    "match",
    "mean_of",
    "mean_of_values",
    "mean_over_worlds",
    "measured_trials",
    "resamples",
    "trial_values",
    "world_means",
]

FEWEST_PAIRS = 2
"""With fewer worlds or tasks in common, two subjects are compared as independent samples."""
MANY_TASKS = 10
"""From so many tasks on they are a sample of tasks, unless somebody says otherwise."""

_CHOSEN = 0.01
"""Below this p value worlds that two subjects share are not like the others of one."""

_MOST_DRAWS = 20_000_000
"""Values that a resampling test may draw."""

Floats = NDArray[np.float64]


_Key = str | tuple[str, str]
"""What two subjects have in common of a world; a tuple is one that nobody shares."""


class MeasuredTrials(NamedTuple):
    """Trials that have a metric, and the value of each."""

    trials: Sequence[TrialOutcome]
    values: Sequence[float]


class _Worlds(NamedTuple):
    """The worlds of one subject in one metric, by their keys, in the order they first come.

    Dictionaries of plain values: there may be very many worlds.
    """

    first: dict[_Key, TrialOutcome]
    """A trial of each."""
    means: dict[_Key, float]
    replicates: dict[_Key, int]
    """Trials of those that were played more than once."""

    def of(self, keys: Iterable[_Key]) -> "_Worlds":
        """Some of them."""
        first = {key: self.first[key] for key in keys}
        return _Worlds(
            first,
            {key: self.means[key] for key in first},
            {key: plays for key, plays in self.replicates.items() if key in first},
        )

    def tasks(self) -> list[str | None]:
        return [trial.task for trial in self.first.values()]

    def plays(self) -> int:
        """All trials of them."""
        return len(self.means) + sum(self.replicates.values()) - len(self.replicates)


class Matched(NamedTuple):
    """The values of two sides that a comparison may use."""

    baseline: Floats
    candidate: Floats
    paired: bool
    """Whether value i of one side belongs to value i of the other."""
    rows: tuple[PairRow, ...]
    left_out_baseline: LeftOut
    left_out_candidate: LeftOut
    units: Units
    tasks_baseline: tuple[str | None, ...]
    """Of each value."""
    tasks_candidate: tuple[str | None, ...]
    scale: Scale
    """What values can be; its step allows for the replicates that were averaged."""
    worlds_baseline: tuple[_Key, ...] = ()
    """The world of each value, where some are in common and some are not."""
    worlds_candidate: tuple[_Key, ...] = ()

    def mean(self, level: float, *, candidate: bool) -> Interval:
        """The mean of one side, with the interval that the rule of the tasks gives."""
        side = (
            (self.candidate, self.tasks_candidate)
            if candidate
            else (self.baseline, self.tasks_baseline)
        )
        return _mean(*side, self.units.rule, level, self.scale)

    @property
    def grouped(self) -> bool:
        """Whether tasks make a difference: else every world counts by itself."""
        return self.units.rule is not TaskRule.WORLDS

    @property
    def shares(self) -> bool:
        """Whether every value is 0 or 1 and counts by itself."""
        return self.scale.share and self.units.replicates == 1 and not self.grouped

    def estimate(self, *, floor: bool = True) -> Estimate:
        """The difference of the means with the error that worlds and tasks give.

        Equal counts have the least error that their steps allow, unless there is no floor.
        """
        a, b, step = self.baseline, self.candidate, self.scale.step if floor else 0.0
        tasks = (self.tasks_baseline, None if self.paired else self.tasks_candidate)
        if self.units.rule is TaskRule.FIXED:
            partly = self.units.partly_shared > 0
            return stratified_difference_estimate(
                a,
                b,
                *tasks,
                worlds_a=self.worlds_baseline if partly else None,
                worlds_b=self.worlds_candidate if partly else None,
                step=step,
            )
        if self.units.rule is TaskRule.SAMPLE:
            return clustered_difference_estimate(a, b, *tasks, step=step)
        if self.units.partly_shared:
            worlds = (self.worlds_baseline, self.worlds_candidate)
            return clustered_difference_estimate(a, b, *worlds, step=step)
        return difference_estimate(a, b, paired=self.paired, step=step)

    def independent(self) -> tuple[Floats, Floats, bool]:
        """Independent values of both sides, and whether they are paired.

        They are those of worlds; where tasks are a sample, the means of tasks, paired where
        both sides have the same two tasks or more.
        """
        if self.units.rule is not TaskRule.SAMPLE:
            return self.baseline, self.candidate, self.paired
        a = _by_task(self.baseline, self.tasks_baseline)
        b = _by_task(self.candidate, self.tasks_candidate)
        shared = [task for task in a if task in b]
        if len(shared) >= FEWEST_PAIRS:
            return np.array([a[t] for t in shared]), np.array([b[t] for t in shared]), True
        return np.array(list(a.values())), np.array(list(b.values())), False


def match(
    baseline: Subject, candidate: Subject, metric: str, tasks: TaskRule | None = None
) -> Matched:
    """Pair the worlds of two subjects in one metric, or take them as independent samples.

    Args:
        baseline: The subject that the other is compared with.
        candidate: The other.
        metric: What is compared.
        tasks: What several tasks are; None: that goes by their number.
    """
    measured_a, measured_b = (
        measured_trials(subject.trials, metric) for subject in (baseline, candidate)
    )
    several = _several_tasks(*measured_a.trials, *measured_b.trials)
    a, b = _worlds(measured_a, several, "a"), _worlds(measured_b, several, "b")
    common = [key for key in a.means if key in b.means]
    kept_a, kept_b = a, b
    if common:
        # Worlds of a task are alike, but for those of which one side was lost.
        kept_a = _without_lost(a, candidate, b, several)
        kept_b = _without_lost(b, baseline, a, several)
    # A side that has only shared worlds may have lost the others, the harder ones maybe: then
    # its partners alone are like it. Worlds of other tasks would make a difference of tasks
    # one of the subjects.
    partly = (
        bool(common)
        and len(common) < min(len(kept_a.means), len(kept_b.means))
        and _same_tasks(kept_a.tasks(), kept_b.tasks())
        and not any(_set_apart(side.means, common) for side in (kept_a, kept_b))
    )
    if partly or not several:
        a, b = kept_a, kept_b
    paired = len(common) >= FEWEST_PAIRS and not partly
    if paired:
        a, b = a.of(common), b.of(common)
    tasks_a, tasks_b = a.tasks(), b.tasks()
    tasks_of_worlds = tasks_a if paired else tasks_a + tasks_b
    plays = [*a.replicates.values(), *b.replicates.values(), min(1, len(tasks_of_worlds))]
    scale = scale_of(metric, [*measured_a.values, *measured_b.values])
    return Matched(
        np.array(list(a.means.values()), np.float64),
        np.array(list(b.means.values()), np.float64),
        paired,
        tuple(
            PairRow(
                str(key) if several else a.first[key].pair or "", a.means[key], b.means[key]
            )
            for key in common
        )
        if paired or partly
        else (),
        _left_out(baseline.trials, len(measured_a.values), a.plays()),
        _left_out(candidate.trials, len(measured_b.values), b.plays()),
        Units(
            _rule(tasks_of_worlds, tasks),
            len(set(tasks_of_worlds)),
            len(tasks_of_worlds),
            max(plays),
            len(common) if partly else 0,
        ),
        tuple(tasks_a),
        tuple(tasks_b),
        scale._replace(step=scale.step / max(1, *plays)),
        tuple(a.means) if partly else (),
        tuple(b.means) if partly else (),
    )


def _same_tasks(a: Sequence[str | None], b: Sequence[str | None]) -> bool:
    """Whether both did the same tasks in the same proportions, given the task of each world."""
    counts = [Counter(side) for side in (a, b)]
    tasks = counts[0].keys() | counts[1].keys()
    return all(counts[0][task] * len(b) == counts[1][task] * len(a) for task in tasks)


def _set_apart(means: Mapping[_Key, float], common: Sequence[_Key]) -> bool:
    """Whether shared worlds were easier or harder than a side's others, as if chosen."""
    shared = set(common)
    others = [mean for key, mean in means.items() if key not in shared]
    if min(len(common), len(others)) <= FEWEST_PAIRS:
        return False
    return welch_t_test(others, [means[key] for key in common]).p_value < _CHOSEN


def _without_lost(worlds: _Worlds, other: Subject, measured: _Worlds, several: bool) -> _Worlds:
    """The worlds but for those that the other side began and has no value of."""
    if len(other.trials) == measured.plays():
        return worlds
    begun = {_key(trial, several) for trial in other.trials}
    return worlds.of([key for key in worlds.means if key in measured.means or key not in begun])


def resamples(values: int) -> int:
    """How many resamples a test of so many values makes; of very many it makes fewer."""
    return max(100, min(10_000, _MOST_DRAWS // values))


def trial_values(trials: Sequence[TrialOutcome], metric: str) -> list[float]:
    """The metric of every trial that completed and has it."""
    return list(measured_trials(trials, metric).values)


def mean_of(
    trials: Sequence[TrialOutcome], metric: str, level: float, tasks: TaskRule | None = None
) -> Interval:
    """The mean over the worlds of one subject, with the interval that its tasks give."""
    return mean_over_worlds(measured_trials(trials, metric), metric, level, tasks)


def mean_of_values(values: Sequence[float], metric: str, level: float) -> Interval:
    """The mean of values that are each of a world of their own."""
    none = [None] * len(values)
    return _mean(np.array(values), none, TaskRule.WORLDS, level, scale_of(metric, values))


def world_means(trials: Sequence[TrialOutcome], metric: str) -> dict[str, float]:
    """The mean of each world by its name; one that nobody shares has that of its trial."""
    measured = measured_trials(trials, metric)
    worlds = _worlds(measured, _several_tasks(*measured.trials))
    return {key if isinstance(key, str) else key[1]: mean for key, mean in worlds.means.items()}


def mean_over_worlds(
    measured: MeasuredTrials, metric: str, level: float, tasks: TaskRule | None = None
) -> Interval:
    """The same of trials that each come with their value."""
    worlds = _worlds(measured, _several_tasks(*measured.trials))
    labels = worlds.tasks()
    scale = scale_of(metric, measured.values)
    step = scale.step / max(worlds.replicates.values(), default=1)
    values = np.array(list(worlds.means.values()))
    return _mean(values, labels, _rule(labels, tasks), level, scale._replace(step=step))


def _mean(
    worlds: Floats, tasks: Sequence[str | None], rule: TaskRule, level: float, scale: Scale
) -> Interval:
    if rule is TaskRule.FIXED:
        found = stratified_estimate(worlds, tasks, step=scale.step)
    elif rule is TaskRule.SAMPLE:
        found = clustered_estimate(worlds, tasks, step=scale.step)
    elif scale.share and np.isin(worlds, (0, 1)).all():
        return exact_share(int(worlds.sum()), len(worlds), level)
    else:
        found = mean_estimate(worlds, step=scale.step)
    return bounded(found, level, low=scale.low, high=scale.high)


def bounded(estimate: Estimate, level: float, *, low: float, high: float) -> Interval:
    """The interval of an estimate; equal values tell nothing of their spread, so no bounds.

    But for what was never there at all, such as a price.
    """
    free = estimate.point == low == 0 and math.isinf(high)
    if estimate.error == 0 and not free:
        return Interval(estimate.point, math.nan, math.nan)
    return estimate.interval(level, low=low, high=high)


def _by_task(worlds: Floats, tasks: Sequence[str | None]) -> dict[str | None, float]:
    by_task: dict[str | None, list[float]] = {}
    for value, task in zip(worlds.tolist(), tasks, strict=True):
        by_task.setdefault(task, []).append(value)
    return {task: math.fsum(values) / len(values) for task, values in by_task.items()}


def measured_trials(trials: Sequence[TrialOutcome], metric: str) -> MeasuredTrials:
    """The trials that completed and have the metric, each with its value."""
    having, values = [], []
    for trial in trials:
        value = trial.values.get(metric) if trial.state is TrialState.RESULT else None
        if value is not None and math.isfinite(value):
            having.append(trial)
            values.append(value)
    return MeasuredTrials(having, values)


def _several_tasks(*trials: TrialOutcome) -> bool:
    return len({trial.task for trial in trials} - {None}) > 1


def _worlds(measured: MeasuredTrials, several: bool, whose: str = "") -> _Worlds:
    """The worlds of trials; `whose` tells those apart that two subjects do not share."""
    worlds = _Worlds({}, {}, {})
    again: dict[_Key, list[float]] = {}
    for trial, value in zip(*measured, strict=True):
        key = _key(trial, several) or (whose, trial.trial_id)
        if key in worlds.means:
            again.setdefault(key, [worlds.means[key]]).append(value)
        else:
            worlds.first[key], worlds.means[key] = trial, value
    for key, plays in again.items():
        worlds.means[key] = math.fsum(plays) / len(plays)
        worlds.replicates[key] = len(plays)
    return worlds


def _key(trial: TrialOutcome, several: bool) -> str | None:
    """What a world is known by; None: nobody else can have played it.

    In a single task that is the seed, because a file may not say what the task was. Among
    several it is the task and the seed; a trial that has no seed, nor a partner by its place,
    is a replicate of the task's only world.
    """
    if not several:
        return trial.pair if trial.seed is None else str(trial.seed)
    if trial.task is None or (trial.seed is None and trial.pair is not None):
        return trial.pair
    return f"{trial.task} {trial.seed or 0}"


def _rule(tasks_of_worlds: Sequence[str | None], chosen: TaskRule | None) -> TaskRule:
    tasks = len(set(tasks_of_worlds))
    if tasks < 2 or tasks == len(tasks_of_worlds):
        return TaskRule.WORLDS
    return chosen or (TaskRule.SAMPLE if tasks >= MANY_TASKS else TaskRule.FIXED)


def _left_out(trials: Sequence[TrialOutcome], measured: int, used: int) -> LeftOut:
    states = [trial.state for trial in trials]
    return LeftOut(
        measured - used,
        states.count(TrialState.FAILURE),
        states.count(TrialState.INFRASTRUCTURE),
        states.count(TrialState.RESULT) - measured,
    )
