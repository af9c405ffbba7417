"""What a benchmark came to: from manifests to frozen values. Reads no file, prints nothing.

The unit is the task: the trials of an arm at one task are averaged, and the interval of a mean
is that of the means of tasks, as `judge` has it everywhere. With a single task the unit is the
trial, and the answer is about that task alone. A trial that the agent failed counts with a
score of 0. One that ended by an infrastructure error, has no grade or has not run counts
nowhere; it is named, and a mean is given at both ends of what the first two could have been.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from assay.bench.base import GradingMode
from assay.bench.manifest import ArmEntry, Manifest, TrialResult
from assay.bench.options import SummaryOptions
from assay.core.options import takes_options
from assay.core.text import counted, unknown_name
from assay.errors import UsageError
from assay.judge.comparison import compare
from assay.judge.describe import ATTEMPTS, metrics_of, pass_rows
from assay.judge.matching import mean_of
from assay.judge.results import Comparison, PassRow
from assay.judge.subjects import Subject, TrialOutcome
from assay.stats.intervals import Interval
from assay.types import TrialState

SCORE = "score"
"""The metric that decides."""
FEW_TASKS = 6
"""With fewer tasks an interval counts on values close to normal; see `fewest_exact`."""
_METRICS = (SCORE, "success", "duration_s", "tokens", "cost_usd")


class TrialCounts(NamedTuple):
    """How many trials there are, and how they stand; they add up to `planned`."""

    planned: int
    """The denominator: it is the same however trials end."""
    graded: int
    failures: int
    """The agent is to blame: they count with a score of 0."""
    infrastructure: int
    ungraded: int
    """They have ended and have no grade."""
    pending: int
    """They have not ended."""

    @property
    def counted(self) -> int:
        """Trials that are in means."""
        return self.graded + self.failures

    @property
    def lost(self) -> int:
        """Trials that ended and are in no mean."""
        return self.infrastructure + self.ungraded


class Spent(NamedTuple):
    """Dollars of all trials that started, however they ended."""

    known: float
    unknown: int
    """Trials whose price is not known; they are not in the sum."""


class FindingCount(NamedTuple):
    """What graders and sandboxes found in several trials."""

    name: str
    trials: int
    detail: str
    """Of the first; untrusted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """The trials of one arm, at one task or at all of its tasks."""

    arm: str
    """Its label; untrusted text, like all names."""
    task: str | None
    """None: all of them."""
    tasks: int
    """Tasks with a trial that counts."""
    counts: TrialCounts
    score: Interval | None
    """The mean; over tasks, or over trials where there is one task."""
    worst: Interval | None
    """The same with the lost trials at 0; None if none were lost."""
    best: Interval | None
    """The same with the lost trials at 1."""
    passed: int
    """Trials with the full score."""
    passes: tuple[PassRow, ...]
    """By k, up to the fewest trials of a task."""
    best_score: float | None
    """The best trial of each task, averaged over tasks."""
    spent: Spent
    seconds: Mapping[str, float]
    """By phase: the mean of the trials that have it."""
    tokens: Mapping[str, int]
    """By kind: the sum of all trials."""
    outcomes: Mapping[str, int]
    """Of trials that count, the most frequent first."""
    errors: Mapping[str, int]
    """Of infrastructure errors."""
    findings: tuple[FindingCount, ...]
    metrics: Mapping[str, Interval] = field(default_factory=dict)
    """Means of what tasks measure themselves."""
    answered_as: tuple[str, ...] = ()
    """What providers called the models that answered."""
    checksums: tuple[str, ...] = ()
    grading: Mapping[str, int] = field(default_factory=dict)
    """By `GradingMode`, the trials that were graded so; "unknown" where no test was run."""

    @property
    def flaky(self) -> bool:
        """Whether some trials of the task have the full score and some do not."""
        return self.task is not None and 0 < self.passed < self.counts.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSummary:
    """One benchmark, of one rollout or of several together."""

    name: str
    stamps: tuple[str, ...]
    config: str
    tags: tuple[str, ...]
    finished: bool
    level: float
    entries: tuple[ArmEntry, ...]
    arms: tuple[ArmSummary, ...]
    tasks: tuple[ArmSummary, ...]
    """Every arm at every task of its own, tasks in their order."""
    comparison: Comparison | None
    """Arm against arm; None where fewer than two can be compared."""
    notes: tuple[str, ...]
    """What a reader has to know; sentences that hold untrusted names."""


@takes_options
def summarize_benchmark(*manifests: Manifest, options: SummaryOptions) -> BenchmarkSummary:
    """Sum up one rollout of a benchmark, or several of the same together.

    Args:
        *manifests: The rollouts; trials of the same arm and task add up.
        options: How they are summed up.

    Raises:
        UsageError: There is no rollout, they are of different benchmarks, no arm is called
            as the baseline, or no task was graded so.
    """
    if not manifests:
        raise UsageError("there is no rollout to sum up; name one")
    names = {manifest.name for manifest in manifests}
    if len(names) > 1:
        raise UsageError(
            f"rollouts of different benchmarks cannot be summed up together:"
            f" {', '.join(sorted(names))}; 'assay bench compare' compares them"
        )
    manifests, left_out = graded_as(manifests, options.grading)
    level = options.level
    results, notes = pooled(manifests)
    entries = {entry.label: entry for manifest in manifests for entry in manifest.arms}
    for result in results:
        entries.setdefault(
            result.arm, ArmEntry(label=result.arm, agent=result.agent, model=result.model)
        )
    by_arm = {
        label: own
        for label in entries
        if (own := [result for result in results if result.arm == label])
    }
    arms = tuple(summarize_trials(own, label, None, level) for label, own in by_arm.items())
    order = {
        task: place for place, task in enumerate(dict.fromkeys(r.task_id for r in results))
    }
    tasks = [
        summarize_trials(of_task, label, task, level)
        for label, own in by_arm.items()
        for task, of_task in _by_task(own).items()
    ]
    subjects = [arm_subject(entries[label], own) for label, own in by_arm.items()]
    comparison, reasons = compared_arms(
        subjects, level=level, baseline=options.baseline, min_effect=options.min_effect
    )
    return BenchmarkSummary(
        name=manifests[0].name,
        stamps=tuple(manifest.created_at for manifest in manifests),
        config=manifests[-1].config,
        tags=tuple(dict.fromkeys(tag for manifest in manifests for tag in manifest.tags)),
        finished=all(manifest.finished for manifest in manifests),
        level=level,
        entries=tuple(entries[label] for label in by_arm),
        arms=arms,
        tasks=tuple(sorted(tasks, key=lambda row: order[row.task or ""])),
        comparison=comparison,
        notes=(*left_out, *notes, *_notes(arms, tasks), *reasons),
    )


def counted_score(result: TrialResult) -> float | None:
    """The score that a trial is in means with; None if it is in none."""
    if result.state is TrialState.FAILURE:
        return 0.0
    return result.score if result.state is TrialState.RESULT else None


def graded_as(
    manifests: Sequence[Manifest], grading: str | None
) -> tuple[tuple[Manifest, ...], list[str]]:
    """Rollouts with only the tasks that were graded in one mode, and which are left out.

    A task is kept or left out with all of its trials: those in which no test was run, such as
    empty patches, have no mode, and would be lost or kept alone.

    Raises:
        UsageError: There is no such mode, or no such task.
    """
    if grading is None:
        return tuple(manifests), []
    if grading not in [*GradingMode]:
        raise UsageError(unknown_name("grading", grading, [*GradingMode]))
    modes: dict[str, set[str]] = {}
    for result in (result for manifest in manifests for result in manifest.results):
        modes.setdefault(result.task_id, set()).update(filter(None, [result.grading]))
    others = [task for task, own in modes.items() if own != {grading}]
    if len(others) == len(modes):
        raise UsageError(
            f"no task was graded {grading!r} in all of its trials; leave out --grading, or see"
            " 'Tests that run the program apart' in docs/coding-tasks.md"
        )
    kept = tuple(
        replace(
            manifest,
            results=tuple(r for r in manifest.results if r.task_id not in others),
        )
        for manifest in manifests
    )
    note = f"Not graded {grading!r}, or not known to be, and left out: {', '.join(others)}."
    return kept, [note] if others else []


def pooled(manifests: Sequence[Manifest]) -> tuple[list[TrialResult], list[str]]:
    """The trials of several rollouts, and what of them cannot be taken together.

    A task that changed between them counts as it was in the last.
    """
    # Overrides are part of a task, and arms may have their own.
    last: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        last |= {
            (r.arm, r.task_id): r.task_checksum for r in manifest.results if r.task_checksum
        }
    kept, dropped = [], Counter[str]()
    for manifest in manifests:
        for result in manifest.results:
            own = result.task_checksum
            if own and own != last[result.arm, result.task_id]:
                dropped[result.task_id] += 1
            else:
                # Run ids are those of one data folder, and rollouts may come from several.
                id = result.session_id or f"{manifest.created_at}/{result.run_id}"
                kept.append(replace(result, session_id=id))
    return kept, [
        f"The task {task} changed between these rollouts: {counted(number, 'trial')} of an"
        " earlier form of it are left out."
        for task, number in dropped.items()
    ]


def arm_subject(
    entry: ArmEntry,
    results: Iterable[TrialResult],
    *,
    id: str | None = None,
    name: str | None = None,
) -> Subject:
    """An arm as `judge` compares it: a world is a task, and its rollouts are replicates."""
    return Subject(
        id=id or entry.label,
        name=name or entry.label,
        model=entry.label,
        agent=entry.agent,
        asks=entry.model,
        source="benchmark",
        trials=tuple(_outcome(result) for result in results if result.state is not None),
    )


def compared_arms(
    subjects: Sequence[Subject],
    *,
    level: float = 0.95,
    baseline: str | None = None,
    min_effect: float | None = None,
) -> tuple[Comparison | None, list[str]]:
    """Arms compared with one of them by mean score, and who is not, in sentences.

    Arms are paired by task, and have two tasks or more in common with the baseline. Where all
    of them did one task alone, its trials are independent samples.
    """
    names = [subject.name for subject in subjects]
    if baseline is not None and baseline not in names:
        raise UsageError(unknown_name("arm", baseline, names))
    scored = [subject for subject in subjects if SCORE in metrics_of(subject)]
    said = [
        f"{subject.name} has no trial that counts and is not compared."
        for subject in subjects
        if subject not in scored
    ]
    first = next((one for one in scored if baseline in (None, one.name)), None)
    if first is None or len(scored) < 2:
        return None, said
    tasks = {subject.id: {t.task for t in subject.trials if t.values} for subject in scored}
    alone = len(set[str | None]().union(*tasks.values())) == 1
    kept = [first]
    for subject in scored:
        common = len(tasks[subject.id] & tasks[first.id])
        if subject is first:
            continue
        if alone or common > 1:
            kept.append(subject)
        else:
            said.append(
                f"{subject.name} is not compared with {first.name}: they have"
                f" {counted(common, 'task')} in common, and it takes two or more."
            )
    if len(kept) < 2:
        return None, said
    if alone:
        kept = [replace(one, trials=tuple(_alone(one.trials))) for one in kept]
    metrics = [name for name in _METRICS if all(name in metrics_of(one) for one in kept)]
    found = compare(kept, metrics=metrics, level=level, min_effect=min_effect)
    # Tasks have no seeds that anybody could choose anew.
    return replace(found, next_seed=None), said


def _alone(trials: Iterable[TrialOutcome]) -> list[TrialOutcome]:
    """Return trials without partners, which those of one task have none of."""
    return [replace(trial, pair=None, seed=None) for trial in trials]


def _outcome(result: TrialResult) -> TrialOutcome:
    score = counted_score(result)
    values: dict[str, float] = {}
    if score is not None:
        values = {SCORE: score, "success": float(score >= 1)}
    if result.state is not TrialState.INFRASTRUCTURE:
        if "agent" in result.seconds:
            values["duration_s"] = result.seconds["agent"]
        if result.tokens:
            # Those of the agent's model; cached and reasoning ones are among them.
            kinds = ("prompt", "completion")
            values["tokens"] = float(sum(result.tokens.get(kind, 0) for kind in kinds))
        if result.cost_usd is not None:
            values["cost_usd"] = result.cost_usd
    # Means count a failure of the subject, which `judge` by itself would leave out.
    infrastructure = result.state is TrialState.INFRASTRUCTURE
    return TrialOutcome(
        trial_id=result.session_id or result.run_id,
        pair=result.task_id,
        task=result.task_id,
        seed=0,
        replicate=result.rollout,
        state=TrialState.INFRASTRUCTURE if infrastructure else TrialState.RESULT,
        values=values,
        ended=result.outcome,
    )


def summarize_trials(
    results: Sequence[TrialResult], arm: str, task: str | None, level: float
) -> ArmSummary:
    """Sum up trials of an arm, all of one task if there is one."""
    ended = [result for result in results if result.state is not None]
    scores: dict[Hashable, list[float]] = {}
    for result in ended:
        if (score := counted_score(result)) is not None:
            scores.setdefault(result.task_id, []).append(score)
    passed = {name: [score >= 1 for score in own] for name, own in scores.items()}
    trials = [_outcome(result) for result in ended]
    own = [{**result.standard_metrics, **result.custom_metrics} for result in ended]
    states = Counter(result.state for result in ended)
    ungraded = sum(r.state is TrialState.RESULT and r.score is None for r in ended)
    counts = TrialCounts(
        planned=len(results),
        graded=states[TrialState.RESULT] - ungraded,
        failures=states[TrialState.FAILURE],
        infrastructure=states[TrialState.INFRASTRUCTURE],
        ungraded=ungraded,
        pending=len(results) - len(ended),
    )
    attempts = {*ATTEMPTS, min(map(len, passed.values()), default=1)}
    phases: dict[str, list[float]] = {}
    for result in ended:
        for phase, seconds in result.seconds.items():
            phases.setdefault(phase, []).append(seconds)

    def mean_score(lost: float | None) -> Interval | None:
        """Return the mean score, with lost trials at this score."""
        known = [lost if (score := counted_score(r)) is None else score for r in ended]
        return _mean(trials, known, level)

    return ArmSummary(
        arm=arm,
        task=task,
        tasks=len(scores),
        counts=counts,
        score=mean_score(None),
        worst=mean_score(0.0) if counts.lost else None,
        best=mean_score(1.0) if counts.lost else None,
        passed=sum(map(sum, passed.values())),
        passes=tuple(pass_rows(arm, passed, sorted(attempts), level)),
        best_score=sum(map(max, scores.values())) / len(scores) if scores else None,
        spent=Spent(
            sum(result.cost_usd for result in ended if result.cost_usd is not None),
            sum(result.cost_usd is None for result in ended),
        ),
        seconds={phase: sum(times) / len(times) for phase, times in phases.items()},
        tokens=dict(sum((Counter(result.tokens) for result in ended), Counter[str]())),
        outcomes=_often(r.outcome for r in ended if counted_score(r) is not None),
        errors=_often(r.outcome for r in ended if r.state is TrialState.INFRASTRUCTURE),
        findings=_findings(ended),
        metrics={
            name: mean
            for name in dict.fromkeys(name for values in own for name in values)
            if (mean := _mean(trials, [values.get(name) for values in own], level, name))
        },
        answered_as=tuple(dict.fromkeys(r.answered_as for r in ended if r.answered_as)),
        checksums=tuple(dict.fromkeys(r.task_checksum for r in results if r.task_checksum)),
        grading=_often(r.grading for r in ended if counted_score(r) is not None),
    )


def _mean(
    trials: Sequence[TrialOutcome],
    values: Sequence[float | None],
    level: float,
    metric: str = SCORE,
) -> Interval | None:
    """Return the mean over tasks, or over trials where they are of one task."""
    measured = [
        replace(trial, state=TrialState.RESULT, values={metric: value})
        for trial, value in zip(trials, values, strict=True)
        if value is not None
    ]
    if not measured:
        return None
    if len({trial.task for trial in measured}) == 1:
        measured = _alone(measured)
    return mean_of(measured, metric, level)


def _often(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(name or "unknown" for name in names).most_common())


def _findings(results: Sequence[TrialResult]) -> tuple[FindingCount, ...]:
    """Each by the number of trials that have it, the most frequent first."""
    trials, details = Counter[str](), dict[str, str]()
    for result in results:
        trials.update({name for name, _ in result.findings})
        for name, detail in result.findings:
            details.setdefault(name, detail)
    return tuple(FindingCount(name, trials[name], details[name]) for name in sorted(details))


def _by_task(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    by_task: dict[str, list[TrialResult]] = {}
    for result in results:
        by_task.setdefault(result.task_id, []).append(result)
    return by_task


def _notes(arms: Sequence[ArmSummary], tasks: Sequence[ArmSummary]) -> list[str]:
    """What of the trials a reader has to know before the numbers."""
    counts = [arm.counts for arm in arms]
    planned = sum(count.planned for count in counts)
    said = []
    if pending := sum(count.pending for count in counts):
        said.append(
            f"{pending:,} of {counted(planned, 'trial')} have not run; 'assay bench resume'"
            " finishes them."
        )
    if ungraded := sum(count.ungraded for count in counts):
        said.append(
            f"{counted(ungraded, 'trial')} without a grade; 'assay bench eval' grades them."
        )
    if lost := sum(count.infrastructure for count in counts):
        said.append(
            f"{lost:,} of {counted(planned, 'trial')} ended by infrastructure errors: they are"
            " in no mean. Worst and best: the mean score with them at 0, and at 1."
        )
    if failures := sum(count.failures for count in counts):
        said.append(
            f"{counted(failures, 'trial')} in which the agent itself failed, which"
            f" {'counts' if failures == 1 else 'count'} with a score of 0."
        )
    most = max((arm.tasks for arm in arms), default=0)
    if most == 1:
        said.append(
            "One task: intervals are over its trials, and say nothing about other tasks."
        )
    elif 1 < most < FEW_TASKS:
        said.append(
            f"{most} tasks are very few: intervals over tasks count on values close to normal."
        )
    forms: dict[str, set[str]] = {}
    for row in tasks:
        forms.setdefault(row.task or "", set()).update(row.checksums)
    if several := [task for task, own in forms.items() if len(own) > 1]:
        said.append(
            "Arms did these tasks in different forms, as their overrides say:"
            f" {', '.join(several)}."
        )
    if any(
        len({row.counts.counted for row in tasks if row.arm == arm.arm}) > 1 for arm in arms
    ):
        said.append("Tasks have different numbers of trials; in means all weigh the same.")
    return said
