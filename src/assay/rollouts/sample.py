"""How long requests and replies of a run are: measured, by playing a few turns of it.

A built-in model plays in the first world of the run, asked as the models would be. Needs no
key and no network, and leaves nothing behind.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from assay._util.loops import run_apart
from assay.agents import make_builtin
from assay.crafter import warmup
from assay.service.client import LocalClient
from assay.service.worlds import Worlds
from assay.traces.recorder import Recorder
from assay.trials import Context, Interrupted, Trial
from assay.types import ChatModel, ChatReply, ChatRequest, Message

from .arms import arms_of
from .config import RunConfig
from .environments import OwnEnvironment
from .kind import EpisodeKind, EpisodeParts
from .spec import EpisodeSpec

__all__ = ["PLAYER", "Sample", "play_sample"]

PLAYER: Final = "builtin/forager"
"""Who plays; its replies are about as long as a call of a tool with a short reason."""
_FULL_TURNS: Final = 40
"""Turns to play once the history is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some turns at the beginning of an episode."""

    request_bytes: Sequence[int]
    """The messages and tools of each turn."""
    reply_bytes: Sequence[int]
    largest: ChatRequest
    history: int
    """After so many turns requests grow little."""
    where: str
    """Who played it, or in which environment."""
    seconds: float
    """What all of it took, with the engine ready."""

    @property
    def turns(self) -> int:
        """How many were played."""
        return len(self.request_bytes)

    def prompt_bytes(self, turns: int) -> float:
        """All requests of an episode of so many turns; those not played are like the last."""
        if turns <= self.turns:
            return float(sum(self.request_bytes[:turns]))
        alike = self.request_bytes[self.history :] or self.request_bytes[-1:]
        missing = turns - self.turns
        return sum(self.request_bytes) + missing * sum(alike) / len(alike)

    @property
    def mean_reply_bytes(self) -> float:
        """The length of a reply, on average."""
        return sum(self.reply_bytes) / len(self.reply_bytes)


class _Measured:
    """A model that notes what it is asked and what it answers."""

    name, provider = PLAYER, "builtin"

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self.requests: list[ChatRequest] = []
        self.reply_bytes: list[int] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        reply = await self._inner.reply(request)
        self.requests.append(request)
        self.reply_bytes.append(len(reply.message.encoded))
        return reply

    async def close(self) -> None:
        """Nothing is held open."""


_REASONING: Final = "I do this because of what I have seen in the last turns, and wait for it."


class _Plain:
    """Always answers with the same action, in a world that no built-in model knows."""

    name, provider = PLAYER, "builtin"

    def __init__(self, action: str) -> None:
        self._arguments = json.dumps({"actions": [action], "reasoning": _REASONING})

    async def reply(self, request: ChatRequest) -> ChatReply:
        call = {"name": request.tools.value[0]["function"]["name"]}
        call["arguments"] = self._arguments
        tool = {"id": "call_1", "type": "function", "function": call}
        says = {"role": "assistant", "content": None, "tool_calls": [tool]}
        return ChatReply(Message(says), finish_reason="tool_calls")

    async def close(self) -> None:
        """Nothing is held open."""


def play_sample(config: RunConfig, environment: OwnEnvironment | None = None) -> Sample:
    """Play until requests are as long as they get, or the episode is over.

    An environment that cannot be told in words is sampled as Crafter: whoever asks models
    there writes requests that nobody can foresee.
    """
    if environment is not None and not environment.can_be_told:
        environment = None
    actions = environment.actions if environment else None
    model = _Measured(_Plain(actions[0]) if actions else make_builtin(PLAYER))
    turns = min(config.max_turns, config.agent.history + _FULL_TURNS)
    if environment is None:
        warmup()
    started = time.perf_counter()
    with TemporaryDirectory(prefix="assay-") as folder:
        run_apart(lambda: _play(config, environment, model, turns, Path(folder)))
    lengths = [_length(request) for request in model.requests]
    return Sample(
        request_bytes=lengths,
        reply_bytes=model.reply_bytes,
        largest=model.requests[lengths.index(max(lengths))],
        history=config.agent.history,
        where=environment.spec if environment else PLAYER,
        seconds=time.perf_counter() - started,
    )


async def _play(
    config: RunConfig,
    environment: OwnEnvironment | None,
    model: _Measured,
    turns: int,
    folder: Path,
) -> None:
    # Only turns end it early: limits in tokens or time would be those of another player.
    alone = RunConfig(
        models=(PLAYER,),
        episodes=1,
        max_turns=config.max_turns,
        difficulty=config.difficulty,
        seed=config.seed,
        agent=config.agent,
    )
    parts = EpisodeParts(lambda: LocalClient(Worlds(seed=config.seed)), environment=environment)
    kind = EpisodeKind(alone, arms_of(alone, {}), lambda _: parts, {PLAYER: model})
    spec = EpisodeSpec(run_id="sample", arm=PLAYER, episode=0, seed=config.seed)
    trial = Trial(spec.session_id, PLAYER, 0, spec)
    context = Context(asked_to_stop=lambda: len(model.requests) >= turns)
    try:
        await kind.attempt(
            trial, Recorder.open(folder / "sample.jsonl", lambda: kind.header(trial)), context
        )
    except Interrupted:
        return
    finally:
        await kind.close()


def _length(request: ChatRequest) -> int:
    return sum(len(part.encoded) for part in request.messages) + len(request.tools.encoded)
