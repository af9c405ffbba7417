"""Summary of a benchmark, computed from manifests. Reads no file and prints nothing.

The unit is the task: the trials of an arm at one task are averaged, and the interval of a mean
is computed over the task means, as everywhere in `judge`. With a single task the unit is the
trial, and the result applies to that task only. A trial whose agent failed counts with a score
of 0. Trials with an infrastructure error or without a grade, and trials that have not run, are
excluded from every mean and reported. For the first two kinds, the mean is also given with
their scores at 0 and at 1.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from assay.bench.base import GradingMode
from assay.bench.manifest import ArmEntry, Manifest, TrialResult
from assay.bench.options import BenchSummaryOptions
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
"""The primary metric."""
FEW_TASKS = 6
"""With fewer tasks, intervals assume approximately normal values; see `smallest_n`."""
_METRICS = (SCORE, "success", "duration_s", "tokens", "cost_usd")


class TrialCounts(NamedTuple):
    """Number of trials by state; the states add up to `planned`."""

    planned: int
    """The denominator, independent of how trials end."""
    graded: int
    failures: int
    """Trials that failed because of the agent; they count with a score of 0."""
    infrastructure: int
    ungraded: int
    """Trials that ended without a grade."""
    pending: int
    """Trials that have not ended."""

    @property
    def counted(self) -> int:
        """Number of trials included in means."""
        return self.graded + self.failures

    @property
    def lost(self) -> int:
        """Number of trials that ended and are excluded from means."""
        return self.infrastructure + self.ungraded


class Spent(NamedTuple):
    """Cost in dollars of all trials that started."""

    known: float
    unknown: int
    """Trials of unknown cost, which are not in the sum."""


class FindingCount(NamedTuple):
    """Number of trials with a given finding of a grader or sandbox."""

    name: str
    trials: int
    detail: str
    """Detail of the first finding; untrusted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """Summary of the trials of one arm, at one task or at all its tasks."""

    arm: str
    """Its label; untrusted text, like all names."""
    task: str | None
    """None for all tasks."""
    tasks: int
    """Number of tasks with a trial that counts."""
    counts: TrialCounts
    score: Interval | None
    """Mean over tasks, or over trials if there is one task."""
    worst: Interval | None
    """Mean with the lost trials at 0; None if none were lost."""
    best: Interval | None
    """Mean with the lost trials at 1; None if none were lost."""
    passed: int
    """Number of trials with the full score."""
    passes: tuple[PassRow, ...]
    """pass@k and pass^k by k, up to the smallest number of trials of a task."""
    best_score: float | None
    """Score of the best trial of each task, averaged over tasks."""
    spent: Spent
    seconds: Mapping[str, float]
    """Mean by phase, over the trials that have the phase."""
    tokens: Mapping[str, int]
    """Sum over all trials by kind of token."""
    outcomes: Mapping[str, int]
    """Number of trials that count by outcome, the most frequent first."""
    errors: Mapping[str, int]
    """Number of infrastructure errors by type."""
    findings: tuple[FindingCount, ...]
    metrics: Mapping[str, Interval] = field(default_factory=dict)
    """Means of the metrics that tasks report themselves."""
    answered_as: tuple[str, ...] = ()
    """Model names that the providers reported in their responses."""
    checksums: tuple[str, ...] = ()
    grading: Mapping[str, int] = field(default_factory=dict)
    """Number of trials by `GradingMode`; "unknown" if no test was run."""

    @property
    def flaky(self) -> bool:
        """Whether some trials of the task have the full score and others do not."""
        return self.task is not None and 0 < self.passed < self.counts.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSummary:
    """Summary of one rollout of a benchmark, or of several pooled."""

    name: str
    stamps: tuple[str, ...]
    config: str
    tags: tuple[str, ...]
    finished: bool
    level: float
    entries: tuple[ArmEntry, ...]
    arms: tuple[ArmSummary, ...]
    tasks: tuple[ArmSummary, ...]
    """Each arm at each of its tasks, in task order."""
    comparison: Comparison | None
    """Comparison of arms; None if fewer than two can be compared."""
    notes: tuple[str, ...]
    """Caveats for the reader; sentences that contain untrusted names."""


@takes_options
def summarize_benchmark(*manifests: Manifest, options: BenchSummaryOptions) -> BenchmarkSummary:
    """Summarise one rollout of a benchmark, or pool several rollouts of it.

    Args:
        *manifests: The rollouts; trials of the same arm and task are pooled.
        options: Options of the summary.

    Raises:
        UsageError: No rollout is given, they are of different benchmarks, the baseline is not
            an arm, or no task was graded in the requested mode.
    """
    if not manifests:
        raise UsageError("no rollout to summarise; name one")
    names = {manifest.name for manifest in manifests}
    if len(names) > 1:
        raise UsageError(
            f"rollouts of different benchmarks cannot be summarised together:"
            f" {', '.join(sorted(names))}; 'assay bench compare' compares them"
        )
    manifests, grading_notes = filter_by_grading(manifests, options.grading)
    level = options.level
    results, notes = pool_results(manifests)
    entries = {entry.label: entry for manifest in manifests for entry in manifest.arms}
    for result in results:
        entries.setdefault(
            result.arm, ArmEntry(label=result.arm, agent=result.agent, model=result.model)
        )
    by_arm = {
        label: trials
        for label in entries
        if (trials := [result for result in results if result.arm == label])
    }
    arms = tuple(summarize_trials(trials, arm, None, level) for arm, trials in by_arm.items())
    order = {
        task: position
        for position, task in enumerate(dict.fromkeys(result.task_id for result in results))
    }
    tasks = [
        summarize_trials(task_trials, label, task, level)
        for label, trials in by_arm.items()
        for task, task_trials in _group_by_task(trials).items()
    ]
    subjects = [make_subject(entries[label], trials) for label, trials in by_arm.items()]
    comparison, reasons = compare_arms(
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
        notes=(*grading_notes, *notes, *_describe_caveats(arms, tasks), *reasons),
    )


def get_counted_score(result: TrialResult) -> float | None:
    """Return the score of a trial for means; None if the trial is excluded from them."""
    if result.state is TrialState.FAILURE:
        return 0.0
    return result.score if result.state is TrialState.RESULT else None


def filter_by_grading(
    manifests: Sequence[Manifest], grading: str | None
) -> tuple[tuple[Manifest, ...], list[str]]:
    """Return the rollouts with only the tasks graded in one mode, and a note on the others.

    A task is kept or left out with all its trials: trials in which no test was run, such as
    empty patches, have no mode and cannot be selected one by one.

    Raises:
        UsageError: The mode is unknown, or no task was graded in it.
    """
    if grading is None:
        return tuple(manifests), []
    if grading not in [*GradingMode]:
        raise UsageError(unknown_name("grading", grading, [*GradingMode]))
    modes: dict[str, set[str]] = {}
    for result in (result for manifest in manifests for result in manifest.results):
        modes.setdefault(result.task_id, set()).update(filter(None, [result.grading]))
    others = [task for task, task_modes in modes.items() if task_modes != {grading}]
    if len(others) == len(modes):
        raise UsageError(
            f"no task was graded {grading!r} in all of its trials; omit --grading, or see"
            " 'Tests that run the program apart' in docs/coding-tasks.md"
        )
    kept = tuple(
        replace(manifest, results=tuple(r for r in manifest.results if r.task_id not in others))
        for manifest in manifests
    )
    note = f"Excluded tasks (grading not {grading!r}, or unknown): {', '.join(others)}."
    return kept, [note] if others else []


def pool_results(manifests: Sequence[Manifest]) -> tuple[list[TrialResult], list[str]]:
    """Pool the trials of several rollouts; return them, and notes on trials left out.

    If a task changed between rollouts, only trials of its last version are kept.
    """
    # Overrides are part of a task and may differ between arms.
    last_checksums: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        last_checksums |= {
            (result.arm, result.task_id): result.task_checksum
            for result in manifest.results
            if result.task_checksum
        }
    kept, dropped = [], Counter[str]()
    for manifest in manifests:
        for result in manifest.results:
            checksum = result.task_checksum
            if checksum and checksum != last_checksums[result.arm, result.task_id]:
                dropped[result.task_id] += 1
            else:
                # Run ids are unique only in a data folder; rollouts may come from several.
                id = result.session_id or f"{manifest.created_at}/{result.run_id}"
                kept.append(replace(result, session_id=id))
    return kept, [
        f"Task {task} changed between these rollouts; excluded:"
        f" {counted(number, 'trial')} of an earlier version."
        for task, number in dropped.items()
    ]


def make_subject(
    entry: ArmEntry,
    results: Iterable[TrialResult],
    *,
    id: str | None = None,
    name: str | None = None,
) -> Subject:
    """Convert an arm for `judge`: each task is a world, and its rollouts are replicates."""
    return Subject(
        id=id or entry.label,
        name=name or entry.label,
        model=entry.label,
        agent=entry.agent,
        asks=entry.model,
        source="benchmark",
        trials=tuple(_make_outcome(result) for result in results if result.state is not None),
    )


def compare_arms(
    subjects: Sequence[Subject],
    *,
    level: float = 0.95,
    baseline: str | None = None,
    min_effect: float | None = None,
) -> tuple[Comparison | None, list[str]]:
    """Compare the mean scores of arms with a baseline; also list the arms that are left out.

    Arms are paired by task, and must share at least two tasks with the baseline. If all arms
    ran only one and the same task, its trials are independent samples.
    """
    names = [subject.name for subject in subjects]
    if baseline is not None and baseline not in names:
        raise UsageError(unknown_name("arm", baseline, names))
    scored = [subject for subject in subjects if SCORE in metrics_of(subject)]
    notes = [
        f"{subject.name} has no trial that counts, so it is not compared."
        for subject in subjects
        if subject not in scored
    ]
    reference = next((subject for subject in scored if baseline in (None, subject.name)), None)
    if reference is None or len(scored) < 2:
        return None, notes
    tasks = {subject.id: {t.task for t in subject.trials if t.values} for subject in scored}
    is_single_task = len(set[str | None]().union(*tasks.values())) == 1
    kept = [reference]
    for subject in scored:
        common = len(tasks[subject.id] & tasks[reference.id])
        if subject is reference:
            continue
        if is_single_task or common > 1:
            kept.append(subject)
        else:
            notes.append(
                f"{subject.name} is not compared with {reference.name}: they share"
                f" {counted(common, 'task')}, and a comparison needs at least two."
            )
    if len(kept) < 2:
        return None, notes
    if is_single_task:
        kept = [replace(subject, trials=tuple(_unpair(subject.trials))) for subject in kept]
    metrics = [name for name in _METRICS if all(name in metrics_of(s) for s in kept)]
    comparison = compare(kept, metrics=metrics, level=level, min_effect=min_effect)
    # The worlds are tasks, which have no seeds to suggest for the next run.
    return replace(comparison, next_seed=None), notes


def _unpair(trials: Iterable[TrialOutcome]) -> list[TrialOutcome]:
    """Return trials without pairing information; the trials of one task are not paired."""
    return [replace(trial, pair=None, seed=None) for trial in trials]


def _make_outcome(result: TrialResult) -> TrialOutcome:
    score = get_counted_score(result)
    values: dict[str, float] = {}
    if score is not None:
        values = {SCORE: score, "success": float(score >= 1)}
    if result.state is not TrialState.INFRASTRUCTURE:
        if "agent" in result.seconds:
            values["duration_s"] = result.seconds["agent"]
        if result.tokens:
            # Tokens of the agent's model; cached and reasoning tokens are included in these.
            kinds = ("prompt", "completion")
            values["tokens"] = float(sum(result.tokens.get(kind, 0) for kind in kinds))
        if result.cost_usd is not None:
            values["cost_usd"] = result.cost_usd
    # Benchmark means include failures, which `judge` would leave out.
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
    """Summarise the trials of an arm, all of one task if `task` is given."""
    ended = [result for result in results if result.state is not None]
    scores: dict[Hashable, list[float]] = {}
    for result in ended:
        if (score := get_counted_score(result)) is not None:
            scores.setdefault(result.task_id, []).append(score)
    passed = {task: [score >= 1 for score in values] for task, values in scores.items()}
    trials = [_make_outcome(result) for result in ended]
    task_metrics = [{**result.standard_metrics, **result.custom_metrics} for result in ended]
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

    def compute_mean_score(lost: float | None) -> Interval | None:
        """Return the mean score, with lost trials at this score."""
        filled = [lost if (score := get_counted_score(r)) is None else score for r in ended]
        return _compute_mean(trials, filled, level)

    return ArmSummary(
        arm=arm,
        task=task,
        tasks=len(scores),
        counts=counts,
        score=compute_mean_score(None),
        worst=compute_mean_score(0.0) if counts.lost else None,
        best=compute_mean_score(1.0) if counts.lost else None,
        passed=sum(map(sum, passed.values())),
        passes=tuple(pass_rows(arm, passed, sorted(attempts), level)),
        best_score=sum(map(max, scores.values())) / len(scores) if scores else None,
        spent=Spent(
            sum(result.cost_usd for result in ended if result.cost_usd is not None),
            sum(result.cost_usd is None for result in ended),
        ),
        seconds={phase: sum(times) / len(times) for phase, times in phases.items()},
        tokens=dict(sum((Counter(result.tokens) for result in ended), Counter[str]())),
        outcomes=_count_by_name(r.outcome for r in ended if get_counted_score(r) is not None),
        errors=_count_by_name(r.outcome for r in ended if r.state is TrialState.INFRASTRUCTURE),
        findings=_count_findings(ended),
        metrics={
            name: mean
            for name in dict.fromkeys(name for values in task_metrics for name in values)
            if (
                mean := _compute_mean(
                    trials, [values.get(name) for values in task_metrics], level, name
                )
            )
        },
        answered_as=tuple(dict.fromkeys(r.answered_as for r in ended if r.answered_as)),
        checksums=tuple(dict.fromkeys(r.task_checksum for r in results if r.task_checksum)),
        grading=_count_by_name(r.grading for r in ended if get_counted_score(r) is not None),
    )


def _compute_mean(
    trials: Sequence[TrialOutcome],
    values: Sequence[float | None],
    level: float,
    metric: str = SCORE,
) -> Interval | None:
    """Return the mean over tasks, or over trials if they are all of one task."""
    measured = [
        replace(trial, state=TrialState.RESULT, values={metric: value})
        for trial, value in zip(trials, values, strict=True)
        if value is not None
    ]
    if not measured:
        return None
    if len({trial.task for trial in measured}) == 1:
        measured = _unpair(measured)
    return mean_of(measured, metric, level)


def _count_by_name(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(name or "unknown" for name in names).most_common())


def _count_findings(results: Sequence[TrialResult]) -> tuple[FindingCount, ...]:
    """Count the trials with each finding, in the order of the findings' names."""
    trials, details = Counter[str](), dict[str, str]()
    for result in results:
        trials.update({name for name, _ in result.findings})
        for name, detail in result.findings:
            details.setdefault(name, detail)
    return tuple(FindingCount(name, trials[name], details[name]) for name in sorted(details))


def _group_by_task(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    by_task: dict[str, list[TrialResult]] = {}
    for result in results:
        by_task.setdefault(result.task_id, []).append(result)
    return by_task


def _describe_caveats(arms: Sequence[ArmSummary], tasks: Sequence[ArmSummary]) -> list[str]:
    """Return caveats about the trials, as sentences."""
    counts = [arm.counts for arm in arms]
    planned = sum(count.planned for count in counts)
    notes = []
    if pending := sum(count.pending for count in counts):
        notes.append(
            f"{pending:,} of {counted(planned, 'trial')} have not run; 'assay bench resume'"
            " runs them."
        )
    if ungraded := sum(count.ungraded for count in counts):
        notes.append(
            f"{counted(ungraded, 'trial')} without a grade; 'assay bench eval' grades them."
        )
    if lost := sum(count.infrastructure for count in counts):
        notes.append(
            f"Infrastructure errors: {lost:,} of {counted(planned, 'trial')}, excluded from"
            " every mean. Worst and best: the mean score if they scored 0 or 1."
        )
    if failures := sum(count.failures for count in counts):
        notes.append(
            f"The agent failed in {counted(failures, 'trial')}, which"
            f" {'counts' if failures == 1 else 'count'} with a score of 0."
        )
    max_tasks = max((arm.tasks for arm in arms), default=0)
    if max_tasks == 1:
        notes.append("There is one task: intervals are over its trials and apply only to it.")
    elif 1 < max_tasks < FEW_TASKS:
        notes.append(f"With only {max_tasks} tasks, intervals assume roughly normal values.")
    checksums: dict[str, set[str]] = {}
    for row in tasks:
        checksums.setdefault(row.task or "", set()).update(row.checksums)
    if differing := [task for task, versions in checksums.items() if len(versions) > 1]:
        notes.append(f"Overrides differ between arms for these tasks: {', '.join(differing)}.")
    if any(
        len({row.counts.counted for row in tasks if row.arm == arm.arm}) > 1 for arm in arms
    ):
        notes.append("Tasks have different numbers of trials; all have equal weight in means.")
    return notes
