"""Summaries of the episodes of each model."""

import json
import math

import pytest

from assay.crafter.rules import ACHIEVEMENTS
from assay.report.run_summary import ErrorGroup, summaries_json, summarize
from assay.stats.intervals import Interval, t_interval
from assay.stats.score import crafter_score
from assay.stats.shares import exact_share
from assay.types import TrialState

from .rows import episode, failed


def test_means_are_over_results_and_have_t_intervals() -> None:
    rows = [episode(number=n, unlocked=n, duration_s=n / 2) for n in (1, 2, 6)]
    [summary] = summarize([*rows, failed(number=9, unlocked=20)], {"a/model": 4})
    assert summary.reward == t_interval([1, 2, 6])
    assert summary.achievements == Interval(3.0, 0.0, t_interval([1, 2, 6]).high)
    assert summary.duration_s == Interval(1.5, 0.0, t_interval([0.5, 1, 3]).high)
    assert summary.tokens is not None
    assert summary.tokens.low < summary.tokens.point == 1200 < summary.tokens.high
    assert summary.invalid_rate is not None
    assert summary.invalid_rate.point == pytest.approx(0.05)


def test_completed_is_results_over_episodes_started_and_success_three_achievements() -> None:
    rows = [episode(number=0), episode(number=1), failed(number=2)]
    [summary] = summarize(rows, {"a/model": 8})
    assert summary.completed == exact_share(2, 8)
    assert summary.success == exact_share(2, 2)
    [two] = summarize([episode(number=0, unlocked=2), episode(number=1, unlocked=3)], {})
    assert two.success == exact_share(1, 2)
    assert (summary.started, summary.results, summary.failures, summary.unended) == (8, 2, 1, 5)


def test_invalid_rate_is_a_mean_over_episodes_and_zero_without_actions() -> None:
    rows = [
        episode(number=0, actions_asked=10, unknown_actions=2, no_effect_actions=3),
        episode(number=1, actions_asked=0, unknown_actions=0, no_effect_actions=0),
    ]
    [summary] = summarize(rows, {})
    assert summary.invalid_rate is not None
    assert summary.invalid_rate.point == 0.25
    assert (summary.invalid, summary.actions, summary.unknown, summary.no_effect) == (
        5,
        10,
        2,
        3,
    )
    assert (summary.asleep, summary.malformed) == (4, 2)


def test_achievements_are_grouped_by_their_environment_step() -> None:
    steps = {"collect_wood": 1, "place_table": 25, "collect_drink": 26, "wake_up": 50}
    rows = [
        episode(number=0, achievements=steps),
        episode(number=1, achievements={"collect_wood": 51, "eat_cow": 900}),
    ]
    [summary] = summarize(rows, {})
    assert (summary.unlocked, summary.unique) == (6, 5)
    assert (summary.early, summary.mid, summary.late) == (2, 2, 2)


def test_score_is_computed_from_the_success_rates() -> None:
    [summary] = summarize([episode(number=0, unlocked=22), episode(number=1, unlocked=11)], {})
    assert summary.score == pytest.approx(float(crafter_score([1.0] * 11 + [0.5] * 11)))
    assert len(ACHIEVEMENTS) == 22


def test_spending_includes_every_episode() -> None:
    [summary] = summarize([episode(number=0), failed(number=1)], {})
    assert summary.tokens_spent == 2400
    assert summary.cost_spent == pytest.approx(0.02)
    assert summary.tokens == t_interval([1200])


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    [summary] = summarize([episode(number=0), episode(number=1, cost_usd=None)], {})
    assert summary.cost_usd is None
    assert summary.cost_spent is None
    assert summary.tokens_spent == 2400


def test_errors_are_counted_by_kind_with_the_first_message() -> None:
    infrastructure = TrialState.INFRASTRUCTURE
    rows = [
        failed(number=0, error_message="first"),
        failed(number=1, error_message="second"),
        failed(number=2, state=infrastructure, error_type="ModelUnavailable"),
        failed(number=3, error_type=None, error_message=None, stop_reason="odd"),
    ]
    [summary] = summarize(rows, {})
    assert summary.troubles == (
        ErrorGroup(state=TrialState.FAILURE, kind="ModelRefused", count=2, message="first"),
        ErrorGroup(state=TrialState.FAILURE, kind="odd", count=1, message=""),
        ErrorGroup(state=infrastructure, kind="ModelUnavailable", count=1, message="will not"),
    )
    assert summary.reward is None
    assert summary.score is None


def test_models_are_listed_in_start_order() -> None:
    rows = [episode("c"), episode("b"), episode("a", baseline=True)]
    summaries = summarize(rows, {"a": 1, "b": 1, "never": 0})
    assert [summary.model for summary in summaries] == ["a", "b", "never", "c"]
    assert [summary.baseline for summary in summaries] == [True, False, False, False]
    assert summaries[2].success is None
    assert summaries[3].experiments == (("id of c", "c v1.0"),)


def test_json_has_no_nan_and_named_interval_bounds() -> None:
    found = summaries_json(summarize([episode()], {"other": 0}))
    text = json.loads(json.dumps(found, allow_nan=False))
    other, model = text["models"]
    assert model["reward"] == {"mean": 3.0, "low": None, "high": None}
    assert model["success"]["high"] == 1.0
    assert model["experiments"] == [{"id": "id of a/model", "name": "a/model v1.0"}]
    assert other["reward"] is None
    assert text["human"] is None


def test_human_reference_is_shown_only_for_classic() -> None:
    classic = [episode(difficulty="classic")]
    human = summaries_json(summarize(classic, {}))["human"]
    assert human is not None
    assert human["episodes"] == 100
    assert math.isclose(human["achievements"], 13.9)
    assert summaries_json(summarize([*classic, episode("b")], {}))["human"] is None
    assert summaries_json([])["human"] is None
