"""The world of one episode: interface and Crafter implementations.

`environments` has the implementation for user-defined environments. The world decides which
data of a step is recorded, and computes the outcomes of an episode.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from assay.crafter.difficulty import Difficulty
from assay.crafter.rules import WORLD_LENGTH
from assay.crafter.view import View, cause_of_death
from assay.episodes.totals import EpisodeTotals
from assay.errors import AssayError, InvalidField, WorldFull
from assay.store.records import StepRecord
from assay.types import StopReason

# Modules that prepare a run import this one, and must not load the compiled world.
if TYPE_CHECKING:
    from assay.crafter.service.client import WorldClient


class StepsResult(NamedTuple):
    """Result of some actions."""

    steps: tuple[StepRecord, ...]
    view: Any
    """Observation after the last action."""
    ended: str | None
    """Reason the world ended; None if it continues."""
    inventories: Sequence[Mapping[str, int]] = ()
    """Inventory after each step; empty if the world has no inventory."""


class EpisodeWorld(Protocol):
    """One world, for one episode."""

    has_achievements: bool

    async def begin(self) -> tuple[Any, Mapping[str, int]]:
        """Open the world, and return the first observation and the inventory."""
        ...

    async def step(self, actions: Sequence[str], steps_before: int) -> StepsResult:
        """Execute actions until one ends the world; `made` is the number of earlier steps."""
        ...

    def compute_outcomes(self, totals: EpisodeTotals, seconds: float) -> dict[str, float]:
        """Return the outcomes of the episode, at its end."""
        ...

    async def close(self) -> None:
        """Close the world."""
        ...


class CrafterWorld:
    """A Crafter world in this process."""

    has_achievements = True

    def __init__(self, seed: int, difficulty: Difficulty) -> None:
        self._seed, self._difficulty = seed, difficulty
        self._inventory: Mapping[str, int] = {}

    async def begin(self) -> tuple[View, Mapping[str, int]]:
        """Create the world."""
        from assay.crafter.world import World

        try:
            self._world = World(self._seed, self._difficulty, WORLD_LENGTH)
        except WorldFull:
            problem = "makes more creatures than a world has room for; lower their chances"
            raise InvalidField([("config.difficulty", problem, None)]) from None
        self._inventory = self._world.inventory
        return self._world.view(), self._inventory

    async def step(self, actions: Sequence[str], steps_before: int) -> StepsResult:
        """Execute actions."""
        world = self._world
        steps: list[StepRecord] = []
        inventories: list[Mapping[str, int]] = []
        for action in actions:
            try:
                result = world.step(action)
            except WorldFull:
                if not steps:
                    raise
                break  # the steps before it count; the next turn raises
            died = result.ended is not None and result.ended.value == StopReason.DIED
            steps.append(
                StepRecord(
                    index=steps_before + len(steps) + 1,
                    action=action,
                    reward=result.reward,
                    digest=f"{world.digest():016x}",
                    unlocked=result.unlocked,
                    no_effect=result.no_effect and result.no_effect.value,
                    terminated=died,
                    truncated=result.done and not died,
                )
            )
            inventories.append(world.inventory)
            if result.done:
                break
        view = world.view()
        ended = self._find_end(view, inventories, steps[-1].terminated, steps[-1].truncated)
        return StepsResult(tuple(steps), view, ended, inventories)

    def _find_end(
        self,
        view: View,
        inventories: Sequence[Mapping[str, int]],
        terminated: bool,
        truncated: bool,
    ) -> str | None:
        """Return why the world ended, if it did; keep the inventory for the next turn."""
        before = inventories[-2] if len(inventories) > 1 else self._inventory
        self._inventory = inventories[-1] if inventories else self._inventory
        if terminated:
            return StopReason.DIED.with_reason(cause_of_death(view, before))
        return StopReason.LENGTH if truncated else None

    def compute_outcomes(self, totals: EpisodeTotals, seconds: float) -> dict[str, float]:
        """Return the outcomes that follow from the totals."""
        return totals.outcomes(seconds)

    async def close(self) -> None:
        """Do nothing: the world has nothing to close."""


class ServiceWorld(CrafterWorld):
    """A Crafter world at a service."""

    def __init__(self, client: "WorldClient", seed: int, difficulty: Difficulty) -> None:
        super().__init__(seed, difficulty)
        self._client = client
        self._id: str | None = None

    async def begin(self) -> tuple[View, Mapping[str, int]]:
        """Create the world at the service."""
        started = await self._client.initialize(
            self._seed, self._difficulty, WORLD_LENGTH, include=("view", "inventories")
        )
        self._id = started.env_id
        self._inventory = started.observation.inventory
        return started.observation.as_view(), started.observation.inventory

    async def step(self, actions: Sequence[str], steps_before: int) -> StepsResult:
        """Execute actions at the service."""
        assert self._id is not None, "begin() comes first"
        reply = await self._client.step(self._id, *actions)
        info, view = reply.info, reply.observation.as_view()
        last, inventories = len(info.rewards) - 1, info.inventories or ()
        steps = tuple(
            StepRecord(
                index=steps_before + i + 1,
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
        ended = self._find_end(view, inventories, info.terminated, reply.done)
        return StepsResult(steps, view, ended, inventories)

    async def close(self) -> None:
        """Remove the world from the service."""
        if self._id is not None:
            # A service that is unreachable or has lost the world needs no cleanup.
            with suppress(AssayError):
                await self._client.terminate(self._id)
