"""Comparison of rollouts of benchmarks: task by task, and arm by arm with a verdict.

An arm is compared with the arm of the same label in another rollout; if each rollout has a
single arm, these are compared. Only tasks that are identical in all rollouts count for
verdicts: tasks that changed, or that are missing from a rollout, are reported. This module
reads no file and prints nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from assay.bench.manifest import ArmEntry, Manifest, TrialResult
from assay.bench.options import RolloutComparisonOptions
from assay.bench.summary import (
    ArmSummary,
    compare_arms,
    filter_by_grading,
    make_subject,
    pool_results,
    summarize_trials,
)
from assay.core.options import takes_options
from assay.core.text import counted
from assay.errors import UsageError
from assay.judge.results import Comparison


class TaskChange(StrEnum):
    """Change of a task's result since the first rollout."""

    NEWLY_PASSING = "newly passing"
    """No trial had the full score in the first rollout, and now all have."""
    NEWLY_FAILING = "newly failing"
    """All trials had the full score in the first rollout, and now none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """Results of one arm at one task, in every rollout."""

    arm: str
    task: str
    rollouts: tuple[ArmSummary | None, ...]
    """None if a rollout does not include the task."""
    changed: bool
    """Whether the task differs between rollouts; then it does not count for the verdict."""

    @property
    def flaky(self) -> bool:
        """Whether some trials of one rollout have the full score and others do not."""
        return any(row.flaky for row in self.rollouts if row is not None)

    def change(self, index: int) -> TaskChange | None:
        """Return the change between the first rollout and the rollout at this index."""
        first, later = self.rollouts[0], self.rollouts[index]
        if self.changed or first is None or later is None:
            return None
        if not first.counts.counted or not later.counts.counted or first.flaky or later.flaky:
            return None
        if bool(first.passed) is bool(later.passed):
            return None
        return TaskChange.NEWLY_PASSING if later.passed else TaskChange.NEWLY_FAILING


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """Comparison of one arm of the first rollout with the same arm in the others."""

    arm: str
    comparison: Comparison | None
    """None if nothing can be compared."""
    reasons: tuple[str, ...] = ()
    """Reasons why something is not compared, as sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutComparison:
    """Result of a comparison of rollouts."""

    rollouts: tuple[str, ...]
    """Names of the rollouts; the first one is the baseline."""
    arms: tuple[ArmComparison, ...]
    tasks: tuple[TaskRow, ...]
    level: float
    """Confidence level of all verdicts together; each is stricter if there are several."""
    notes: tuple[str, ...]

    @property
    def flaky(self) -> tuple[TaskRow, ...]:
        """Tasks with some passing and some failing trials in one rollout."""
        return tuple(row for row in self.tasks if row.flaky)

    def changes(self, change: TaskChange) -> tuple[TaskRow, ...]:
        """Return the tasks with this change in any rollout after the first."""
        indices = range(1, len(self.rollouts))
        return tuple(row for row in self.tasks if any(row.change(i) is change for i in indices))


@takes_options
def compare_rollouts(
    rollouts: Mapping[str, Manifest], *, options: RolloutComparisonOptions
) -> RolloutComparison:
    """Compare rollouts with the first of them.

    With m arms each verdict has the level 1 - (1 - level) / m (Bonferroni), and also corrects
    for the comparisons within the arm.

    Args:
        rollouts: Two or more rollouts, by their names in the result.
        options: Options of the comparison.

    Raises:
        UsageError: There are fewer than two, or no task was graded in the requested mode.
    """
    if len(rollouts) < 2:
        raise UsageError("a comparison needs at least two rollouts; name two or more")
    names = tuple(rollouts)
    kept, grading_notes = filter_by_grading([*rollouts.values()], options.grading)
    rollouts = dict(zip(names, kept, strict=True))
    results = {name: pool_results([manifest])[0] for name, manifest in rollouts.items()}
    matched, missing = _match_arms(rollouts)
    level = options.level
    arm_level = 1 - (1 - level) / max(1, len(matched))
    arms: list[ArmComparison] = []
    rows: list[TaskRow] = []
    for label, entries in matched.items():
        trials = {
            name: [result for result in results[name] if result.arm == entry.label]
            for name, entry in entries.items()
        }
        task_rows = _make_task_rows(label, [trials.get(name, []) for name in names], level)
        rows += task_rows
        unchanged = {row.task for row in task_rows if not row.changed}
        arm_options = replace(options, level=arm_level)
        arms.append(_compare_arm(label, entries, trials, unchanged, arm_options))
    return RolloutComparison(
        rollouts=names,
        arms=(
            *arms,
            *(
                ArmComparison(arm=arm, comparison=None, reasons=(reason,))
                for arm, reason in missing.items()
            ),
        ),
        tasks=tuple(rows),
        level=level,
        notes=(*grading_notes, *_describe_caveats(rollouts, matched, rows, arm_level)),
    )


_RolloutArms = Mapping[str, ArmEntry]
"""The arm of each rollout that has one, by the name of the rollout."""


def _match_arms(
    rollouts: Mapping[str, Manifest],
) -> tuple[dict[str, _RolloutArms], dict[str, str]]:
    """Return the arms that are compared, and the reasons why others are not."""
    arms_by_rollout = {name: _list_arms(manifest) for name, manifest in rollouts.items()}
    if all(len(arms) == 1 for arms in arms_by_rollout.values()):
        single = {name: next(iter(arms.values())) for name, arms in arms_by_rollout.items()}
        labels = dict.fromkeys(entry.label for entry in single.values())
        return {" / ".join(labels): single}, {}
    matched: dict[str, _RolloutArms] = {}
    missing: dict[str, str] = {}
    first = next(iter(arms_by_rollout))
    for label in dict.fromkeys(label for arms in arms_by_rollout.values() for label in arms):
        entries = {name: arms[label] for name, arms in arms_by_rollout.items() if label in arms}
        if first not in entries:
            missing[label] = f"{label} is not in {first}, so it has no baseline."
        elif len(entries) == 1:
            missing[label] = f"{label} is only in {first}."
        else:
            matched[label] = entries
    return matched, missing


def _list_arms(manifest: Manifest) -> dict[str, ArmEntry]:
    """Return the arms that have trials, by label."""
    listed = {entry.label: entry for entry in manifest.arms}
    return {
        result.arm: listed.get(
            result.arm, ArmEntry(label=result.arm, agent=result.agent, model=result.model)
        )
        for result in manifest.results
    }


def _compare_arm(
    label: str,
    entries: _RolloutArms,
    trials: Mapping[str, Sequence[TrialResult]],
    unchanged: set[str],
    options: RolloutComparisonOptions,
) -> ArmComparison:
    # Rollouts that ran different tasks are compared on the tasks that all of them ran.
    tasks_by_rollout = [{result.task_id for result in results} for results in trials.values()]
    common = unchanged.intersection(*tasks_by_rollout)
    subjects = [
        make_subject(
            entry,
            [result for result in trials[name] if result.task_id in common],
            id=f"{entry.label} {name}",
            name=f"{entry.label} {name}",
        )
        for name, entry in entries.items()
    ]
    comparison, reasons = compare_arms(
        subjects, level=options.level, min_effect=options.min_effect
    )
    if not common:
        reasons = [f"{label} has no task that is identical in all rollouts."]
    return ArmComparison(arm=label, comparison=comparison, reasons=tuple(reasons))


def _make_task_rows(
    label: str, rollouts: Sequence[Sequence[TrialResult]], level: float
) -> list[TaskRow]:
    """Return the rows of all tasks of an arm, given its trials in each rollout."""
    rows = []
    for task in dict.fromkeys(result.task_id for results in rollouts for result in results):
        groups = [[r for r in results if r.task_id == task] for results in rollouts]
        checksums = {result.task_checksum for results in groups for result in results} - {""}
        rows.append(
            TaskRow(
                arm=label,
                task=task,
                rollouts=tuple(
                    summarize_trials(results, label, task, level) if results else None
                    for results in groups
                ),
                changed=len(checksums) > 1,
            )
        )
    return rows


def _describe_caveats(
    rollouts: Mapping[str, Manifest],
    matched: Mapping[str, _RolloutArms],
    rows: Sequence[TaskRow],
    arm_level: float,
) -> Iterator[str]:
    changed = dict.fromkeys(row.task for row in rows if row.changed)
    if changed:
        yield (
            f"{counted(len(changed), 'task')} changed between the rollouts and"
            f" {'is' if len(changed) == 1 else 'are'} not compared: {', '.join(changed)}."
        )
    absent = dict.fromkeys(row.task for row in rows if not row.changed and None in row.rollouts)
    if absent:
        yield f"Not in all rollouts, and not compared: {', '.join(absent)}."
    unknown = dict.fromkeys(
        result.task_id
        for manifest in rollouts.values()
        for result in manifest.results
        if not result.task_checksum
    )
    if unknown:
        yield (
            "Tasks without a checksum, which may differ between rollouts:"
            f" {', '.join(unknown)}."
        )
    for label, entries in matched.items():
        yield from _describe_different_settings(label, entries)
    if len(matched) > 1:
        yield (
            f"{len(matched)} arms are compared, each at a level of {100 * arm_level:.4g} %, so"
            " that all verdicts together have the chosen level."
        )


def _describe_different_settings(label: str, entries: _RolloutArms) -> Iterator[str]:
    """Describe settings of an arm that differ between rollouts."""
    (first, before), *others = entries.items()
    for name, after in others:
        if after.label != before.label:
            continue
        differences = [
            f"{setting} {old!r} and {new!r}"
            for setting, old, new in (
                ("agent", before.agent, after.agent),
                ("model", before.model, after.model),
                *(
                    (key, before.settings.get(key), after.settings.get(key))
                    for key in dict.fromkeys([*before.settings, *after.settings])
                ),
            )
            if old != new
        ]
        if differences:
            listed = "; ".join(differences)
            yield f"{label} has different settings in {first} and {name}: {listed}."
