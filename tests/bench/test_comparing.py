"""Comparison of rollouts: changes by task and by arm."""

import pytest

from assay.bench.manifest import ArmEntry, Manifest, TrialResult
from assay.bench.rollout_comparison import RolloutComparison, TaskChange, compare_rollouts
from assay.bench.summary import summarize_benchmark
from assay.errors import UsageError
from assay.types import Verdict
from tests.bench.rollouts import lost, manifest, scored, trial

TASKS = [f"task {number}" for number in range(8)]


def compared(*rollouts: list[TrialResult]) -> RolloutComparison:
    made = {
        f"r{number}": manifest(results, stamp=f"2025082{number}__00-00-00")
        for number, results in enumerate(rollouts)
    }
    return compare_rollouts(made)


def tasks(rows: tuple[object, ...]) -> list[str]:
    return [getattr(row, "task", "") for row in rows]


def test_tasks_that_flipped_are_listed() -> None:
    found = compared(
        scored({"up": [0.0, 0.5], "down": [1.0, 1.0], "same": [1.0, 1.0], "odd": [1.0, 0.0]}),
        scored({"up": [1.0, 1.0], "down": [0.0, 0.9], "same": [1.0, 1.0], "odd": [0.0, 0.0]}),
    )
    assert tasks(found.changes(TaskChange.NEWLY_PASSING)) == ["up"]
    assert tasks(found.changes(TaskChange.NEWLY_FAILING)) == ["down"]
    assert tasks(found.flaky) == ["odd"]


def test_every_rollout_is_compared_with_the_first() -> None:
    found = compared(scored({"a": [1.0]}), scored({"a": [1.0]}), scored({"a": [0.0]}))
    (row,) = found.tasks
    assert [row.change(place) for place in (1, 2)] == [None, TaskChange.NEWLY_FAILING]
    assert [cell and cell.score and cell.score.point for cell in row.rollouts] == [1, 1, 0]


def test_task_without_a_counted_trial_did_not_flip() -> None:
    found = compared(scored({"a": [1.0], "b": [1.0]}), [lost("a"), trial("b", 1.0)])
    assert not found.changes(TaskChange.NEWLY_FAILING)


def test_the_verdict_is_paired_by_task() -> None:
    before = scored({task: [0.1 * place, 0.2] for place, task in enumerate(TASKS)})
    after = scored({task: [0.1 * place + 0.2, 0.45] for place, task in enumerate(TASKS)})
    (arm,) = compared(before, after).arms
    assert arm.comparison is not None
    (contrast,) = arm.comparison.decisive
    assert (contrast.paired, contrast.n_baseline) == (True, 8)
    assert contrast.difference.point == pytest.approx(0.225)
    assert contrast.verdict is Verdict.BETTER


def test_grading_filter_compares_only_tasks_graded_in_that_mode() -> None:
    separate, loaded = {"grading": "separate"}, {"grading": "in-process"}
    # An empty patch has no mode, and earlier versions recorded none.
    empty = trial(TASKS[0], 0.0, outcome="empty_patch")
    results = [trial(TASKS[0], 1.0, **separate), empty, trial(TASKS[1], 0.5, **separate)]
    results += [trial(TASKS[2], 1.0, **loaded), trial(TASKS[3], 1.0)]
    made = {
        f"r{number}": manifest(results, stamp=f"2025082{number}__00-00-00")
        for number in range(2)
    }
    found = compare_rollouts(made, grading="separate")
    assert tasks(found.tasks) == TASKS[:2]
    assert [row.rollouts[0] and row.rollouts[0].counts.counted for row in found.tasks] == [2, 1]
    assert f"unknown): {TASKS[2]}, {TASKS[3]}." in found.notes[0]
    summary = summarize_benchmark(made["r0"], grading="in-process")
    assert tasks(summary.tasks) == [TASKS[2]]
    whole = summarize_benchmark(made["r0"]).arms[0]
    assert whole.grading == {"separate": 2, "unknown": 2, "in-process": 1}
    with pytest.raises(UsageError, match="unknown grading 'apart'"):
        compare_rollouts(made, grading="apart")
    old = [trial(task, 1.0) for task in TASKS]
    with pytest.raises(UsageError, match="no task was graded 'separate'"):
        summarize_benchmark(manifest(old), grading="separate")


def test_changed_task_is_listed_and_not_compared() -> None:
    before = [trial(task, 1.0) for task in TASKS]
    after = [
        trial(task, 0.0 if task == TASKS[0] else 1.0, task_checksum="new")
        if task == TASKS[0]
        else trial(task, 1.0)
        for task in TASKS
    ]
    found = compared(before, after)
    assert any(f"not compared: {TASKS[0]}." in note for note in found.notes)
    assert found.tasks[0].changed
    assert found.changes(TaskChange.NEWLY_FAILING) == ()
    assert found.arms[0].comparison is not None
    (contrast,) = found.arms[0].comparison.decisive
    assert (contrast.n_baseline, contrast.difference.point) == (7, 0.0)


def test_tasks_missing_in_a_rollout_are_listed_and_not_compared() -> None:
    found = compared(
        scored({"a": [1.0], "b": [0.5], "c": [0.0]}),
        scored({"a": [0.5], "b": [0.0]}),
    )
    assert "Not in all rollouts, and not compared: c." in found.notes
    assert found.arms[0].comparison is not None
    assert found.arms[0].comparison.decisive[0].n_baseline == 2


def test_no_verdict_if_every_task_changed() -> None:
    found = compared([trial("a", 1.0, task_checksum="1")], [trial("a", 1.0, task_checksum="2")])
    (arm,) = found.arms
    assert arm.comparison is None
    assert arm.reasons == ("oracle has no task that is identical in all rollouts.",)


def test_single_arms_are_compared_despite_different_labels() -> None:
    found = compared(
        scored({"a": [1.0], "b": [0.5]}, "v1"),
        scored({"a": [0.5], "b": [0.0]}, "v2"),
    )
    (arm,) = found.arms
    assert arm.arm == "v1 / v2"
    assert arm.comparison is not None
    assert arm.comparison.decisive[0].difference.point == -0.5


def two_arms(first: float, second: float) -> list[TrialResult]:
    return [
        *scored({task: [first, first / 2] for task in TASKS}, "one"),
        *scored({task: [second, second / 4] for task in TASKS}, "two"),
    ]


def test_arms_are_matched_by_label_with_an_adjusted_level() -> None:
    found = compared(two_arms(0.5, 1.0), two_arms(0.25, 1.0))
    assert [arm.arm for arm in found.arms] == ["one", "two"]
    levels = {arm.comparison.setup.level for arm in found.arms if arm.comparison is not None}
    assert levels == {0.975}
    assert any("each at a level of 97.5 %" in note for note in found.notes)


def test_arms_missing_in_one_rollout_are_listed() -> None:
    gone = [*two_arms(1.0, 0.5), *scored({"task 0": [1.0]}, "gone")]
    new = [*two_arms(1.0, 0.5), *scored({"task 0": [1.0]}, "new")]
    reasons = {arm.arm: arm.reasons for arm in compared(gone, new).arms}
    assert reasons["gone"] == ("gone is only in r0.",)
    assert reasons["new"] == ("new is not in r0, so it has no baseline.",)


def test_arm_with_changed_settings_is_reported() -> None:
    def made(stamp: str, timeout: int) -> Manifest:
        entry = ArmEntry(label="oracle", agent="oracle", settings={"timeout": timeout})
        return manifest(scored({"a": [1.0], "b": [0.0]}), stamp=stamp, arms=(entry,))

    found = compare_rollouts({"old": made("1", 60), "new": made("2", 90)})
    assert "oracle has different settings in old and new: timeout 60 and 90." in found.notes


def test_tasks_without_a_checksum_are_reported() -> None:
    found = compared([trial("a", task_checksum="")], [trial("a", task_checksum="")])
    assert any("without a checksum" in note and "a." in note for note in found.notes)


def test_one_rollout_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="name two or more"):
        compared(scored({"a": [1.0]}))
