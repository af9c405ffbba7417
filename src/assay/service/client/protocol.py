"""What a client of worlds can do, wherever they are, and the requests it makes."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from assay.crafter.difficulty import Difficulty
from assay.crafter.rules import WORLD_LENGTH

from ..results import Checkpoint, Started, StepReply

__all__ = ["WorldClient", "initialize_body", "restore_body", "step_body"]


class WorldClient(Protocol):
    """Worlds that are played by id. Used as `async with`, or closed at the end.

    A refusal is an exception of `assay.errors`: InvalidField, UnknownInstance, EpisodeOver,
    InstanceLimit, RequestTooLarge, SnapshotError, WorldFull. Over HTTP also AccessDenied,
    and ServiceError when the service cannot be reached or fails.
    """

    async def initialize(
        self,
        seed: int | None = None,
        difficulty: str | Difficulty | Mapping[str, float] = "classic",
        length: int = WORLD_LENGTH,
        *,
        include: Sequence[str] = ("view",),
    ) -> Started:
        """Make a world; without a seed one is drawn and told in `info`."""
        ...

    async def step(self, env_id: str, *actions: int | str) -> StepReply:
        """Carry out actions in order, by index or name."""
        ...

    async def terminate(self, env_id: str) -> None:
        """Forget an instance."""
        ...

    async def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance, which goes on."""
        ...

    async def restore(self, checkpoint: Checkpoint) -> Started:
        """Make an instance of a saved world."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
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
    """The request that makes a world."""
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
    """The request that plays."""
    calls = [{"tool": "interact", "args": {"action": action}} for action in actions]
    return {"env_id": env_id, "request_id": request_id, "action": {"tool_calls": calls}}


def restore_body(checkpoint: Checkpoint) -> dict[str, Any]:
    """The request that brings a world back."""
    return {
        "snapshot": checkpoint.snapshot,
        "total_reward_episode": checkpoint.total_reward_episode,
        "include": checkpoint.include,
    }
