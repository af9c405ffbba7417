"""What the service answers.

The OpenAPI document is derived from these models, and clients, in process or not, hand them
out. The server builds its answers as plain dictionaries of the same keys, for speed.
"""

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from assay.crafter.view import View

from .requests import Include

__all__ = [
    "Checkpoint",
    "EngineInfo",
    "ErrorReply",
    "FieldProblem",
    "Health",
    "LocalView",
    "Metadata",
    "Observation",
    "Started",
    "StartedInfo",
    "StepInfo",
    "StepReply",
    "Terminated",
]

_Grid = list[list[int]]


class LocalView(BaseModel):
    """The 9x7 cells a player sees, indexed [x][y]; see `assay.crafter.View`."""

    materials: _Grid
    objects: _Grid
    details: _Grid
    sleeping: bool
    daylight: float


class Observation(BaseModel):
    """The state of a world after the last action."""

    inventory: dict[str, int]
    achievements_status: dict[str, bool]
    player_position: tuple[int, int]
    player_direction: tuple[int, int]
    semantic_map: _Grid | None
    world_material_map: _Grid | None
    observation_image: list[_Grid] | None
    view: LocalView | None
    num_steps_taken: int
    max_steps_episode: int
    error_info: str | None
    reward_last_step: float
    total_reward_episode: float
    terminated: bool
    truncated: bool

    def as_view(self) -> View:
        """What the player sees; only where `view` was included."""
        if self.view is None:
            raise ValueError("this observation has no view; include 'view' from the start")
        return View(
            materials=np.array(self.view.materials, np.uint8),
            objects=np.array(self.view.objects, np.uint8),
            details=np.array(self.view.details, np.uint8),
            inventory=dict(self.inventory),
            sleeping=self.view.sleeping,
            daylight=self.view.daylight,
            step=self.num_steps_taken,
        )


class StartedInfo(BaseModel):
    """What the world is made from: enough to make it again."""

    seed: int
    episode: int
    difficulty: str | dict[str, float]
    """A name, or all its numbers."""
    length: int
    digest: str


class Started(BaseModel):
    """A new instance."""

    env_id: str
    observation: Observation
    done: bool
    info: StartedInfo


class StepInfo(BaseModel):
    """What a step did; the lists have an entry per action that was carried out."""

    terminated: bool
    """The player died."""
    truncated: bool
    """The world came to its end, and the player lives."""
    rewards: list[float]
    unlocked: list[list[str]]
    """Achievements reached for the first time."""
    no_effect: list[str | None]
    """Why an action changed nothing, if it did not."""
    digests: list[str]
    """The state after each action, as a digest in hexadecimal."""
    inventories: list[dict[str, int]] | None
    """What the player had after each action; only where it was included."""
    skipped: int
    """How many actions were left out because the episode had ended."""


class StepReply(BaseModel):
    """What a step did, and what the world is like now."""

    observation: Observation
    reward: float
    """The sum of `info.rewards`."""
    done: bool
    info: StepInfo


class Terminated(BaseModel):
    """The last words of an instance."""

    public: dict[str, Any]
    """The observation, with a `status`."""
    private: dict[str, str]


class Checkpoint(BaseModel):
    """A saved world."""

    env_id: str
    snapshot: str
    """In base64; `assay.crafter.World.restore` reads the bytes."""
    total_reward_episode: float
    include: Include


class EngineInfo(BaseModel):
    """A world in numbers."""

    seed: int
    area: tuple[int, int]
    length: int
    step: int
    difficulty: str


class Metadata(BaseModel):
    """What the environment is, and the state of one instance if it was named."""

    env_name: str
    env_id: str | None
    env_class: str
    has_task_instance: bool
    task_metadata: dict[str, Any]
    has_engine: bool
    engine_info: EngineInfo | None
    actions: list[str]
    achievements: list[str]
    items: list[str]
    difficulties: list[str]


class Health(BaseModel):
    """That the service runs."""

    status: Literal["ok"]
    supported_environments: list[str]


class FieldProblem(BaseModel):
    """A field of a request that is not allowed."""

    field: str
    message: str
    allowed: list[Any] | None = None


class ErrorReply(BaseModel):
    """Why a request was refused."""

    detail: str
    """For people."""
    code: str
    """For programs."""
    errors: list[FieldProblem] | None = None
    """Where a field is to blame: which ones, and what they may be."""
