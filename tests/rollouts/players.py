"""Chat models for tests: they count what they are asked, and fail on request."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.agents import AgentOptions, make_builtin
from assay.crafter import DIFFICULTIES
from assay.metrics import DEFAULT_HOOKS, Hook
from assay.rollouts import EpisodeLimits, EpisodeSettings, EpisodeSpec, play_all
from assay.service.client import LocalClient, WorldClient
from assay.trials import Event, Group, GroupCounts, Limits, Plan, Retries, Stop, Trial
from assay.types import ChatModel, ChatReply, ChatRequest, Message

__all__ = ["CountingModel", "SayingModel", "play", "settings"]


class CountingModel:
    """A built-in model that counts its calls and raises before the calls it is told to."""

    provider = "test"

    def __init__(
        self, name: str = "builtin/random", *, trouble: Callable[[int], None] | None = None
    ) -> None:
        self.name = name
        self.calls = 0
        self._inner = make_builtin(name)
        self._trouble = trouble

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        if self._trouble is not None:
            self._trouble(self.calls)
        return await self._inner.reply(request)

    async def close(self) -> None:
        """Nothing is open."""


class SayingModel:
    """Says what it is told to say, whatever it is asked."""

    provider = "test"
    name = "saying"

    def __init__(self, *says: dict[str, Any]) -> None:
        self._says = says
        self.requests: list[ChatRequest] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        turn = min(len(self.requests), len(self._says)) - 1
        return ChatReply(Message({"role": "assistant", **self._says[turn]}))

    async def close(self) -> None:
        """Nothing is open."""


def settings(turns: int = 10, **limits: Any) -> EpisodeSettings:
    return EpisodeSettings(
        difficulty=DIFFICULTIES["easy"],
        agent=AgentOptions(),
        limits=EpisodeLimits(turns=turns, **limits),
    )


def play(
    folder: Path,
    model: ChatModel,
    *,
    episodes: int = 1,
    rules: EpisodeSettings | None = None,
    hooks: tuple[type[Hook], ...] = DEFAULT_HOOKS,
    retries: Retries | None = None,
    worlds: Callable[[], WorldClient] = LocalClient,
    listen: Callable[[Event], None] = lambda _: None,
    stop: Stop | None = None,
) -> GroupCounts:
    """Play some episodes of one model, with their journals in a folder."""

    def make(index: int) -> Trial[EpisodeSpec]:
        spec = EpisodeSpec(run_id="test", model=model.name, episode=index, seed=100 + index)
        return Trial(spec.session_id, model.name, index, spec)

    async def all_of_them() -> dict[str, GroupCounts]:
        async with worlds() as client:
            return await play_all(
                Plan((Group(model.name, episodes, make),)),
                rules or settings(),
                models={model.name: model},
                worlds=client,
                hooks=hooks,
                journal=lambda session: folder / f"{session}.jsonl",
                ended=lambda path: None,
                limits=Limits(),
                retries=retries or Retries(attempts=1),
                listen=listen,
                stop=stop,
            )

    return asyncio.run(all_of_them())[model.name]
