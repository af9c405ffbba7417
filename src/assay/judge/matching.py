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
from collections.abc import Mapping, Sequence
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
from assay.types import TrialState

__all__ = [
    "FEWEST_PAIRS",
    "MANY_TASKS",
    "Matched",
    "match",
    "mean_of",
    "mean_of_values",
    "mean_over_worlds",
    "resamples",
    "trial_values",
    "world_means",
]

FEWEST_PAIRS = 2
"""With fewer worlds or tasks in common, two subjects are compared as independent samples."""
MANY_TASKS = 10
"""From so many tasks on they are a sample of tasks, unless somebody says otherwise."""

_MOST_DRAWS = 50_000_000
"""Values that a resampling test may draw."""

Floats = NDArray[np.float64]


class _World(NamedTuple):
    name: str
    task: str | None
    trials: list[float]

    @property
    def mean(self) -> float:
        return math.fsum(self.trials) / len(self.trials)


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
    worlds_baseline: tuple[str, ...] = ()
    """The world of each value, where some are in common and some are not."""
    worlds_candidate: tuple[str, ...] = ()

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
        _measured(subject.trials, metric) for subject in (baseline, candidate)
    )
    several = _several_tasks(measured_a + measured_b)
    a, alone_a = _worlds(measured_a, several)
    b, alone_b = _worlds(measured_b, several)
    common = [name for name in a if name in b]
    kept_a, kept_b = a, b
    if common:
        # Worlds of a task are alike, but for those of which one side was lost.
        kept_a = _without_lost(a, candidate, b, several)
        kept_b = _without_lost(b, baseline, a, several)
    every = len(common) == len(kept_a) + len(alone_a) == len(kept_b) + len(alone_b)
    # Worlds of other tasks would make a difference of tasks one of the subjects.
    sides = ([*kept_a.values(), *alone_a], [*kept_b.values(), *alone_b])
    partly = bool(common) and not every and _same_tasks(*sides)
    if partly or not several:
        a, b = kept_a, kept_b
    paired = len(common) >= FEWEST_PAIRS and not partly
    if paired:
        used_a, used_b = [a[name] for name in common], [b[name] for name in common]
    else:
        used_a, used_b = [*a.values(), *alone_a], [*b.values(), *alone_b]
    worlds = used_a if paired else used_a + used_b
    means_a, means_b = [world.mean for world in used_a], [world.mean for world in used_b]
    replicates = max((len(world.trials) for world in used_a + used_b), default=0)
    scale = scale_of(metric, [value for world in used_a + used_b for value in world.trials])
    key_a, key_b = (
        [*own, *(one.name for one in alone)] for own, alone in ((a, alone_a), (b, alone_b))
    )
    return Matched(
        np.array(means_a, np.float64),
        np.array(means_b, np.float64),
        paired,
        tuple(PairRow(a[name].name, a[name].mean, b[name].mean) for name in common)
        if paired or partly
        else (),
        _left_out(baseline.trials, len(measured_a), used_a),
        _left_out(candidate.trials, len(measured_b), used_b),
        Units(
            _rule([world.task for world in worlds], tasks),
            len({world.task for world in worlds}),
            len(worlds),
            replicates,
            len(common) if partly else 0,
        ),
        tuple(world.task for world in used_a),
        tuple(world.task for world in used_b),
        scale._replace(step=scale.step / max(1, replicates)),
        # A trial without a seed shares its world with nobody, whatever it is called.
        tuple(f"a {name}" if name not in b else name for name in key_a) if partly else (),
        tuple(f"b {name}" if name not in a else name for name in key_b) if partly else (),
    )


def _same_tasks(a: Sequence[_World], b: Sequence[_World]) -> bool:
    """Whether both did the same tasks in the same proportions."""
    counts = [Counter(world.task for world in side) for side in (a, b)]
    tasks = counts[0].keys() | counts[1].keys()
    return all(counts[0][task] * len(b) == counts[1][task] * len(a) for task in tasks)


def _without_lost(
    worlds: Mapping[str, _World], other: Subject, measured: Mapping[str, _World], several: bool
) -> dict[str, _World]:
    """The worlds but for those that the other side began and has no value of."""
    begun = {
        _world_name(trial) if several or trial.seed is None else str(trial.seed)
        for trial in other.trials
    }
    return {
        name: world for name, world in worlds.items() if name in measured or name not in begun
    }


def resamples(values: int) -> int:
    """How many resamples a test of so many values makes; of very many it makes fewer."""
    return max(100, min(10_000, _MOST_DRAWS // values))


def trial_values(trials: Sequence[TrialOutcome], metric: str) -> list[float]:
    """The metric of every trial that completed and has it."""
    return [value for _, value in _measured(trials, metric)]


def mean_of(
    trials: Sequence[TrialOutcome], metric: str, level: float, tasks: TaskRule | None = None
) -> Interval:
    """The mean over the worlds of one subject, with the interval that its tasks give."""
    return mean_over_worlds(_measured(trials, metric), metric, level, tasks)


def mean_of_values(values: Sequence[float], metric: str, level: float) -> Interval:
    """The mean of values that are each of a world of their own."""
    none = [None] * len(values)
    return _mean(np.array(values), none, TaskRule.WORLDS, level, scale_of(metric, values))


def world_means(trials: Sequence[TrialOutcome], metric: str) -> dict[str, float]:
    """The mean of each world by its name; one that nobody shares has that of its trial."""
    measured = _measured(trials, metric)
    worlds, alone = _worlds(measured, _several_tasks(measured))
    return {name: world.mean for name, world in worlds.items()} | {
        world.name: world.mean for world in alone
    }


def mean_over_worlds(
    measured: Sequence[tuple[TrialOutcome, float]],
    metric: str,
    level: float,
    tasks: TaskRule | None = None,
) -> Interval:
    """The same of trials that each come with their value."""
    worlds, alone = _worlds(measured, _several_tasks(measured))
    used = [*worlds.values(), *alone]
    labels = [world.task for world in used]
    scale = scale_of(metric, [value for _, value in measured])
    replicates = max((len(world.trials) for world in used), default=1)
    values = np.array([world.mean for world in used])
    step = scale._replace(step=scale.step / replicates)
    return _mean(values, labels, _rule(labels, tasks), level, step)


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
    return found.interval(level, low=scale.low, high=scale.high)


def _by_task(worlds: Floats, tasks: Sequence[str | None]) -> dict[str | None, float]:
    by_task: dict[str | None, list[float]] = {}
    for value, task in zip(worlds.tolist(), tasks, strict=True):
        by_task.setdefault(task, []).append(value)
    return {task: math.fsum(values) / len(values) for task, values in by_task.items()}


def _measured(trials: Sequence[TrialOutcome], metric: str) -> list[tuple[TrialOutcome, float]]:
    """The trials that have the metric, each with its value."""
    measured = []
    for trial in trials:
        value = trial.values.get(metric) if trial.state is TrialState.RESULT else None
        if value is not None and math.isfinite(value):
            measured.append((trial, value))
    return measured


def _several_tasks(measured: Sequence[tuple[TrialOutcome, float]]) -> bool:
    return len({trial.task for trial, _ in measured} - {None}) > 1


def _worlds(
    measured: Sequence[tuple[TrialOutcome, float]], several: bool
) -> tuple[dict[str, _World], list[_World]]:
    """Worlds by their name, and those that nobody else can have played.

    In a single task a trial without a seed is one of these; among several tasks it is a
    replicate of the task's only world.
    """
    worlds: dict[str, _World] = {}
    alone = []
    for trial, value in measured:
        name = _world_name(trial) if several else trial.pair
        if name is None:
            alone.append(_World(trial.trial_id, trial.task, [value]))
            continue
        # In a single task the seed is enough: a file may not say what the task was.
        key = name if several or trial.seed is None else str(trial.seed)
        worlds.setdefault(key, _World(name, trial.task, [])).trials.append(value)
    return worlds, alone


def _world_name(trial: TrialOutcome) -> str | None:
    """Task and seed; a trial that has no seed, nor a partner by its place, has seed 0."""
    if trial.task is None or (trial.seed is None and trial.pair is not None):
        return trial.pair
    return f"{trial.task} {trial.seed or 0}"


def _rule(tasks_of_worlds: Sequence[str | None], chosen: TaskRule | None) -> TaskRule:
    tasks = len(set(tasks_of_worlds))
    if tasks < 2 or tasks == len(tasks_of_worlds):
        return TaskRule.WORLDS
    return chosen or (TaskRule.SAMPLE if tasks >= MANY_TASKS else TaskRule.FIXED)


def _left_out(trials: Sequence[TrialOutcome], measured: int, used: Sequence[_World]) -> LeftOut:
    states = [trial.state for trial in trials]
    return LeftOut(
        measured - sum(len(world.trials) for world in used),
        states.count(TrialState.FAILURE),
        states.count(TrialState.INFRASTRUCTURE),
        states.count(TrialState.RESULT) - measured,
    )
