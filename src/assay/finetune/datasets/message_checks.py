"""Checks of single messages and tool calls, and the findings of a validation.

Arguments of a tool call are checked against the schema of the tool. The part of JSON Schema
that tools use is supported: types, properties, required properties, items, enumerations and
bounds of arrays. Other keywords are ignored. For each kind of problem, the number of rows and
the first places are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from assay.core.secrets import has_secret
from assay.core.text import cut, shown
from assay.finetune.datasets.formats import get_message_text

FIRST_PLACES: Final = 3
"""Number of places kept for each kind of problem."""


class RowFault(StrEnum):
    """Kind of problem in a row."""

    JSON = "not JSON"
    SHAPE = "not the shape of a row"
    ROLE = "an unknown role"
    ORDER = "roles in a wrong order"
    CONTENT = "a message without content"
    CALL = "a tool call that cannot be read"
    SCHEMA = "a tool call that its tool does not allow"
    NOTHING = "nothing to train"
    TEMPLATE = "what the chat template does not take"
    LONG = "too long"
    SECRET = "what looks like a secret"
    LEAK = "a world that is held out"
    DUPLICATE = "the same as a row before"
    BLANK = "an empty line"
    ONE_SIDED = "one action in most rows"
    CHANGED = "not what the manifest says"


_WARNINGS: Final = frozenset(
    {RowFault.DUPLICATE, RowFault.BLANK, RowFault.ONE_SIDED, RowFault.CHANGED}
)


@dataclass(slots=True)
class RowFinding:
    """All problems of one kind."""

    kind: RowFault
    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    """First places: the line, counted from 1, and a description."""

    @property
    def is_error(self) -> bool:
        """Whether the file should not be used for training as it is."""
        return self.kind not in _WARNINGS


class RowFindings:
    """Problems found so far, by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[RowFault, RowFinding] = {}

    def add(self, kind: RowFault, line: int, description: str, *, times: int = 1) -> None:
        """TokenCounter a problem; its place is kept if it is among the first."""
        finding = self._by_kind.get(kind)
        if finding is None:
            finding = self._by_kind[kind] = RowFinding(kind)
        finding.count += times
        if len(finding.first) < FIRST_PLACES:
            finding.first.append((line, description))

    def list_sorted(self) -> tuple[RowFinding, ...]:
        """Return all findings, errors first."""
        order = list(RowFault)
        findings = sorted(self._by_kind.values(), key=lambda finding: order.index(finding.kind))
        return tuple(sorted(findings, key=lambda finding: not finding.is_error))


_PYTHON_TYPES: Final[Mapping[str, frozenset[type]]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
    "null": frozenset({type(None)}),
}
_ANY_TYPE: Final = frozenset[type]().union(*_PYTHON_TYPES.values())


def _expand_types(kinds: Any) -> frozenset[type]:
    """Expand a schema `type` (one name or a list) to the accepted Python types."""
    if isinstance(kinds, str):
        return _PYTHON_TYPES.get(kinds, _ANY_TYPE)
    if not isinstance(kinds, list):
        return _ANY_TYPE
    return frozenset[type]().union(*(_PYTHON_TYPES.get(str(name), _ANY_TYPE) for name in kinds))


def get_tool_schemas(tools: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the argument schemas by tool name; entries that are not tools are ignored."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            schemas[function["name"]] = parameters if isinstance(parameters, Mapping) else {}
    return schemas


def find_argument_problem(
    arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> str | None:
    """Return the problem with the arguments of a call, or None."""
    return _find_value_problem(arguments, schema, "")


def _find_value_problem(value: Any, schema: Any, where: str) -> str | None:
    if not isinstance(schema, Mapping):
        return None
    kinds = schema.get("type")
    if kinds is not None and value.__class__ not in _expand_types(kinds):
        names = kinds if isinstance(kinds, list) else [kinds]
        return f"{where or 'arguments'} must be {' or '.join(map(str, names))}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where or 'arguments'} is not one of the allowed values"
    if isinstance(value, dict):
        return _find_object_problem(value, schema, where)
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            return f"{where} has fewer than {schema['minItems']} items"
        if len(value) > schema.get("maxItems", len(value)):
            return f"{where} has more than {schema['maxItems']} items"
        items = schema.get("items")
        for item in value:
            if problem := _find_value_problem(item, items, "an item"):
                return f"{where}: {problem}" if where else problem
    return None


def _find_object_problem(
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
            if problem := _find_value_problem(part, properties[name], f"{prefix}{name}"):
                return problem
        elif schema.get("additionalProperties") is False:
            return f"{prefix}{name} is not declared"
    return None


_CHARACTERS_PER_TOKEN: Final = 4
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_CONTENT_TYPES: Final = (str, list)

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text."""
Problem = tuple[RowFault, str]
"""Kind of a problem, and its description."""


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    return len(text) // _CHARACTERS_PER_TOKEN + 1


class CheckedMessage(NamedTuple):
    """Result of checking one message."""

    role: str
    """Empty if the role is unknown."""
    tokens: int
    problem: Problem | None
    """Problem of the message itself, independent of its position."""
    secret: bool
    trained: bool
    """Whether it is an answer with a weight other than 0."""
    key: int
    """Hash of the content."""
    action: str
    """First action of an answer."""
    ids: frozenset[str] | None
    """Ids of the calls in an answer; None if it has none."""
    answered: str | None
    """Id of the call that this message is the result of."""


def check_message(
    message: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], count: TokenCounter
) -> CheckedMessage:
    """Check one message.

    Args:
        message: The message, as read from a row.
        schemas: Argument schemas of the row's tools.
        count: Counts tokens.
    """
    role, content = message.get("role"), message.get("content")
    text = content if isinstance(content, str) else get_message_text(message)
    problem: Problem | None = None
    action, ids, trained = "", None, False
    tokens = count(text) if text else 0
    secret, key = has_secret(text), hash((str(role), text))
    if not isinstance(role, str) or role not in _ROLES:
        problem = (RowFault.ROLE, shown(role, 40))
        role = ""
    elif role != "assistant":
        if not isinstance(content, _CONTENT_TYPES):
            problem = (RowFault.CONTENT, role)
    else:
        trained = message.get("weight") != 0
        calls = message.get("tool_calls")
        if calls:
            problem, action = find_call_problem(calls, schemas)
            if problem is None:
                functions = [call["function"] for call in calls]
                arguments = [str(function["arguments"]) for function in functions]
                ids = frozenset([str(call.get("id")) for call in calls])
                tokens += sum(map(count, arguments))
                secret = secret or any(map(has_secret, arguments))
                key = hash((key, *arguments, *(function["name"] for function in functions)))
        elif not text:
            problem = (RowFault.CONTENT, "an answer has neither text nor a tool call")
    answered = message.get("tool_call_id")
    return CheckedMessage(
        role,
        tokens,
        problem,
        secret,
        trained,
        key,
        action,
        ids,
        answered if isinstance(answered, str) else None,
    )


def find_call_problem(
    calls: Any, schemas: Mapping[str, Mapping[str, Any]]
) -> tuple[Problem | None, str]:
    """Return the first problem with tool calls, if any, and the first action they request."""
    if not isinstance(calls, list):
        return (RowFault.CALL, "tool_calls is not a list"), ""
    action = ""
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            return (RowFault.CALL, "a call has no function, or no name"), ""
        value = function.get("arguments")
        if isinstance(value, str):
            try:
                value = from_json(value)
            except ValueError:
                return (RowFault.CALL, f"{cut(name, 40)}: arguments are not valid JSON"), ""
        if not isinstance(value, dict):
            return (RowFault.CALL, f"{cut(name, 40)}: arguments are not an object"), ""
        if schemas and name not in schemas:
            return (RowFault.SCHEMA, f"unknown tool {cut(name, 40)!r}"), ""
        problem = find_argument_problem(value, schemas.get(name, {}))
        if problem is not None:
            return (RowFault.SCHEMA, f"{cut(name, 40)}: {cut(problem, 120)}"), ""
        if not action:
            actions = value.get("actions")
            first = actions[0] if isinstance(actions, list) and actions else name
            action = cut(str(first), 60)
    return None, action
