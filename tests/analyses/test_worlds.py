"""Variance explained by worlds, on results with known shares; and distances on a map."""

import math

import numpy as np
import pytest

from assay.analyses.episodes import analysis_document
from assay.analyses.worlds import WorldsAnalysis, analyse_worlds, look_at, shrunken_effect
from assay.crafter.rules import AREA, MATERIALS
from assay.errors import UsageError
from assay.stats.variance import variance_shares

from .facts import facts

GRASS, WATER, STONE, TREE, COAL = map(
    MATERIALS.index, ("grass", "water", "stone", "tree", "coal")
)


def test_shares_match_an_analysis_of_variance_by_hand() -> None:
    # Two subjects, two worlds, two replicates. Cell means 1, 3 and 5, 11; within cells each
    # value is one off its mean, so that the mean square within is 2. Means: worlds 3 and 7,
    # subjects 2 and 8, all 5. Mean squares of cell means: worlds 2 * 8 = 16, subjects spread
    # 18, remainders +-1, so 4 over 1 degree of freedom.
    cells = [[[0.0, 2.0], [2.0, 4.0]], [[4.0, 6.0], [10.0, 12.0]]]
    found = variance_shares(cells, rng=np.random.default_rng(0))
    assert found is not None
    parts = {"world": (16 - 4) / 2, "subject": 18 - 4 / 2, "both": 4 - 2 / 2, "rest": 2.0}
    total = sum(parts.values())
    assert found.total == pytest.approx(total)
    assert found.world.point == pytest.approx(parts["world"] / total)
    assert found.subject.point == pytest.approx(parts["subject"] / total)
    assert found.interaction is not None
    assert found.interaction.point == pytest.approx(parts["both"] / total)
    assert found.rest.point == pytest.approx(parts["rest"] / total)


@pytest.mark.parametrize("replicates", [1, 2])
def test_intervals_of_shares_have_about_their_nominal_coverage(replicates: int) -> None:
    rng = np.random.default_rng(5)
    held, rounds = np.zeros(3), 40
    means = np.array([-1.0, 0.0, 1.0])[:, None, None]  # a variance of 1
    truth = (2 / 5, 1 / 5, 1 / 5 if replicates > 1 else 2 / 5)
    for _ in range(rounds):
        world = rng.normal(0, math.sqrt(2), (1, 20, 1))
        both = rng.normal(0, 1, (3, 20, 1))
        values = means + world + both + rng.normal(0, 1, (3, 20, replicates))
        found = variance_shares(values.tolist(), rng=rng)
        assert found is not None
        shares = (found.world, found.subject, found.rest)
        held += [
            share.low <= true <= share.high for share, true in zip(shares, truth, strict=True)
        ]
    # 95 % of 40 are 38; below 33 is beyond 3.5 standard deviations.
    assert (held >= 33).all(), held


def test_shares_of_one_model_without_replicates_are_unknown() -> None:
    assert variance_shares([[[1.0], [2.0]]], rng=np.random.default_rng(0)) is None
    with pytest.raises(UsageError, match="two worlds or more"):
        variance_shares([[[1.0]]], rng=np.random.default_rng(0))
    found = variance_shares(
        [[[1.0, 1.1], [5.0, 5.1], [9.0, 8.9]]], rng=np.random.default_rng(0)
    )
    assert found is not None
    assert found.world.point > 0.99
    assert (found.subject.point, found.interaction) == (0, None)


def test_easy_hard_surprising_and_discriminating_worlds_are_found() -> None:
    # Four worlds; model b is 4 above a everywhere but in world 3, where it is 8 above.
    a = {1: 4, 2: 2, 3: 3, 4: 1}
    b = {1: 8, 2: 6, 3: 11, 4: 5}
    episodes = [
        facts(model, seed, unlocked=unlocked)
        for model, results in (("a", a), ("b", b))
        for seed, unlocked in results.items()
    ]
    requested: list[int | str] = []

    def terrain(worlds: object) -> dict[object, object]:
        requested.extend(world.seed for world in worlds)  # type: ignore[attr-defined]
        return {}

    found = analyse_worlds(episodes, terrain)  # type: ignore[arg-type]
    assert found.metric == "achievements"
    # Effects by hand: means 6, 4, 7, 3 minus 5.
    assert {effect.world.seed: effect.effect for effect in found.worlds} == {
        3: 2,
        1: 1,
        2: -1,
        4: -2,
    }
    assert requested == [3, 1, 2, 4]
    # b is 4 apart in the others: 8 / 4.
    assert [effect.world.seed for effect in found.telling] == [3]
    assert found.telling[0].discrimination == pytest.approx(2)
    surprising = max(found.worlds, key=lambda effect: abs(effect.surprise))
    assert surprising.world.seed == 3
    assert abs(surprising.surprise) > 1
    assert found.models[0].sd.point == pytest.approx(np.std([4, 2, 3, 1], ddof=1))
    assert any("--replicates 3" in note for note in found.basis.notes)


def of_worlds(rng: np.random.Generator, world_sd: float) -> WorldsAnalysis:
    """Two models that play ten worlds three times each; achievements have a deviation of 2."""
    worlds = rng.normal(10, world_sd, 10)
    episodes = [
        facts(
            model,
            seed,
            replicate=again,
            achievements={
                f"x{k}": 1 for k in range(max(0, round(rng.normal(worlds[seed], 2))))
            },
        )
        for model in ("a", "b")
        for seed in range(10)
        for again in range(3)
    ]
    return analyse_worlds(episodes, lambda worlds: {})


def test_worlds_that_do_not_differ_are_not_said_to_cost_achievements() -> None:
    """It said 'models lose 3.00 achievements': best minus worst of ten noisy means."""
    rng, said = np.random.default_rng(1), 0
    for _ in range(40):
        (text,) = analysis_document(of_worlds(rng, 0.0)).summary
        said += "models lose" in str(text)
    assert said <= 5
    assert "no world is shown to be harder than another." in str(text)


def test_what_worlds_cost_is_shrunk_for_chance() -> None:
    rng = np.random.default_rng(2)
    found = [of_worlds(rng, 3.0) for _ in range(20)]
    for one in found:
        (text,) = analysis_document(one).summary
        assert "models lose about" in str(text)
        assert "(shrunk for chance)." in str(text)
    shrunk = [shrunken_effect(one, one.outliers[0]) / one.outliers[0].effect for one in found]
    # The variance of worlds is 9, of chance 4 / 6.
    assert np.mean(shrunk) == pytest.approx(9 / (9 + 4 / 6), abs=0.03)


def test_worlds_that_not_all_played_are_left_out_of_the_shares() -> None:
    episodes = [facts("a", seed, unlocked=seed) for seed in range(4)]
    episodes += [facts("b", seed, unlocked=seed + 2) for seed in range(3)]
    found = analyse_worlds(episodes, lambda worlds: {})
    assert (found.common, len(found.worlds)) == (3, 4)
    assert "3 of 4 worlds were played by all 2 models" in found.basis.notes[0]
    assert math.isnan(found.worlds[-1].effect)


def test_models_without_a_common_world_are_rejected() -> None:
    apart = [facts("a", 1), facts("a", 2), facts("b", 3)]
    with pytest.raises(UsageError, match=r"played by all 2 models \(a, b\).*--run"):
        analyse_worlds(apart, lambda worlds: {})


def test_one_world_is_rejected_with_advice_to_play_more() -> None:
    with pytest.raises(UsageError, match=r"fewer than two worlds.*assay run --episodes 20"):
        analyse_worlds([facts("a", 1)], lambda worlds: {})
    with pytest.raises(UsageError, match="metric 'fame' is not allowed; choose from"):
        analyse_worlds([facts("a", 1), facts("a", 2)], lambda worlds: {}, metric="fame")


class Island:
    """A world of water but for a strip: the player, three cells of grass, stone, coal."""

    player_pos = (10, 10)

    def materials(self) -> object:
        cells = np.full((AREA, AREA), WATER, np.uint8)
        cells[10:14, 10] = GRASS
        cells[14, 10] = STONE
        cells[15, 10] = COAL
        cells[11, 11] = TREE
        return cells

    semantic = materials


def test_paths_go_around_water_and_through_stone() -> None:
    steps = look_at(Island()).steps  # type: ignore[arg-type]
    # The tree is beside the second cell; water is beside the first; stone after three steps;
    # coal after three steps and the two that the stone takes.
    assert steps["tree"] == 1
    assert steps["water"] == 0
    assert steps["stone"] == 3
    assert steps["coal"] == 5
    assert steps["iron"] is None
    assert steps["cow"] is None
