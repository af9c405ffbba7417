"""Summaries of benchmarks, checked against independent calculations."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from assay.bench.manifest import ArmEntry, TrialResult
from assay.bench.summary import ArmSummary, BenchmarkSummary, make_subject, summarize_benchmark
from assay.errors import UsageError
from assay.judge.comparison import compare
from assay.stats.intervals import Interval
from assay.stats.multiplicity import holm
from assay.stats.shares import exact_share
from assay.types import Verdict
from tests.bench.rollouts import (
    failed,
    lost,
    manifest,
    pending,
    scored,
    trial,
)

SCORES = {"a": [1.0, 1.0], "b": [0.0, 0.5], "c": [1.0, 0.0]}


def summed(results: list[TrialResult]) -> BenchmarkSummary:
    return summarize_benchmark(manifest(results))


def only(results: list[TrialResult]) -> ArmSummary:
    (arm,) = summed(results).arms
    return arm


def students(values: list[float]) -> tuple[float, float, float]:
    """Return the mean with Student's interval from SciPy, clipped to 0 and 1."""
    mean, error = float(np.mean(values)), float(stats.sem(values))
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=error)
    return mean, max(0.0, low), min(1.0, high)


def test_mean_and_interval_are_computed_from_task_means() -> None:
    arm = only(scored(SCORES))
    assert arm.score == pytest.approx(students([1.0, 0.25, 0.5]))
    assert arm.tasks == 3


def test_more_trials_of_the_same_tasks_do_not_narrow_the_interval_between_tasks() -> None:
    few = only(scored(SCORES)).score
    many = only(scored({task: own * 50 for task, own in SCORES.items()})).score
    assert few is not None
    assert many == pytest.approx(few)


def test_tasks_have_equal_weight_for_any_number_of_trials() -> None:
    summary = summed(scored({"a": [1.0] * 9, "b": [0.5], "c": [0.25]}))
    assert summary.arms[0].score == pytest.approx(students([1.0, 0.5, 0.25]))
    assert "Tasks have different numbers of trials; all have equal weight in means." in (
        summary.notes
    )


def test_proportions_with_one_trial_per_task_have_the_exact_interval() -> None:
    arm = only(scored({"a": [1.0], "b": [1.0], "c": [0.0], "d": [1.0]}))
    exact = stats.binomtest(3, 4).proportion_ci(0.95)
    assert arm.score == pytest.approx((0.75, exact.low, exact.high))


def test_pass_at_k_and_pass_hat_k_are_unbiased() -> None:
    arm = only(scored({"a": [1.0] * 3, "b": [1.0, 0.5, 0.0], "c": [0.0] * 3}))
    by_k = {row.k: (row.pass_any.point, row.pass_all.point) for row in arm.passes}
    # In task b, one of three passes: C(2, 2) / C(3, 2) of all pairs have no pass.
    assert by_k == {
        1: pytest.approx((4 / 9, 4 / 9)),
        2: pytest.approx(((1 + 2 / 3) / 3, 1 / 3)),
        3: pytest.approx((2 / 3, 1 / 3)),
    }


def test_pass_at_k_is_the_mean_over_all_choices_of_k_trials() -> None:
    scores = {"a": [1.0, 0.0, 1.0, 0.0], "b": [0.0, 1.0, 0.0, 0.0, 0.0]}
    arm = only(scored(scores))
    for row in arm.passes:
        choices = [[*combinations(own, row.k)] for own in scores.values()]
        some = [np.mean([any(s == 1 for s in c) for c in own]) for own in choices]
        every = [np.mean([all(s == 1 for s in c) for c in own]) for own in choices]
        assert row.pass_any.point == pytest.approx(np.mean(some))
        assert row.pass_all.point == pytest.approx(np.mean(every))
    assert [row.k for row in arm.passes] == [1, 2, 3, 4]


def test_single_task_has_the_interval_of_its_trials_and_a_note() -> None:
    summary = summed(scored({"a": [1.0, 0.5, 0.0, 0.75]}))
    assert summary.arms[0].score == pytest.approx(students([1.0, 0.5, 0.0, 0.75]))
    assert any("There is one task" in note for note in summary.notes)


def test_few_tasks_give_a_warning() -> None:
    assert any("With only 3 tasks" in note for note in summed(scored(SCORES)).notes)
    many = {f"task {number}": [1.0, 0.0] for number in range(6)}
    assert not any("With only" in note for note in summed(scored(many)).notes)


def test_failure_counts_as_zero_and_infrastructure_error_is_excluded() -> None:
    summary = summed([*scored({"a": [1.0], "b": [1.0]}), failed("a"), lost("b")])
    (arm,) = summary.arms
    assert arm.score is not None
    assert arm.score.point == pytest.approx((0.5 + 1.0) / 2)
    assert arm.counts == (4, 2, 1, 1, 0, 0)
    assert (arm.counts.counted, arm.counts.lost) == (3, 1)
    assert arm.outcomes == {"solved": 2, "agent_failed": 1}
    assert arm.errors == {"ModelUnavailable": 1}
    assert any("count" in note and "score of 0" in note for note in summary.notes)


def test_lost_trials_give_bounds_of_the_mean() -> None:
    arm = only([*scored({"a": [1.0, 0.5], "b": [0.0]}), lost("b"), trial("a", None)])
    assert arm.counts.lost == 2
    # Task a: 1.5 of 2, and of 3 with the lost trial; task b: 0 of 1, and of 2.
    points = [mean and mean.point for mean in (arm.worst, arm.score, arm.best)]
    assert points == pytest.approx([(0.5 + 0.0) / 2, (0.75 + 0.0) / 2, ((2.5 / 3) + 0.5) / 2])


def test_no_bounds_without_lost_trials() -> None:
    arm = only([*scored(SCORES), failed("a"), pending("b")])
    assert (arm.worst, arm.best) == (None, None)


def test_every_planned_trial_is_in_the_denominator() -> None:
    summary = summed(
        [
            trial("a"),
            failed("a"),
            lost("a"),
            trial("a", None),
            pending("a"),
            pending("b"),
        ]
    )
    (arm,) = summary.arms
    assert arm.counts == (6, 1, 1, 1, 1, 2)
    assert sum(arm.counts[1:]) == arm.counts.planned
    assert any("2 of 6 trials have not run" in note for note in summary.notes)
    assert any("1 trial without a grade" in note for note in summary.notes)


def test_no_mean_without_counted_trials() -> None:
    summary = summed([lost("a"), pending("b")])
    (arm,) = summary.arms
    assert (arm.score, arm.passes, arm.best_score) == (None, (), None)
    assert arm.worst == pytest.approx((0.0, 0.0, 0.975))


def test_cost_time_tokens_and_findings_include_all_ended_trials() -> None:
    attack = ("left_processes", "sleep 99")
    trials = [
        trial("a", cost_usd=0.5, tokens={"prompt": 10, "completion": 1, "cached": 4}),
        trial("a", cost_usd=None, findings=(attack, ("memory_limit", "1 GB"), attack)),
        lost("b", cost_usd=0.125, findings=(("left_processes", "other"),)),
        pending("b"),
    ]
    arm = only(trials)
    assert arm.spent == (0.625, 1)
    assert arm.tokens == {"prompt": 210, "completion": 21, "cached": 4}
    assert [*arm.seconds] == ["setup", "agent", "grading"]
    assert arm.seconds["agent"] == pytest.approx(10, abs=0.01)
    assert [(f.name, f.trials, f.detail) for f in arm.findings] == [
        ("left_processes", 2, "sleep 99"),
        ("memory_limit", 1, "1 GB"),
    ]


def test_best_is_the_best_trial_of_each_task() -> None:
    assert only(scored({"a": [0.25, 0.75], "b": [0.0, 0.5]})).best_score == 0.625


def test_metrics_of_tasks_are_averaged() -> None:
    trials = [
        trial("a", custom_metrics={"complexity": 4.0}, standard_metrics={"coverage": 0.5}),
        trial("a", custom_metrics={"complexity": 2.0}),
        trial("b", custom_metrics={"complexity": 5.0}),
    ]
    means = only(trials).metrics
    assert means["complexity"].point == pytest.approx(4.0)
    assert means["coverage"].point == 0.5


def test_arms_are_never_averaged_together() -> None:
    summary = summed([*scored({"a": [1.0]}, "fast"), *scored({"a": [0.0]}, "slow")])
    assert [(arm.arm, arm.score and arm.score.point) for arm in summary.arms] == [
        ("fast", 1.0),
        ("slow", 0.0),
    ]


def test_task_with_passed_and_failed_trials_is_flaky() -> None:
    summary = summed(scored({"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.5, 0.0]}))
    assert {row.task: row.flaky for row in summary.tasks} == {"a": True, "b": False, "c": False}


def three_arms() -> dict[str, dict[str, list[float]]]:
    rng = np.random.default_rng(5)
    return {
        arm: {
            f"task {number}": [*np.clip(rng.normal(middle, 0.2, 3), 0, 1).round(2).tolist()]
            for number in range(8)
        }
        for arm, middle in (("x", 0.3), ("y", 0.35), ("z", 0.8))
    }


def test_arms_are_compared_paired_by_task_with_holm_adjustment() -> None:
    arms = three_arms()
    summary = summed([t for arm, scores in arms.items() for t in scored(scores, arm)])
    comparison = summary.comparison
    assert comparison is not None
    assert comparison.standings is not None
    means = {arm: [np.mean(own) for own in scores.values()] for arm, scores in arms.items()}
    pairs = comparison.standings.pairs
    assert [(p.baseline, p.candidate) for p in pairs] == [("x", "y"), ("x", "z"), ("y", "z")]
    raw = [float(stats.ttest_rel(means[p.candidate], means[p.baseline]).pvalue) for p in pairs]
    ordered = sorted(range(3), key=lambda at: raw[at])
    by_hand = [0.0] * 3
    for rank, at in enumerate(ordered):
        least = by_hand[ordered[rank - 1]] if rank else 0.0
        by_hand[at] = min(1.0, max(least, (3 - rank) * raw[at]))
    for pair, p_value, adjusted in zip(pairs, raw, by_hand, strict=True):
        assert pair.tests is not None
        assert (pair.paired, pair.n_baseline) == (True, 8)
        assert pair.tests.p_value == pytest.approx(p_value)
        assert pair.tests.p_adjusted == pytest.approx(adjusted)
        gaps = np.subtract(means[pair.candidate], means[pair.baseline])
        assert pair.difference.point == pytest.approx(gaps.mean())
    assert by_hand == pytest.approx([*map(float, holm(raw))])
    assert [pair.verdict for pair in pairs] == [
        Verdict.UNDECIDED,
        Verdict.BETTER,
        Verdict.BETTER,
    ]


def test_verdicts_equal_those_of_assay_compare() -> None:
    trials = manifest([t for arm, own in three_arms().items() for t in scored(own, arm)])
    by_arm = [
        make_subject(entry, [r for r in trials.results if r.arm == entry.label])
        for entry in trials.arms
    ]
    plain = compare(by_arm, metrics=["score", "success", "duration_s", "tokens", "cost_usd"])
    ours = summarize_benchmark(trials).comparison
    assert ours is not None
    assert [c.verdict for c in ours.contrasts] == [c.verdict for c in plain.contrasts]
    assert [c.difference for c in ours.decisive] == [c.difference for c in plain.decisive]


def test_failure_of_the_agent_is_compared_as_zero() -> None:
    good = {f"task {number}": [1.0] for number in range(8)}
    bad = [failed(task, "bad") for task in good]
    comparison = summed([*scored(good, "good"), *bad]).comparison
    assert comparison is not None
    (contrast,) = comparison.decisive
    assert (contrast.difference.point, contrast.verdict) == (-1.0, Verdict.WORSE)


def test_lost_trials_give_bounds_of_the_difference() -> None:
    tasks = [f"task {number}" for number in range(8)]
    other = [
        *(lost(task, "other") for task in tasks[:4]),
        *(trial(task, 1.0, "other") for task in tasks[4:]),
    ]
    comparison = summed(
        [*scored({task: [0.0, 0.5] for task in tasks}, "one"), *other]
    ).comparison
    assert comparison is not None
    losses = comparison.decisive[0].losses
    assert losses is not None
    assert (losses.candidate, losses.of_candidate, losses.known_ends) == (4, 8, True)
    # Lost trials at 0: four of eight differences of 0.75 become -0.25; at 1: all stay 0.75.
    assert losses.lowest.point == pytest.approx(0.25)
    assert losses.highest.point == pytest.approx(0.75)


def test_arms_on_one_task_are_compared_as_independent_samples() -> None:
    one, other = [0.1, 0.2, 0.3, 0.2], [0.7, 0.9, 0.8, 0.9]
    summary = summed([*scored({"a": one}, "one"), *scored({"a": other}, "other")])
    assert summary.comparison is not None
    (contrast,) = summary.comparison.decisive
    assert contrast.tests is not None
    assert not contrast.paired
    welch = stats.ttest_ind(other, one, equal_var=False).pvalue
    assert contrast.tests.p_value == pytest.approx(float(welch))
    assert any("about this task alone" in note for note in summary.comparison.notes)


def test_arms_with_different_tasks_are_reported_and_not_compared() -> None:
    summary = summed(
        [
            *scored({"a": [1.0], "b": [1.0]}, "one"),
            *scored({"b": [0.0], "c": [0.0]}, "two"),
        ]
    )
    assert summary.comparison is None
    assert any("two is not compared with one: they share 1 task" in n for n in summary.notes)


def test_the_baseline_can_be_chosen_by_its_label() -> None:
    both = [
        *scored({"a": [1.0], "b": [0.5]}, "one"),
        *scored({"a": [0.0], "b": [1.0]}, "two"),
    ]
    found = summarize_benchmark(manifest(both), baseline="two").comparison
    assert found is not None
    assert found.baseline.name == "two"
    with pytest.raises(UsageError, match="did you mean 'two'"):
        summarize_benchmark(manifest(both), baseline="tow")


def test_several_rollouts_have_one_summary() -> None:
    first = manifest(scored(SCORES), stamp="20250824__00-00-00")
    second = manifest(scored({task: own[::-1] for task, own in SCORES.items()}))
    (arm,) = summarize_benchmark(first, second).arms
    assert arm.counts.planned == 12
    assert arm.score == pytest.approx(students([1.0, 0.25, 0.5]))
    assert [row.k for row in arm.passes] == [1, 2, 3, 4]


def test_changed_task_counts_in_its_latest_version() -> None:
    first = manifest([trial("a", 0.0, task_checksum="old"), trial("b", 1.0)], stamp="2025")
    second = manifest([trial("a", 1.0, task_checksum="new"), trial("b", 1.0)])
    summary = summarize_benchmark(first, second)
    assert summary.arms[0].counts.planned == 3
    assert summary.arms[0].score is not None
    assert summary.arms[0].score.point == 1.0
    assert any("Task a changed" in note for note in summary.notes)


def test_arms_with_different_overrides_are_kept_with_a_note() -> None:
    summary = summed(
        [
            trial("a", 1.0, "plain", task_checksum="1"),
            trial("a", 0.0, "hard", task_checksum="2"),
        ]
    )
    assert [arm.counts.planned for arm in summary.arms] == [1, 1]
    assert any("Overrides differ" in note and "a." in note for note in summary.notes)


def test_rollouts_of_different_benchmarks_have_no_common_summary() -> None:
    with pytest.raises(UsageError, match="'assay bench compare'"):
        summarize_benchmark(manifest(scored(SCORES)), manifest(scored(SCORES), "other"))


def test_arm_becomes_a_subject_with_tasks_as_worlds() -> None:
    entry = ArmEntry(label="coder gpt-4", agent="coder", model="gpt-4")
    made = manifest([trial("a", 0.5, "coder gpt-4"), pending("a", "coder gpt-4")])
    subject = make_subject(entry, made.results)
    (only_one,) = subject.trials
    assert (only_one.pair, only_one.task, only_one.seed, only_one.replicate) == ("a", "a", 0, 0)
    assert (subject.model, subject.agent, subject.asks) == ("coder gpt-4", "coder", "gpt-4")
    assert only_one.values["score"] == 0.5
    assert only_one.values["success"] == 0.0


def test_score_stays_within_its_bounds() -> None:
    arm = only(scored({"a": [1.0, 0.75], "b": [1.0, 1.0], "c": [0.25, 0.5]}))
    assert isinstance(arm.score, Interval)
    assert (arm.score.low >= 0, arm.score.high) == (True, 1.0)
    assert exact_share(1, 1).high == 1.0
