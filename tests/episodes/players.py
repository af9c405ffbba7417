"""Chat models for tests: they count calls, and fail on request."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.agents import make_builtin
from assay.crafter.service.client import LocalClient, WorldClient
from assay.episodes.arms import make_arms
from assay.episodes.config import RunConfig
from assay.episodes.kind import EpisodeKind, EpisodeParts
from assay.metrics import DEFAULT_HOOKS, Hook
from assay.runs.control import Retries, Stop
from assay.runs.engine import AsyncioExecutor, Rules, run_trials
from assay.runs.events import CallbackObserver, Event
from assay.runs.executors import InProcessExecutor
from assay.runs.plan import GroupCounts
from assay.store.records import RunRecord
from assay.types import ChatModel, ChatReply, ChatRequest, Message

__all__ = ["CountingModel", "FixedReplyModel", "play", "settings"]


class CountingModel:
    """A built-in model that counts its calls and raises at chosen calls."""

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


class FixedReplyModel:
    """Replies with a fixed text."""

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


def settings(turns: int = 10, **limits: Any) -> RunConfig:
    return RunConfig(max_turns=turns, **limits)


def play(
    folder: Path,
    model: ChatModel,
    *,
    episodes: int = 1,
    rules: RunConfig | None = None,
    hooks: tuple[type[Hook], ...] = DEFAULT_HOOKS,
    retries: Retries | None = None,
    worlds: Callable[[], WorldClient] = LocalClient,
    listen: Callable[[Event], None] | None = None,
    stop: Stop | None = None,
) -> GroupCounts:
    """Play episodes of one model, with their journals in a folder."""
    config = replace(
        rules or settings(), models=(model.name,), episodes=episodes, seed=100, baselines=False
    )
    arms = make_arms(config, {})
    kind = EpisodeKind(config, arms, lambda _: EpisodeParts(worlds, hooks), {model.name: model})
    run = RunRecord(
        id="test", command="", configuration={}, provenance={}, created_at=0.0, experiments=()
    )

    async def all_of_them() -> dict[str, GroupCounts]:
        async with InProcessExecutor().open(kind) as start:
            executor = AsyncioExecutor[Any](
                lambda trial, context: start(trial, folder / f"{trial.id}.jsonl", context)
            )
            try:
                return await run_trials(
                    kind.plan(run),
                    executor,
                    Rules(retries=retries or Retries(attempts=1)),
                    observer=CallbackObserver(listen),
                    stop=stop,
                )
            finally:
                await kind.close()

    return asyncio.run(all_of_them())[model.name]
