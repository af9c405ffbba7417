"""Matching of the trials of two subjects, and the independent units among them.

The unit is a world (one task with one seed): a subject's trials in it are averaged, and the
worlds of two subjects are paired. If only some worlds are shared, and both subjects did the
tasks in the same proportions, all worlds are used: the effect of a shared world on both
cancels. A trial that failed or ended in an infrastructure error has no value: it is counted,
never scored, and its partner is not used. With several tasks, a rule decides whether the tasks
are a sample of many or the only ones of interest. The point estimate is the mean over worlds
with either rule.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from assay.judge.outcomes import Outcome, Scale, scale_of
from assay.judge.results import LeftOut, PairRow, PairRows, TaskRule, Units
from assay.judge.subjects import Subject, TrialOutcome, Trials
from assay.stats.clusters import (
    clustered_difference_estimate,
    clustered_estimate,
    korn_graubard,
    stratified_difference_estimate,
    stratified_estimate,
)
from assay.stats.estimates import Estimate, difference_estimate, mean_estimate
from assay.stats.intervals import Interval, Side
from assay.stats.shares import exact_share
from assay.stats.significance import welch_t_test
from assay.types import TrialState

FEWEST_PAIRS = 2
"""With fewer worlds or tasks in common, two subjects are compared as independent samples."""
MANY_TASKS = 10
"""From this number on, tasks are a sample of tasks by default."""

_CHOSEN = 0.01
"""Below this p value, shared worlds differ from the other worlds of a subject."""

_MOST_DRAWS = 20_000_000
"""Most values that a resampling test may draw."""

Floats = NDArray[np.float64]


_Key = str | tuple[str, str]
"""The key of a world: a text if two subjects can share it, else a tuple."""


class MeasuredTrials(NamedTuple):
    """Trials that have a metric, with their values."""

    trials: Trials
    values: Floats

    @classmethod
    def of(
        cls, trials: Sequence[TrialOutcome], values: Sequence[float] | Floats
    ) -> "MeasuredTrials":
        """Return the trials with one value each."""
        return cls(Trials.of(trials), np.asarray(values, np.float64))


@dataclass(frozen=True)
class _Worlds:
    """The worlds of one subject in one metric, in order of first occurrence.

    Stored as lists and arrays of plain values, because there may be very many worlds.
    """

    keys: list[_Key]
    trials: Trials
    """One trial of each world."""
    means: Floats
    replicates: dict[_Key, int]
    """Numbers of trials of the worlds that were played more than once."""

    @cached_property
    def places(self) -> dict[_Key, int]:
        """Position of each world by key."""
        return {key: place for place, key in enumerate(self.keys)}

    def of(self, keys: list[_Key]) -> "_Worlds":
        """Return the worlds with these keys, in this order."""
        if keys == self.keys:
            return self
        places = [self.places[key] for key in keys]
        kept = set(keys)
        return _Worlds(
            keys,
            Trials([self.trials[place] for place in places]),
            self.means[places],
            {key: plays for key, plays in self.replicates.items() if key in kept},
        )

    def plays_by_world(self) -> tuple[int, ...]:
        """Return the number of trials of each world."""
        return tuple(self.replicates.get(key, 1) for key in self.keys)

    def plays(self) -> int:
        """Return the number of trials in all worlds."""
        return len(self.keys) + sum(self.replicates.values()) - len(self.replicates)


class Matched(NamedTuple):
    """The values of two sides that a comparison uses."""

    baseline: Floats
    candidate: Floats
    paired: bool
    """Whether value i of one side is paired with value i of the other."""
    rows: Sequence[PairRow]
    left_out_baseline: LeftOut
    left_out_candidate: LeftOut
    units: Units
    tasks_baseline: tuple[str | None, ...]
    """The task of each value."""
    tasks_candidate: tuple[str | None, ...]
    scale: Scale
    """Possible values."""
    worlds_baseline: tuple[_Key, ...] = ()
    """The world of each value, if only some worlds are shared."""
    worlds_candidate: tuple[_Key, ...] = ()
    plays_baseline: tuple[int, ...] = ()
    """Number of trials in the world of each value, if a world has several."""
    plays_candidate: tuple[int, ...] = ()

    def mean(self, level: float, *, candidate: bool) -> Interval:
        """Return the mean of one side, with the interval for the task rule."""
        side = (
            (self.candidate, self.tasks_candidate, self.plays_candidate)
            if candidate
            else (self.baseline, self.tasks_baseline, self.plays_baseline)
        )
        return _mean(*side, self.units.rule, level, self.scale)

    @property
    def grouped(self) -> bool:
        """Whether worlds are grouped by task; if not, each world counts separately."""
        return self.units.rule is not TaskRule.WORLDS

    @property
    def shares(self) -> bool:
        """Whether every value is 0 or 1 and counts separately."""
        return self.scale.share and self.units.replicates == 1 and not self.grouped

    @property
    def world_shares(self) -> bool:
        """Whether values are proportions of several trials of one world each."""
        several = self.units.replicates > 1 and not self.units.partly_shared
        return self.scale.share and several and not self.grouped

    def estimate(self, *, floor: bool = True) -> Estimate:
        """Return the difference of the means, with the standard error for the worlds and tasks.

        With `floor`, the error of equal counts is at least what one step of the scale implies.
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
        """Return the independent values of both sides, and whether they are paired.

        They are the values of worlds. If tasks are a sample, they are the means of tasks,
        paired if the sides have at least two tasks in common.
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
    """Pair the worlds of two subjects in one metric, or use them as independent samples.

    Args:
        baseline: The subject to compare with.
        candidate: The other subject.
        metric: The metric that is compared.
        tasks: Rule for several tasks; None means that their number decides.
    """
    measured_a, measured_b = (
        measured_trials(subject.trials, metric) for subject in (baseline, candidate)
    )
    several = _several_tasks(measured_a.trials, measured_b.trials)
    a, b = _worlds(measured_a, several, "a"), _worlds(measured_b, several, "b")
    common = a.keys if a.keys == b.keys else [key for key in a.keys if key in b.places]
    kept_a, kept_b = a, b
    if common:
        # Worlds of a task are interchangeable, except those that one side lost.
        kept_a = _without_lost(a, candidate, b, several)
        kept_b = _without_lost(b, baseline, a, several)
    # A side that has only shared worlds may have lost the others, perhaps the harder ones; then
    # only their partners are comparable. Worlds of different tasks would confound tasks with
    # subjects.
    partly = (
        bool(common)
        and len(common) < min(len(kept_a.means), len(kept_b.means))
        and _same_tasks(kept_a.trials.tasks, kept_b.trials.tasks)
        and not any(_set_apart(side, common) for side in (kept_a, kept_b))
    )
    if partly or not several:
        a, b = kept_a, kept_b
    paired = len(common) >= FEWEST_PAIRS and not partly
    if paired:
        a, b = a.of(common), b.of(common)
    tasks_a, tasks_b = a.trials.tasks, b.trials.tasks
    tasks_of_worlds = tasks_a if paired else tasks_a + tasks_b
    plays = [*a.replicates.values(), *b.replicates.values(), min(1, len(tasks_of_worlds))]
    outcome = baseline.outcome(metric)
    scale = scale_of(outcome, np.concatenate([measured_a.values, measured_b.values]))
    rows: Sequence[PairRow] = ()
    if paired or partly:
        both = a.of(common), b.of(common)
        names = [*map(str, common)] if several else [t.pair or "" for t in both[0].trials]
        rows = PairRows(names, both[0].means, both[1].means)
    return Matched(
        a.means,
        b.means,
        paired,
        rows,
        _left_out(Trials.of(baseline.trials), len(measured_a.values), a.plays()),
        _left_out(Trials.of(candidate.trials), len(measured_b.values), b.plays()),
        Units(
            _rule(tasks_of_worlds, tasks),
            len(set(tasks_of_worlds)),
            len(tasks_of_worlds),
            max(plays),
            len(common) if partly else 0,
        ),
        tuple(tasks_a),
        tuple(tasks_b),
        scale,
        tuple(a.keys) if partly else (),
        tuple(b.keys) if partly else (),
        a.plays_by_world() if max(plays) > 1 else (),
        b.plays_by_world() if max(plays) > 1 else (),
    )


def _same_tasks(a: Sequence[str | None], b: Sequence[str | None]) -> bool:
    """Return whether both sides did the same tasks in the same proportions."""
    counts = [Counter(side) for side in (a, b)]
    tasks = counts[0].keys() | counts[1].keys()
    return all(counts[0][task] * len(b) == counts[1][task] * len(a) for task in tasks)


def _set_apart(worlds: _Worlds, common: list[_Key]) -> bool:
    """Return whether shared worlds were easier or harder than the others of a side."""
    shared = set(common)
    others = worlds.means[[key not in shared for key in worlds.keys]]
    if min(len(common), len(others)) <= FEWEST_PAIRS:
        return False
    return welch_t_test(others, worlds.of(common).means).p_value < _CHOSEN


def _without_lost(worlds: _Worlds, other: Subject, measured: _Worlds, several: bool) -> _Worlds:
    """Return the worlds except those that the other side started and has no value for."""
    if len(other.trials) == measured.plays():
        return worlds
    begun = set(Trials.of(other.trials).worlds(several=several))
    return worlds.of([key for key in worlds.keys if key in measured.places or key not in begun])


def resamples(values: int) -> int:
    """Return the number of resamples for a test of this many values; fewer for very many."""
    return max(100, min(10_000, _MOST_DRAWS // values))


def trial_values(trials: Sequence[TrialOutcome], metric: str) -> list[float]:
    """Return the metric of every completed trial that has it."""
    return list(measured_trials(trials, metric).values.tolist())


def mean_of(
    trials: Sequence[TrialOutcome],
    metric: str | Outcome,
    level: float,
    tasks: TaskRule | None = None,
) -> Interval:
    """Return the mean over the worlds of one subject, with the interval for its tasks."""
    name = metric if isinstance(metric, str) else metric.name
    return mean_over_worlds(measured_trials(trials, name), metric, level, tasks)


def mean_of_values(values: Sequence[float], metric: str, level: float) -> Interval:
    """Return the mean of values, each from a different world."""
    none = [None] * len(values)
    return _mean(np.array(values), none, (), TaskRule.WORLDS, level, scale_of(metric, values))


def world_means(trials: Sequence[TrialOutcome], metric: str) -> dict[str, float]:
    """Return the mean of each world by name; a world without a key has its trial's id."""
    measured = measured_trials(trials, metric)
    worlds = _worlds(measured, _several_tasks(measured.trials))
    names = (key if isinstance(key, str) else key[1] for key in worlds.keys)
    return dict(zip(names, worlds.means.tolist(), strict=True))


def mean_over_worlds(
    measured: MeasuredTrials,
    metric: str | Outcome,
    level: float,
    tasks: TaskRule | None = None,
) -> Interval:
    """Return the mean over worlds of trials with their values."""
    worlds = _worlds(measured, _several_tasks(measured.trials))
    labels = worlds.trials.tasks
    scale = scale_of(metric, measured.values)
    plays = worlds.plays_by_world() if worlds.replicates else ()
    return _mean(worlds.means, labels, plays, _rule(labels, tasks), level, scale)


def _mean(
    worlds: Floats,
    tasks: Sequence[str | None],
    plays: Sequence[int],
    rule: TaskRule,
    level: float,
    scale: Scale,
) -> Interval:
    if rule is TaskRule.FIXED:
        found = stratified_estimate(worlds, tasks, step=scale.step)
    elif rule is TaskRule.SAMPLE:
        found = clustered_estimate(worlds, tasks, step=scale.step)
    elif scale.share and plays and len(worlds) > 1:
        return korn_graubard(worlds, plays, level)
    elif scale.share and np.isin(worlds, (0, 1)).all():
        return exact_share(int(worlds.sum()), len(worlds), level)
    else:
        found = mean_estimate(worlds, step=scale.step)
    return bounded(found, level, low=scale.low, high=scale.high)


def bounded(
    estimate: Estimate,
    level: float,
    *,
    low: float,
    high: float,
    side: Side = Side.TWO_SIDED,
) -> Interval:
    """Return the interval of an estimate; equal values give no spread, so no bounds.

    The exception is a metric that is 0 throughout, such as the cost of free calls.
    """
    free = estimate.point == low == 0 and math.isinf(high)
    if estimate.error == 0 and not free:
        return Interval(estimate.point, math.nan, math.nan)
    return estimate.interval(level, low=low, high=high, side=side)


def _by_task(worlds: Floats, tasks: Sequence[str | None]) -> dict[str | None, float]:
    by_task: dict[str | None, list[float]] = {}
    for value, task in zip(worlds.tolist(), tasks, strict=True):
        by_task.setdefault(task, []).append(value)
    return {task: math.fsum(values) / len(values) for task, values in by_task.items()}


def measured_trials(trials: Sequence[TrialOutcome], metric: str) -> MeasuredTrials:
    """Return the completed trials that have the metric, with their values."""
    having = Trials.of(trials)
    values = having.column(metric)
    has = ~np.isnan(values)
    if not has.all():
        having, values = Trials(compress(having, has)), values[has]
    return MeasuredTrials(having, values)


def _several_tasks(*trials: Trials) -> bool:
    return len({task for own in trials for task in own.tasks} - {None}) > 1


def _worlds(measured: MeasuredTrials, several: bool, whose: str = "") -> _Worlds:
    """Group trials by world; `whose` distinguishes worlds that two subjects cannot share."""
    trials, values = measured
    worlds = trials.worlds(several=several)
    keys = cast(list[_Key], worlds)
    if not all(worlds):
        keys = [world or (whose, trials[at].trial_id) for at, world in enumerate(worlds)]
    if len({*keys}) == len(keys):
        return _Worlds(keys, trials, values, {})
    first: dict[_Key, int] = {}
    again: dict[_Key, list[float]] = {}
    for place, key in enumerate(keys):
        if first.setdefault(key, place) != place:
            again.setdefault(key, [values.item(first[key])]).append(values.item(place))
    means = values[[*first.values()]]
    places = {key: place for place, key in enumerate(first)}
    for key, plays in again.items():
        means[places[key]] = math.fsum(plays) / len(plays)
    return _Worlds(
        [*first],
        Trials([trials[place] for place in first.values()]),
        means,
        {key: len(plays) for key, plays in again.items()},
    )


def _rule(tasks_of_worlds: Sequence[str | None], chosen: TaskRule | None) -> TaskRule:
    tasks = len(set(tasks_of_worlds))
    if tasks < 2 or tasks == len(tasks_of_worlds):
        return TaskRule.WORLDS
    return chosen or (TaskRule.SAMPLE if tasks >= MANY_TASKS else TaskRule.FIXED)


def _left_out(trials: Trials, measured: int, used: int) -> LeftOut:
    return LeftOut(
        measured - used,
        trials.states[TrialState.FAILURE],
        trials.states[TrialState.INFRASTRUCTURE],
        trials.states[TrialState.RESULT] - measured,
    )
