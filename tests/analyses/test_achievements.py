"""Success rates, times to unlock and missing steps, on episodes with known results."""

import pytest

from assay.analyses.achievements import analyse_achievements, lacking
from assay.analyses.deaths import Ending
from assay.crafter.rules import HUMAN, RANDOM
from assay.errors import UsageError
from assay.stats.score import crafter_score
from assay.stats.shares import exact_share

from .facts import facts


def test_success_rates_are_proportions_of_worlds_with_exact_intervals() -> None:
    episodes = [
        facts("a", seed, achievements={"collect_wood": 5} if seed < 3 else {})
        for seed in range(10)
    ]
    (model,) = analyse_achievements(episodes, {}).models
    assert model.rates["collect_wood"] == exact_share(3, 10)
    assert model.rates["eat_cow"] == exact_share(0, 10)
    assert model.count.point == 0.3
    assert set(model.curves) == {"collect_wood"}


def test_episodes_of_one_world_count_once() -> None:
    episodes = [
        facts("a", 1, achievements={"collect_wood": 5}),
        *(facts("a", 2, replicate=replicate, achievements={}) for replicate in range(9)),
    ]
    (model,) = analyse_achievements(episodes, {}).models
    assert model.rates["collect_wood"].point == 0.5
    assert (model.n, model.worlds) == (10, 2)


def test_a_death_is_a_competing_event_and_a_truncated_episode_is_censored() -> None:
    def episode(seed: int, steps: int, reason: str, at: int | None = None) -> object:
        unlocked = {} if at is None else {"eat_cow": at}
        return facts("a", seed, steps=steps, stop_reason=reason, achievements=unlocked)

    episodes = [
        episode(1, 100, "max_turns", at=10),
        episode(2, 20, "died: zombie"),
        episode(3, 30, "max_turns"),
        episode(4, 100, "max_turns", at=40),
    ]
    (model,) = analyse_achievements(episodes, {}).models  # type: ignore[arg-type]
    curve = model.curves["eat_cow"]
    # By hand: 1/4 at step 10; one dies at 20; one is censored at 30; the last of the
    # remaining half has it at 40: 1/4 + 1/2 * 1.
    assert curve.steps == (10, 40)
    assert curve.shares == pytest.approx([0.25, 0.75])
    assert curve.median == 40
    # Intervals only while no episode is censored.
    assert max(mark.step for mark in curve.checkpoints) == 30
    assert curve.checkpoints[-1].share == exact_share(1, 4)


def test_human_and_random_scores_match_the_published_ones() -> None:
    # 52.05 pooled over people and about 1.55 for the random policy, by the paper's data.
    assert crafter_score(list(HUMAN.rates.values())) == pytest.approx(52.05, abs=0.01)
    assert crafter_score(list(RANDOM.rates.values())) == pytest.approx(1.55, abs=0.02)


@pytest.mark.parametrize(
    ("achievement", "inventory", "unlocked", "missing"),
    [
        pytest.param("eat_cow", {}, {}, [], id="only a cow"),
        pytest.param("collect_iron", {}, {}, ["stone pickaxe"], id="a tool"),
        pytest.param("collect_iron", {"stone_pickaxe": 1}, {}, [], id="with the tool"),
        pytest.param("place_table", {"wood": 1}, {}, ["1 wood"], id="material"),
        pytest.param(
            "make_iron_sword",
            {"wood": 3, "coal": 1},
            {"place_table": 9},
            ["1 iron", "furnace"],
            id="material and what stands near",
        ),
        pytest.param("eat_plant", {}, {}, ["a plant of its own"], id="a plant"),
    ],
)
def test_missing_steps_follow_from_the_rules(
    achievement: str, inventory: dict[str, int], unlocked: dict[str, int], missing: list[str]
) -> None:
    assert lacking(achievement, inventory, unlocked) == missing


def test_achievements_missing_at_the_end_are_counted() -> None:
    episodes = [facts("a", seed, achievements={"collect_wood": 5}) for seed in range(3)]
    ends = {
        "a-0-0": Ending({"wood": 2}, ()),
        "a-1-0": Ending({"wood": 1}, ()),
        "a-2-0": Ending({"wood": 1}, ()),
    }
    (model,) = analyse_achievements(episodes, ends).models
    step = next(step for step in model.next_steps if step.achievement == "place_table")
    assert (step.without, step.ready, step.missing) == (3, 1, "1 wood")
    assert "collect_wood" not in {step.achievement for step in model.next_steps}


def test_the_error_for_another_environment_names_the_missing_data() -> None:
    with pytest.raises(
        UsageError, match=r"no achievements: their task is CartPole-v1, and no step"
    ):
        analyse_achievements([facts(task="CartPole-v1", achievements={})], {})
