"""The expert plays well and deterministically, using only its views."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from assay.crafter import ACHIEVEMENTS, ACTIONS, DIFFICULTIES, ITEMS, View, World
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.players.expert.terrain import START, STRIDE, Goal
from assay.errors import UsageError

EPISODES = 30
STEPS = 1000
# Measured over 1,000 episodes: 18.89 achievements within 1,000 steps, with a deviation of
# 3.18 per episode and so of 0.58 for a mean of 30; the band is three of them to each side.
LEAST, MOST = 17.1, 20.7


def play(world: World, policy: ExpertPolicy, steps: int) -> Iterator[int]:
    """Yield the actions of a policy until the world is done."""
    for _ in range(steps):
        if world.done:
            return
        action = policy.act(world.view())
        yield action
        world.step(action)


def crafter_score(percents: list[float]) -> float:
    return float(np.exp(np.mean(np.log1p(percents))) - 1)


@pytest.mark.extras
def test_expert_reaches_its_measured_score_and_beats_humans(
    record_property: Callable[[str, object], None],
) -> None:
    counts = dict.fromkeys(ACHIEVEMENTS, 0)
    for seed in range(10_000, 10_000 + EPISODES):
        world = World(seed, length=STEPS)
        for _ in play(world, ExpertPolicy(seed), STEPS):
            pass
        for name, count in world.achievements.items():
            counts[name] += count > 0
    mean = sum(counts.values()) / EPISODES
    score = crafter_score([100 * count / EPISODES for count in counts.values()])
    record_property("note", f"{mean:.2f} achievements in {STEPS} steps, score {score:.1f}")
    assert LEAST < mean < MOST
    assert score > 50.5


def test_equal_seeds_give_equal_episodes() -> None:
    games = [list(play(World(3), ExpertPolicy(3), 600)) for _ in range(2)]
    assert games[0] == games[1]


def test_the_seed_breaks_ties() -> None:
    games = {tuple(play(World(3), ExpertPolicy(seed), 60)) for seed in range(8)}
    assert len(games) > 1


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_seed_must_be_a_nonnegative_integer(seed: int) -> None:
    with pytest.raises(UsageError, match=f"seed {seed}"):
        ExpertPolicy(seed)


def test_expert_receives_only_the_view() -> None:
    assert list(inspect.signature(ExpertPolicy.act).parameters) == ["self", "view"]
    assert list(inspect.signature(ExpertPolicy).parameters) == ["seed"]


def test_equal_views_get_equal_actions_in_different_worlds() -> None:
    # The views are played back from memory: there is no world behind them any more.
    world, policy = World(11), ExpertPolicy(11)
    views, actions = [], []
    for _ in range(400):
        if world.done:
            break
        views.append(world.view())
        actions.append(policy.act(views[-1]))
        world.step(actions[-1])
    again = ExpertPolicy(11)
    assert [again.act(copied(view)) for view in views] == actions


def copied(view: View) -> View:
    return View(
        materials=view.materials.copy(),
        objects=view.objects.copy(),
        details=view.details.copy(),
        inventory=dict(view.inventory),
        sleeping=view.sleeping,
        daylight=view.daylight,
        step=view.step,
    )


def test_expert_does_not_modify_its_views() -> None:
    world, policy = World(11), ExpertPolicy(11)
    for _ in range(100):
        view = world.view()
        before = copied(view)
        world.step(policy.act(view))
        assert view.inventory == before.inventory
        assert (view.materials == before.materials).all()
        assert (view.objects == before.objects).all()


@pytest.mark.parametrize("seed", range(5))
def test_expert_tracks_its_position_and_achievements(seed: int) -> None:
    world, policy = World(seed), ExpertPolicy(seed)
    x, y = world.player_pos
    for action in play(world, policy, 800):
        here = policy.memory.here - START
        moved_x, moved_y = world.player_pos[0] - x, world.player_pos[1] - y
        assert here == moved_x * STRIDE + moved_y
        assert 0 <= action < len(ACTIONS)
    achieved = {name for name, count in world.achievements.items() if count}
    assert policy.memory.done <= achieved


def test_expert_keeps_track_while_another_policy_acts() -> None:
    world, policy = World(4), ExpertPolicy(4)
    x, y = world.player_pos
    for name in ("move_left", "move_up", "noop", "move_right") * 10:
        policy.act(world.view())
        policy.took(ACTIONS.index(name))
        world.step(name)
    policy.act(world.view())
    moved_x, moved_y = world.player_pos[0] - x, world.player_pos[1] - y
    assert policy.memory.here - START == moved_x * STRIDE + moved_y


def test_every_decision_has_a_known_goal() -> None:
    world, policy = World(5), ExpertPolicy(5)
    seen = set()
    for _ in play(world, policy, 600):
        assert isinstance(policy.goal, Goal)
        seen.add(policy.goal)
    assert len(seen) > 10


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_expert_plays_at_every_difficulty(difficulty: str, seed: int) -> None:
    world = World(seed, difficulty)
    actions = list(play(world, ExpertPolicy(seed), 500))
    assert len(actions) >= 50


@pytest.mark.parametrize("direction", ["move_left", "move_right", "move_up", "move_down"])
def test_expert_can_take_over_at_the_edge_of_the_world(direction: str) -> None:
    world = World(7)
    for _ in range(80):
        world.step(direction)
    assert not world.done
    assert list(play(world, ExpertPolicy(7), 200))


def test_expert_accepts_any_valid_view() -> None:
    random = np.random.Generator(np.random.PCG64(0))
    for trial in range(300):
        policy = ExpertPolicy(trial)
        for step in range(4):
            assert 0 <= policy.act(any_view(random, step)) < len(ACTIONS)


def any_view(random: np.random.Generator, step: int) -> View:
    """A view drawn without regard to what is likely, full and empty inventories included."""
    materials = random.integers(0, 13, (9, 7), dtype=np.uint8)
    materials[4, 3] = random.choice([2, 4, 5])
    objects = np.where(random.random((9, 7)) < 0.2, random.integers(14, 19, (9, 7)), 0)
    objects[4, 3] = 13
    details = np.zeros((9, 7), np.uint8)
    details[objects == 17] = random.integers(1, 5)
    details[4, 3] = random.integers(1, 5)
    most = random.choice([0, 1, 9])
    counts = random.integers(0, most + 1, len(ITEMS))
    return View(
        materials=materials,
        objects=objects.astype(np.uint8),
        details=details,
        inventory=dict(zip(ITEMS, counts.tolist(), strict=True)),
        sleeping=bool(random.random() < 0.1),
        daylight=float(random.random()),
        step=step,
    )


def test_expert_never_walks_into_lava() -> None:
    random = np.random.Generator(np.random.PCG64(1))
    for trial in range(200):
        view = any_view(random, 0)
        for dx, dy in ((3, 3), (5, 3), (4, 2), (4, 4)):
            view.materials[dx, dy], view.objects[dx, dy] = 7, 0
        assert ACTIONS[ExpertPolicy(trial).act(view)][:5] != "move_"


def test_docs_page_shows_the_measured_expert() -> None:
    page = (Path(__file__).parents[3] / "docs" / "expert.md").read_text("utf-8")
    found = re.search(r"# (\d+) ([a-z ]+) -> (\d+)", page)
    assert found is not None
    world, expert = World(seed=10_022), ExpertPolicy(seed=0)
    while world.steps < int(found[1]):
        world.step(expert.act(world.view()))
    assert (expert.act(world.view()), str(expert.goal)) == (int(found[3]), found[2])
