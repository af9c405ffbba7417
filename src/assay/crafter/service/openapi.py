"""The OpenAPI document, derived from the models of requests and results."""

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
    "403": "The Host or the Origin is not one of this service.",
    "404": "No such instance.",
    "408": "The body did not arrive in time.",
    "409": "The episode has ended.",
    "413": "More than a request may hold.",
    "422": "A field is not allowed, or says something that no schema can: a snapshot that is "
    "none, a difficulty without room for its creatures, a whole number with a decimal point, "
    "a `request_id` that was used for other actions.",
    "429": "No room for another instance.",
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
    """Whether `env_id` must stand in the query; None where it may not."""


_HERE: Final = f"/env/{ENVIRONMENT}"
_ALWAYS: Final = ("403",)
_POSTED: Final = ("401", "403", "408", "413", "422")
_ROUTES: Final = (
    _Route("/health", "get", "health", "Whether the service runs.", None, Health, _ALWAYS),
    _Route(
        f"{_HERE}/initialize",
        "post",
        "initialize",
        "Make a world.",
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
        "Forget an instance.",
        TerminateRequest,
        Terminated,
        (*_POSTED, "404"),
    ),
    _Route(
        f"{_HERE}/restore",
        "post",
        "restore",
        "Make an instance of a saved world.",
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
        "Describe the environment, and an instance if it is named.",
        None,
        Metadata,
        ("401", "403", "404"),
        query=False,
    ),
)


@cache
def document() -> Mapping[str, Any]:
    """The document, which is the same for every request."""
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
        paths.setdefault(route.path, {})[route.method] = _operation(route, names)
    paths[f"{_HERE}/batch"] = {"post": _batch(names)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "assay environment service",
            "version": __version__,
            "description": (
                "Crafter worlds over HTTP. Many steps per message also go through the "
                f"WebSocket at {_HERE}/ws: a message is a step or a list of steps, as in "
                "/batch, and so is its answer."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(route: _Route, names: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": _answer("Done.", names[route.result.__name__]),
            **{status: _refused(status, names) for status in sorted(route.refused)},
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


def _batch(names: Mapping[str, Any]) -> dict[str, Any]:
    status = {"type": "object", "properties": {"status": {"type": "integer"}}}
    item = {
        "allOf": [
            {**status, "required": ["status"]},
            {"anyOf": [names["StepReply"], names["ErrorReply"]]},
        ]
    }
    return {
        "operationId": "batch",
        "summary": "Play many steps, of one instance or of many; each has its own status.",
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {
                    "schema": {
                        "type": "array",
                        # What is no step is answered in its place, with a status of its own.
                        "items": {"anyOf": [names["StepRequest"], {}]},
                        "maxItems": MAX_BATCH,
                    }
                }
            },
        },
        "responses": {
            "200": _answer("An answer per step.", {"type": "array", "items": item}),
            **{refused: _refused(refused, names) for refused in _POSTED},
        },
    }


def _refused(status: str, names: Mapping[str, Any]) -> dict[str, Any]:
    answer = _answer(_REASONS[status], names["ErrorReply"])
    if status == "429":
        seconds = {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        answer["headers"] = {"Retry-After": seconds}
    return answer


def _answer(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": schema}}}
