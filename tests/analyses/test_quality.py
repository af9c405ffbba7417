"""The quality score of a trace follows from counts, with the reasons that lower it."""

from typing import Any

import pytest

from assay.analyses.quality import (
    analyse_quality,
    looping_steps,
    near_duplicates,
    trace_quality,
)
from assay.errors import UsageError
from assay.types import TrialState

from .facts import facts

LEFT, RIGHT, UP, DO = "move_left", "move_right", "move_up", "do"


def test_the_score_is_the_product_of_the_remaining_shares() -> None:
    # 11 of 22; 20 of 100 actions wasted; 6 of 120 steps in a loop; 5 of 50 turns unreadable.
    quality = trace_quality(
        facts(
            unlocked=11,
            actions=[UP] * 52 + [LEFT, RIGHT] * 3 + [UP] * 62,
            unknown_actions=10,
            no_effect_actions=6,
            asleep_actions=4,
            unreadable=5,
            cut=2,
        )
    )
    assert quality.progress == 0.5
    assert (quality.waste, quality.loops, quality.unreadable) == (0.2, 0.05, 0.1)
    assert quality.truncated == 0.04
    assert quality.score == pytest.approx(0.5 * 0.8 * 0.95 * 0.9)
    assert [reason.what for reason in quality.why] == [
        "progress",
        "waste",
        "unreadable",
        "loops",
    ]
    assert "20 of 100 actions wasted" in quality.reasons
    assert "2 cut at the token limit" in quality.reasons


@pytest.mark.parametrize(
    ("actions", "looping"),
    [
        pytest.param([LEFT, RIGHT] * 3, 6, id="to and fro"),
        pytest.param([LEFT, RIGHT] * 2, 0, id="only twice"),
        pytest.param([RIGHT] * 30, 0, id="walking on"),
        pytest.param([DO, RIGHT] * 9, 0, id="a tunnel"),
        pytest.param([DO] * 20, 0, id="hitting one thing"),
        pytest.param(["sleep", "noop"] * 9, 0, id="waiting"),
        pytest.param([UP, LEFT, "move_down", RIGHT] * 4, 16, id="round in a square"),
        pytest.param([UP] + [LEFT, RIGHT] * 4 + [UP], 8, id="a loop within a way"),
        pytest.param(["place_stone", DO] * 5, 10, id="placing and taking"),
    ],
)
def test_a_loop_repeats_different_actions_without_effect(
    actions: list[str], looping: int
) -> None:
    assert len(looping_steps(actions)) == looping


def test_a_repetition_that_unlocks_an_achievement_is_not_a_loop() -> None:
    actions = ["place_stone", DO] * 5
    assert looping_steps(actions, {"place_stone": 1}) == set(range(1, 10))
    assert looping_steps(actions, {"place_stone": 5}) == set()


def test_an_episode_of_another_environment_is_scored_without_progress() -> None:
    quality = trace_quality(
        facts(task="CartPole-v1", achievements={}, actions=["0", "1"] * 50, unknown_actions=0)
    )
    assert (quality.progress, quality.loops) == (None, 0)
    assert quality.score == pytest.approx(1 - 6 / 100)


def test_near_duplicates_are_traces_of_one_world_with_equal_actions() -> None:
    way = [LEFT, UP, DO, RIGHT, "noop"] * 30
    other = [UP, DO, DO, LEFT] * 40
    episodes = [
        facts("a", 1, actions=way),
        facts("b", 1, actions=[*way, UP]),
        facts("c", 1, actions=other),
        facts("a", 2, actions=way),
    ]
    (pair,) = near_duplicates(episodes, {"b-1-0": 0.5, "a-1-0": 0.1})
    assert (pair.first, pair.second, pair.world.seed) == ("b-1-0", "a-1-0", 1)
    assert pair.alike == pytest.approx(146 / 147)


def test_scores_are_averaged_over_worlds_and_sorted_best_first() -> None:
    good: dict[str, Any] = {
        "unlocked": 22,
        "unknown_actions": 0,
        "no_effect_actions": 0,
        "asleep_actions": 0,
    }
    analysis = analyse_quality(
        [
            facts("a", 1, **good),
            facts("a", 2, **good),
            facts("a", 2, replicate=1, **good | {"unlocked": 0}),
            facts("b", 1, **good | {"unlocked": 11}),
            facts("b", 2, state=TrialState.FAILURE),
        ]
    )
    assert [model.group for model in analysis.models] == ["a", "b"]
    # The two episodes of world 2 are one world: (1 + (1 + 0) / 2) / 2.
    assert analysis.models[0].score.point == 0.75
    assert [trace.score for trace in analysis.traces] == [1, 1, 0.5, 0]
    assert analysis.basis.left_out == {"failure": 1}
    assert (analysis.basis.episodes, analysis.basis.worlds) == (4, 2)


def test_without_a_completed_episode_the_error_names_the_next_command() -> None:
    with pytest.raises(UsageError, match=r"none of the 1 episodes completed.*--resume"):
        analyse_quality([facts(state=TrialState.FAILURE, error_type="ModelRefused")])
