"""Response models of the service: plain values, with arrays for maps and images.

`Worlds` creates them, and the in-process client returns them unchanged. `adapter` converts them
to JSON, where maps are lists of lists. The OpenAPI document is derived from the same
annotations.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainSerializer,
    TypeAdapter,
)
from pydantic_core import CoreSchema, core_schema

from assay.crafter.service.requests import Include
from assay.crafter.view import View

_T = TypeVar("_T")
_Lists = list[list[int]]


_adapters: dict[type, TypeAdapter[Any]] = {}


def adapter(kind: type[_T]) -> TypeAdapter[_T]:
    """Return the (cached) adapter that reads and writes a response model as JSON."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _as_array(lists: list[Any]) -> NDArray[np.uint8]:
    try:
        return np.array(lists, np.uint8)
    except OverflowError as error:  # which pydantic would not convert
        raise ValueError(str(error)) from None


def _schema(lists: Any) -> GetPydanticSchema:
    """Return a schema that reads an array from nested lists."""

    def schema(_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_as_array, handler(lists))

    return GetPydanticSchema(schema)


_Grid = Annotated[
    NDArray[np.uint8],
    _schema(_Lists),
    PlainSerializer(np.ndarray.tolist, return_type=_Lists),
]
_Picture = Annotated[
    NDArray[np.uint8],
    _schema(list[_Lists]),
    PlainSerializer(np.ndarray.tolist, return_type=list[_Lists]),
]


class _WithArrays:
    """Compares all fields by value, arrays included."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)  # type: ignore[arg-type]
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True, eq=False)
class LocalView(_WithArrays):
    """The 9x7 cells a player sees, indexed [x][y]; see `assay.crafter.View`."""

    materials: _Grid
    objects: _Grid
    details: _Grid
    sleeping: bool
    daylight: float


@dataclass(slots=True, eq=False)
class WorldObservation(_WithArrays):
    """The state of a world after the last action."""

    inventory: dict[str, int]
    achievements_status: dict[str, bool]
    player_position: tuple[int, int]
    player_direction: tuple[int, int]
    semantic_map: _Grid | None
    world_material_map: _Grid | None
    observation_image: _Picture | None
    view: LocalView | None
    num_steps_taken: int
    max_steps_episode: int
    error_info: str | None
    reward_last_step: float
    total_reward_episode: float
    terminated: bool
    truncated: bool

    def as_view(self) -> View:
        """Return what the player sees; requires that `view` was included."""
        if self.view is None:
            raise ValueError("this observation has no view; include 'view' from the start")
        return View(
            materials=self.view.materials,
            objects=self.view.objects,
            details=self.view.details,
            inventory=dict(self.inventory),
            sleeping=self.view.sleeping,
            daylight=self.view.daylight,
            step=self.num_steps_taken,
        )


@dataclass(slots=True)
class StartedInfo:
    """Everything needed to create the world again."""

    seed: int
    episode: int
    difficulty: str | dict[str, float]
    """A name, or all parameters."""
    length: int
    digest: str


@dataclass(slots=True)
class Started:
    """A new instance."""

    env_id: str
    observation: WorldObservation
    done: bool
    info: StartedInfo


@dataclass(slots=True)
class StepInfo:
    """Details of a step; the lists have one entry per action that was carried out."""

    terminated: bool
    truncated: bool
    """The world reached its length and the player is alive."""
    rewards: list[float]
    unlocked: list[list[str]]
    """Achievements unlocked for the first time."""
    no_effect: list[str | None]
    """Reasons why actions changed nothing, or None."""
    digests: list[str]
    """Digest of the state after each action, in hexadecimal."""
    inventories: list[dict[str, int]] | None
    """Inventory after each action, if included."""
    skipped: int
    """Number of actions that were skipped because the episode had ended."""


@dataclass(slots=True)
class StepReply:
    """Result of a step, and the new state of the world."""

    observation: WorldObservation
    reward: float
    done: bool
    info: StepInfo


@dataclass(slots=True)
class Terminated:
    """Final state of a deleted instance."""

    public: dict[str, Any]
    """The observation, with a `status`."""
    private: dict[str, str]


@dataclass(slots=True)
class Checkpoint:
    """A saved world."""

    env_id: str
    snapshot: str
    """In base64; `assay.crafter.World.restore` reads the bytes."""
    total_reward_episode: float
    include: Include


@dataclass(slots=True)
class EngineInfo:
    """Parameters and progress of a world."""

    seed: int
    area: tuple[int, int]
    length: int
    step: int
    difficulty: str


class Metadata(BaseModel):
    """Description of the environment, and the state of one instance if its id was given."""

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
    """Health of the service."""

    status: Literal["ok"]
    supported_environments: list[str]


class FieldProblem(BaseModel):
    """An invalid field of a request."""

    field: str
    message: str
    allowed: list[Any] | None = None


class ErrorReply(BaseModel):
    """Reason for rejecting a request."""

    detail: str
    """Message for people."""
    code: str
    """Code for programs."""
    errors: list[FieldProblem] | None = None
    """Invalid fields with their allowed values, if any."""
