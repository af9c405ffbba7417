"""The OpenAPI document is correct: generated requests get the declared responses."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from assay.crafter.service.openapi import document

from .calls import ENV, ask, start, step_body


def test_openapi_document_lists_exactly_the_existing_routes(address: str) -> None:
    found = ask(address, "/openapi.json").json
    assert found == document()
    for path, methods in found["paths"].items():
        for method in methods:
            assert ask(address, path, method=method.upper()).status not in (404, 405)
    names = ("initialize", "step", "terminate", "restore", "checkpoint", "metadata", "batch")
    assert set(found["paths"]) == {"/health", *(f"{ENV}/{name}" for name in names)}


def test_every_openapi_reference_resolves() -> None:
    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    schemas = document()["components"]["schemas"]
    assert {ref.rsplit("/", 1)[1] for ref in references(dict(document()))} <= set(schemas)


def test_openapi_bounds_equal_the_enforced_bounds(address: str) -> None:
    schemas = document()["components"]["schemas"]
    difficulty = schemas["Config"]["properties"]["difficulty"]["anyOf"][1]
    for name, bounds in difficulty["properties"].items():
        for value, status in (
            (bounds["minimum"], 200),
            (bounds["maximum"], 200),
            (bounds["minimum"] - 0.01, 422),
            (bounds["maximum"] + 0.01, 422),
        ):
            asked = {"config": {"difficulty": {name: value}}}
            answer = ask(address, f"{ENV}/initialize", asked)
            # That a world has room for its creatures is no bound of a single number.
            if status == 422 or "room for" not in str(answer.json):
                assert answer.status == status, (name, value)
    assert schemas["InitializeRequest"]["properties"]["initial_state"]["maxProperties"] == 0
    assert ask(address, f"{ENV}/initialize", {"initial_state": {"a": 1}}).status == 422
    snapshot = schemas["RestoreRequest"]["properties"]["snapshot"]
    assert snapshot["minLength"] == 1
    assert "422 and the code `bad_snapshot`" in snapshot["description"]
    refused = ask(address, f"{ENV}/restore", {"snapshot": "QUJD"})
    assert (refused.status, refused.json["code"]) == (422, "bad_snapshot")
    assert ask(address, f"{ENV}/restore", {"snapshot": ""}).status == 422


def test_lists_above_the_documented_length_are_rejected(address: str) -> None:
    paths = document()["paths"]
    batch = paths[f"{ENV}/batch"]["post"]
    schema = batch["requestBody"]["content"]["application/json"]["schema"]
    step = step_body("none", 0)
    assert ask(address, f"{ENV}/batch", [step] * schema["maxItems"]).status == 200
    assert ask(address, f"{ENV}/batch", [step] * (schema["maxItems"] + 1)).status == 413
    # What is no step has a place in the list, and a status of its own.
    assert {} in schema["items"]["anyOf"]
    (answer,) = ask(address, f"{ENV}/batch", [None]).json
    assert answer["status"] == 422
    calls = document()["components"]["schemas"]["ToolCalls"]["properties"]["tool_calls"]
    env_id = start(address, seed=1)["env_id"]
    long = step_body(env_id, *[0] * (calls["maxItems"] + 1))
    assert ask(address, f"{ENV}/step", long).status == 413
    for name in ("batch", "step"):
        assert "413" in paths[f"{ENV}/{name}"]["post"]["responses"]


BEYOND_A_SCHEMA = (
    *("bad_snapshot", "than a world has room for"),
    *("request_id: was used before", ".0 is not allowed; give an int"),
)
"""What is wrong with requests that fit the schema, which says so where it describes 422."""
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in document()["paths"].items()
    for method in methods
]


# Schemathesis brings its own plugin and deprecations with it.
@pytest.mark.extras
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in OPERATIONS
        for mode in ("positive", "negative")
        if (name, mode) != ("GET /health", "negative")  # nothing can be wrong with it
    ],
)
def test_generated_requests_get_the_declared_responses(
    address: str, name: str, mode: str, record_property: Callable[[str, object], None]
) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    method, path = name.split(" ")
    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    if mode == "positive":
        wanted.append(checks.positive_data_acceptance)
    if mode == "negative" and not path.endswith("/batch"):  # which refuses each step by itself
        wanted.append(checks.negative_data_rejection)
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    env_id = start(address, seed=1)["env_id"]
    statuses: Counter[int] = Counter()

    @given(case=schema[path][method].as_strategy(GenerationMode(mode)))
    @settings(
        max_examples=50,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        # Every other request is about an instance that is there.
        if statuses.total() % 2 and mode == "positive":
            for body in case.body if isinstance(case.body, list) else [case.body]:
                if isinstance(body, dict) and "env_id" in body:
                    body["env_id"] = env_id
        answer = case.call()
        passed_over = set()
        if answer.status_code == 413:
            # Schemathesis does not count it among the ways to reject something.
            passed_over.add(checks.negative_data_rejection)
        if answer.status_code == 422 and any(said in answer.text for said in BEYOND_A_SCHEMA):
            passed_over.add(checks.positive_data_acceptance)
        case.validate_response(answer, checks=[c for c in wanted if c not in passed_over])
        statuses[answer.status_code] += 1

    check()
    record_property("note", dict(sorted(statuses.items())))
