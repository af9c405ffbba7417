"""Worlds in this process: no server, no sockets, no JSON, the same answers."""

import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from assay.crafter.difficulty import Difficulty
from assay.crafter.rules import WORLD_LENGTH

from ..problems import invalid
from ..requests import (
    InitializeRequest,
    RestoreRequest,
    StepRequest,
    TerminateRequest,
    action_indices,
)
from ..results import Checkpoint, Started, StepReply
from ..worlds import Worlds
from .protocol import initialize_body, restore_body, step_body

__all__ = ["LocalClient"]

_M = TypeVar("_M", bound=BaseModel)


class LocalClient:
    """A `WorldClient` that holds its worlds itself."""

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
        """Make a world."""
        body = initialize_body(seed, difficulty, length, include)
        return self._worlds.initialize(_checked(InitializeRequest, body))

    async def step(self, env_id: str, *actions: int | str) -> StepReply:
        """Carry out actions in order."""
        indices = action_indices(actions)
        if indices is None or env_id not in self._worlds.instances:
            # A refusal, in the words of a service.
            indices = _checked(StepRequest, step_body(env_id, actions)).actions
        return self._worlds.play(env_id, indices)

    async def terminate(self, env_id: str) -> None:
        """Forget an instance."""
        self._worlds.terminate(_checked(TerminateRequest, {"env_id": env_id}).env_id)

    async def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance."""
        return self._worlds.checkpoint(env_id)

    async def restore(self, checkpoint: Checkpoint) -> Started:
        """Make an instance of a saved world."""
        return self._worlds.restore(_checked(RestoreRequest, restore_body(checkpoint)))

    async def close(self) -> None:
        """Nothing is held open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _checked(model: type[_M], body: Mapping[str, Any]) -> _M:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(error) from None
