"""Small, complete and deterministic runs and sessions for tests.

`make_run` gives a run, `make_session` a whole session of it. What is played follows from
the seed, so that two sessions with one seed are alike and others differ.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import duckdb

from assay.core.canonical_json import content_hash, derive_id
from assay.store.ingest import Ingestion
from assay.store.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    ExperimentRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    RunRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
)
from assay.store.rows import session_rows
from assay.store.schema import ASSAY_SOURCE
from assay.types import Encoded, Message, TrialState, Usage

__all__ = [
    *("START", "TOOLS", "ingest_session", "make_run", "make_session", "make_sessions"),
    *("rich_session", "uneven_session"),
]

START = 1_760_000_000.0
"""The moment at which every run made here starts."""

TOOLS = Encoded([{"type": "function", "function": {"name": "interact", "parameters": {}}}])

_ACTIONS = ("move_left", "move_right", "do", "sleep", "place_table", "noop")
_ACHIEVEMENTS = ("collect_wood", "collect_sapling", "place_table", "wake_up", "eat_cow")


def make_run(
    run_id: str = "run-1",
    models: Sequence[str] = ("builtin/forager", "builtin/expert"),
    *,
    episodes: int = 2,
    series: str | None = None,
    fingerprint: str = "f1",
    baselines: Iterable[str] = (),
    created_at: float = START,
) -> RunRecord:
    """A run of some models; the ids of its experiments derive from run and model."""
    return RunRecord(
        id=run_id,
        command=f"assay run --models {' '.join(models)}",
        configuration={"episodes": episodes, "difficulty": "easy", "seed": 42},
        provenance={"assay": "0.1.0", "commit": None, "dirty": False},
        created_at=created_at,
        experiments=tuple(
            ExperimentRecord(
                id=derive_id(run_id, model),
                series=series or model,
                model=model,
                fingerprint=content_hash(f"{model} {fingerprint}".encode()),
                tags={"baseline": True} if model in set(baselines) else {},
            )
            for model in models
        ),
    )


def ingest_session(
    connection: duckdb.DuckDBPyConnection, session: SessionRecord, *, source: str = ASSAY_SOURCE
) -> None:
    """Store one session."""
    rows = session_rows(session, source=source)
    Ingestion(connection, [rows]).store(rows)


def make_sessions(run: RunRecord, episodes: int = 2, *, turns: int = 4) -> list[SessionRecord]:
    """`episodes` sessions for every model of a run, in model, episode order."""
    return [
        make_session(run, experiment.model, episode, turns=turns)
        for experiment in run.experiments
        for episode in range(episodes)
    ]


def make_session(
    run: RunRecord,
    model: str | None = None,
    episode: int = 0,
    *,
    turns: int = 4,
    actions: int = 3,
    state: TrialState | None = TrialState.RESULT,
    digests: bool = True,
    price: float | None = 0.001,
    text: str = "",
    message_bytes: int = 80,
) -> SessionRecord:
    """One session of `turns` turns, each with up to `actions` steps.

    Turn 2 has an unknown action, an action without effect and one ignored while asleep,
    turn 3 is a malformed reply. `state` None leaves the end out. `text` stands in every
    reply.
    """
    model = model or run.experiments[0].model
    seed = 42 + episode
    play = _Play(Random(f"{model} {seed}"), run.created_at + episode, model, seed)
    play.say({"role": "system", "content": "You play a game."}, "system", 0)
    play.say(_observation(0, message_bytes), "observation", 0)
    for turn in range(1, turns + 1):
        play.turn(turn, actions, digests, price, text, message_bytes)
    return SessionRecord(
        header=_header(run, model, episode, seed),
        messages=play.messages,
        calls=play.calls,
        played=play.played,
        end=None if state is None else _end(play, state),
    )


def rich_session() -> SessionRecord:
    """A session in which every field has a value that is not its default."""
    session = make_session(make_run(), text="ü \U0001f642 \x00 <b>", message_bytes=30)
    assert session.end is not None
    return replace(
        session,
        header=replace(
            session.header, replicate=3, metadata={"b": [1, {"z": None, "a": 1e300}], "é": True}
        ),
        calls=[
            replace(call, waited_s=0.000125, retries=2, cost_usd=1e-7, latency_s=2.0)
            for call in session.calls
        ],
        played=[
            replace(
                played,
                skipped=index,
                steps=tuple(
                    replace(step, terminated=index == 3, truncated=index == 3)
                    for step in played.steps
                ),
            )
            for index, played in enumerate(session.played)
        ],
        end=replace(
            session.end,
            stop_reason="died",
            attempts=4,
            error=ErrorRecord(type="Late", message="\x1b[31m", traceback="at\nthe end"),
        ),
    )


def uneven_session(run: RunRecord, episode: int = 0) -> SessionRecord:
    """A session of four turns of two steps, with 2, 0, 1 and 3 calls; played a third time."""
    model = run.experiments[0].model
    play = _Play(Random(7), run.created_at, model, 42)
    play.say({"role": "system", "content": "You play a game."}, "system", 0)
    for turn, calls in enumerate((2, 0, 1, 3), start=1):
        for number in range(1, calls + 1):
            if number > 1:
                play.say({"role": "user", "content": f"Think again {number}."}, "user", turn)
            request = tuple(range(len(play.messages)))
            play.at += 0.5
            answer = {"role": "assistant", "content": f"turn {turn}, answer {number}"}
            play.say(answer, "reply", turn)
            play.calls.append(play._call(turn, request, 0.001 * number))
        steps = tuple(play._step(turn, 5, action, True) for action in ("do", "noop"))
        play.played.append(
            PlayedRecord(turn=turn, at=play.at, asked=("do", "noop"), steps=steps)
        )
        play.say({"role": "user", "content": f"Turn {turn} is over."}, "feedback", turn + 1)
    header = replace(_header(run, model, episode, 42), replicate=2)
    end = _end(play, TrialState.RESULT)
    end = replace(end, outcomes={**end.outcomes, "turns": 4.0, "invalid_rate": 0.0})
    return SessionRecord(header, play.messages, play.calls, play.played, end)


def _header(run: RunRecord, model: str, episode: int, seed: int) -> SessionHeader:
    return SessionHeader(
        session_id=derive_id(run.id, model, seed, episode),
        run_id=run.id,
        experiment_id=derive_id(run.id, model),
        subject=model,
        task="crafter/easy",
        seed=seed,
        episode=episode,
        created_at=run.created_at + episode,
        difficulty="easy",
        tools=TOOLS,
        metadata={"difficulty": "easy", "length": 10000, "world_episode": 1},
    )


def _observation(steps: int, size: int) -> dict[str, Any]:
    return {"role": "user", "content": f"Step {steps}. " + "You see grass. " * (size // 15)}


class _Play:
    """A session under construction."""

    def __init__(self, dice: Random, at: float, model: str, seed: int) -> None:
        self.dice, self.at, self.model, self.seed = dice, at, model, seed
        self.messages: list[MessageRecord] = []
        self.calls: list[CallRecord] = []
        self.played: list[PlayedRecord] = []
        self.unlocked: list[str] = []
        self.steps = 0
        self.reward = 0.0

    def say(self, value: dict[str, Any], kind: str, turn: int) -> None:
        record = MessageRecord(len(self.messages), turn, Message(value), kind, self.at)
        self.messages.append(record)

    def turn(
        self,
        turn: int,
        actions: int,
        digests: bool,
        price: float | None,
        text: str,
        size: int,
    ) -> None:
        request = tuple(range(len(self.messages)))
        self.at += 0.5
        asked = tuple(self.dice.choice(_ACTIONS) for _ in range(actions))
        if turn == 2:
            asked = (*asked, "fly")
        malformed = "the reply calls no tool" if turn == 3 else None
        self.say(self._reply(turn, asked, malformed, text), "reply", turn)
        self.calls.append(self._call(turn, request, price))
        if malformed:
            asked = ()
        unknown = tuple(action for action in asked if action == "fly")
        known = [action for action in asked if action != "fly"]
        steps = tuple(self._step(turn, i, name, digests) for i, name in enumerate(known))
        played = PlayedRecord(
            turn=turn,
            at=self.at,
            asked=asked,
            unknown=unknown,
            malformed=malformed,
            steps=steps,
            hooks=tuple(self._hooks(steps, unknown)),
        )
        self.played.append(played)
        self._tell(turn, size, malformed)

    def _reply(
        self, turn: int, asked: tuple[str, ...], malformed: str | None, text: str
    ) -> dict[str, Any]:
        if malformed:
            return {"role": "assistant", "content": f"I would rather think. {text}"}
        arguments = {"actions": list(asked), "reasoning": f"turn {turn} {text}".strip()}
        function = {"name": "interact", "arguments": json.dumps(arguments)}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def _call(self, turn: int, request: tuple[int, ...], price: float | None) -> CallRecord:
        return CallRecord(
            turn=turn,
            at=self.at,
            request=request,
            reply=len(self.messages) - 1,
            model=self.model,
            provider=self.model.split("/")[0],
            finish_reason="tool_calls",
            usage=Usage(prompt=100 * turn, completion=20, cached=10 * turn, reasoning=5),
            cost_usd=price,
            latency_s=0.25,
            waited_s=0.25 * (turn % 2),
            retries=turn % 2,
            parameters={"temperature": 0.0, "max_tokens": 1024, "seed": self.seed},
        )

    def _step(self, turn: int, place: int, action: str, digests: bool) -> StepRecord:
        self.steps += 1
        unlocked: tuple[str, ...] = ()
        left = [name for name in _ACHIEVEMENTS if name not in self.unlocked]
        if left and self.dice.random() < 0.3:
            unlocked = (left[0],)
            self.unlocked.extend(unlocked)
        reward = float(len(unlocked)) - 0.1 * (self.dice.random() < 0.2)
        self.reward += reward
        no_effect = None
        if turn == 2:
            no_effect = {0: "no table nearby", 1: "asleep"}.get(place)
        state = content_hash(f"{self.model} {self.seed} {self.steps} {action}".encode())
        return StepRecord(
            index=self.steps,
            action=action,
            reward=reward,
            digest=state[:16] if digests else None,
            unlocked=unlocked,
            no_effect=no_effect,
        )

    def _hooks(
        self, steps: tuple[StepRecord, ...], unknown: tuple[str, ...]
    ) -> Iterable[HookRecord]:
        for step in steps:
            for name in step.unlocked:
                yield HookRecord(
                    name="easy_achievement",
                    code="E",
                    priority=3,
                    step=step.index,
                    description=f"first {name}",
                    data={"achievement": name},
                )
        for action in unknown:
            yield HookRecord(
                name="invalid_action", code="X", priority=2, step=None, data={"action": action}
            )

    def _tell(self, turn: int, size: int, malformed: str | None) -> None:
        seen = _observation(self.steps, size)["content"]
        if malformed:
            self.say({"role": "user", "content": f"{malformed}. {seen}"}, "feedback", turn)
        else:
            answer = {"role": "tool", "tool_call_id": f"call_{turn}", "content": seen}
            self.say(answer, "observation", turn)


def _end(play: _Play, state: TrialState) -> EndRecord:
    asked = sum(len(played.asked) for played in play.played)
    invalid = sum(len(played.unknown) for played in play.played) + 1
    tokens = sum(call.usage.total for call in play.calls)
    outcomes = {
        "achievements": float(len(play.unlocked)),
        "reward": play.reward,
        "steps": float(play.steps),
        "turns": float(len(play.calls)),
        "invalid_rate": invalid / asked if asked else 0.0,
        "tokens": float(tokens),
        "duration_s": 1.5,
        **{f"unlocked/{name}": float(name in play.unlocked) for name in _ACHIEVEMENTS},
    }
    if all(call.cost_usd is not None for call in play.calls):
        outcomes["cost_usd"] = sum(call.cost_usd or 0.0 for call in play.calls)
    failed = state is not TrialState.RESULT
    error = ErrorRecord(type="ModelUnavailable", message="no answer", traceback="Traceback …")
    return EndRecord(
        at=play.at + 1.0,
        state=state,
        stop_reason="ModelUnavailable" if failed else "max_turns",
        duration_s=1.5,
        outcomes={} if failed else outcomes,
        error=error if failed else None,
    )
