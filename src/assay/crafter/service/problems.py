"""Errors of requests: one table of exceptions, status codes and messages.

The in-process client raises the same exceptions as the HTTP client, which derives them from the
status and code of a response.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from assay.core.refusal import Refusal
from assay.core.text import shown, unknown_name
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import ACTIONS
from assay.crafter.service.requests import (
    INCLUDES,
    MAX_CALLS,
    MAX_LENGTH,
    Config,
    InitializeRequest,
    RestoreRequest,
)
from assay.errors import (
    AccessDenied,
    AssayError,
    EpisodeOver,
    InstanceLimit,
    InvalidField,
    RequestTooLarge,
    ServiceError,
    SnapshotError,
    UnknownInstance,
    UsageError,
    WorldFull,
)

_ALLOWED: Final[Mapping[str, list[Any]]] = {
    "action": [*range(len(ACTIONS)), *ACTIONS],
    "tool": ["interact"],
    "difficulty": list(DIFFICULTIES),
    "include": list(INCLUDES),
}
_WANTED: Final = {
    "seed": f"an int from 0 to {2**31 - 1}",
    "length": f"an int from 1 to {MAX_LENGTH}",
    "env_id": "a string of 1 to 128 characters",
    "request_id": "a string of 1 to 128 characters, or null",
    "snapshot": "a string of base64",
    "total_reward_episode": "a finite number",
    "config": "an object",
    "action": 'an object {"tool_calls": [...]}',
    "args": 'an object {"action": ...}',
    "tool_calls": f"a list of 1 to {MAX_CALLS} objects",
}
_KNOWN_KEYS: Final = {
    "config": list(Config.model_fields),
    InitializeRequest.__name__: list(InitializeRequest.model_fields),
    RestoreRequest.__name__: list(RestoreRequest.model_fields),
}
# Subclasses first, because the first match is used.
_TABLE: Final[tuple[tuple[type[AssayError], int, str], ...]] = (
    (RequestTooLarge, 413, "too_large"),
    (AccessDenied, 401, "unauthorized"),
    (AccessDenied, 403, "forbidden"),
    (SnapshotError, 422, "bad_snapshot"),
    (InvalidField, 422, "invalid"),
    (UsageError, 422, "invalid"),
    (UnknownInstance, 404, "unknown_instance"),
    (EpisodeOver, 409, "episode_over"),
    (WorldFull, 409, "world_full"),
    (InstanceLimit, 429, "instance_limit"),
)
_MAX_PROBLEMS: Final = 10


def make_refusal(error: AssayError | ValidationError) -> Refusal:
    """Return the response for an exception."""
    if isinstance(error, ValidationError):
        error = convert_validation_error(error)
    found = next((row for row in _TABLE if isinstance(error, row[0])), None)
    if found is None:
        raise error
    _, status, code = found
    body: dict[str, Any] = {"detail": str(error), "code": code, "errors": None}
    if isinstance(error, SnapshotError):
        body["errors"] = [{"field": "snapshot", "message": str(error), "allowed": None}]
    if isinstance(error, InvalidField):
        body["errors"] = [
            {"field": field, "message": message, "allowed": allowed}
            for field, message, allowed in error.problems
        ]
    headers = {}
    if isinstance(error, InstanceLimit):
        headers["retry-after"] = str(error.retry_after)
    return Refusal(status, body, headers)


def make_exception(
    status: int, body: Mapping[str, Any], headers: Mapping[str, str]
) -> AssayError:
    """Return the exception for a response."""
    detail, code = str(body.get("detail")), body.get("code")
    if code == "invalid" and body.get("errors"):
        return InvalidField(
            [(item["field"], item["message"], item["allowed"]) for item in body["errors"]]
        )
    if code == "instance_limit":
        return InstanceLimit(detail, int(headers.get("retry-after", "1")))
    for kind, _, row_code in _TABLE:
        if row_code == code:
            return kind(detail)
    return ServiceError(f"the service answered {status}: {detail}")


def convert_validation_error(error: ValidationError) -> AssayError:
    """Convert a validation error to an exception with readable messages."""
    problems = []
    for entry in error.errors(include_url=False)[:_MAX_PROBLEMS]:
        kind, path = entry["type"], entry["loc"]
        field = ".".join(cut(str(part)) for part in path)
        if kind == "too_long" and path[-1:] in (("tool_calls",), ()):
            return RequestTooLarge(f"{field or 'the list'}: {_describe_length(entry)}")
        problems.append((field or "body", *_describe_problem(kind, path, entry, error.title)))
    return InvalidField(problems)


def _describe_length(entry: Any) -> str:
    context = entry["ctx"]
    return f"{context['actual_length']} are too many; at most {context['max_length']} are taken"


def _describe_problem(
    kind: str, path: tuple[Any, ...], entry: Any, model: str
) -> tuple[str, list[Any] | None]:
    names = [part for part in path if isinstance(part, str)]
    name = names[-1] if names else ""
    # Two keys have this name: the object of a step, and the action inside its calls.
    allowed = None if path == ("action",) else _ALLOWED.get(name)
    match kind:
        case "missing":
            return "is missing", allowed
        case "extra_forbidden":
            keys = _KNOWN_KEYS.get(names[-2] if len(names) > 1 else model, [])
            return unknown_name("key", cut(name), keys), keys
        case "unknown_action":
            return entry["msg"], allowed
        case "difficulty":
            message = entry["msg"].removeprefix("difficulty: ")
            return message, None if isinstance(entry["input"], dict) else allowed
        case "json_invalid":
            return f"is not JSON: {entry['ctx']['error']}", None
        case "literal_error":
            options = ", ".join(map(str, allowed or []))
            return f"{shown(entry['input'])} is not allowed; choose from: {options}", allowed
    wanted = _WANTED.get(name)
    reason = f"give {wanted}" if wanted else entry["msg"][:1].lower() + entry["msg"][1:]
    return f"{shown(entry['input'])} is not allowed; {reason}", allowed


def cut(name: str) -> str:
    """Shorten a key from a request for messages and for name suggestions."""
    return name if len(name) <= 40 else f"{name[:37]}..."
