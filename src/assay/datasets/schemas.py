"""Whether the arguments of a tool call are what the tool declares.

The part of JSON Schema that tools use: types, properties, required ones, items, enumerations,
and bounds. What else a schema says is not looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["argument_problem", "tool_schemas"]

_TYPES: Final[Mapping[str, frozenset[type]]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
    "null": frozenset({type(None)}),
}
_ANY: Final = frozenset[type]().union(*_TYPES.values())


def _allowed(kinds: Any) -> frozenset[type]:
    """The types that a type of a schema, or a list of them, stands for."""
    if isinstance(kinds, str):
        return _TYPES.get(kinds, _ANY)
    if not isinstance(kinds, list):
        return _ANY
    return frozenset[type]().union(*(_TYPES.get(str(name), _ANY) for name in kinds))


def tool_schemas(tools: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
    """The schemas of arguments by the names of the tools; of what is no tool there is none."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        about = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(about, Mapping) and isinstance(about.get("name"), str):
            parameters = about.get("parameters")
            schemas[about["name"]] = parameters if isinstance(parameters, Mapping) else {}
    return schemas


def argument_problem(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a call; None if nothing is."""
    return _problem(arguments, schema, "")


def _problem(value: Any, schema: Any, where: str) -> str | None:
    if not isinstance(schema, Mapping):
        return None
    kinds = schema.get("type")
    if kinds is not None and value.__class__ not in _allowed(kinds):
        names = kinds if isinstance(kinds, list) else [kinds]
        return f"{where or 'arguments'} must be {' or '.join(map(str, names))}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where or 'arguments'} is none of the values allowed"
    if isinstance(value, dict):
        return _object_problem(value, schema, where)
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            return f"{where} has fewer than {schema['minItems']} items"
        if len(value) > schema.get("maxItems", len(value)):
            return f"{where} has more than {schema['maxItems']} items"
        items = schema.get("items")
        for item in value:
            if problem := _problem(item, items, "an item"):
                return f"{where}: {problem}" if where else problem
    return None


def _object_problem(
    value: Mapping[str, Any], schema: Mapping[str, Any], where: str
) -> str | None:
    declared = schema.get("properties")
    properties = declared if isinstance(declared, Mapping) else {}
    prefix = f"{where}." if where else ""
    for name in schema.get("required", ()):
        if name not in value:
            return f"{prefix}{name} is missing"
    for name, part in value.items():
        if name in properties:
            if problem := _problem(part, properties[name], f"{prefix}{name}"):
                return problem
        elif schema.get("additionalProperties") is False:
            return f"{prefix}{name} is not declared"
    return None
