"""What the service answers: plain values, with arrays for maps and pictures.

`Worlds` makes them, and the in-process client hands them out as they are. As JSON, where maps
are lists of lists, they go through `adapter`; the OpenAPI document is derived from the same
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
    """Reads a kind of answer from JSON and writes it, made when it is first needed."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _as_array(lists: list[Any]) -> NDArray[np.uint8]:
    try:
        return np.array(lists, np.uint8)
    except OverflowError as error:  # which pydantic would let through
        raise ValueError(str(error)) from None


def _read_as(lists: Any) -> GetPydanticSchema:
    """How an array is read: as nested lists, of which one is made."""

    def schema(_: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_as_array, handler(lists))

    return GetPydanticSchema(schema)


_Grid = Annotated[
    NDArray[np.uint8], _read_as(_Lists), PlainSerializer(np.ndarray.tolist, return_type=_Lists)
]
_Picture = Annotated[
    NDArray[np.uint8],
    _read_as(list[_Lists]),
    PlainSerializer(np.ndarray.tolist, return_type=list[_Lists]),
]


class _WithArrays:
    """Equal where all values are, also those in arrays."""

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
        """What the player sees; only where `view` was included."""
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
    """What the world is made from: enough to make it again."""

    seed: int
    episode: int
    difficulty: str | dict[str, float]
    """A name, or all its numbers."""
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


@dataclass(slots=True)
class StepReply:
    """What a step did, and what the world is like now."""

    observation: WorldObservation
    reward: float
    """The sum of `info.rewards`."""
    done: bool
    info: StepInfo


@dataclass(slots=True)
class Terminated:
    """The last words of an instance."""

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
