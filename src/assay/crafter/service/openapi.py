"""The OpenAPI document, derived from the request and result models."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from pydantic import TypeAdapter

from assay._version import __version__
from assay.crafter.service.requests import (
    ENVIRONMENT,
    MAX_BATCH,
    InitializeRequest,
    RestoreRequest,
    StepRequest,
    TerminateRequest,
)
from assay.crafter.service.results import (
    Checkpoint,
    ErrorReply,
    Health,
    Metadata,
    Started,
    StepReply,
    Terminated,
    adapter,
)

_JSON: Final = "application/json"
_REF: Final = "#/components/schemas/{model}"
_REASONS: Final = {
    "401": "The token is missing or wrong.",
    "403": "The Host or Origin header is not allowed.",
    "404": "No such instance.",
    "408": "The body did not arrive in time.",
    "409": "The episode has ended.",
    "413": "The request is too large.",
    "422": "A field is invalid, perhaps in a way that the schema cannot express: a damaged "
    "snapshot, a difficulty with too many creatures, an integer with a decimal point, a "
    "`request_id` already used for other actions.",
    "429": "Too many instances.",
}


class _Route(NamedTuple):
    path: str
    method: str
    name: str
    summary: str
    body: type | None
    result: type
    refused: tuple[str, ...]
    query: bool | None = None
    """Whether `env_id` is required in the query; None if it is not accepted."""


_HERE: Final = f"/env/{ENVIRONMENT}"
_ALWAYS: Final = ("403",)
_POSTED: Final = ("401", "403", "408", "413", "422")
_ROUTES: Final = (
    _Route("/health", "get", "health", "Return the health.", None, Health, _ALWAYS),
    _Route(
        f"{_HERE}/initialize",
        "post",
        "initialize",
        "Create a world.",
        InitializeRequest,
        Started,
        (*_POSTED, "429"),
    ),
    _Route(
        f"{_HERE}/step",
        "post",
        "step",
        "Carry out actions in order.",
        StepRequest,
        StepReply,
        (*_POSTED, "404", "409"),
    ),
    _Route(
        f"{_HERE}/terminate",
        "post",
        "terminate",
        "Delete an instance.",
        TerminateRequest,
        Terminated,
        (*_POSTED, "404"),
    ),
    _Route(
        f"{_HERE}/restore",
        "post",
        "restore",
        "Create an instance from a saved world.",
        RestoreRequest,
        Started,
        (*_POSTED, "429"),
    ),
    _Route(
        f"{_HERE}/checkpoint",
        "get",
        "checkpoint",
        "Save the world of an instance.",
        None,
        Checkpoint,
        ("401", "403", "404", "409", "422"),
        query=True,
    ),
    _Route(
        f"{_HERE}/metadata",
        "get",
        "metadata",
        "Describe the environment, and an instance if its id is given.",
        None,
        Metadata,
        ("401", "403", "404"),
        query=False,
    ),
)


@cache
def document() -> Mapping[str, Any]:
    """Return the document, which does not change."""
    bodies = dict.fromkeys(route.body for route in _ROUTES if route.body)
    results = dict.fromkeys([*(route.result for route in _ROUTES), ErrorReply])
    models: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        *((body.__name__, "validation", adapter(body)) for body in bodies),
        *((result.__name__, "serialization", adapter(result)) for result in results),
    ]
    references, definitions = TypeAdapter.json_schemas(models, ref_template=_REF)
    names = {name: schema for (name, _), schema in references.items()}
    paths: dict[str, Any] = {}
    for route in _ROUTES:
        paths.setdefault(route.path, {})[route.method] = _describe_operation(route, names)
    paths[f"{_HERE}/batch"] = {"post": _describe_batch(names)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "assay environment service",
            "version": __version__,
            "description": (
                "Crafter worlds over HTTP. The WebSocket at "
                f"{_HERE}/ws accepts a step or a list of steps per message, as in /batch, "
                "and answers in the same form."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _describe_operation(route: _Route, names: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": _describe_answer("Done.", names[route.result.__name__]),
            **{status: _describe_refusal(status, names) for status in sorted(route.refused)},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body is not InitializeRequest,
            "content": {_JSON: {"schema": names[route.body.__name__]}},
        }
    if route.query is not None:
        parameter = {"name": "env_id", "in": "query", "schema": {"type": "string"}}
        operation["parameters"] = [{**parameter, "required": route.query}]
    return operation


def _describe_batch(names: Mapping[str, Any]) -> dict[str, Any]:
    status = {"type": "object", "properties": {"status": {"type": "integer"}}}
    item = {
        "allOf": [
            {**status, "required": ["status"]},
            {"anyOf": [names["StepReply"], names["ErrorReply"]]},
        ]
    }
    return {
        "operationId": "batch",
        "summary": "Carry out many steps in one or several instances; each has its own status.",
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {
                    "schema": {
                        "type": "array",
                        # An invalid step is answered in its position, with its own status.
                        "items": {"anyOf": [names["StepRequest"], {}]},
                        "maxItems": MAX_BATCH,
                    }
                }
            },
        },
        "responses": {
            "200": _describe_answer("An answer per step.", {"type": "array", "items": item}),
            **{refused: _describe_refusal(refused, names) for refused in _POSTED},
        },
    }


def _describe_refusal(status: str, names: Mapping[str, Any]) -> dict[str, Any]:
    answer = _describe_answer(_REASONS[status], names["ErrorReply"])
    if status == "429":
        seconds = {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        answer["headers"] = {"Retry-After": seconds}
    return answer


def _describe_answer(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": schema}}}
