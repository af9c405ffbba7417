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
    arm_subject,
    compared_arms,
    graded_as,
    pooled,
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

    def change(self, place: int) -> TaskChange | None:
        """Return the change between the first rollout and the rollout at this index."""
        first, then = self.rollouts[0], self.rollouts[place]
        if self.changed or first is None or then is None:
            return None
        if not first.counts.counted or not then.counts.counted or first.flaky or then.flaky:
            return None
        if bool(first.passed) is bool(then.passed):
            return None
        return TaskChange.NEWLY_PASSING if then.passed else TaskChange.NEWLY_FAILING


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
        places = range(1, len(self.rollouts))
        return tuple(
            row for row in self.tasks if any(row.change(at) is change for at in places)
        )


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
        raise UsageError("there are no two rollouts to compare; name two or more")
    names = tuple(rollouts)
    kept, left_out = graded_as([*rollouts.values()], options.grading)
    rollouts = dict(zip(names, kept, strict=True))
    results = {name: pooled([manifest])[0] for name, manifest in rollouts.items()}
    slots, missing = _slots(rollouts)
    level = options.level
    each = 1 - (1 - level) / max(1, len(slots))
    arms: list[ArmComparison] = []
    rows: list[TaskRow] = []
    for slot, entries in slots.items():
        trials = {
            name: [result for result in results[name] if result.arm == entry.label]
            for name, entry in entries.items()
        }
        own = _rows(slot, [trials.get(name, []) for name in names], level)
        rows += own
        same = {row.task for row in own if not row.changed}
        judged = replace(options, level=each)
        arms.append(_arm(slot, entries, trials, same, judged))
    return RolloutComparison(
        rollouts=names,
        arms=(
            *arms,
            *(
                ArmComparison(arm=arm, comparison=None, reasons=(why,))
                for arm, why in missing.items()
            ),
        ),
        tasks=tuple(rows),
        level=level,
        notes=(*left_out, *_notes(rollouts, slots, rows, each)),
    )


_Slot = Mapping[str, ArmEntry]
"""The arm of each rollout that has one, by the name of the rollout."""


def _slots(rollouts: Mapping[str, Manifest]) -> tuple[dict[str, _Slot], dict[str, str]]:
    """Return the arms that are compared, and the reasons why others are not."""
    having = {name: _entries(manifest) for name, manifest in rollouts.items()}
    if all(len(own) == 1 for own in having.values()):
        single = {name: next(iter(own.values())) for name, own in having.items()}
        labels = dict.fromkeys(entry.label for entry in single.values())
        return {" / ".join(labels): single}, {}
    slots: dict[str, _Slot] = {}
    missing: dict[str, str] = {}
    first = next(iter(having))
    for label in dict.fromkeys(label for own in having.values() for label in own):
        found = {name: own[label] for name, own in having.items() if label in own}
        if first not in found:
            missing[label] = f"{label} is not in {first}, so there is nothing to compare with."
        elif len(found) == 1:
            missing[label] = f"{label} is in {first} alone."
        else:
            slots[label] = found
    return slots, missing


def _entries(manifest: Manifest) -> dict[str, ArmEntry]:
    """Return the arms that have trials, by label."""
    known = {entry.label: entry for entry in manifest.arms}
    return {
        result.arm: known.get(
            result.arm, ArmEntry(label=result.arm, agent=result.agent, model=result.model)
        )
        for result in manifest.results
    }


def _arm(
    slot: str,
    entries: _Slot,
    trials: Mapping[str, Sequence[TrialResult]],
    same: set[str],
    options: RolloutComparisonOptions,
) -> ArmComparison:
    # Rollouts that ran different tasks are compared on the tasks that all of them ran.
    did = [{result.task_id for result in own} for own in trials.values()]
    common = same.intersection(*did)
    subjects = [
        arm_subject(
            entry,
            [result for result in trials[name] if result.task_id in common],
            id=f"{entry.label} {name}",
            name=f"{entry.label} {name}",
        )
        for name, entry in entries.items()
    ]
    comparison, reasons = compared_arms(
        subjects, level=options.level, min_effect=options.min_effect
    )
    if not common:
        reasons = [f"{slot} has no task that is the same in all rollouts."]
    return ArmComparison(arm=slot, comparison=comparison, reasons=tuple(reasons))


def _rows(slot: str, rollouts: Sequence[Sequence[TrialResult]], level: float) -> list[TaskRow]:
    """Return the rows of all tasks of an arm, given its trials in each rollout."""
    rows = []
    for task in dict.fromkeys(result.task_id for own in rollouts for result in own):
        of_task = [[result for result in own if result.task_id == task] for own in rollouts]
        forms = {result.task_checksum for own in of_task for result in own} - {""}
        rows.append(
            TaskRow(
                arm=slot,
                task=task,
                rollouts=tuple(
                    summarize_trials(own, slot, task, level) if own else None for own in of_task
                ),
                changed=len(forms) > 1,
            )
        )
    return rows


def _notes(
    rollouts: Mapping[str, Manifest],
    slots: Mapping[str, _Slot],
    rows: Sequence[TaskRow],
    each: float,
) -> Iterator[str]:
    changed = dict.fromkeys(row.task for row in rows if row.changed)
    if changed:
        yield (
            f"{counted(len(changed), 'task')} changed between the rollouts and"
            f" {'is' if len(changed) == 1 else 'are'} not judged: {', '.join(changed)}."
        )
    partly = dict.fromkeys(row.task for row in rows if not row.changed and None in row.rollouts)
    if partly:
        yield f"Not in all rollouts, and not judged: {', '.join(partly)}."
    unknown = dict.fromkeys(
        result.task_id
        for manifest in rollouts.values()
        for result in manifest.results
        if not result.task_checksum
    )
    if unknown:
        yield (
            "Without a checksum, so that nothing says they are the same tasks:"
            f" {', '.join(unknown)}."
        )
    for slot, entries in slots.items():
        yield from _differing(slot, entries)
    if len(slots) > 1:
        yield (
            f"{len(slots)} arms are judged: each at a level of {100 * each:.4g} %, so that all"
            " verdicts together keep theirs."
        )


def _differing(slot: str, entries: _Slot) -> Iterator[str]:
    """Describe settings of an arm that differ between rollouts."""
    (first, before), *others = entries.items()
    for name, after in others:
        if after.label != before.label:
            continue
        said = [
            f"{what} {old!r} and {new!r}"
            for what, old, new in (
                ("agent", before.agent, after.agent),
                ("model", before.model, after.model),
                *(
                    (key, before.settings.get(key), after.settings.get(key))
                    for key in dict.fromkeys([*before.settings, *after.settings])
                ),
            )
            if old != new
        ]
        if said:
            yield f"{slot} is not set up alike in {first} and {name}: {'; '.join(said)}."
