"""What may be asked of the service, and how much of it at once."""

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
"""The name of the one environment there is."""
INCLUDES: Final = (
    *("semantic_map", "world_material_map", "observation_image", "view"),
    "inventories",
)
"""What an answer holds only if it was asked for; `inventories` is part of a step's info."""
MAX_BATCH: Final = 256
"""A batch may have this many steps."""
MAX_CALLS: Final = 1000
"""A step may have this many tool calls."""

MAX_LENGTH: Final = 100_000
"""An episode may have this many steps; a test compares it with the engine's own limit."""
MAX_SNAPSHOT_TEXT: Final = 40_000
"""A snapshot in base64 may have this many characters; no world needs as many."""

_ACTION_INDEX: Final = {name: index for index, name in enumerate(ACTIONS)}
_Name = Annotated[str, Field(min_length=1, max_length=128)]


def _action(value: object) -> int:
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
    """The indices of the actions of a step; None where `StepRequest` would refuse them."""
    if not 0 < len(actions) <= MAX_CALLS:
        return None
    try:
        return tuple([_action(action) for action in actions])
    except PydanticCustomError:
        return None


_Action = Annotated[
    int,
    PlainValidator(_action),
    WithJsonSchema({"enum": [*range(len(ACTIONS)), *ACTIONS]}, mode="validation"),
]


def _difficulty(value: object) -> Difficulty:
    names = value if isinstance(value, dict) else [value]
    if any(isinstance(name, str) and len(name) > 64 for name in names):
        # The search for a name that is near takes long where this one is long.
        raise PydanticCustomError("difficulty", "unknown difficulty: the name is too long")
    try:
        return resolve_difficulty(value)
    except UsageError as error:
        words = printable(str(error))[:400]
    except OverflowError:  # an int that no float can hold
        words = f"difficulty: {shown(value)} has a number that is too large"
    raise PydanticCustomError("difficulty", "{words}", {"words": words})


def _bounds(name: str) -> dict[str, Any]:
    low, high = allowed_range(name)
    return {"type": "number", "minimum": low, "maximum": high}


_Difficulty = Annotated[
    Difficulty,
    PlainValidator(_difficulty),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(DIFFICULTIES)},
                {
                    "type": "object",
                    "properties": {
                        field.name: _bounds(field.name)
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
    """Ignores keys it does not know, as the clients of this shape have always been used to."""

    model_config = ConfigDict(extra="ignore")


class _Strict(BaseModel):
    """Refuses keys it does not know: a mistyped one would silently mean another world."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Config(_Strict):
    """Which world to make, and what to tell about it."""

    seed: _Seed | None = None
    """Which world; without it the service draws one and says so in `info`."""
    difficulty: _Difficulty | None = None
    """A name, or a table of changes to `classic`, which is the default."""
    length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] | None = None
    """After how many steps the episode ends; 10,000 without it."""
    include: Include | None = None
    """What answers hold besides what they always hold."""


class TaskMetadata(_Lenient):
    """The parts of a task's metadata that choose a world."""

    seed: _Seed | None = None
    difficulty: _Difficulty | None = None


class TaskInstance(_Lenient):
    """A task; of all it may hold, only what chooses the world is used."""

    metadata: TaskMetadata | None = None


class InitializeRequest(_Strict):
    """A new world."""

    initial_state: Annotated[
        dict[str, Any] | None, Field(json_schema_extra={"maxProperties": 0})
    ] = None
    """Only an empty one is taken: worlds come from `config`, or from `restore`."""
    config: Config | None = None
    """Which world."""
    task_instance: TaskInstance | None = None
    """`metadata.seed` and `metadata.difficulty` are used where `config` has none."""


class ToolArguments(_Lenient):
    """What to do."""

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
    """A step that comes again with the same id is answered again and not played again."""
    action: ToolCalls

    @property
    def actions(self) -> tuple[int, ...]:
        """The indices of the actions."""
        return tuple([call.args.action for call in self.action.tool_calls])


class TerminateRequest(_Lenient):
    """The end of an instance."""

    env_id: _Name


class RestoreRequest(_Strict):
    """A new instance from a saved world."""

    snapshot: Annotated[
        str,
        Field(max_length=MAX_SNAPSHOT_TEXT),
        WithJsonSchema(
            {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_SNAPSHOT_TEXT,
                "contentEncoding": "base64",
                "description": "Only what `checkpoint` gave is a saved world; other texts of "
                "this shape are answered with 422 and the code `bad_snapshot`.",
            }
        ),
    ]
    """What `checkpoint` gave: a snapshot in base64."""
    total_reward_episode: FiniteFloat = 0.0
    """What the episode earned so far; a snapshot of a world does not hold it."""
    include: Include | None = None
    """As in `config`."""
