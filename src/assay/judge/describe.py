"""Description of single subjects: summaries by metric and task, Crafter scores, curves.

A trial is a success if its outcome `success` is 1, or, without that outcome, if it has enough
achievements. A trial that did not succeed is not treated as censored: its limits are part of
the task. Time to success ends at the step that made the trial a success, or at the end of the
trial if its steps are not known.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.crafter.rules import ACHIEVEMENTS
from assay.judge.matching import MeasuredTrials, mean_over_worlds, measured_trials, resamples
from assay.judge.outcomes import UNLOCKED
from assay.judge.results import (
    Description,
    InstanceRow,
    LearningCurve,
    PassRow,
    ScoreGap,
    ScoreRow,
    SubjectFacts,
    TaskRule,
    Timed,
)
from assay.judge.subjects import Subject, TrialOutcome, Trials
from assay.stats.estimates import check_size, deviation_of
from assay.stats.intervals import Interval
from assay.stats.score import (
    ScoreEstimate,
    crafter_score_interval,
    expected_score_at,
    score_difference,
)
from assay.stats.shares import pass_all, pass_any
from assay.stats.survival import incidence_test, median_time, restricted_times
from assay.types import TrialState

_UNLOCKS = tuple(f"{UNLOCKED}{name}" for name in ACHIEVEMENTS)
_NO_TASK = "(no task)"


def metrics_of(subject: Subject) -> list[str]:
    """Return the metrics for which a subject has values, in order of first occurrence."""
    return Trials.of(subject.trials).metrics


def describe(
    subject: Subject,
    metrics: Sequence[str],
    level: float,
    *,
    judged: bool,
    tasks: TaskRule | None = None,
) -> SubjectFacts:
    """Summarise one subject in these metrics."""
    states = Trials.of(subject.trials).states
    summaries = {metric: _description(subject, metric, level, tasks) for metric in metrics}
    return SubjectFacts(
        subject=subject,
        judged=judged,
        results=states[TrialState.RESULT],
        failures=states[TrialState.FAILURE],
        infrastructure=states[TrialState.INFRASTRUCTURE],
        metrics={
            metric: summary for metric, summary in summaries.items() if summary is not None
        },
        curves=tuple(_curves(subject.facts.get("curves"))),
    )


def instances(
    subjects: Sequence[Subject], enough: float, level: float
) -> tuple[InstanceRow, ...]:
    """Return one row per subject and task, tasks in order of first occurrence."""
    by_task: dict[str, dict[str, list[_Play]]] = {}
    for subject in subjects:
        for play in _plays(Trials.of(subject.trials), enough):
            by_subject = by_task.setdefault(play[0].task or _NO_TASK, {})
            by_subject.setdefault(subject.id, []).append(play)
    return tuple(
        row
        for task, by_subject in by_task.items()
        for row in _instance_rows(
            task,
            {one.id: by_subject[one.id] for one in subjects if one.id in by_subject},
            enough,
            level,
        )
    )


def score_of(
    unlocked_E_A: NDArray[np.bool_], worlds: Sequence[Hashable], level: float = 0.95
) -> ScoreEstimate:
    """Return the Crafter score of episodes with their worlds; the result is deterministic."""
    rng = np.random.default_rng(0)
    return crafter_score_interval(unlocked_E_A, worlds=_labels(worlds), level=level, rng=rng)


def scores(subjects: Sequence[Subject], level: float) -> tuple[ScoreRow, ...]:
    """Return the Crafter scores of the subjects whose episodes record their unlocks.

    The score grows with the number of episodes. Each is therefore also given at the smallest
    number of episodes of any subject: the mean over all subsets of that size.
    """
    tables = _tables(subjects)
    at = min((len(table) for table, _ in tables.values()), default=0)
    return tuple(_score_row(name, *table, at, level) for name, table in tables.items())


def score_gaps(
    baseline: str, subjects: Sequence[Subject], level: float
) -> tuple[ScoreGap, ...]:
    """Return the difference in Crafter score between each other subject and the baseline."""
    tables = _tables(subjects)
    if baseline not in tables:
        return ()
    first, worlds = tables.pop(baseline)
    return tuple(
        ScoreGap(
            name,
            *score_difference(
                first,
                table,
                worlds_a=_labels(worlds),
                worlds_b=_labels(own),
                level=level,
                rng=np.random.default_rng(0),
            ),
        )
        for name, (table, own) in tables.items()
    )


_Table = tuple[NDArray[np.bool_], list[str]]
"""Unlocked achievements, shape (E, A), and the world of each of the E episodes."""


def _labels(worlds: Sequence[Hashable]) -> Sequence[Hashable] | None:
    """Return the worlds of episodes if one was played more than once, or None."""
    return worlds if len(set(worlds)) < len(worlds) else None


def _tables(subjects: Sequence[Subject]) -> dict[str, _Table]:
    tables = {subject.id: _unlocked(subject.trials) for subject in subjects}
    return {subject: table for subject, table in tables.items() if len(table[1]) > 1}


def _description(
    subject: Subject, metric: str, level: float, tasks: TaskRule | None
) -> Description | None:
    measured = measured_trials(subject.trials, metric)
    values = measured.values
    if not len(values):
        return None
    check_size(float(np.abs(values).max()))
    return Description(
        n=len(values),
        # The interval counts the trials of one world once; the spread includes all trials.
        mean=mean_over_worlds(measured, subject.outcome(metric), level, tasks),
        median=float(np.median(values)),
        sd=deviation_of(values) if len(values) > 1 else math.nan,
        least=float(values.min()),
        most=float(values.max()),
    )


def _curves(stated: Any) -> list[LearningCurve]:
    """Parse curves from `{"metric": {"steps": [...], "values": [...]}}`, or lists of these.

    Values of another form are skipped: a file may use the key for something else.
    """
    if not isinstance(stated, Mapping):
        return []
    curves = [
        _curve(str(metric), run)
        for metric, runs in stated.items()
        for run in (runs if isinstance(runs, list) else [runs])
    ]
    return [curve for curve in curves if curve is not None]


def _curve(metric: str, stated: Any) -> LearningCurve | None:
    if not isinstance(stated, Mapping):
        return None
    steps, values = stated.get("steps"), stated.get("values")
    if not isinstance(steps, list) or not isinstance(values, list) or len(steps) != len(values):
        return None
    points = [
        (float(step), float(value))
        for step, value in zip(steps, values, strict=True)
        if _number(step) and _number(value)
    ]
    if len(points) < 2:
        return None
    points.sort()
    return LearningCurve(
        metric, tuple(step for step, _ in points), tuple(value for _, value in points)
    )


def _number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )


_Play = tuple[TrialOutcome, bool]
"""A trial, and whether it was a success."""


def _plays(trials: Trials, enough: float) -> Iterator[_Play]:
    """Return the trials for which success or failure is known."""
    stated_T, reached_T = trials.column("success"), trials.column("achievements")
    done_T = np.where(np.isnan(stated_T), reached_T >= enough, stated_T >= 0.5)
    known_T = ~np.isnan(stated_T) | ~np.isnan(reached_T)
    return compress(zip(trials, done_T.tolist(), strict=True), known_T)


ATTEMPTS = (1, 2, 3, 5, 10, 20, 50, 100)
"""Values of k for pass@k, as far as there are enough attempts."""


def pass_rows(
    subject: str, successes: Mapping[Hashable, Sequence[bool]], ks: Iterable[int], level: float
) -> list[PassRow]:
    """Return pass@k and pass^k for every k up to the smallest number of attempts at a world.

    Args:
        subject: The id of the subject.
        successes: By world, whether each attempt succeeded.
        ks: The requested values of k.
        level: Confidence level of the intervals.
    """
    counts = [sum(done) for done in successes.values()], [*map(len, successes.values())]
    fewest = min(counts[1], default=0)
    return [
        PassRow(
            subject,
            k,
            pass_any(*counts, k, level=level),
            pass_all(*counts, k, level=level),
            len(successes),
            fewest,
        )
        for k in ks
        if k <= fewest
    ]


def passes(subjects: Sequence[Subject], enough: float, level: float) -> tuple[PassRow, ...]:
    """Return pass@k and pass^k of every subject with several attempts at each of its worlds."""
    rows: list[PassRow] = []
    for subject in subjects:
        worlds: dict[Hashable, list[bool]] = {}
        for trial, success in _plays(Trials.of(subject.trials), enough):
            world = (trial.task, trial.seed)
            # Without a seed, two trials in Crafter are not known to be in the same world.
            known = trial.seed is not None or not (trial.task or "crafter/").startswith(
                "crafter/"
            )
            if known:
                worlds.setdefault(world, []).append(success)
        if min(map(len, worlds.values()), default=0) > 1:
            rows += pass_rows(subject.id, worlds, ATTEMPTS, level)
    return tuple(rows)


def _instance_rows(
    task: str, trials: Mapping[str, Sequence[_Play]], enough: float, level: float
) -> Iterator[InstanceRow]:
    """Yield a row per subject for one task; times are compared with the first subject's."""
    own = {name: _timed(plays, enough) for name, plays in trials.items()}
    steps = any(own.values()) and all(
        time.steps is not None for timed in own.values() for _, time in timed
    )
    timed = {
        name: [(trial, _time(one, steps=steps)) for trial, one in plays]
        for name, plays in own.items()
    }
    horizon = max((time for plays in timed.values() for _, (time, _) in plays), default=0.0)
    first = next(iter(timed.values()))
    for name, plays in trials.items():
        done = np.array([reached for _, reached in plays], np.float64)
        times = [time for _, time in timed[name]]
        middle = median_time(*zip(*times, strict=True)) if times else math.nan
        yield InstanceRow(
            task=task,
            subject=name,
            n=len(plays),
            successes=int(done.sum()),
            success=mean_over_worlds(
                MeasuredTrials.of([trial for trial, _ in plays], done), "success", level
            ),
            times=tuple(time for _, time in own[name]),
            unit="steps" if steps else "s",
            median_time=None if math.isnan(middle) else middle,
            mean_time=_restricted(timed[name], horizon, level),
            horizon=horizon,
            p_value=None if timed[name] is first else _log_rank(first, timed[name]),
        )


_TimedTrials = list[tuple[TrialOutcome, tuple[float, bool]]]
"""Trials, each with its time to success or to its end, and whether it succeeded."""


def _timed(plays: Sequence[_Play], enough: float) -> list[tuple[TrialOutcome, Timed]]:
    """Return the trials of known length, each with its time."""
    found = []
    for trial, reached in plays:
        steps = trial.values.get("steps") if trial.unlock_steps or not reached else None
        if reached and "success" not in trial.values:
            needed = max(1, math.ceil(enough))
            known = len(trial.unlock_steps) >= needed
            steps = float(trial.unlock_steps[needed - 1]) if known else None
        seconds = trial.values.get("duration_s", math.nan)
        if steps is not None or math.isfinite(seconds):
            found.append((trial, Timed(seconds, reached, steps)))
    return found


def _time(timed: Timed, *, steps: bool) -> tuple[float, bool]:
    return (timed.steps or 0.0) if steps else timed.seconds, timed.reached


def _restricted(timed: _TimedTrials, horizon: float, level: float) -> Interval | None:
    if not timed or not horizon:
        return None
    times, reached = zip(*(time for _, time in timed), strict=True)
    values = restricted_times(times, reached, horizon=horizon)
    trials = [trial for trial, _ in timed]
    return mean_over_worlds(MeasuredTrials.of(trials, values), "duration_s", level)


def _log_rank(first: _TimedTrials, second: _TimedTrials) -> float | None:
    """Return the log-rank p value, paired if all worlds are shared.

    None if a world was played twice, or if a side has fewer than two trials.
    """
    worlds = [{trial.pair: time for trial, time in own} for own in (first, second)]
    alone = [sum(trial.pair is None for trial, _ in own) for own in (first, second)]
    plays = [len(own.keys() - {None}) + none for own, none in zip(worlds, alone, strict=True)]
    if min(plays) < 2 or plays != [len(first), len(second)]:
        return None
    paired = worlds[0].keys() == worlds[1].keys() and None not in worlds[0]
    if paired:
        times = [[own[name] for name in worlds[0]] for own in worlds]
    else:
        times = [[time for _, time in own] for own in (first, second)]
    sides = [list(zip(*own, strict=True)) for own in times]
    return incidence_test(
        *sides[0],
        *sides[1],
        paired=paired,
        rng=np.random.default_rng(0),
        n_resamples=resamples(len(first) + len(second)),
    ).p_value


def _score_row(
    subject: str, unlocked_E_A: NDArray[np.bool_], worlds: list[str], at: int, level: float
) -> ScoreRow:
    estimate = score_of(unlocked_E_A, worlds, level)
    return ScoreRow(
        subject=subject,
        n=len(unlocked_E_A),
        interval=estimate.interval,
        limit=estimate.limit,
        corrected=estimate.corrected,
        at=at,
        matched=expected_score_at(unlocked_E_A, at, rng=np.random.default_rng(0)),
    )


def _unlocked(trials: Sequence[TrialOutcome]) -> _Table:
    values_T_A = np.stack([Trials.of(trials).column(name) for name in _UNLOCKS], axis=1)
    complete_T = np.asarray(np.isfinite(values_T_A).all(axis=1))
    worlds = [trial.pair or trial.trial_id for trial in compress(trials, complete_T)]
    return values_T_A[complete_T] >= 0.5, worlds
