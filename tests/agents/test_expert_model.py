"""The expert as a chat model: stateless, and better with several actions per turn."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assay.agents import AgentOptions
from assay.agents.builtin import _play_expert as decide
from assay.crafter import ACTIONS, World
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.players.expert.terrain import MOVE, START, STEPS, STRIDE, Goal
from assay.crafter.players.expert.turns import catch_up, plan
from assay.crafter.text.observation import as_view, observe
from assay.types import ChatRequest, Encoded, Message

from .play import Game, play

ONE = AgentOptions(actions_per_turn=1)
SEEDS = range(1000, 1003)


@pytest.fixture(scope="module")
def game() -> Game:
    return play("builtin/expert", 1000, "classic")


def arguments(reply: Message) -> dict[str, Any]:
    """Return the arguments of a reply's `interact` call."""
    found: dict[str, Any] = json.loads(reply.value["tool_calls"][0]["function"]["arguments"])
    return found


def state_in(reply: Message) -> bytes:
    """Return the expert's memory, as stored in the notes of a reply."""
    return base64.b64decode(arguments(reply)["notes"].partition(":")[2])


def with_notes(request: ChatRequest, notes: object) -> ChatRequest:
    """Return a copy of a request with other notes in the model's last reply."""
    messages = [*request.messages]
    at = max(i for i, message in enumerate(messages) if message.role == "assistant")
    value = json.loads(messages[at].encoded)
    changed = {**arguments(messages[at]), "notes": notes}
    value["tool_calls"][0]["function"]["arguments"] = json.dumps(changed)
    messages[at] = Message(value)
    return replace(request, messages=messages)


@pytest.mark.parametrize(("seed", "difficulty"), [(1, "easy"), (2, "classic")])
def test_with_one_action_per_turn_the_model_plays_like_the_policy(
    seed: int, difficulty: str
) -> None:
    world, policy, expected = World(seed, difficulty), ExpertPolicy(seed), []
    for _ in range(120):
        if world.done:
            break
        # The chat model reads its achievements in the feedback, so the policy gets them too.
        policy.memory.known_achievements = frozenset(
            n for n, c in world.achievements.items() if c
        )
        action = policy.act(as_view(observe(world.view())))
        expected.append(ACTIONS[action])
        world.step(action)
    game = play("builtin/expert", seed, difficulty, turns=120, options=ONE)
    assert [step.action for played in game.played for step in played.steps] == expected


@pytest.mark.extras
@pytest.mark.parametrize("difficulty", ["easy", "classic"])
def test_several_actions_per_turn_score_clearly_higher_than_one(
    difficulty: str, record_property: Callable[[str, object], None]
) -> None:
    means = []
    for options in (ONE, AgentOptions()):
        games = [play("builtin/expert", seed, difficulty, options=options) for seed in SEEDS]
        means.append(sum(len(game.achieved) for game in games) / len(games))
    record_property("note", f"{difficulty}: {means[0]:.2f} with one, {means[1]:.2f} with five")
    assert means[1] > means[0] + 2
    assert means[1] > 12


def test_replies_do_not_depend_on_the_order_of_requests(game: Game) -> None:
    exchanges = [*zip(game.requests, game.replies, strict=True)]
    for request, reply in reversed(exchanges):
        choice = decide(request)
        assert {
            "actions": list(choice.actions),
            "reasoning": choice.reasoning,
            "notes": choice.notes,
        } == arguments(reply.message)


def test_one_turn_of_history_and_the_short_view_give_the_same_decisions(game: Game) -> None:
    options = AgentOptions(history=1, view="short")
    other = play("builtin/expert", 1000, "classic", options=options)
    assert other.decisions == game.decisions


def test_the_notes_are_small_and_the_reasoning_names_the_goal(game: Game) -> None:
    replies = [arguments(reply.message) for reply in game.replies]
    assert sum(len(reply["notes"]) for reply in replies) / len(replies) < 700
    goals = {f"My goal is to {goal}." for goal in Goal}
    assert {reply["reasoning"] for reply in replies} <= goals


def test_the_expert_wastes_few_actions(game: Game) -> None:
    steps = [step for played in game.played for step in played.steps]
    assert len(steps) > 2 * len(game.played)
    assert sum(step.no_effect is not None for step in steps) < len(steps) / 40


@pytest.mark.parametrize("seed", range(4))
def test_the_expert_tracks_its_position_over_turns_with_several_actions(seed: int) -> None:
    game = play("builtin/expert", seed, "classic", turns=80)
    world = World(seed, "classic")
    x, y = world.player_pos
    for reply, played in zip(game.replies, game.played, strict=True):
        policy = ExpertPolicy.load(seed, state_in(reply.message))
        assert policy is not None
        moved_x, moved_y = world.player_pos[0] - x, world.player_pos[1] - y
        assert policy.memory.here - START == moved_x * STRIDE + moved_y
        for step in played.steps:
            world.step(step.action)


@pytest.mark.parametrize("seed", [0, 2, 4, 6])
@pytest.mark.parametrize("directions", [(0, 2), (0, 3), (1, 2), (1, 3)])
def test_the_expert_notices_a_blocked_move(seed: int, directions: tuple[int, int]) -> None:
    first, second = (MOVE + direction for direction in directions)
    world, policy = World(seed), ExpertPolicy(0)
    policy.act(world.view())
    policy.took(first)
    state = policy.dump()
    world.step(first)
    view = world.view()
    # As if a creature had blocked the way: the player turned, did not move, and it is gone.
    view.details[4, 3] = directions[1] + 1
    view = replace(view, step=2)
    after = catch_up(0, state, (first, second), view)
    after.memory.update(view)
    assert after.memory.here == START + STEPS[directions[0]]


def test_a_move_reported_as_blocked_does_not_change_the_position() -> None:
    world, policy = World(3), ExpertPolicy(0)
    move = next(a for a in range(MOVE, MOVE + 4) if moves_twice(a))
    policy.act(world.view())
    policy.took(move)
    state = policy.dump()
    world.step(move)
    view = replace(world.view(), step=2)
    after = catch_up(0, state, (move, move), view, failed={1})
    after.memory.update(view)
    assert after.memory.here == START + STEPS[move - MOVE]


def moves_twice(action: int) -> bool:
    world = World(3)
    start = world.player_pos
    world.step(action)
    world.step(action)
    return abs(sum(world.player_pos) - sum(start)) == 2


def test_skipped_actions_are_ignored() -> None:
    world, policy = World(1000), ExpertPolicy(0)
    x, y = world.player_pos
    for _ in range(40):
        turn = plan(policy, world.view(), 5)
        for action in turn.actions[:2]:
            world.step(action)
        policy = catch_up(0, turn.state, turn.actions, world.view())
        policy.memory.update(world.view())
        moved_x, moved_y = world.player_pos[0] - x, world.player_pos[1] - y
        assert policy.memory.here - START == moved_x * STRIDE + moved_y
        policy.took(0)
        world.step(0)


def test_a_memory_of_another_position_is_discarded() -> None:
    here, there = World(1), World(2)
    state = plan(ExpertPolicy(0), here.view(), 1).state
    there.step("noop")
    assert catch_up(0, state, (0,), there.view()).dump() == ExpertPolicy(0).dump()


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: notes[: len(notes) // 2],
        lambda notes: notes[:-1],
        lambda notes: notes.swapcase(),
        lambda notes: notes.replace("memory:", "memory:\ud800é"),
        lambda notes: notes * 1000,
        lambda notes: "head for the trees in the north",
        lambda notes: "",
        lambda notes: None,
        lambda notes: {"memory": [notes]},
    ],
    ids=[
        "half",
        "cut off",
        "altered",
        "not base 64",
        "huge",
        "prose",
        "empty",
        "null",
        "object",
    ],
)
def test_unreadable_notes_make_the_expert_start_afresh(
    game: Game, change: Callable[[str], object]
) -> None:
    request = game.requests[40]
    assert request.messages[-2].role == "assistant"
    afresh = replace(request, messages=[*request.messages[:2], request.messages[-1]])
    changed = with_notes(request, change(arguments(request.messages[-2])["notes"]))
    assert decide(changed) == decide(afresh)
    assert decide(changed) != decide(request)


def test_the_expert_waits_without_an_observation() -> None:
    request = ChatRequest("builtin/expert", [], Encoded([]))
    assert decide(request).actions == ("noop",)
    hello = Message({"role": "user", "content": "hello"})
    assert decide(replace(request, messages=[hello])).actions == ("noop",)


def test_the_request_seed_breaks_ties(game: Game) -> None:
    for request in game.requests[::10]:
        seeds = (None, -1, *range(8))
        if len({decide(replace(request, seed=seed)).actions for seed in seeds}) > 1:
            return
    pytest.fail("no seed made a difference")
