"""The client interface for worlds, its request bodies, and an in-process client.

`LocalClient` uses no server, sockets or JSON, and gives the same answers as the service.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pydantic import BaseModel, ValidationError

from assay.crafter.difficulty import Difficulty
from assay.crafter.rules import WORLD_LENGTH
from assay.crafter.service.problems import convert_validation_error
from assay.crafter.service.requests import (
    InitializeRequest,
    RestoreRequest,
    StepRequest,
    TerminateRequest,
    action_indices,
)
from assay.crafter.service.results import Checkpoint, Started, StepReply
from assay.crafter.service.worlds import Worlds


class WorldClient(Protocol):
    """Worlds addressed by id. Use with `async with`, or call `close`.

    A rejected request raises an exception of `assay.errors`: InvalidField, UnknownInstance,
    EpisodeOver, InstanceLimit, RequestTooLarge, SnapshotError, WorldFull. Over HTTP also
    AccessDenied, and ServiceError if the service cannot be reached or fails.
    """

    async def initialize(
        self,
        seed: int | None = None,
        difficulty: str | Difficulty | Mapping[str, float] = "classic",
        length: int = WORLD_LENGTH,
        *,
        include: Sequence[str] = ("view",),
    ) -> Started:
        """Create a world; without a seed one is drawn and reported in `info`."""
        ...

    async def step(self, env_id: str, *actions: int | str) -> StepReply:
        """Carry out actions in order, by index or name."""
        ...

    async def terminate(self, env_id: str) -> None:
        """Delete an instance."""
        ...

    async def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance; the instance is not changed."""
        ...

    async def restore(self, checkpoint: Checkpoint) -> Started:
        """Create an instance from a saved world."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def initialize_body(
    seed: int | None,
    difficulty: str | Difficulty | Mapping[str, float],
    length: int,
    include: Iterable[str],
) -> dict[str, Any]:
    """Return the request body that creates a world."""
    if isinstance(difficulty, Difficulty):
        difficulty = {name: getattr(difficulty, name) for name in Difficulty.__slots__}
    elif not isinstance(difficulty, str):
        difficulty = dict(difficulty)
    config = {
        "seed": seed,
        "difficulty": difficulty,
        "length": length,
        "include": list(include),
    }
    return {"config": config}


def step_body(
    env_id: str, actions: Sequence[int | str], request_id: str | None = None
) -> dict[str, Any]:
    """Return the request body of a step."""
    calls = [{"tool": "interact", "args": {"action": action}} for action in actions]
    return {"env_id": env_id, "request_id": request_id, "action": {"tool_calls": calls}}


def restore_body(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the request body that restores a world."""
    return {
        "snapshot": checkpoint.snapshot,
        "total_reward_episode": checkpoint.total_reward_episode,
        "include": checkpoint.include,
    }


_M = TypeVar("_M", bound=BaseModel)


class LocalClient:
    """A `WorldClient` whose worlds are in this process."""

    def __init__(self, worlds: Worlds | None = None) -> None:
        self._worlds = worlds or Worlds(seed=secrets.randbelow(2**31))

    async def initialize(
        self,
        seed: int | None = None,
        difficulty: str | Difficulty | Mapping[str, float] = "classic",
        length: int = WORLD_LENGTH,
        *,
        include: Sequence[str] = ("view",),
    ) -> Started:
        """Create a world."""
        body = initialize_body(seed, difficulty, length, include)
        return self._worlds.initialize(_validate(InitializeRequest, body))

    async def step(self, env_id: str, *actions: int | str) -> StepReply:
        """Carry out actions in order."""
        indices = action_indices(actions)
        if indices is None or env_id not in self._worlds.instances:
            # Validation raises the same error as the service.
            indices = _validate(StepRequest, step_body(env_id, actions)).actions
        return self._worlds.play(env_id, indices)

    async def terminate(self, env_id: str) -> None:
        """Delete an instance."""
        self._worlds.terminate(_validate(TerminateRequest, {"env_id": env_id}).env_id)

    async def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance."""
        return self._worlds.checkpoint(env_id)

    async def restore(self, checkpoint: Checkpoint) -> Started:
        """Create an instance from a saved world."""
        return self._worlds.restore(_validate(RestoreRequest, restore_body(checkpoint)))

    async def close(self) -> None:
        """Do nothing, because connections are not used."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _validate(model: type[_M], body: Mapping[str, Any]) -> _M:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise convert_validation_error(error) from None
