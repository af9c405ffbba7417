"""Which trials of two subjects are compared, and what is independent among them.

A world, one task with one seed, is the unit: a subject's trials in it are averaged, and worlds
of two subjects are paired. A trial that failed or ended by an infrastructure error has no
value and is counted, never scored. With several tasks a rule says what the tasks are: a sample
of many, or the ones that are meant; the point estimate is the mean over worlds by any rule.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.facts import LeftOut, PairRow, TaskRule, Units
from assay.stats.clusters import (
    Estimate,
    clustered_difference_estimate,
    clustered_estimate,
    stratified_difference_estimate,
    stratified_estimate,
)
from assay.stats.intervals import Interval, t_interval
from assay.types import TrialState

__all__ = ["FEWEST_PAIRS", "MANY_TASKS", "Matched", "match", "mean_of", "trial_values"]

FEWEST_PAIRS = 2
"""With fewer worlds in common, two subjects are compared as independent samples."""
MANY_TASKS = 10
"""From so many tasks on they are a sample of tasks, unless somebody says otherwise."""

Floats = NDArray[np.float64]


class _World(NamedTuple):
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

    def mean(self, level: float, *, candidate: bool) -> Interval:
        """The mean of one side, with the interval that the rule of the tasks gives."""
        if candidate:
            return _mean(self.candidate, self.tasks_candidate, self.units.rule, level)
        return _mean(self.baseline, self.tasks_baseline, self.units.rule, level)

    @property
    def grouped(self) -> bool:
        """Whether tasks make a difference: else every world counts by itself."""
        return self.units.rule is not TaskRule.WORLDS

    def estimate(self) -> Estimate:
        """The difference of the means with the error that the rule of the tasks gives."""
        sample = self.units.rule is TaskRule.SAMPLE
        find = clustered_difference_estimate if sample else stratified_difference_estimate
        return find(
            self.baseline,
            self.candidate,
            self.tasks_baseline,
            None if self.paired else self.tasks_candidate,
        )

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
    paired = len(common) >= FEWEST_PAIRS
    if paired:
        used_a, used_b = [a[name] for name in common], [b[name] for name in common]
    else:
        used_a, used_b = [*a.values(), *alone_a], [*b.values(), *alone_b]
    worlds = used_a if paired else used_a + used_b
    means_a, means_b = [world.mean for world in used_a], [world.mean for world in used_b]
    return Matched(
        np.array(means_a, np.float64),
        np.array(means_b, np.float64),
        paired,
        tuple(map(PairRow, common, means_a, means_b)) if paired else (),
        _left_out(baseline.trials, len(measured_a), used_a),
        _left_out(candidate.trials, len(measured_b), used_b),
        Units(
            _rule([world.task for world in worlds], tasks),
            len({world.task for world in worlds}),
            len(worlds),
            max((len(world.trials) for world in used_a + used_b), default=0),
        ),
        tuple(world.task for world in used_a),
        tuple(world.task for world in used_b),
    )


def trial_values(trials: Sequence[TrialOutcome], metric: str) -> list[float]:
    """The metric of every trial that completed and has it."""
    return [value for _, value in _measured(trials, metric)]


def mean_of(
    trials: Sequence[TrialOutcome], metric: str, level: float, tasks: TaskRule | None = None
) -> Interval:
    """The mean over the worlds of one subject, with the interval that its tasks give."""
    measured = _measured(trials, metric)
    worlds, alone = _worlds(measured, _several_tasks(measured))
    used = [*worlds.values(), *alone]
    labels = [world.task for world in used]
    return _mean(np.array([world.mean for world in used]), labels, _rule(labels, tasks), level)


def _mean(
    worlds: Floats, tasks: Sequence[str | None], rule: TaskRule, level: float
) -> Interval:
    if rule is TaskRule.WORLDS:
        return t_interval(worlds, level)
    estimate = clustered_estimate if rule is TaskRule.SAMPLE else stratified_estimate
    return estimate(worlds, tasks).interval(level)


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
            alone.append(_World(trial.task, [value]))
        else:
            worlds.setdefault(name, _World(trial.task, [])).trials.append(value)
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
