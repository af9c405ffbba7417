"""One subject at a time: values, curves, tasks, scores; and what may be chosen."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.crafter.rules import ACHIEVEMENTS
from assay.errors import UsageError
from assay.judge.comparison import check_choices, compare
from assay.judge.describe import describe, instances, metrics_of, passes, scores
from assay.judge.results import LearningCurve, Timed
from assay.judge.versions import over_time
from assay.stats.score import crafter_score_interval, expected_score_at
from assay.types import TrialState

from .subjects import subject, trial

POINTS = {"steps": [2, 0, 1], "values": [5.0, 1.0, 3.0]}


def curves(stated: Any) -> tuple[LearningCurve, ...]:
    one = subject("a", [1.0], facts={"curves": stated})
    return describe(one, ["achievements"], 0.95, judged=True).curves


def test_a_metric_is_summed_up_over_trials_and_its_mean_over_worlds() -> None:
    again = trial("a", 1, replicate=1, achievements=9)
    one = subject("a", [1.0, 4.0, 7.0, math.nan], trials=[again])
    failed = trial("a", 9, state=TrialState.FAILURE)
    broken = trial("a", 10, state=TrialState.INFRASTRUCTURE)
    one = subject("a", trials=[*one.trials, failed, failed, broken])
    facts = describe(one, ["achievements", "reward"], 0.9, judged=True)
    assert (facts.results, facts.failures, facts.infrastructure) == (5, 2, 1)
    assert list(facts.metrics) == ["achievements"]
    found = facts.metrics["achievements"]
    assert (found.n, found.median, found.least, found.most) == (4, 5.5, 1, 9)
    assert found.sd == pytest.approx(np.std([1, 4, 7, 9], ddof=1))
    oracle = stats.ttest_1samp([5, 4, 7], 0).confidence_interval(0.9)
    assert found.mean == pytest.approx((16 / 3, oracle.low, oracle.high))


def test_one_trial_has_no_spread() -> None:
    facts = describe(subject("a", [3.0]), ["achievements"], 0.95, judged=False)
    assert math.isnan(facts.metrics["achievements"].sd)
    assert not facts.metrics["achievements"].mean.known
    assert not facts.judged
    two = describe(subject("a", [3.0, 5.0]), ["achievements"], 0.95, judged=False)
    assert two.metrics["achievements"].sd == pytest.approx(math.sqrt(2))


def test_metrics_are_those_with_a_finite_value_in_a_result() -> None:
    trials = [
        trial("a", 1, reward=math.nan, zeal=1.0),
        trial("a", 2, state=TrialState.FAILURE),
        trial("a", 3, reward=2.0, calm=1.0),
    ]
    assert metrics_of(subject("a", trials=trials)) == ["zeal", "reward", "calm"]


def test_curves_are_read_in_the_order_of_their_steps() -> None:
    expected = LearningCurve("reward", (0.0, 1.0, 2.0), (1.0, 3.0, 5.0))
    assert curves({"reward": POINTS}) == (expected,)
    assert curves({"reward": [POINTS, POINTS]}) == (expected, expected)
    partly = {"steps": [0, 1, 2, 3], "values": [1.0, None, 4.0, math.inf]}
    assert curves({"reward": partly}) == (LearningCurve("reward", (0.0, 2.0), (1.0, 4.0)),)


@pytest.mark.parametrize(
    "stated",
    [
        None,
        [POINTS],
        {"reward": 3},
        {"reward": {"steps": [0, 1], "values": [1.0]}},
        {"reward": {"steps": [0], "values": [1.0, 2.0]}},
        {"reward": {"steps": "01", "values": [1.0, 2.0]}},
        {"reward": {"steps": [0, 1], "values": (1.0, 2.0)}},
        {"reward": {"steps": [0, 1], "values": [1.0, True]}},
        {"reward": {"steps": [0, 1], "values": [1.0, "2"]}},
        {"reward": {"steps": [0], "values": [1.0]}},
        {"reward": {"values": [1.0, 2.0]}},
    ],
    ids=str,
)
def test_what_does_not_look_like_a_curve_is_passed_over(stated: Any) -> None:
    assert curves(stated) == ()


@pytest.mark.parametrize(
    ("values", "succeeded"),
    [
        ({"achievements": 3.0}, 1),
        ({"achievements": 2.9}, 0),
        ({"achievements": 9.0, "success": 0.0}, 0),
        ({"achievements": 0.0, "success": 0.5}, 1),
        ({"achievements": 3.0, "success": math.nan}, 1),
        ({"achievements": math.nan}, None),
        ({"reward": 5.0}, None),
    ],
    ids=str,
)
def test_a_success_is_said_or_reached(values: dict[str, float], succeeded: int | None) -> None:
    rows = instances([subject("a", trials=[trial("a", 1, also=values)])], 3, 0.95)
    assert [row.successes for row in rows] == ([] if succeeded is None else [succeeded])


def test_a_task_has_a_row_for_each_subject_that_did_it() -> None:
    one = subject("a", trials=[trial("a", 1, task="x", achievements=4, duration_s=3)])
    other = subject(
        "b",
        trials=[
            trial("b", 1, task="y", achievements=1),
            trial("b", 1, task="x", achievements=1, duration_s=8),
            trial("b", 2, task="x", achievements=5, duration_s=math.nan),
            trial("b", 3, task="x", state=TrialState.FAILURE),
        ],
    )
    rows = instances([one, other], 3, 0.95)
    assert [(row.task, row.subject, row.n, row.successes) for row in rows] == [
        ("x", "a", 1, 1),
        ("x", "b", 2, 1),
        ("y", "b", 1, 0),
    ]
    assert rows[0].median_time == 3
    assert (rows[0].without, rows[1].without) == (0, 1)
    assert rows[1].times == (Timed(8, False),)
    assert rows[1].success.point == 0.5
    assert rows[2].times == ()
    assert rows[2].median_time is None


def test_attempts_at_a_world_are_summed_up_as_pass_at_k_and_pass_hat_k() -> None:
    done = {1: (5, 0, 0, 5), 2: (0, 0, 0, 0), 3: (5, 5, 5, 5)}
    plays = [
        trial("a", seed, replicate=place, achievements=value)
        for seed, values in done.items()
        for place, value in enumerate(values)
    ]
    rows = passes([subject("a", trials=plays), subject("once", [5.0, 5.0])], 3, 0.95)
    assert [(row.subject, row.k, row.worlds, row.attempts) for row in rows] == [
        ("a", k, 3, 4) for k in (1, 2, 3)
    ]
    # Of two attempts at the first world both fail in 1 of 6 choices, and both succeed in 1.
    assert rows[1].pass_any.point == pytest.approx((5 / 6 + 0 + 1) / 3)
    assert rows[1].pass_all.point == pytest.approx((1 / 6 + 0 + 1) / 3)
    assert rows[0].pass_any == rows[0].pass_all
    # Without seeds nothing tells that two episodes were in the same world.
    unseeded = [trial("a", None, replicate=place, achievements=5) for place in range(4)]
    assert passes([subject("a", trials=unseeded)], 3, 0.95) == ()


def test_scores_take_episodes_that_say_what_they_unlocked() -> None:
    rng = np.random.default_rng(4)
    table = rng.random((6, len(ACHIEVEMENTS))) < 0.4

    def player(name: str, count: int) -> Any:
        told = [
            trial(
                name,
                seed,
                also={
                    f"unlocked/{achievement}": float(there)
                    for achievement, there in zip(ACHIEVEMENTS, row, strict=True)
                },
            )
            for seed, row in enumerate(table[:count])
        ]
        partly = trial(name, 50, also={f"unlocked/{ACHIEVEMENTS[0]}": 1.0})
        return subject(name, trials=[*told, partly])

    first, second = scores([player("a", 6), player("b", 3), player("c", 1)], 0.95)
    assert [(row.subject, row.n, row.at) for row in (first, second)] == [
        ("a", 6, 3),
        ("b", 3, 3),
    ]
    rng = np.random.default_rng(0)
    assert first.interval.point == crafter_score_interval(table, rng=rng).interval.point
    assert first.matched == pytest.approx(expected_score_at(table, 3, rng=rng), rel=0.02)
    again = scores([player("a", 6)], 0.95)[0]
    assert (again.interval, again.at) == (first.interval, 6)
    assert scores([player("a", 6)], 0.8)[0].interval.high < first.interval.high
    assert scores([subject("a", [1.0])], 0.95) == ()


@pytest.mark.parametrize("level", [0.5, 0.8, 0.999])
def test_levels_from_a_half_to_below_one_are_allowed(level: float) -> None:
    check_choices(level, min_effect=1e-9, enough=-1.0, seed=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"level": 0.49}, "level 0.49 is not from 0.5 to below 1"),
        ({"level": 1.0}, "level 1.0"),
        ({"level": 0.95, "min_effect": 0.0}, "min_effect 0.0"),
        ({"level": 0.95, "min_effect": math.inf}, "min_effect inf"),
        ({"level": 0.95, "enough": math.inf}, "success_achievements inf"),
        ({"level": 0.95, "seed": -1}, "seed -1"),
    ],
    ids=str,
)
def test_a_choice_that_means_nothing_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_choices(**wrong)


def test_metrics_of_achievements_are_compared_only_if_asked_for() -> None:
    extra = {"unlocked/collect_wood": 1.0, "zeal": 2.0}
    both = [subject(name, [1.0, 2.0], extra=extra) for name in "ab"]
    assert compare(both).setup.metrics == ("achievements", "zeal")
    asked = compare(both, metrics=["unlocked/collect_wood"])
    assert asked.setup.metrics == ("unlocked/collect_wood",)
    assert "cost_usd" not in compare(both).baseline.metrics


def test_versions_follow_each_other_and_changes_are_adjusted_together() -> None:
    rng = np.random.default_rng(5)
    worlds = rng.normal(5, 1, 8)
    series = [
        subject(
            f"e{at}",
            list(worlds + up + rng.normal(0, 1.2, 8)),
            version=version,
            series="s",
            extra={"zeal": 1.0},
        )
        for at, (version, up) in enumerate(
            [("v1", 0), ("v2", 1), ("v2", 1), ("v3", 2), (None, 2)]
        )
    ]
    found = over_time([*series, subject("e9", version="v4")], level=0.9)
    assert (found.series, found.setup.primary, found.setup.level) == ("s", "achievements", 0.9)
    assert found.setup.metrics == ("achievements",)
    assert [row.version for row in found.rows] == ["v1", "v2", "v3", "(no version)"]
    assert [len(row.experiments) for row in found.rows] == [1, 2, 1, 1]
    assert [row.trials for row in found.rows] == [8, 16, 8, 8]
    assert found.rows[0].change is None
    changes = [row.change for row in found.rows if row.change is not None]
    means = [row.mean.point for row in found.rows]
    assert [change.difference.point for change in changes] == pytest.approx(np.diff(means))
    tests = [change.tests for change in changes if change.tests is not None]
    least = min(tests, key=lambda test: test.p_value)
    assert least.p_adjusted == pytest.approx(3 * least.p_value)
    assert found.notes == (
        "Left out: 'e9' has no trials; let it play first, with 'assay run'.",
    )
