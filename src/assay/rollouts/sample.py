"""How long requests and replies of a run are: measured, by playing a few turns of it.

A built-in model plays in the first world of the run, asked as the models would be. Needs no
key and no network, and leaves nothing behind.
"""

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
from assay.trials import Interrupted
from assay.types import ChatReply, ChatRequest

from .config import RunConfig
from .episode import EpisodeAttempt
from .record import episode_settings
from .spec import EpisodeLimits, EpisodeSettings, EpisodeSpec

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
    """A built-in model that notes what it is asked and what it answers."""

    name, provider = PLAYER, "builtin"

    def __init__(self) -> None:
        self._inner = make_builtin(PLAYER)
        self.requests: list[ChatRequest] = []
        self.reply_bytes: list[int] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        reply = await self._inner.reply(request)
        self.requests.append(request)
        self.reply_bytes.append(len(reply.message.encoded))
        return reply

    async def close(self) -> None:
        """Nothing is held open."""


def play_sample(config: RunConfig) -> Sample:
    """Play until requests are as long as they get, or the episode is over."""
    model = _Measured()
    turns = min(config.max_turns, config.agent.history + _FULL_TURNS)
    warmup()
    started = time.perf_counter()
    with TemporaryDirectory(prefix="assay-") as folder:
        run_apart(lambda: _play(config, model, turns, Path(folder) / "sample.jsonl"))
    lengths = [_length(request) for request in model.requests]
    return Sample(
        request_bytes=lengths,
        reply_bytes=model.reply_bytes,
        largest=model.requests[lengths.index(max(lengths))],
        history=config.agent.history,
        seconds=time.perf_counter() - started,
    )


async def _play(config: RunConfig, model: _Measured, turns: int, journal: Path) -> None:
    common = episode_settings(config)
    # Only turns end it early: limits in tokens or time would be those of another player.
    settings = EpisodeSettings(
        difficulty=common.difficulty,
        agent=common.agent,
        limits=EpisodeLimits(turns=config.max_turns),
    )
    async with LocalClient(Worlds(seed=config.seed)) as worlds:
        episode = EpisodeAttempt(
            EpisodeSpec(run_id="sample", model=PLAYER, episode=0, seed=config.seed),
            settings,
            model=model,
            worlds=worlds,
            hooks=(),
            journal=journal,
            state_of=lambda _: None,
            stopping=lambda: len(model.requests) >= turns,
        )
        try:
            await episode.play()
        except Interrupted:
            return


def _length(request: ChatRequest) -> int:
    return sum(len(part.encoded) for part in request.messages) + len(request.tools.encoded)
