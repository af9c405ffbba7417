"""What is independent in a comparison: worlds, and the tasks they are of."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.judge.comparison import compare
from assay.judge.results import Contrast, LeftOut, TaskRule, Units
from assay.judge.subjects import Subject, TrialOutcome
from assay.judge.versions import over_time
from assay.report.comparison.document import comparison_document
from assay.report.comparison.sentences import answer_questions
from assay.report.comparison.values import comparison_values
from assay.report.terminal import TerminalReport, render_text
from assay.stats.clusters import clustered_difference
from assay.stats.multiplicity import plan_effect
from assay.stats.power import minimum_detectable_effect, trials_needed
from assay.types import Verdict

from .subjects import subject, trial


def on_tasks(
    name: str, values_T_S: np.ndarray, *, first_seed: int = 1, task: str = "task", **also: float
) -> Subject:
    """A subject with a value for each of T tasks and S seeds."""
    trials = [
        trial(name, seed, task=f"{task}/{number}", achievements=float(value), also=also)
        for number, values_S in enumerate(values_T_S)
        for seed, value in enumerate(values_S, first_seed)
    ]
    return subject(name, trials=trials)


def bench(tasks: int, seeds: int, up: float = 0.0, task_sd: float = 1.0) -> list[Subject]:
    """Two subjects that differ by `up`, and by something else on each task."""
    rng = np.random.default_rng(8)
    a = rng.normal(size=(tasks, seeds))
    b = a + up + rng.normal(0, task_sd, (tasks, 1)) + rng.normal(0, 0.3, (tasks, seeds))
    return [on_tasks("a", a), on_tasks("b", b)]


def only(subjects: list[Subject], **choices: object) -> Contrast:
    [contrast] = compare(subjects, metrics=["achievements"], **choices).contrasts
    return contrast


def differences(contrast: Contrast) -> tuple[np.ndarray, list[str]]:
    """Of each pair, and the task it is of."""
    return (
        np.array([row.difference for row in contrast.pairs]),
        [row.pair.rsplit(" ", 1)[0] for row in contrast.pairs],
    )


def test_ten_tasks_are_a_sample_and_errors_are_clustered_by_task() -> None:
    found = only(bench(10, 4))
    gaps, tasks = differences(found)
    assert found.units == Units(TaskRule.SAMPLE, 10, 40, 1)
    assert found.difference == pytest.approx(clustered_difference(0 * gaps, gaps, tasks))
    by_task = gaps.reshape(10, 4).mean(axis=1)
    oracle = stats.ttest_1samp(by_task, 0)
    assert found.tests is not None
    assert found.tests.t.p_value == pytest.approx(oracle.pvalue)
    assert found.tests.t.statistic == pytest.approx(oracle.statistic)
    assert found.tests.t.name == "paired t test clustered by task"
    interval = oracle.confidence_interval()
    assert found.difference[1:] == pytest.approx((interval.low, interval.high))


def test_a_difference_of_tasks_is_no_verdict_for_tasks_like_these() -> None:
    subjects = bench(12, 8, up=0.3, task_sd=1.4)
    assert only(subjects).verdict is Verdict.UNDECIDED
    assert only(subjects, tasks="fixed").verdict is not Verdict.UNDECIDED


def test_two_to_nine_tasks_are_the_ones_that_are_meant() -> None:
    found = only(bench(4, 6))
    gaps = differences(found)[0].reshape(4, 6)
    assert found.units == Units(TaskRule.FIXED, 4, 24, 1)
    error = np.sqrt(gaps.var(axis=1, ddof=1).mean() / 24)
    assert found.difference.point == pytest.approx(gaps.mean())
    parts = gaps.var(axis=1, ddof=1)
    freedom = parts.sum() ** 2 / (parts**2 / 5).sum()
    half = stats.t.ppf(0.975, freedom) * error
    assert found.difference.half_width == pytest.approx(half)
    assert found.tests is not None
    t = gaps.mean() / error
    assert found.tests.p_value == pytest.approx(2 * stats.t.sf(abs(t), freedom))
    assert found.tests.t.name == "paired t test stratified by task"


@pytest.mark.parametrize(
    ("tasks", "chosen", "rule"),
    [
        (9, None, TaskRule.FIXED),
        (10, None, TaskRule.SAMPLE),
        (4, "sample", TaskRule.SAMPLE),
        (12, "fixed", TaskRule.FIXED),
        (1, "sample", TaskRule.WORLDS),
    ],
)
def test_the_rule_goes_by_the_number_of_tasks_unless_one_is_chosen(
    tasks: int, chosen: str | None, rule: TaskRule
) -> None:
    assert only(bench(tasks, 3), tasks=chosen).units.rule is rule


def test_an_unknown_rule_gets_a_sentence() -> None:
    for wrong in ("fixd", "worlds"):
        with pytest.raises(UsageError, match=f"unknown rule of tasks '{wrong}'.*fixed"):
            compare(bench(3, 2), tasks=wrong)


def test_one_task_is_judged_as_if_it_had_no_name() -> None:
    named = bench(1, 9, up=1)
    nameless = [
        subject(
            one.name,
            trials=[
                TrialOutcome(
                    trial_id=trial.trial_id,
                    pair=trial.pair,
                    seed=trial.seed,
                    values=trial.values,
                )
                for trial in one.trials
            ],
        )
        for one in named
    ]
    assert only(named) == only(nameless)


@pytest.mark.parametrize("count", [3, 15])
def test_where_each_task_has_one_world_that_is_the_unit(count: int) -> None:
    found = only(bench(count, 1, up=0.5))
    gaps, _ = differences(found)
    oracle = stats.ttest_1samp(gaps, 0)
    assert found.units == Units(TaskRule.WORLDS, count, count, 1)
    assert found.tests is not None
    assert found.tests.p_value == pytest.approx(oracle.pvalue)
    assert found.tests.t.name == "paired t test"


def test_a_trial_without_a_seed_is_seed_0_and_its_repetitions_are_averaged() -> None:
    def repeated(name: str, up: float) -> Subject:
        trials = [
            trial(
                name, None, task=f"task/{task}", replicate=turn, achievements=task + up * turn
            )
            for task in range(12)
            for turn in range(3)
        ]
        return subject(name, trials=trials)

    found = only([repeated("a", 0), repeated("b", 0.5)])
    assert found.paired
    assert found.units == Units(TaskRule.WORLDS, 12, 12, 3)
    assert [row.pair for row in found.pairs][:2] == ["task/0 0", "task/1 0"]
    assert found.difference.point == pytest.approx(0.5)
    assert found.left_out_candidate == LeftOut()
    seeded = [
        subject(
            "c", trials=[trial("c", 0, task=f"task/{n}", achievements=n) for n in range(12)]
        )
    ]
    assert only([repeated("a", 0), *seeded]).paired


def test_a_seed_means_another_world_in_another_task() -> None:
    def both(name: str, up: float) -> Subject:
        trials = [
            TrialOutcome(
                trial_id=f"{name} {task} {seed}",
                pair=str(seed),
                task=task,
                seed=seed,
                values={"achievements": seed + up * (task == "hard")},
            )
            for task in ("easy", "hard")
            for seed in range(5)
        ]
        return subject(name, trials=trials)

    found = only([both("a", 0), both("b", 1)])
    assert found.units == Units(TaskRule.FIXED, 2, 10, 1)
    assert [row.pair for row in found.pairs][4:6] == ["easy 4", "hard 0"]


def test_samples_that_are_not_paired_go_by_tasks_too() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(2, 10, 4)) + rng.normal(0, 2, (10, 1))
    subjects = [on_tasks("a", values[0]), on_tasks("b", values[1], first_seed=50)]
    found = only(subjects)
    tasks = np.repeat(np.arange(10), 4)
    a, b = values.reshape(2, 40)
    assert not found.paired
    assert found.units == Units(TaskRule.SAMPLE, 10, 80, 1)
    assert found.difference == pytest.approx(clustered_difference(a, b, tasks, tasks))
    assert found.tests is not None
    assert found.tests.t.name == "Welch's t test clustered by task"
    assert found.tests.resampling.n == 10
    fixed = only(subjects, tasks="fixed")
    within = values.var(axis=2, ddof=1)
    error = np.sqrt(within.sum() * 4 / 40**2)
    assert fixed.tests is not None
    assert fixed.tests.t.statistic == pytest.approx((b.mean() - a.mean()) / error)


def test_samples_of_other_tasks_are_compared_by_their_tasks() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(2, 6, 3)) + rng.normal(0, 2, (2, 6, 1))
    found = only([on_tasks("a", values[0]), on_tasks("b", values[1], task="other")])
    means = values.mean(axis=2)
    oracle = stats.ttest_ind(means[1], means[0], equal_var=False)
    assert found.units.rule is TaskRule.SAMPLE
    assert found.tests is not None
    assert found.tests.p_value == pytest.approx(oracle.pvalue)
    assert found.tests.resampling.n == 12


def test_one_task_on_a_side_tells_nothing_of_tasks_like_it() -> None:
    many, one = bench(11, 3)[0], on_tasks("b", np.ones((1, 5)), task="other")
    found = only([many, one], tasks="sample")
    assert found.tests is None
    assert found.verdict is Verdict.UNDECIDED
    assert not found.difference.known


def test_other_proportions_of_tasks_are_said() -> None:
    rng = np.random.default_rng(5)
    a = on_tasks("a", rng.normal(size=(2, 4)))
    b = on_tasks("b", rng.normal(size=(2, 4)), first_seed=9)
    alike = compare([a, b]).notes
    more = subject("b", trials=[*b.trials, trial("b", 99, task="task/0", achievements=1)])
    unlike = compare([a, more]).notes
    fewer = [
        *b.trials[:3],
        *b.trials[4:],
        trial("b", 98, task="task/1", achievements=1),
    ]
    assert any("other proportions" in n for n in compare([a, subject("b", trials=fewer)]).notes)
    assert not any("other proportions" in note for note in alike)
    assert any("other proportions" in note for note in unlike)


@pytest.mark.parametrize(("tasks", "seeds"), [(12, 4), (4, 12)])
def test_no_difference_that_matters_goes_by_the_tasks(tasks: int, seeds: int) -> None:
    subjects = bench(tasks, seeds, task_sd=0.5)
    found = only(subjects, min_effect=1.0)
    plain = only(subjects)
    assert found.tests is not None
    assert plain.difference.known
    error = plain.difference.point / (plain.tests.t.statistic if plain.tests else np.nan)
    freedom = tasks - 1
    if tasks < 10:
        gaps = differences(plain)[0].reshape(tasks, seeds).var(axis=1, ddof=1)
        freedom = gaps.sum() ** 2 / (gaps**2 / (seeds - 1)).sum()
    ts = (plain.difference.point + 1) / error, (1 - plain.difference.point) / error
    # Without a range it takes 20 tasks, or worlds of fixed tasks.
    expected = 1.0 if tasks == 12 else max(stats.t.sf(ts, freedom))
    assert found.tests.equivalence_p == pytest.approx(expected)


def test_means_have_intervals_that_go_by_their_tasks() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(size=(12, 4)) + rng.normal(0, 3, (12, 1))
    comparison = compare([on_tasks("a", values), on_tasks("b", values + 1)])
    oracle = stats.ttest_1samp(values.mean(axis=1), 0).confidence_interval()
    mean = comparison.baseline.metrics["achievements"].mean
    assert mean[1:] == pytest.approx((oracle.low, oracle.high))
    assert comparison.contrasts[0].mean_baseline == mean
    row = over_time([on_tasks("a", values)]).rows[0]
    assert row.mean == mean
    fixed = over_time([on_tasks("a", values)], tasks="fixed").rows[0]
    assert fixed.mean.half_width < mean.half_width / 2


def test_equal_differences_on_each_task_are_not_enough_to_be_sure() -> None:
    values = np.arange(12.0).reshape(4, 3)
    apart = values + np.array([[1.0], [2.0], [3.0], [4.0]])
    found = only([on_tasks("a", values), on_tasks("b", apart)])
    assert found.tests is not None
    assert not found.tests.spread_known
    assert found.tests.p_value == found.tests.resampling.p_value
    assert found.tests.resampling.n == 12


def test_sizes_keep_their_points_and_claim_no_bounds_where_tasks_count() -> None:
    found = only(bench(12, 4, up=0.5))
    assert found.effects is not None
    assert np.isfinite(found.effects.d.point)
    assert not found.effects.d.known
    assert not found.effects.improvement.known
    assert found.pairing is None
    document = comparison_document(compare(bench(12, 4, up=0.5)))
    text = render_text(TerminalReport(document))
    assert "nan" not in text


def test_resampling_of_intervals_is_refused_where_tasks_count() -> None:
    with pytest.raises(UsageError, match="method 'bca' takes worlds of one task"):
        compare(bench(12, 4), method="bca")
    assert only(bench(12, 4), method="t").difference.known


def test_a_plan_for_a_sample_of_tasks_counts_tasks() -> None:
    costs = {"cost_usd": 0.5, "duration_s": 36.0}
    subjects = [
        subject(
            one.name,
            trials=[
                trial(
                    one.name,
                    own.seed,
                    task=own.task or "",
                    also=costs,
                    achievements=own.values["achievements"],
                )
                for own in one.trials
            ],
        )
        for one in bench(12, 8, up=0.3, task_sd=1.4)
    ]
    sample, fixed = only(subjects), only(subjects, tasks="fixed", min_effect=0.01)
    assert sample.settle is not None
    assert sample.settle.trials % 8 == 0
    assert sample.settle.low is not None
    assert sample.settle.low % 8 == 0
    assert sample.settle.dollars is not None
    assert sample.settle.dollars.point == pytest.approx(sample.settle.trials * 2 * 0.5)
    assert sample.detectable is not None
    assert fixed.detectable is not None
    assert sample.detectable > 3 * fixed.detectable
    text = said(subjects)
    assert f"pairs on {sample.settle.trials // 8:,} new tasks, of 8 worlds each," in text


def said(subjects: list[Subject], **choices: object) -> str:
    comparison = compare(subjects, **choices)
    return " ".join(
        line.answer for line in answer_questions(comparison, comparison.decisive[0])
    )


def test_the_sentence_says_on_these_tasks_where_they_are_fixed() -> None:
    fixed = said(bench(4, 6, up=3))
    assert fixed.startswith(
        "Yes, it has more achievements on these tasks (24 pairs of 4 tasks)."
    )
    assert "4 tasks, 24 worlds: the answer is about these tasks" in fixed
    assert "on these tasks" in comparison_document(compare(bench(4, 6, up=3))).summary[0]
    sample = said(bench(12, 6, up=3))
    assert sample.startswith("Yes, it has more achievements (72 pairs of 12 tasks).")
    assert "12 tasks, 72 worlds: the tasks are taken as a sample of many" in sample
    assert "on these tasks" not in said(bench(1, 6, up=3))


def test_json_says_what_several_tasks_were_taken_for() -> None:
    [contrast] = comparison_values(compare(bench(12, 4)))["contrasts"]
    assert contrast["units"] == {
        "rule": "sample",
        "tasks": 12,
        "worlds": 48,
        "replicates": 1,
        "partly_shared": 0,
    }
    chosen = comparison_values(compare(bench(12, 4), tasks="fixed"))
    assert chosen["contrasts"][0]["units"]["rule"] == "fixed"
    assert chosen["configuration"]["tasks"] == "fixed"
    plain = comparison_values(compare(bench(1, 4)))
    assert "units" not in plain["contrasts"][0]
    assert "tasks" not in plain["configuration"]


def test_plans_follow_the_rule_of_the_tasks_to_the_number() -> None:
    subjects = bench(12, 8, up=0.3, task_sd=1.4)
    sample, fixed = only(subjects), only(subjects, tasks="fixed", min_effect=0.01)
    gaps = differences(sample)[0].reshape(12, 8)
    by_task = gaps.mean(axis=1)
    sd = float(by_task.std(ddof=1))
    needed = trials_needed(plan_effect(abs(gaps.mean()), 12), sd, pilot_n=12, paired=True)
    assert sample.settle is not None
    assert needed.low is not None
    assert needed.high is not None
    assert (sample.settle.trials, sample.settle.low, sample.settle.high) == (
        8 * needed.trials,
        8 * needed.low,
        8 * needed.high,
    )
    assert sample.detectable == pytest.approx(minimum_detectable_effect(12, sd, paired=True))
    within = gaps.var(axis=1, ddof=1)
    sd = math.sqrt(within.mean())
    freedom = within.sum() ** 2 / (within**2 / 7).sum()
    needed = trials_needed(0.01, sd, pilot_n=math.floor(freedom + 1), paired=True)
    assert fixed.detectable == pytest.approx(minimum_detectable_effect(96, sd, paired=True))
    quiet = only(bench(4, 3, task_sd=0.1), min_effect=0.05)
    assert quiet.verdict is Verdict.UNDECIDED
    assert quiet.settle is not None
    gaps = differences(quiet)[0].reshape(4, 3)
    within = gaps.var(axis=1, ddof=1)
    freedom = within.sum() ** 2 / (within**2 / 2).sum()
    needed = trials_needed(
        0.05, math.sqrt(within.mean()), pilot_n=math.floor(freedom + 1), paired=True
    )
    assert (quiet.settle.trials, quiet.settle.low) == (needed.trials, needed.low)


def test_plans_for_samples_that_are_not_paired_follow_it_too() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(size=(2, 6, 3)) + rng.normal(0, 2, (2, 6, 1))
    found = only([on_tasks("a", values[0]), on_tasks("b", values[1], task="other")])
    means = values.mean(axis=2)
    sd = math.sqrt(means.var(axis=1, ddof=1).mean())
    assert found.detectable == pytest.approx(minimum_detectable_effect(6, sd, paired=False))
    errors = means.var(axis=1, ddof=1) / 6
    freedom = errors.sum() ** 2 / (errors**2 / 5).sum()
    needed = trials_needed(
        plan_effect(abs(float(means[1].mean() - means[0].mean())), 6),
        sd,
        pilot_n=math.floor(freedom / 2 + 1),
        paired=False,
    )
    assert found.settle is not None
    assert found.units.worlds_per_task == 3
    assert (found.settle.trials, found.settle.low) == (3 * needed.trials, 3 * (needed.low or 0))


def test_worlds_per_task_are_rounded_up() -> None:
    assert Units(TaskRule.SAMPLE, 12, 96, 1).worlds_per_task == 8
    assert Units(TaskRule.SAMPLE, 12, 97, 1).worlds_per_task == 9


def test_two_tasks_that_are_a_sample_are_two_units() -> None:
    found = only(bench(2, 5), tasks="sample")
    assert found.tests is not None
    assert (found.tests.resampling.n, found.tests.resampling.name) == (2, "sign-flip test")
    assert found.tests.rank.n == 2


@pytest.mark.parametrize(("at", "known"), [(5.0, True), (-5.0, True), (0.0, False)])
def test_a_change_in_percent_takes_a_baseline_that_is_clear_of_zero(
    at: float, known: bool
) -> None:
    rng = np.random.default_rng(7)
    noise = rng.normal(size=(12, 3))
    a = at + noise - noise.mean()
    found = only([on_tasks("a", a), on_tasks("b", a + 1)])
    if not known:
        assert found.relative is None
        return
    assert found.relative is not None
    assert found.relative.point == pytest.approx(1 / abs(at))
    assert not found.relative.known


def test_trials_of_a_file_without_seeds_are_paired_by_their_place() -> None:
    def placed(name: str, up: float) -> Subject:
        trials = [
            TrialOutcome(
                trial_id=f"{name} {task} {place}",
                pair=f"{task} #{place}",
                task=task,
                values={"achievements": place + up},
            )
            for task in ("easy", "hard")
            for place in (1, 2, 3)
        ]
        return subject(name, trials=trials)

    found = only([placed("a", 0), placed("b", 1)])
    assert found.units == Units(TaskRule.FIXED, 2, 6, 1)
    assert found.pairs[0].pair == "easy #1"
