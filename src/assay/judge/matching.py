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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from assay.judge.outcomes import Scale, scale_of
from assay.judge.results import LeftOut, PairRow, PairRows, TaskRule, Units
from assay.judge.subjects import Subject, TrialOutcome, Trials
from assay.stats.clusters import (
    clustered_difference_estimate,
    clustered_estimate,
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

    trials: Trials
    values: Floats

    @classmethod
    def of(
        cls, trials: Sequence[TrialOutcome], values: Sequence[float] | Floats
    ) -> "MeasuredTrials":
        """Trials, and a value of each."""
        return cls(Trials.of(trials), np.asarray(values, np.float64))


@dataclass(frozen=True)
class _Worlds:
    """The worlds of one subject in one metric, in the order they first come.

    Lists and arrays of plain values: there may be very many worlds.
    """

    keys: list[_Key]
    trials: Trials
    """A trial of each."""
    means: Floats
    replicates: dict[_Key, int]
    """Trials of those that were played more than once."""

    @cached_property
    def places(self) -> dict[_Key, int]:
        """Where each is, by its key."""
        return {key: place for place, key in enumerate(self.keys)}

    def of(self, keys: list[_Key]) -> "_Worlds":
        """Some of them, in this order."""
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

    def plays(self) -> int:
        """All trials of them."""
        return len(self.keys) + sum(self.replicates.values()) - len(self.replicates)


class Matched(NamedTuple):
    """The values of two sides that a comparison may use."""

    baseline: Floats
    candidate: Floats
    paired: bool
    """Whether value i of one side belongs to value i of the other."""
    rows: Sequence[PairRow]
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
    several = _several_tasks(measured_a.trials, measured_b.trials)
    a, b = _worlds(measured_a, several, "a"), _worlds(measured_b, several, "b")
    common = a.keys if a.keys == b.keys else [key for key in a.keys if key in b.places]
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
    scale = scale_of(metric, np.concatenate([measured_a.values, measured_b.values]))
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
        scale._replace(step=scale.step / max(1, *plays)),
        tuple(a.keys) if partly else (),
        tuple(b.keys) if partly else (),
    )


def _same_tasks(a: Sequence[str | None], b: Sequence[str | None]) -> bool:
    """Whether both did the same tasks in the same proportions, given the task of each world."""
    counts = [Counter(side) for side in (a, b)]
    tasks = counts[0].keys() | counts[1].keys()
    return all(counts[0][task] * len(b) == counts[1][task] * len(a) for task in tasks)


def _set_apart(worlds: _Worlds, common: list[_Key]) -> bool:
    """Whether shared worlds were easier or harder than a side's others, as if chosen."""
    shared = set(common)
    others = worlds.means[[key not in shared for key in worlds.keys]]
    if min(len(common), len(others)) <= FEWEST_PAIRS:
        return False
    return welch_t_test(others, worlds.of(common).means).p_value < _CHOSEN


def _without_lost(worlds: _Worlds, other: Subject, measured: _Worlds, several: bool) -> _Worlds:
    """The worlds but for those that the other side began and has no value of."""
    if len(other.trials) == measured.plays():
        return worlds
    begun = set(Trials.of(other.trials).worlds(several=several))
    return worlds.of([key for key in worlds.keys if key in measured.places or key not in begun])


def resamples(values: int) -> int:
    """How many resamples a test of so many values makes; of very many it makes fewer."""
    return max(100, min(10_000, _MOST_DRAWS // values))


def trial_values(trials: Sequence[TrialOutcome], metric: str) -> list[float]:
    """The metric of every trial that completed and has it."""
    return list(measured_trials(trials, metric).values.tolist())


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
    worlds = _worlds(measured, _several_tasks(measured.trials))
    names = (key if isinstance(key, str) else key[1] for key in worlds.keys)
    return dict(zip(names, worlds.means.tolist(), strict=True))


def mean_over_worlds(
    measured: MeasuredTrials, metric: str, level: float, tasks: TaskRule | None = None
) -> Interval:
    """Return the mean over worlds of trials that each come with their value."""
    worlds = _worlds(measured, _several_tasks(measured.trials))
    labels = worlds.trials.tasks
    scale = scale_of(metric, measured.values)
    step = scale.step / max(worlds.replicates.values(), default=1)
    return _mean(worlds.means, labels, _rule(labels, tasks), level, scale._replace(step=step))


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


def bounded(
    estimate: Estimate,
    level: float,
    *,
    low: float,
    high: float,
    side: Side = Side.TWO_SIDED,
) -> Interval:
    """The interval of an estimate; equal values tell nothing of their spread, so no bounds.

    But for what was never there at all, such as a price.
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
    """The trials that completed and have the metric, each with its value."""
    having = Trials.of(trials)
    values = having.column(metric)
    has = ~np.isnan(values)
    if not has.all():
        having, values = Trials(compress(having, has)), values[has]
    return MeasuredTrials(having, values)


def _several_tasks(*trials: Trials) -> bool:
    return len({task for own in trials for task in own.tasks} - {None}) > 1


def _worlds(measured: MeasuredTrials, several: bool, whose: str = "") -> _Worlds:
    """The worlds of trials; `whose` tells those apart that two subjects do not share."""
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
