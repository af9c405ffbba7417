"""What a comparison takes for granted, and the numbers at which it changes its ways."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.crafter.rules import ACHIEVEMENTS
from assay.judge.comparison import compare
from assay.judge.describe import describe, instances, scores
from assay.judge.matching import match
from assay.judge.results import Comparison, Contrast, LeftOut, Setup, TaskRule, Units
from assay.judge.subjects import Subject
from assay.judge.versions import over_time
from assay.report.run_summary import rank_models
from assay.stats.effects import cliffs_delta, cohens_d, hedges_g, probability_of_improvement
from assay.stats.intervals import Interval, Method, t_interval
from assay.stats.multiplicity import Correction
from assay.types import TrialState, Verdict
from tests.report.rows import episode

from .subjects import look, subject, trial

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
MORE = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]


def gaps(*differences: float, paired: bool = True) -> list[Subject]:
    """Two subjects that differ by so much, world by world."""
    base = [10.0 + 3 * (at % 4) + at // 4 % 7 for at in range(len(differences))]
    other = [value + gap for value, gap in zip(base, differences, strict=True)]
    return [subject("a", base), subject("b", other, first_seed=1 if paired else 1000)]


def only(subjects: list[Subject], **choices: Any) -> Contrast:
    [found] = compare(subjects, **choices).decisive
    return found


def test_what_nobody_chose_is_the_usual() -> None:
    found = compare([subject("a", BASE), subject("b", MORE)])
    usual = Setup(
        metrics=("achievements",),
        baseline="a",
        level=0.95,
        min_effect=None,
        success_achievements=3,
        seed=0,
        method=Method.AUTO,
        correction=Correction.HOLM,
        tasks=None,
    )
    assert found.setup == replace(usual, known_metrics=("achievements",))
    assert Setup(metrics=("achievements",), baseline="a", level=0.95) == usual
    assert replace(over_time([subject("a", BASE)]).setup, known_metrics=()) == usual
    assert found.setup.alpha == pytest.approx(0.05)


def test_models_are_ranked_at_the_level_that_is_asked_for() -> None:
    rewards = [1.0, 4.0, 2.0, 6.0]
    rows = [
        episode(model, number, reward=reward + up)
        for model, up in (("a", 0), ("b", 1))
        for number, reward in enumerate(rewards)
    ]
    for asked, level in (({}, 0.95), ({"level": 0.8}, 0.8)):
        means = {place.model: place.mean for place in rank_models(rows, **asked)[0].places}
        assert means["a"] == pytest.approx(t_interval(np.array(rewards), level))
    assert rank_models([]) == ()


@pytest.mark.parametrize("paired", [True, False])
def test_a_resampling_test_draws_ten_thousand_times(paired: bool) -> None:
    up = np.random.default_rng(3).normal(50, 1, 40)
    tests = only(gaps(*up, paired=paired)).tests
    assert tests is not None
    assert not tests.resampling.exact
    assert tests.resampling.p_value == pytest.approx(2 / 10_001)


def test_with_very_many_trials_it_draws_fewer() -> None:
    up = np.random.default_rng(3).normal(50, 1, 6000)
    tests = only(gaps(*up)).tests
    assert tests is not None
    assert tests.resampling.p_value == pytest.approx(2 / (20_000_000 // 12_000 + 1))


@pytest.mark.parametrize(("pairs", "told"), [(3, False), (4, True)])
def test_what_pairing_gained_is_told_from_four_pairs_on(pairs: int, told: bool) -> None:
    found = only(gaps(*[0.5, 1.5, -1.0, 2.0][:pairs]))
    assert (found.pairing is not None) == told
    assert only(gaps(0.5, 1.5, -1.0, 2.0, paired=False)).pairing is None


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_every_number_of_a_contrast_has_its_level_and_its_side(
    paired: bool, level: float
) -> None:
    a, b = np.array(BASE), np.array(MORE)
    found = only(
        [subject("a", BASE), subject("b", MORE, first_seed=1 if paired else 100)], level=level
    )
    assert (found.n_baseline, found.n_candidate) == (10, 10)
    assert found.mean_baseline == pytest.approx(t_interval(a, level))
    assert found.mean_candidate == pytest.approx(t_interval(b, level))
    assert found.naive == found.difference
    assert found.relative is not None
    assert found.relative.point == pytest.approx(b.mean() / a.mean() - 1)
    assert found.effects is not None
    sizes = (cohens_d, hedges_g, cliffs_delta, probability_of_improvement)
    own = (
        *(found.effects.d, found.effects.g),
        *(found.effects.delta, found.effects.improvement),
    )
    for size, interval in zip(sizes, own, strict=True):
        assert interval == pytest.approx(size(a, b, paired=paired, level=level))
    assert found.tests is not None
    rank = stats.wilcoxon(b, a) if paired else stats.mannwhitneyu(b, a)
    assert found.tests.rank.p_value == pytest.approx(rank.pvalue, rel=0.2)
    assert found.tests.spread_known
    assert found.tests.equivalence_p is None
    assert found.units == Units(TaskRule.WORLDS, 1, 10 if paired else 20, 1)
    assert len(found.pairs) == (10 if paired else 0)


def test_one_pair_that_differs_is_spread_enough() -> None:
    even = only(gaps(*[1.0] * 9))
    odd = only(gaps(*[1.0] * 8, 1.001))
    assert even.tests is not None
    assert odd.tests is not None
    assert (even.tests.spread_known, odd.tests.spread_known) == (False, True)
    assert (even.effects is None, odd.effects is None) == (True, False)
    assert even.tests.p_value == even.tests.resampling.p_value
    assert odd.tests.p_value == odd.tests.t.p_value


def test_differences_that_are_equal_but_for_rounding_have_no_spread() -> None:
    tenths = [0.1 * at for at in range(1, 10)]
    other = [value + 0.3 for value in tenths]
    found = only([subject("a", tenths), subject("b", other)])
    assert found.tests is not None
    assert not found.tests.spread_known


def test_of_two_flat_samples_one_that_varies_is_spread_enough() -> None:
    flat, wavy = [5.0] * 6, [7.0, 8, 7, 8, 7, 8]
    for first, second in ((flat, wavy), (wavy, flat)):
        found = only([subject("a", first), subject("b", second, first_seed=50)])
        assert found.tests is not None
        assert found.tests.spread_known
        assert found.tests.p_value == found.tests.t.p_value


def test_the_last_look_is_the_one_with_the_highest_number_whatever_the_order() -> None:
    looks = [
        look("a", None, 2, estimate=1.0),
        look("a", "worse", 7, estimate=-4.0, low=-6.0, high=-1.0),
        look("a", None, 5, estimate=2.0),
        look("other", "better", 9),
    ]
    candidate = subject("b", MORE, looks=looks)
    found = only([subject("a", BASE), candidate])
    assert found.verdict is Verdict.WORSE
    assert found.difference == Interval(-4.0, -6.0, -1.0)
    assert found.naive.point == pytest.approx(2.2)
    turned = only([candidate, subject("a", BASE)])
    assert turned.verdict is Verdict.BETTER
    assert turned.difference == Interval(4.0, 1.0, 6.0)


@pytest.mark.parametrize(
    ("earned", "successes"),
    [
        ({"success": 0.5}, 1),
        ({"success": 0.49}, 0),
        ({"success": 0.0, "achievements": 9.0}, 0),
        ({"achievements": 3.0}, 1),
        ({"achievements": 2.9}, 0),
    ],
)
def test_a_success_is_half_a_success_or_enough_achievements(
    earned: dict[str, float], successes: int
) -> None:
    [row] = instances([subject("a", trials=[trial("a", 1, also=earned)])], 3, 0.95)
    assert (row.n, row.successes) == (1, successes)


def test_success_has_the_interval_of_the_level() -> None:
    player = subject("a", [1.0, 3.0, 5.0, 2.0])
    wide, narrow = (instances([player], 3, level)[0].success for level in (0.95, 0.5))
    assert wide.low < narrow.low < 0.5 < narrow.high < wide.high


def test_trials_are_counted_by_how_they_ended() -> None:
    ends = [TrialState.FAILURE] * 2 + [TrialState.INFRASTRUCTURE] * 3
    others = [trial("a", 50 + at, state=state) for at, state in enumerate(ends)]
    facts = describe(
        subject("a", BASE, trials=others), ["achievements", "none"], 0.95, judged=True
    )
    assert (facts.results, facts.failures, facts.infrastructure) == (10, 2, 3)
    assert list(facts.metrics) == ["achievements"]
    own = facts.metrics["achievements"]
    assert (own.n, own.least, own.most, own.median) == (10, 1.0, 5.0, 3.0)
    assert own.sd == pytest.approx(np.std(BASE, ddof=1))


def test_an_achievement_half_unlocked_counts_as_unlocked() -> None:
    def player(unlocked: float) -> Subject:
        told = {f"unlocked/{name}": unlocked for name in ACHIEVEMENTS}
        return subject("a", trials=[trial("a", seed, also=told) for seed in range(4)])

    full, none = (scores([player(value)], 0.95)[0] for value in (0.5, 0.49))
    assert full.interval.point == pytest.approx(100)
    assert none.interval.point == pytest.approx(0, abs=1e-9)


def plan_of(**extra: float) -> Contrast:
    mixed = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]
    return only([subject("a", BASE, extra=extra), subject("b", mixed, extra=extra)])


def test_what_is_free_is_planned_at_no_cost() -> None:
    plan = plan_of(cost_usd=0.0, duration_s=1800.0).settle
    assert plan is not None
    assert plan.dollars is not None
    assert plan.dollars.point == 0
    assert plan.hours is not None
    assert plan.hours.point == pytest.approx(plan.trials)
    assert not plan.asked
    unpriced = plan_of(cost_usd=-1.0).settle
    assert unpriced is not None
    assert unpriced.dollars is None
    assert unpriced.hours is None


def test_a_plan_asks_for_the_difference_that_matters() -> None:
    mixed = [value + gap for value, gap in zip(BASE, [2, -1] * 5, strict=True)]
    both = [subject("a", BASE), subject("b", mixed)]
    seen, asked = only(both).settle, only(both, min_effect=0.25).settle
    assert seen is not None
    assert asked is not None
    # The difference seen is 0.5, and what is left of it without its luck is planned for.
    assert 0.25 < seen.effect < 0.5
    assert not seen.asked
    assert (asked.effect, asked.asked) == (0.25, True)
    ratio = (seen.effect / asked.effect) ** 2
    assert asked.trials == pytest.approx(ratio * seen.trials, rel=0.15)


def test_replicates_are_the_most_of_one_subject_in_one_world() -> None:
    again = [trial("b", 2, replicate=at, achievements=4.0) for at in (1, 2)]
    found = only([subject("a", BASE), subject("b", MORE, trials=again)])
    assert found.units == Units(TaskRule.WORLDS, 1, 10, 3)
    assert found.left_out_candidate == LeftOut(0, 0, 0, 0)


@pytest.mark.parametrize("common", [1, 2, 5])
def test_worlds_of_one_side_count_beside_those_in_common(common: int) -> None:
    found = only([subject("a", BASE), subject("b", MORE, first_seed=11 - common)])
    assert found.left_out_baseline == found.left_out_candidate == LeftOut()
    assert (found.n_baseline, found.n_candidate) == (10, 10)


def judged(comparison: Comparison) -> dict[str, bool]:
    return {facts.id: facts.judged for facts in comparison.subjects}


def test_who_is_only_compared_with_is_judged_where_nobody_else_is_there() -> None:
    player, other = subject("a", BASE), subject("b", MORE)
    idle = replace(subject("r", MORE), baseline=True)
    assert judged(compare([player, other, idle])) == {"a": True, "b": True, "r": False}
    assert judged(compare([player, idle])) == {"a": True, "r": True}
    named = compare([player, other, idle], baseline="r")
    assert judged(named) == {"a": True, "b": True, "r": True}
    assert named.baseline.id == "r"
    assert [found.candidate for found in named.decisive] == ["a", "b"]


def test_each_candidate_is_compared_in_each_metric_and_only_the_first_decides() -> None:
    extra = {"zeal": 2.0}
    subjects = [subject(name, MORE if name == "b" else BASE, extra=extra) for name in "abc"]
    found = compare(subjects, metrics=["achievements", "zeal"], min_effect=0.5)
    assert [(one.metric, one.candidate) for one in found.contrasts] == [
        *(("achievements", "b"), ("achievements", "c")),
        *(("zeal", "b"), ("zeal", "c")),
    ]
    for one in found.contrasts:
        assert one.tests is not None
        assert (one.tests.equivalence_p is None) == (one.metric == "zeal")
    assert found.standings is not None
    assert [(place.subject, place.rank, place.shared) for place in found.standings.order] == [
        ("b", 1, False),
        ("a", 2, True),
        ("c", 2, True),
    ]


def test_nobody_with_a_value_makes_no_units() -> None:
    found = match(subject("a"), subject("b"), "achievements")
    assert found.units == Units(TaskRule.WORLDS, 0, 0, 0)
    assert not found.paired


@pytest.mark.parametrize("size", [-3.0, -1.0, 1.0, 3.0])
def test_a_clear_difference_of_any_whole_size_is_a_verdict(size: float) -> None:
    wave = [0.25, -0.25] * 5
    found = only(gaps(*[size + gap for gap in wave]))
    assert found.difference.point == size
    assert found.verdict is (Verdict.BETTER if size > 0 else Verdict.WORSE)
