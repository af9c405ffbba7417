"""Request models of the service, with their size limits."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from assay.core.text import printable, shown
from assay.crafter.difficulty import DIFFICULTIES, Difficulty, allowed_range, resolve_difficulty
from assay.crafter.rules import ACTIONS
from assay.errors import UsageError

ENVIRONMENT: Final = "CrafterClassic"
"""Name of the only environment."""
INCLUDES: Final = (
    *("semantic_map", "world_material_map", "observation_image", "view"),
    "inventories",
)
"""Optional parts of a response; `inventories` is part of a step's info."""
MAX_BATCH: Final = 256
"""Maximum number of steps in a batch."""
MAX_CALLS: Final = 1000
"""Maximum number of tool calls in a step."""

MAX_LENGTH: Final = 100_000
"""Maximum number of steps in an episode; a test compares it with the engine's limit."""
MAX_SNAPSHOT_TEXT: Final = 40_000
"""Maximum length of a snapshot in base64; more than any world needs."""

_ACTION_INDEX: Final = {name: index for index, name in enumerate(ACTIONS)}
_Name = Annotated[str, Field(min_length=1, max_length=128)]


def _parse_action(value: object) -> int:
    if value.__class__ is int:
        if 0 <= value < len(ACTIONS):
            return value
    elif isinstance(value, str) and value in _ACTION_INDEX:
        return _ACTION_INDEX[value]
    raise PydanticCustomError(
        "unknown_action",
        "unknown action {shown}; give an index from 0 to {last} or the name of an action",
        {"shown": shown(value), "last": len(ACTIONS) - 1},
    )


def action_indices(actions: Sequence[object]) -> tuple[int, ...] | None:
    """Return the indices of a step's actions, or None if `StepRequest` would reject them."""
    if not 0 < len(actions) <= MAX_CALLS:
        return None
    try:
        return tuple([_parse_action(action) for action in actions])
    except PydanticCustomError:
        return None


_Action = Annotated[
    int,
    PlainValidator(_parse_action),
    WithJsonSchema({"enum": [*range(len(ACTIONS)), *ACTIONS]}, mode="validation"),
]


def _parse_difficulty(value: object) -> Difficulty:
    names = value if isinstance(value, dict) else [value]
    if any(isinstance(name, str) and len(name) > 64 for name in names):
        # The search for a similar name is slow for long names.
        raise PydanticCustomError("difficulty", "unknown difficulty: the name is too long")
    try:
        return resolve_difficulty(value)
    except UsageError as error:
        words = printable(str(error))[:400]
    except OverflowError:  # an int too large for a float
        words = f"difficulty: {shown(value)} has a number that is too large"
    raise PydanticCustomError("difficulty", "{words}", {"words": words})


def _describe_range(name: str) -> dict[str, Any]:
    low, high = allowed_range(name)
    return {"type": "number", "minimum": low, "maximum": high}


_Difficulty = Annotated[
    Difficulty,
    PlainValidator(_parse_difficulty),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(DIFFICULTIES)},
                {
                    "type": "object",
                    "properties": {
                        field.name: _describe_range(field.name)
                        for field in dataclasses.fields(Difficulty)
                    },
                    "additionalProperties": False,
                },
            ]
        },
        mode="validation",
    ),
]
_Seed = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Include = Annotated[
    list[
        Literal[
            "semantic_map", "world_material_map", "observation_image", "view", "inventories"
        ]
    ],
    Field(max_length=16),
]


class _Lenient(BaseModel):
    """Ignores unknown keys, which existing clients of this format rely on."""

    model_config = ConfigDict(extra="ignore")


class _StrictRequest(BaseModel):
    """Rejects unknown keys, because a mistyped key would silently give another world."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Config(_StrictRequest):
    """Parameters of the world, and the optional parts of responses."""

    seed: _Seed | None = None
    """Seed of the world; by default the service draws one and reports it in `info`."""
    difficulty: _Difficulty | None = None
    """A name, or a table of changes to `classic`, which is the default."""
    length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] | None = None
    """Number of steps after which the episode ends; 10,000 by default."""
    include: Include | None = None
    """Optional parts that responses contain."""


class TaskMetadata(_Lenient):
    """The task metadata that determines a world."""

    seed: _Seed | None = None
    difficulty: _Difficulty | None = None


class TaskInstance(_Lenient):
    """A task; only the metadata that determines the world is used."""

    metadata: TaskMetadata | None = None


class InitializeRequest(_StrictRequest):
    """Request for a new world."""

    initial_state: Annotated[
        dict[str, Any] | None, Field(json_schema_extra={"maxProperties": 0})
    ] = None
    """Must be empty: worlds are created from `config` or with `restore`."""
    config: Config | None = None
    task_instance: TaskInstance | None = None
    """`metadata.seed` and `metadata.difficulty` are used if `config` does not set them."""


class ToolArguments(_Lenient):
    """Arguments of a tool call."""

    action: _Action
    """An index from 0 to 16, or a name."""


class ToolCall(_Lenient):
    """One action."""

    tool: Literal["interact"]
    args: ToolArguments


class ToolCalls(_Lenient):
    """The actions of a step."""

    tool_calls: Annotated[list[ToolCall], Field(min_length=1, max_length=MAX_CALLS)]


class StepRequest(_Lenient):
    """One or more actions, carried out in order."""

    env_id: _Name
    request_id: _Name | None = None
    """A step with an id that was already used is answered again, but not carried out again."""
    action: ToolCalls

    @property
    def actions(self) -> tuple[int, ...]:
        """Indices of the actions."""
        return tuple([call.args.action for call in self.action.tool_calls])


class TerminateRequest(_Lenient):
    """Request to delete an instance."""

    env_id: _Name


class RestoreRequest(_StrictRequest):
    """Request for a new instance from a saved world."""

    snapshot: Annotated[
        str,
        Field(max_length=MAX_SNAPSHOT_TEXT),
        WithJsonSchema(
            {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_SNAPSHOT_TEXT,
                "contentEncoding": "base64",
                "description": "A snapshot from `checkpoint`; other strings are rejected with "
                "status 422 and the code `bad_snapshot`.",
            }
        ),
    ]
    """The snapshot from `checkpoint`, in base64."""
    total_reward_episode: FiniteFloat = 0.0
    """Total reward of the episode so far, which a snapshot does not include."""
    include: Include | None = None
    """As in `config`."""
