"""What is wrong with one message by itself, and what else a row needs to know of it."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from assay._util.redact import has_secret
from assay._util.text import cut, shown

from .findings import RowFault
from .formats import message_text
from .schemas import argument_problem

__all__ = ["CheckedMessage", "Count", "Problem", "calls_problem", "check_message", "estimated"]

_PER_TOKEN: Final = 4
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_CONTENTS: Final = (str, list)

Count = Callable[[str], int]
"""Counts the tokens of a text."""
Problem = tuple[RowFault, str]
"""What is wrong, and in words."""


def estimated(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // _PER_TOKEN + 1


class CheckedMessage(NamedTuple):
    """One message, once it was looked at."""

    role: str
    """Empty where it is none that is known."""
    tokens: int
    problem: Problem | None
    """What is wrong with it wherever it stands."""
    secret: bool
    trained: bool
    """Whether it is an answer whose weight is not 0."""
    key: int
    """A hash of what it says."""
    action: str
    """The first action that an answer asks for."""
    ids: frozenset[str] | None
    """The ids of the calls of an answer; None where it calls nothing."""
    answered: str | None
    """The id of the call that it is the result of."""


def check_message(
    message: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]], count: Count
) -> CheckedMessage:
    """Look at one message.

    Args:
        message: What a row says it is.
        schemas: The tools that its row offers.
        count: Counts its tokens.
    """
    role, content = message.get("role"), message.get("content")
    text = content if isinstance(content, str) else message_text(message)
    problem: Problem | None = None
    action, ids, trained = "", None, False
    tokens = count(text) if text else 0
    secret, key = has_secret(text), hash((str(role), text))
    if not isinstance(role, str) or role not in _ROLES:
        problem = (RowFault.ROLE, shown(role, 40))
        role = ""
    elif role != "assistant":
        if not isinstance(content, _CONTENTS):
            problem = (RowFault.CONTENT, role)
    else:
        trained = message.get("weight") != 0
        calls = message.get("tool_calls")
        if calls:
            problem, action = calls_problem(calls, schemas)
            if problem is None:
                functions = [call["function"] for call in calls]
                said = [str(function["arguments"]) for function in functions]
                ids = frozenset([str(call.get("id")) for call in calls])
                tokens += sum(map(count, said))
                secret = secret or any(map(has_secret, said))
                key = hash((key, *said, *(function["name"] for function in functions)))
        elif not text:
            problem = (RowFault.CONTENT, "an answer says and calls nothing")
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


def calls_problem(
    calls: Any, schemas: Mapping[str, Mapping[str, Any]]
) -> tuple[Problem | None, str]:
    """What is wrong with tool calls, and the first action that they ask for."""
    if not isinstance(calls, list):
        return (RowFault.CALL, "tool_calls is no list"), ""
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
                return (RowFault.CALL, f"{cut(name, 40)}: arguments are no JSON"), ""
        if not isinstance(value, dict):
            return (RowFault.CALL, f"{cut(name, 40)}: arguments are no object"), ""
        if schemas and name not in schemas:
            return (RowFault.SCHEMA, f"there is no tool {cut(name, 40)!r}"), ""
        problem = argument_problem(value, schemas.get(name, {}))
        if problem is not None:
            return (RowFault.SCHEMA, f"{cut(name, 40)}: {cut(problem, 120)}"), ""
        if not action:
            actions = value.get("actions")
            first = actions[0] if isinstance(actions, list) and actions else name
            action = cut(str(first), 60)
    return None, action
