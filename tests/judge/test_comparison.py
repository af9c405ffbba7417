"""Comparisons: what is compared with what, and what is decided."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.judge.comparison import compare
from assay.judge.outcomes import parse_outcome
from assay.judge.results import Comparison, LeftOut, Timed
from assay.judge.subjects import SUBJECT_METRICS
from assay.judge.versions import over_time
from assay.report.comparison.document import comparison_document
from assay.report.document import ReportTable
from assay.stats.bounded import bounded_tost
from assay.types import TrialState, Verdict

from .subjects import look, subject, trial

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
MORE = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]


def verdict(comparison: Comparison, metric: str | None = None) -> Verdict:
    wanted = metric or comparison.setup.primary
    return next(one.verdict for one in comparison.contrasts if one.metric == wanted)


def test_the_numbers_are_those_of_the_paired_t_test() -> None:
    [one] = compare([subject("a", BASE), subject("b", MORE)]).contrasts
    oracle = stats.ttest_rel(MORE, BASE)
    interval = oracle.confidence_interval()
    assert one.paired
    assert one.n_baseline == 10
    assert one.difference == pytest.approx((2.2, interval.low, interval.high))
    assert one.tests is not None
    assert one.tests.p_value == pytest.approx(oracle.pvalue)
    assert one.verdict is Verdict.BETTER


def test_the_baseline_is_the_first_unless_another_is_named() -> None:
    both = [subject("a", BASE), subject("b", MORE)]
    assert verdict(compare(both)) is Verdict.BETTER
    assert verdict(compare(both, baseline="b")) is Verdict.WORSE
    with pytest.raises(UsageError, match="unknown baseline 'c'"):
        compare(both, baseline="c")


def test_pairs_are_found_by_their_text_and_not_by_their_place() -> None:
    backwards = dataclasses.replace(
        subject("b", MORE), trials=tuple(reversed(subject("b", MORE).trials))
    )
    [one] = compare([subject("a", BASE), backwards]).contrasts
    [other] = compare([subject("a", BASE), subject("b", MORE)]).contrasts
    assert one.difference == other.difference
    assert [row.difference for row in one.pairs] == [row.difference for row in other.pairs]


def test_replicates_of_a_pair_are_averaged_first() -> None:
    again = [trial("b", 1, replicate=n, achievements=value) for n, value in ((1, 7), (2, 10))]
    [one] = compare([subject("a", BASE), subject("b", MORE, trials=again)]).contrasts
    assert one.n_candidate == 10
    assert one.pairs[0].candidate == pytest.approx((4 + 7 + 10) / 3)


def test_trials_that_cannot_be_used_are_counted_by_reason() -> None:
    others = [
        trial("b", 2, state=TrialState.FAILURE),
        trial("b", 3, state=TrialState.INFRASTRUCTURE),
        trial("b", 4, replicate=1, reward=2),
    ]
    comparison = compare(
        [subject("a", BASE), subject("b", MORE, trials=others)], metrics=["achievements"]
    )
    [one] = comparison.contrasts
    assert one.left_out_candidate == LeftOut(0, 1, 1, 1)
    assert one.left_out_baseline == LeftOut()
    assert one.difference.point == pytest.approx(2.2)
    assert any("Trials of b not used: 1 failed" in note for note in comparison.notes)
    assert any("not scored 0" in note for note in comparison.notes)


def test_with_no_world_in_common_it_is_welch_and_says_so() -> None:
    comparison = compare([subject("a", BASE), subject("b", MORE, first_seed=11)])
    [one] = comparison.contrasts
    oracle = stats.ttest_ind(MORE, BASE, equal_var=False)
    assert not one.paired
    assert one.tests is not None
    assert one.tests.p_value == pytest.approx(oracle.pvalue)
    assert one.tests.t.name.startswith("Welch")
    [note] = comparison.notes
    assert "no two worlds in common (1, 2, 3, …; 11, 12, 13, …)" in note
    assert "same seeds" in note


def test_different_tasks_are_named_because_they_may_be_the_difference() -> None:
    hard = [trial("b", seed, task="crafter/hard", achievements=1.0 + seed) for seed in range(5)]
    comparison = compare([subject("a", BASE), subject("b", trials=hard)])
    assert "different tasks (crafter/easy; crafter/hard)" in comparison.notes[0]


def test_less_is_better_where_the_metric_is_a_cost() -> None:
    cheap = [trial("a", n, invalid_rate=0.5 + n / 100) for n in range(9)]
    dear = [trial("b", n, invalid_rate=0.2 + n / 200) for n in range(9)]
    found = compare([subject("a", trials=cheap), subject("b", trials=dear)])
    assert found.setup.primary == "invalid_rate"
    assert verdict(found) is Verdict.BETTER
    assert found.worse == ()


def test_p_values_are_adjusted_for_the_number_of_candidates() -> None:
    slightly = [
        value + gap for value, gap in zip(BASE, [1, 0, 1, 0, 2, 0, 1, -1, 1, 0], strict=True)
    ]
    alone = compare([subject("a", BASE), subject("b", slightly)])
    same = [value + gap for value, gap in zip(BASE, [1, -1] * 5, strict=True)]
    others = [subject(name, same) for name in "cde"]
    among = compare([subject("a", BASE), subject("b", slightly), *others])
    tests, adjusted = alone.contrasts[0].tests, among.contrasts[0].tests
    assert tests is not None
    assert adjusted is not None
    assert adjusted.p_value == tests.p_value
    assert tests.p_adjusted == tests.p_value
    assert adjusted.p_adjusted == pytest.approx(7 * tests.p_value)
    assert compare(
        [subject("a", BASE), subject("b", slightly), *others], correction="bh"
    ).decisive


def test_no_difference_that_matters_takes_a_size_that_would() -> None:
    near = [value + gap for value, gap in zip(BASE, [0.1, -0.1] * 5, strict=True)]
    both = [subject("a", BASE), subject("b", near)]
    assert verdict(compare(both)) is Verdict.UNDECIDED
    assert verdict(compare(both, min_effect=12)) is Verdict.NO_DIFFERENCE
    assert verdict(compare(both, min_effect=0.5)) is Verdict.UNDECIDED
    assert verdict(compare(both, min_effect=0.01)) is Verdict.UNDECIDED


def test_a_clear_difference_that_does_not_matter_is_no_difference() -> None:
    above = [value + 0.1 + gap / 100 for value, gap in zip(BASE, [1, -1] * 5, strict=True)]
    both = [subject("a", BASE), subject("b", above)]
    assert verdict(compare(both)) is Verdict.BETTER
    assert verdict(compare(both, min_effect=12)) is Verdict.NO_DIFFERENCE


@pytest.mark.parametrize("values", [[2.0] * 6, BASE], ids=["all equal", "pairwise equal"])
def test_equal_values_are_undecided_and_give_no_nan(values: list[float]) -> None:
    comparison = compare([subject("a", values), subject("b", values)])
    [one] = comparison.contrasts
    assert one.verdict is Verdict.UNDECIDED
    assert one.difference.low < one.difference.point == 0 < one.difference.high
    assert one.tests is not None
    assert one.tests.p_adjusted == 1


def test_two_equal_differences_are_not_enough_to_be_sure() -> None:
    few = compare([subject("a", [2.1, 2.2]), subject("b", [3.1, 3.2])]).contrasts[0]
    many = compare([subject("a", BASE), subject("b", [x + 0.3 for x in BASE])]).contrasts[0]
    assert few.tests is not None
    assert not few.tests.spread_known
    assert few.verdict is Verdict.UNDECIDED
    assert many.verdict is Verdict.BETTER
    assert many.tests is not None
    assert many.tests.p_value == many.tests.resampling.p_value == 2**-9


def test_one_value_on_a_side_has_a_difference_and_nothing_else() -> None:
    [one] = compare([subject("a", [2]), subject("b", [5])]).contrasts
    assert one.difference.point == 3
    assert not one.difference.known
    assert one.tests is None
    assert one.verdict is Verdict.UNDECIDED


def test_a_run_that_was_looked_at_keeps_the_decision_of_its_looks() -> None:
    looks = [look("a", None, 2), look("a", "better", 3)]
    [one] = compare([subject("a", BASE), subject("b", BASE, looks=looks)]).contrasts
    assert one.verdict is Verdict.BETTER
    assert one.difference == (2.0, 0.4, 3.6)
    assert one.naive.point == 0
    assert one.look is not None
    assert one.look.look == 3


def test_looks_are_turned_round_where_the_candidate_is_the_baseline() -> None:
    both = [subject("a", BASE), subject("b", MORE, looks=[look("a", "better")])]
    [one] = compare(both, baseline="b").contrasts
    assert one.verdict is Verdict.WORSE
    assert one.difference == (-2.0, -3.6, -0.4)


def test_looks_at_another_metric_do_not_decide_this_one() -> None:
    looks = [dataclasses.replace(look("a", "worse"), metric="reward")]
    comparison = compare([subject("a", BASE), subject("b", MORE, looks=looks)])
    assert verdict(comparison) is Verdict.BETTER
    assert any("looks at another comparison" in note for note in comparison.notes)


def test_what_would_settle_it_is_priced_by_the_trials_so_far() -> None:
    mixed = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]
    extra = {"cost_usd": 0.5, "duration_s": 36.0}
    both = [subject("a", BASE, extra=extra), subject("b", mixed, extra=extra)]
    [one] = compare(both, metrics=["achievements"]).contrasts
    assert one.verdict is Verdict.UNDECIDED
    settle = one.settle
    assert settle is not None
    assert settle.low is not None
    assert settle.high is not None
    assert not settle.asked
    assert settle.low < settle.trials < settle.high
    assert settle.dollars is not None
    assert settle.dollars.point == pytest.approx(settle.trials * 2 * 0.5)
    assert settle.hours is not None
    assert settle.hours.point == pytest.approx(settle.trials * 2 * 36 / 3600)
    asked = compare(both, min_effect=0.25).contrasts[0].settle
    assert asked is not None
    assert asked.asked
    assert asked.trials > settle.trials


def test_three_subjects_get_places_and_groups() -> None:
    rng = np.random.default_rng(5)
    noise = [rng.normal(0, 0.4, 10) for _ in range(3)]
    subjects = [
        subject(name, list(np.array(BASE) + up + noise[at]))
        for at, (name, up) in enumerate((("a", 0), ("b", 0.05), ("c", 3)))
    ]
    found = compare(subjects).standings
    assert found is not None
    assert len(found.pairs) == 3
    order = {one.subject: one for one in found.order}
    assert found.order[0].subject == "c"
    assert (order["c"].rank, order["c"].groups) == (1, "a")
    assert order["a"].rank == order["b"].rank == 2
    assert order["a"].groups == order["b"].groups == "b"


def test_those_played_only_to_compare_with_are_shown_and_not_judged() -> None:
    yard = subject("noop", [0.0] * 10, baseline=True)
    three = compare([subject("a", BASE), subject("b", MORE), yard])
    assert [one.candidate for one in three.decisive] == ["b"]
    assert three.worse == ()
    assert [one.name for one in three.subjects if not one.judged] == ["noop"]
    one = compare([subject("a", BASE), yard])
    assert (one.baseline.name, [each.candidate for each in one.decisive]) == ("noop", ["a"])
    lazy = subject("lazy", [0.0] * 10, baseline=True)
    one = compare([subject("a", BASE), lazy, yard])
    assert (one.baseline.name, [each.candidate for each in one.decisive]) == ("noop", ["a"])


def test_the_metric_that_decides_is_achievements_then_reward_then_the_first() -> None:
    extra = {"zeal": 1.0, "reward": 2.0}
    both = [subject("a", BASE, extra=extra), subject("b", MORE, extra=extra)]
    assert compare(both).setup.metrics == ("achievements", "reward", "zeal")
    assert compare(both, metrics=["zeal", "reward"]).setup.primary == "zeal"
    with pytest.raises(
        UsageError, match="'a': unknown metric 'rewards'; did you mean 'reward'"
    ):
        compare(both, metrics=["rewards"])


def test_a_metric_that_one_lacks_is_passed_over_and_named() -> None:
    comparison = compare([subject("a", BASE, extra={"cost_usd": 1.0}), subject("b", MORE)])
    assert comparison.setup.metrics == ("achievements",)
    assert "cost_usd is not compared: b has no values of it." in comparison.notes


def test_nothing_in_common_is_an_error_that_says_who_has_what() -> None:
    other = subject("b", trials=[trial("b", 1, reward=1)])
    with pytest.raises(UsageError, match="'a' has achievements; 'b' has reward"):
        compare([subject("a", BASE), other])


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "'a' alone cannot be compared; name another one"),
        ([subject("b")], "'b' has no trials; let it play first"),
        (
            [subject("b", trials=[trial("b", 1, state=TrialState.FAILURE)], run_id="r-1")],
            "no trial that completed (1 failure); find out why, then run it again:"
            " 'assay run --resume r-1'",
        ),
        ([subject("b", [math.nan, math.inf])], "'b' has results without any finite number"),
        ([subject("a", MORE, id="x")], "two subjects have the name 'a'"),
    ],
    ids=["one", "empty", "failed", "nan", "twice"],
)
def test_what_cannot_be_compared_gets_a_sentence(others: list, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        compare([subject("a", BASE), *others])
    assert said in str(caught.value)


def test_one_empty_experiment_among_several_is_left_out_by_name() -> None:
    comparison = compare([subject("a", BASE), subject("b"), subject("c", MORE)])
    assert list(comparison.left_out) == ["b"]
    assert "Left out: 'b' has no trials" in comparison.notes[0]


def test_nan_values_are_left_out_and_counted() -> None:
    [one] = compare([subject("a", BASE), subject("b", [math.nan, *MORE[1:]])]).contrasts
    assert one.n_candidate == 9
    assert one.left_out_candidate.without_value == 1
    assert one.left_out_baseline.unpaired == 1


@pytest.mark.parametrize(
    "but",
    [
        *({"level": 1.0}, {"level": 95}, {"min_effect": 0}, {"min_effect": math.nan}),
        *({"seed": -1}, {"method": "magic"}, {"correction": "none"}, {"metrics": []}),
        {"success_achievements": math.nan},
    ],
    ids=str,
)
def test_choices_that_mean_nothing_are_refused(but: dict) -> None:
    with pytest.raises(UsageError):
        compare([subject("a", BASE), subject("b", MORE)], **but)


def test_success_is_counted_by_task_with_the_time_it_took() -> None:
    trials = [
        trial("a", 1, task="easy", achievements=4, duration_s=10),
        trial("a", 2, task="easy", achievements=2, duration_s=30),
        trial("a", 3, task="easy", achievements=3, duration_s=20),
        trial("a", 1, task="hard", achievements=9, success=0, duration_s=5),
    ]
    comparison = compare([subject("a", trials=trials), subject("b", MORE)])
    easy, hard, _ = comparison.instances
    assert (easy.task, easy.successes, easy.n, easy.without) == ("easy", 2, 3, 1)
    assert easy.median_time == 20
    assert hard.successes == 0
    assert hard.times == (Timed(5, False),)
    assert hard.median_time is None


def test_crafter_scores_are_set_side_by_side_at_equal_numbers_of_episodes() -> None:
    from assay.crafter.rules import ACHIEVEMENTS

    def episodes(name: str, count: int) -> list:
        return [
            trial(
                name,
                seed,
                achievements=1,
                also={
                    f"unlocked/{one}": float(at < 1 + seed % 4)
                    for at, one in enumerate(ACHIEVEMENTS)
                },
            )
            for seed in range(count)
        ]

    rows = compare(
        [subject("a", trials=episodes("a", 12)), subject("b", trials=episodes("b", 4))]
    ).scores
    assert [(row.n, row.at) for row in rows] == [(12, 4), (4, 4)]
    assert rows[1].matched == pytest.approx(rows[1].interval.point)
    assert rows[0].matched <= rows[0].interval.point


def test_the_same_seed_gives_the_same_numbers_whoever_else_is_there() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (subject(name, list(rng.normal(3, 1, 40))) for name in "abc")
    first = compare([a, b], seed=7)
    assert first == compare([a, b], seed=7)
    again = compare([a, c, b], seed=7)
    tests = [one.tests for one in (*first.contrasts, *again.contrasts) if one.candidate == "b"]
    assert tests[0] is not None
    assert tests[1] is not None
    assert tests[0].resampling == tests[1].resampling


def test_numbers_of_whole_subjects_are_shown_and_not_judged() -> None:
    subjects = [
        subject(name, values, facts={SUBJECT_METRICS: {"spread": spread}})
        for name, values, spread in (("a", BASE, 0.5), ("b", MORE, 1.5))
    ]
    sections = {
        one.title: one.blocks for one in comparison_document(compare(subjects)).sections
    }
    table = sections["All episodes together"][0]
    assert isinstance(table, ReportTable)
    assert [cells for _, *cells in table.rows] == [["0.50"], ["1.50"]]
    assert "spread" not in {one.metric for one in compare(subjects).contrasts}


def test_less_is_better_where_the_metric_of_a_subject_says_so() -> None:
    both = [
        subject("a", BASE, outcomes={"achievements": parse_outcome("achievements", "lower")}),
        subject("b", MORE),
    ]
    assert verdict(compare(both)) is Verdict.WORSE


def test_only_the_first_metric_decides_and_has_a_plan() -> None:
    mixed = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]
    both = [
        subject(
            name,
            trials=[
                trial(name, seed, achievements=value, reward=value, zeal=value)
                for seed, value in enumerate(values)
            ],
        )
        for name, values in (("a", BASE), ("b", mixed))
    ]
    found = compare(both, metrics=["reward", "achievements", "zeal"])
    assert [one.metric for one in found.decisive] == ["reward"]
    assert [one.settle is not None for one in found.contrasts] == [True, False, False]
    assert [one.detectable is not None for one in found.contrasts] == [True, False, False]
    matters = compare(both, metrics=["reward", "achievements", "zeal"], min_effect=0.1)
    stated = [one.tests.equivalence_p is not None for one in matters.contrasts if one.tests]
    assert stated == [True, False, False]


def test_in_a_single_task_trials_without_a_seed_are_independent() -> None:
    without = [
        subject(
            name,
            trials=[
                trial(name, None, replicate=turn, achievements=value)
                for turn, value in enumerate(values)
            ],
        )
        for name, values in (("a", BASE), ("b", MORE))
    ]
    [one] = compare(without).contrasts
    assert not one.paired
    assert (one.n_baseline, one.n_candidate) == (10, 10)
    assert one.tests is not None
    oracle = stats.ttest_ind(MORE, BASE, equal_var=False)
    assert one.tests.p_value == pytest.approx(oracle.pvalue)


def test_prices_take_what_both_recorded() -> None:
    mixed = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]
    priced = subject("a", BASE, extra={"cost_usd": 0.5, "duration_s": 36.0})
    other = subject("b", mixed, extra={"duration_s": 72.0})
    [one] = compare([priced, other], metrics=["achievements"]).contrasts
    assert one.settle is not None
    assert one.settle.dollars is None
    assert one.settle.hours is not None
    assert one.settle.hours.point == pytest.approx(one.settle.trials * 2 * 54 / 3600)
    free = subject("c", mixed, extra={"cost_usd": 0.0, "duration_s": 0.0})
    [one] = compare([free, subject("d", BASE, extra={"cost_usd": 0.0})]).decisive
    assert one.settle is not None
    assert one.settle.dollars is not None
    assert one.settle.dollars.point == 0
    owed = [subject(name, BASE, extra={"cost_usd": -1.0}) for name in "ef"]
    owed[1] = subject("f", mixed, extra={"cost_usd": -1.0})
    [one] = compare(owed, metrics=["achievements"]).contrasts
    assert one.settle is not None
    assert one.settle.dollars is None


@pytest.mark.parametrize("name", ["A", "z"])
def test_who_is_only_compared_with_is_not_judged_whatever_its_name(name: str) -> None:
    yard = subject(name, [0.0] * 10, baseline=True)
    found = compare([subject("m", BASE), subject("n", MORE), yard])
    assert {one.name: one.judged for one in found.subjects} == {
        "m": True,
        "n": True,
        name: False,
    }
    first = compare([yard, subject("m", BASE), subject("n", MORE)])
    assert (first.baseline.name, [one.candidate for one in first.decisive]) == ("m", ["n"])
    against = compare([yard, subject("m", BASE), subject("n", MORE)], baseline=name)
    assert {one.candidate for one in against.decisive} == {"m", "n"}


def test_a_subject_is_found_by_its_id_wherever_it_stands() -> None:
    found = compare([subject("c", BASE), subject("b", MORE), subject("a", MORE)])
    assert [found.of(name).id for name in "abc"] == ["a", "b", "c"]
    assert found.baseline.id == "c"


def test_a_decided_comparison_needs_no_plan_and_no_effect_has_none() -> None:
    near = [value + gap for value, gap in zip(BASE, [0.1, -0.1] * 5, strict=True)]
    flat = compare([subject("a", BASE), subject("b", near)]).contrasts[0]
    assert flat.difference.point == pytest.approx(0)
    same = compare([subject("a", BASE), subject("b", near)], min_effect=12).contrasts[0]
    assert same.verdict is Verdict.NO_DIFFERENCE
    assert same.settle is None
    worse = compare([subject("a", MORE), subject("b", BASE)]).contrasts[0]
    assert worse.verdict is Verdict.WORSE
    assert worse.settle is None


def test_two_pairs_that_differ_are_enough_for_a_plan() -> None:
    [one] = compare([subject("a", [2.0, 3.0]), subject("b", [3.0, 5.0])]).contrasts
    assert one.verdict is Verdict.UNDECIDED
    assert one.detectable is not None
    assert one.settle is not None


def test_without_spread_nothing_is_planned() -> None:
    [flat] = compare([subject("a", [2.0] * 3), subject("b", [3.0] * 3)]).contrasts
    assert flat.detectable is None
    assert flat.settle is None
    assert flat.effects is None
    [four] = compare([subject("a", [2.0] * 4), subject("b", [3.0] * 4)]).contrasts
    assert four.effects is None
    assert four.pairing is None


@pytest.mark.parametrize("paired", [True, False])
def test_without_spread_equivalence_goes_by_the_range(paired: bool) -> None:
    both = [
        subject("a", [2.0] * 7),
        subject("b", [3.0] * 7, first_seed=1 if paired else 50),
    ]
    [near] = compare(both, min_effect=20.0).contrasts
    [far] = compare(both, min_effect=0.4).contrasts
    assert near.tests is not None
    assert far.tests is not None
    assert not near.tests.spread_known
    expected = bounded_tost([1.0] * 7, -22, 22, 20.0).p_value
    assert near.tests.equivalence_p == pytest.approx(expected)
    assert near.verdict is Verdict.NO_DIFFERENCE
    assert far.tests.equivalence_p is not None
    assert far.tests.equivalence_p > 0.99
    assert far.verdict is Verdict.BETTER
    [below] = compare(both, baseline="b", min_effect=20.0).contrasts
    assert below.tests is not None
    assert below.tests.equivalence_p == pytest.approx(expected)


def test_a_series_is_named_by_its_first_experiment() -> None:
    first = subject("e1", BASE, series="first")
    second = subject("e2", MORE, series="second", version="v2")
    assert over_time([first, second]).series == "first"
    nameless = [subject("e1", BASE), subject("e2", MORE, version="v2")]
    assert over_time(nameless).series == "e1"


def test_three_players_do_not_make_a_player_of_who_is_only_compared_with() -> None:
    yard = subject("noop", [0.0] * 10, baseline=True)
    players = [subject(name, MORE) for name in "bcd"]
    found = compare([subject("a", BASE), *players, yard])
    assert [one.candidate for one in found.decisive] == ["b", "c", "d"]


def test_looks_belong_to_ids_and_not_to_objects() -> None:
    name = "the longest of all names"
    same = " ".join(name.split(" "))
    assert same is not name
    looks = [look(name, "better")]
    [one] = compare([subject("a", BASE, id=same), subject("b", BASE, looks=looks)]).contrasts
    assert one.verdict is Verdict.BETTER


def test_failures_on_both_sides_are_said_too() -> None:
    lost = [
        subject(name, values, trials=[trial(name, 99, state=TrialState.FAILURE)])
        for name, values in (("a", BASE), ("b", MORE))
    ]
    assert any("not scored 0" in note for note in compare(lost).notes)
    assert not any(
        "scored 0" in n for n in compare([subject("a", BASE), subject("b", MORE)]).notes
    )


def test_several_metrics_are_said_to_be_shown_and_not_adjusted() -> None:
    both = [subject(name, BASE, extra={"zeal": 1.0}) for name in "ab"]
    assert any(
        note.startswith("The verdict rests on achievements alone")
        for note in compare(both).notes
    )
    alone = compare(both, metrics=["zeal"]).notes
    assert not any("decides" in note for note in alone)


@pytest.mark.parametrize(
    ("failures", "errors", "said"),
    [
        (0, 2, "(2 infrastructure errors)"),
        (2, 1, "(2 failures, 1 infrastructure error)"),
        (1, 0, "(1 failure)"),
    ],
)
def test_why_nothing_can_be_compared_counts_every_end(
    failures: int, errors: int, said: str
) -> None:
    ends = [TrialState.FAILURE] * failures + [TrialState.INFRASTRUCTURE] * errors
    trials = [trial("b", seed, state=state) for seed, state in enumerate(ends)]
    with pytest.raises(UsageError) as caught:
        compare([subject("a", BASE), subject("b", trials=trials)])
    assert f"has no trial that completed {said}; find out why" in str(caught.value)


def test_notes_are_about_the_metric_that_decides() -> None:
    trials = [trial("b", seed, reward=value) for seed, value in enumerate(MORE, start=1)]
    half = [trial("b", 20, reward=1.0, achievements=1.0), *trials]
    whole = [
        trial("a", seed, reward=value, achievements=value)
        for seed, value in enumerate([*BASE, *[2.0] * 10], start=1)
    ]
    both = [subject("a", trials=whole), subject("b", trials=half)]
    notes = compare(both, metrics=["reward", "achievements"]).notes
    assert not any("without this metric" in note for note in notes)
