"""A value that fits a JSON schema: what a built-in model hands to a tool that is not its own.

Takes the first of what is allowed, and leaves out what is optional. Schemas come from clients:
one that goes too deep, or contradicts itself, gets a value that may not fit. Patterns are not
looked at.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["example"]

_DEEPEST: Final = 20
_LONGEST: Final = 1000
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Any, root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """A value that a schema allows.

    Args:
        schema: The schema.
        root: Where its references lead; the schema itself unless given.
        depth: How deep it lies in the first one.
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    root = schema if root is None else root
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("$ref"), str):
        return example(_target(schema["$ref"], root), root, depth + 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return example(schema[name][0], root, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind or ("object" if "properties" in schema else None):
        case "object":
            return _object(schema, root, depth)
        case "array":
            count = min(_whole(schema.get("minItems")), _LONGEST)
            return [example(schema.get("items"), root, depth + 1) for _ in range(count)]
        case "string":
            text = _FORMATS.get(str(schema.get("format")), "text")
            return text.ljust(min(_whole(schema.get("minLength")), _LONGEST), ".")
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
    return None


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if required else []
    return {name: example(properties.get(name), root, depth + 1) for name in names[:_LONGEST]}


def _number(schema: Mapping[str, Any]) -> float:
    for name, step in (("minimum", 0), ("exclusiveMinimum", 1)):
        if (low := _real(schema.get(name))) is not None:
            return low + step
    for name, step in (("maximum", 0), ("exclusiveMaximum", -1)):
        if (high := _real(schema.get(name))) is not None:
            return min(high + step, 0)
    return 0


def _real(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference within a schema leads to."""
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
