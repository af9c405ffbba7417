"""The JSON schema of a file of declared hooks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from assay.analyses.hook_conditions import KINDS, NEAR
from assay.crafter.rules import ACHIEVEMENTS, ITEMS, NoEffect

__all__ = ["LANDMARK", "MOST_HOOKS", "SCHEMA"]

LANDMARK: Final = 100
"""The step at which episodes are parted if nobody says another."""
MOST_HOOKS: Final = 100


def _object(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _one_or_more(names: Sequence[str]) -> dict[str, Any]:
    one: dict[str, Any] = {"enum": list(names)} if names else {"type": "string"}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


_NUMBERS: Final = {"at_least": {"type": "number"}, "at_most": {"type": "number"}}
_WHOLE: Final = {"type": "integer", "minimum": 1}
_SOME: Final = {"type": "array", "items": {"$ref": "#/$defs/condition"}, "minItems": 1}
_PER_KIND: Final[Mapping[str, Any]] = {
    "action": _one_or_more(()),
    "no_effect": {"anyOf": [{"type": "boolean"}, _one_or_more([str(r) for r in NoEffect])]},
    "item": {"enum": list(ITEMS)},
    "achievement": _one_or_more(ACHIEVEMENTS),
    "reached": _one_or_more(ACHIEVEMENTS),
    **{
        kind: {**_object(_NUMBERS, ()), "minProperties": 1}
        for kind in ("step", "turn", "reward")
    },
    "sleeping": {"type": "boolean"},
    "night": {"type": "boolean"},
    "near": _one_or_more(NEAR),
    "text": {"type": "string"},
    "all": _SOME,
    "any": _SOME,
    "not": {"$ref": "#/$defs/condition"},
    "sequence": _SOME,
}

SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Hooks for 'assay analyze enhanced-hooks'",
    **_object(
        {
            "$schema": {"type": "string"},
            "format": {"type": "string"},
            "landmark": {**_WHOLE, "default": LANDMARK},
            "hooks": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_HOOKS,
                "items": _object(
                    {
                        "name": {"type": "string", "pattern": r"^[\w.-]{1,60}$"},
                        "description": {"type": "string"},
                        "every": {"type": "boolean", "default": False},
                        "when": {"$ref": "#/$defs/condition"},
                    },
                    ("name", "when"),
                ),
            },
        },
        ("hooks",),
    ),
    "$defs": {
        "condition": {
            "oneOf": [
                _object(
                    {
                        kind: schema,
                        **{
                            key: _WHOLE if key == "within" else {"type": "number"}
                            for key in KINDS[kind]
                        },
                    },
                    (kind,),
                )
                for kind, schema in _PER_KIND.items()
            ]
        }
    },
}
"""The JSON schema of a file of hooks (draft 2020-12)."""
