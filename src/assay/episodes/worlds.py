"""The world of one episode, as the episode sees it: it begins, steps, and is left.

Crafter is one of them; `environments` has those of users. What is recorded of a step is the
world's to say, and so is what an episode in it earns.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from assay.crafter.difficulty import Difficulty
from assay.crafter.rules import WORLD_LENGTH
from assay.crafter.view import cause_of_death
from assay.episodes.totals import EpisodeTotals
from assay.errors import AssayError
from assay.store.records import StepRecord
from assay.types import StopReason

# What prepares a run imports this module, and must not load the compiled world.
if TYPE_CHECKING:
    from assay.crafter.service.client import WorldClient
    from assay.crafter.service.results import StepReply


class Stepped(NamedTuple):
    """What came of some actions."""

    steps: tuple[StepRecord, ...]
    view: Any
    """What can be seen after the last of them."""
    ended: str | None
    """Why the world is over, if it is."""
    inventories: Sequence[Mapping[str, int]] = ()
    """What the player has after each step, where the world knows of such."""


class EpisodeWorld(Protocol):
    """One world, for one episode."""

    has_achievements: bool

    async def begin(self) -> tuple[Any, Mapping[str, int]]:
        """Open it: what can be seen first, and what the player has."""
        ...

    async def step(self, actions: Sequence[str], made: int) -> Stepped:
        """Carry out actions until one ends the world, after so many steps made before."""
        ...

    def outcomes(self, totals: EpisodeTotals, seconds: float) -> dict[str, float]:
        """What the episode earned, at its end."""
        ...

    async def leave(self) -> None:
        """Let go of it."""
        ...


class CrafterWorld:
    """A world of Crafter, in this process or a service."""

    has_achievements = True

    def __init__(self, client: "WorldClient", seed: int, difficulty: Difficulty) -> None:
        self._client, self._seed, self._difficulty = client, seed, difficulty
        self._id: str | None = None
        self._inventory: Mapping[str, int] = {}

    async def begin(self) -> tuple[Any, Mapping[str, int]]:
        """Open it."""
        started = await self._client.initialize(
            self._seed, self._difficulty, WORLD_LENGTH, include=("view", "inventories")
        )
        self._id = started.env_id
        self._inventory = started.observation.inventory
        return started.observation.as_view(), started.observation.inventory

    async def step(self, actions: Sequence[str], made: int) -> Stepped:
        """Carry out actions."""
        assert self._id is not None, "begin() comes first"
        reply = await self._client.step(self._id, *actions)
        view, inventories = reply.observation.as_view(), reply.info.inventories or ()
        ended: str | None = None
        if reply.done:
            ended = StopReason.LENGTH
        if reply.info.terminated:
            before = inventories[-2] if len(inventories) > 1 else self._inventory
            ended = StopReason.DIED.with_words(cause_of_death(view, before))
        self._inventory = inventories[-1] if inventories else self._inventory
        return Stepped(_steps(actions, reply, made), view, ended, inventories)

    def outcomes(self, totals: EpisodeTotals, seconds: float) -> dict[str, float]:
        """What follows from the steps."""
        return totals.outcomes(seconds)

    async def leave(self) -> None:
        """Let go of it."""
        if self._id is not None:
            # A service that is gone, or has forgotten it, holds nothing of ours.
            with suppress(AssayError):
                await self._client.terminate(self._id)


def _steps(actions: Sequence[str], reply: "StepReply", before: int) -> tuple[StepRecord, ...]:
    info = reply.info
    last = len(info.rewards) - 1
    return tuple(
        StepRecord(
            index=before + i + 1,
            action=actions[i],
            reward=reward,
            digest=info.digests[i],
            unlocked=tuple(info.unlocked[i]),
            no_effect=info.no_effect[i],
            terminated=i == last and info.terminated,
            truncated=i == last and info.truncated,
        )
        for i, reward in enumerate(info.rewards)
    )
