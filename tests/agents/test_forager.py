import pytest

from assay.agents import AgentOptions
from assay.crafter import World, observe
from assay.crafter.players.forager import LocalPaths
from assay.crafter.text.observation import CENTER, STEPS, MapCell, Observation

from .play import play

GRASS, TREE, WATER = MapCell("grass"), MapCell("tree"), MapCell("water")
SEEDS = range(100, 106)


def make_view(facing: str = "down", **things: MapCell) -> Observation:
    """Return a view of a meadow with objects at positions such as `left2_up1`."""
    cells = [GRASS] * 63
    cells[CENTER] = MapCell("grass", "player", facing)
    for place, cell in things.items():
        offset = sum(STEPS[part[:-1]] * int(part[-1]) for part in place.split("_"))
        cells[CENTER + offset] = cell
    counts = (9, 9, 9, 9, *[0] * 12)
    return Observation(0, 100, False, counts, tuple(cells))


def mean_achieved(model: str, difficulty: str) -> float:
    return sum(len(play(model, seed, difficulty).achieved) for seed in SEEDS) / len(SEEDS)


@pytest.mark.parametrize("difficulty", ["easy", "classic"])
def test_the_forager_scores_far_above_random(difficulty: str) -> None:
    forager = mean_achieved("builtin/forager", difficulty)
    assert forager > mean_achieved("builtin/random", difficulty) + 2
    assert forager > 4


def test_the_forager_wastes_few_actions() -> None:
    games = [play("builtin/forager", seed, turns=60) for seed in SEEDS]
    steps = [step for game in games for played in game.played for step in played.steps]
    assert sum(step.no_effect is not None for step in steps) < len(steps) / 20


def test_the_forager_also_plays_from_the_short_view() -> None:
    full = play("builtin/forager", 100, turns=30)
    short = play("builtin/forager", 100, turns=30, options=AgentOptions(view="short"))
    assert len(short.played) == len(full.played)
    assert len(short.achieved) >= 2


def test_the_forager_keeps_its_heading_in_its_notes() -> None:
    game = play("builtin/forager", 100, turns=30)
    assert "heading " in str(game.replies[-1].message.value)


def test_a_path_ends_in_front_of_the_nearest_target() -> None:
    sight = LocalPaths(make_view(left3=TREE, right2_up1=TREE, down3=WATER))
    assert sight.approach(("water",)) == ["move_down", "move_down"]
    assert sight.approach(("tree",)) == ["move_left", "move_left"]
    assert sight.approach(("cow",)) is None


def test_a_target_in_front_needs_no_move_and_one_at_the_side_needs_a_turn() -> None:
    assert LocalPaths(make_view("up", up1=TREE)).approach(("tree",)) == []
    assert LocalPaths(make_view("left", up1=TREE)).approach(("tree",)) == ["move_up"]


def test_a_path_goes_around_obstacles() -> None:
    wall = {"left1": WATER, "left1_up1": WATER, "left1_down1": WATER, "left2": TREE}
    moves = LocalPaths(make_view("right", **wall)).approach(("tree",))
    assert moves == ["move_up", "move_up", "move_left", "move_left", "move_down"]


def test_a_target_that_is_too_far_has_no_path() -> None:
    sight = LocalPaths(make_view(left3=TREE))
    assert sight.approach(("tree",), within=2) is None
    assert sight.approach(("tree",), within=3) is not None


def test_a_path_in_a_direction_ends_at_the_edge_of_the_view() -> None:
    sight = LocalPaths(observe(World(1, "easy").view()))
    assert sight.find_path_in_direction(9, "left") == ["move_left"] * 4
    assert sight.find_path_in_direction(2, "up") == ["move_up"] * 2
