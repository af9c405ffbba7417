"""Real episodes with random actions, in the form of the store."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from assay.crafter import ACTIONS, Ended, World
from assay.metrics import DEFAULT_HOOKS, EpisodeTotals, Hook, StepSeen, Watch
from assay.store.records import (
    CallRecord,
    EndRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
)
from assay.types import Message, TrialState, Usage


def played_step(world: World, action: str) -> StepRecord:
    """Make one step and return its record."""
    result = world.step(action)
    return StepRecord(
        index=world.steps,
        action=action,
        reward=result.reward,
        digest=f"{world.digest():016x}",
        unlocked=result.unlocked,
        no_effect=result.no_effect,
        terminated=result.ended is Ended.DIED,
        truncated=result.ended is Ended.LENGTH,
    )


def call(turn: int, *, tokens: int = 100, cost: float | None = 0.001) -> CallRecord:
    return CallRecord(
        turn=turn,
        at=float(turn),
        request=(0,),
        reply=turn,
        model="builtin/random",
        provider="builtin",
        finish_reason="tool_calls",
        usage=Usage(prompt=tokens - 10, completion=10),
        cost_usd=cost,
        latency_s=0.1,
    )


def message(turn: int, value: Mapping[str, Any]) -> MessageRecord:
    return MessageRecord(turn, turn, Message(value), str(value["role"]), float(turn))


def play(
    seed: int = 1,
    *,
    difficulty: str = "easy",
    turns: int = 40,
    length: int = 10_000,
    per_turn: int = 5,
    session_id: str = "s1",
    hooks: Sequence[type[Hook]] = DEFAULT_HOOKS,
) -> SessionRecord:
    """Play one episode with `per_turn` random actions a turn."""
    world, watch, dice = World(seed, difficulty, length), Watch(hooks), random.Random(seed)
    calls: list[CallRecord] = []
    turns_played: list[PlayedRecord] = []
    messages = [message(0, {"role": "system", "content": "play"})]
    for turn in range(1, turns + 1):
        if world.done:
            break
        asked = tuple(dice.choices(ACTIONS, k=per_turn))
        calls.append(call(turn))
        messages.append(
            message(turn, {"role": "assistant", "content": f"I try {asked[0]} \x1b[31m"})
        )
        turns_played.append(play_turn(world, watch, turn, asked))
    session = SessionRecord(
        header(session_id, seed, difficulty, length), messages, calls, turns_played, None
    )
    end = EndRecord(
        at=float(len(calls)),
        state=TrialState.RESULT,
        stop_reason=str(world.ended or "max_turns"),
        duration_s=2.5,
        outcomes=EpisodeTotals.of(session).outcomes(2.5),
    )
    return SessionRecord(session.header, messages, calls, turns_played, end)


def play_turn(world: World, watch: Watch, turn: int, asked: Sequence[str]) -> PlayedRecord:
    steps: list[StepRecord] = []
    noticed: list[HookRecord] = []
    for action in asked:
        if world.done:
            break
        before = world.inventory
        steps.append(played_step(world, action))
        noticed += watch.step(StepSeen(turn, steps[-1], world.inventory, before))
    played = PlayedRecord(turn=turn, at=float(turn), asked=tuple(asked), steps=tuple(steps))
    noticed += watch.turn(played)
    return PlayedRecord(
        turn=turn,
        at=float(turn),
        asked=tuple(asked),
        skipped=len(asked) - len(steps),
        steps=tuple(steps),
        hooks=tuple(noticed),
    )


def header(session_id: str, seed: int, difficulty: str, length: int) -> SessionHeader:
    return SessionHeader(
        session_id=session_id,
        run_id="r1",
        experiment_id="e1",
        subject="builtin/random",
        task=f"crafter/{difficulty}",
        seed=seed,
        episode=0,
        created_at=0.0,
        difficulty=difficulty,
        metadata={"difficulty": difficulty, "length": length, "world_episode": 1},
    )
