"""Every invalid request gets a status, a reason, a field and the allowed values."""

from collections.abc import Iterator
from typing import Any

import pytest

from assay.core.refusal import MAX_BODY
from assay.crafter import ACTIONS
from assay.crafter.service.app import ServiceSettings, running
from assay.crafter.service.requests import INCLUDES, MAX_CALLS

from .calls import (
    ENV,
    TRAILERS,
    Answer,
    ask,
    raw,
    send_trailers,
    start,
    step,
    step_body,
)


def field_of(answer: Answer) -> dict[str, Any]:
    """Return the only field named in the errors."""
    assert answer.status == 422, answer.json
    assert answer.json["code"] == "invalid"
    (problem,) = answer.json["errors"]
    assert problem["message"] in answer.json["detail"]
    return dict(problem)


@pytest.mark.parametrize(
    "action",
    [-1, 17, 18, 2**70, 1.0, 1.5, True, None, "", "NOOP", "eat_cow", [1], {"action": 1}],
    ids=repr,
)
def test_unknown_action_is_rejected_and_not_clipped(address: str, action: object) -> None:
    env_id = start(address, seed=1)["env_id"]
    problem = field_of(step(address, env_id, 0, action))
    assert problem["field"] == "action.tool_calls.1.args.action"
    assert problem["allowed"] == [*range(17), *ACTIONS]
    # None of the calls ran, not even the good one.
    metadata = ask(address, f"{ENV}/metadata?env_id={env_id}").json
    assert metadata["engine_info"]["step"] == 0


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({"seed": -1}, "config.seed", "-1 is not allowed; give an int from 0 to 2147483647"),
        ({"seed": 2**31}, "config.seed", "2147483648 is not allowed"),
        ({"seed": "7"}, "config.seed", "'7' is not allowed"),
        ({"seed": 7.0}, "config.seed", "7.0 is not allowed"),
        ({"seed": True}, "config.seed", "True is not allowed"),
        ({"length": 0}, "config.length", "0 is not allowed; give an int from 1 to 100000"),
        ({"length": 100_001}, "config.length", "100001 is not allowed"),
        ({"difficulty": "esy"}, "config.difficulty", "did you mean 'easy'?"),
        ({"difficulty": 3}, "config.difficulty", "unknown difficulty '3'"),
        ({"difficulty": "x" * 500}, "config.difficulty", "too long"),
        ({"difficulty": {"tree_chance": 2}}, "config.difficulty", "from 0 to 1"),
        ({"difficulty": {"tree_chance": 10**400}}, "config.difficulty", "tree_chance"),
        ({"difficulty": {"tre_chance": 1}}, "config.difficulty", "did you mean 'tree_chance'?"),
        ({"include": ["map"]}, "config.include.0", "choose from: semantic_map"),
        ({"include": "view"}, "config.include", "'view' is not allowed"),
        ({"sed": 3}, "config.sed", "did you mean 'seed'?"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_invalid_config_error_names_field_and_allowed_values(
    address: str, config: dict[str, Any], field: str, words: str
) -> None:
    problem = field_of(ask(address, f"{ENV}/initialize", {"config": config}))
    assert problem["field"] == field
    assert words in problem["message"]


@pytest.mark.parametrize(
    ("path", "body", "field", "words"),
    [
        ("initialize", {"confg": {}}, "confg", "did you mean 'config'?"),
        ("initialize", {"config": []}, "config", "give an object"),
        ("initialize", [], "body", "not allowed"),
        ("initialize", {"initial_state": {"x": 1}}, "initial_state", "'restore'"),
        (
            "initialize",
            {"task_instance": {"metadata": {"seed": -3}}},
            "task_instance.metadata.seed",
            "an int from 0",
        ),
        ("step", {"action": {"tool_calls": [{}]}}, "env_id", "is missing"),
        ("terminate", {}, "env_id", "is missing"),
        ("terminate", {"env_id": 3}, "env_id", "a string"),
        ("restore", {}, "snapshot", "is missing"),
        ("restore", {"snapshot": "!", "snap": 1}, "snap", "did you mean 'snapshot'?"),
        ("batch", {}, "body", "not allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_invalid_body_error_names_the_field(
    address: str, path: str, body: Any, field: str, words: str
) -> None:
    answer = ask(address, f"{ENV}/{path}", body)
    assert answer.status == 422
    assert answer.json["errors"][0]["field"] == field
    assert words in answer.json["errors"][0]["message"]


@pytest.mark.parametrize(
    ("calls", "field"),
    [
        ([], "action.tool_calls"),
        ([{"tool": "look", "args": {"action": 1}}], "action.tool_calls.0.tool"),
        ([{"tool": "interact"}], "action.tool_calls.0.args"),
        ([{"tool": "interact", "args": {}}], "action.tool_calls.0.args.action"),
        ([{"tool": "interact", "args": [1]}], "action.tool_calls.0.args"),
        (["noop"], "action.tool_calls.0"),
        ({"tool": "interact", "args": {"action": 1}}, "action.tool_calls"),
    ],
    ids=["none", "tool", "no args", "no action", "list", "text", "no list"],
)
def test_invalid_tool_calls_are_rejected(address: str, calls: Any, field: str) -> None:
    body = {"env_id": "x", "action": {"tool_calls": calls}}
    problem = field_of(ask(address, f"{ENV}/step", body))
    assert problem["field"] == field
    if field.endswith("tool"):
        assert problem["allowed"] == ["interact"]


@pytest.mark.parametrize(
    "text", ["", "!", "QUJD", "QQ==", "é", "QVNTQVlDUkY=" * 700], ids=lambda text: text[:6]
)
def test_invalid_snapshot_is_rejected(address: str, text: str) -> None:
    answer = ask(address, f"{ENV}/restore", {"snapshot": text})
    assert answer.status == 422
    assert answer.json["code"] == "bad_snapshot"
    assert answer.json["errors"][0]["field"] == "snapshot"


@pytest.mark.parametrize("path", ["step", "terminate"])
def test_missing_instance_is_reported_as_unknown(address: str, path: str) -> None:
    body = step_body("nobody", 0)
    answer = ask(address, f"{ENV}/{path}", body)
    assert (answer.status, answer.json["code"]) == (404, "unknown_instance")
    assert "'nobody' not found" in answer.json["detail"]
    for name in ("checkpoint", "metadata"):
        assert ask(address, f"{ENV}/{name}?env_id=nobody").status == 404


def test_unknown_environment_error_lists_the_available_ones(address: str) -> None:
    for path, body in (("initialize", {}), ("metadata", None), ("step", step_body("x", 0))):
        answer = ask(address, f"/env/Sokoban/{path}", body)
        assert answer.status == 404
        assert "'Sokoban'; supported: CrafterClassic" in answer.json["detail"]


def test_unknown_path_or_method_gets_a_json_error(address: str) -> None:
    for path in ("/", "/env", "/env/CrafterClassic", f"{ENV}/reset", "/health/", "/docs/x"):
        answer = ask(address, path)
        assert (answer.status, answer.json["code"]) == (404, "not_found")
    answer = ask(address, f"{ENV}/step")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.json["code"] == "method_not_allowed"
    assert ask(address, f"{ENV}/checkpoint").status == 422


def test_oversized_request_is_rejected(address: str) -> None:
    blank = b" " * (MAX_BODY + 1)
    for path in ("initialize", "step", "terminate", "restore", "batch"):
        answer = ask(address, f"{ENV}/{path}", blank)
        assert (answer.status, answer.json["code"]) == (413, "too_large")
    answer = ask(address, f"{ENV}/step", step_body("x", *[0] * (MAX_CALLS + 1)))
    assert answer.status == 413
    assert f"at most {MAX_CALLS}" in answer.json["detail"]
    env_id = start(address, seed=1)["env_id"]
    assert step(address, env_id, *[0] * MAX_CALLS).status == 200


def test_far_oversized_request_is_not_read(address: str) -> None:
    line = f"POST {ENV}/step HTTP/1.1\r\nHost: localhost\r\n"
    answer = raw(address, f"{line}Content-Length: 99999999999\r\n\r\n{{".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    polite = f"{line}Content-Length: {MAX_BODY + 1}\r\nExpect: 100-continue\r\n\r\n"
    assert raw(address, polite.encode()).startswith(b"HTTP/1.1 413 ")
    endless = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    head = f"{line}Transfer-Encoding: chunked\r\n\r\n".encode()
    answer = raw(address, head + endless * 20)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")
    assert ask(address, "/health").status == 200


@pytest.fixture
def small() -> Iterator[str]:
    with running(ServiceSettings(port=0, max_instances=2, idle_timeout=40)) as service:
        yield service.address


def test_instance_limit_blocks_new_worlds_until_one_ends(small: str) -> None:
    first = start(small, seed=1)["env_id"]
    saved = ask(small, f"{ENV}/checkpoint?env_id={first}").json
    start(small, seed=2)
    for path, body in (("initialize", {}), ("restore", {"snapshot": saved["snapshot"]})):
        answer = ask(small, f"{ENV}/{path}", body)
        assert (answer.status, answer.json["code"]) == (429, "instance_limit")
        assert 30 <= int(answer.headers["retry-after"]) <= 40
    ask(small, f"{ENV}/terminate", {"env_id": first})
    assert start(small, seed=3)["info"]["seed"] == 3


def test_everything_that_can_be_included_is_listed() -> None:
    from assay.crafter.service.requests import Config

    assert list(Config(include=list(INCLUDES)).include or []) == list(INCLUDES)


@pytest.mark.parametrize("trailers", TRAILERS)
@pytest.mark.parametrize("host", ["localhost", "elsewhere"], ids=["allowed", "refused"])
def test_endless_trailers_close_the_connection(address: str, trailers: str, host: str) -> None:
    sent = send_trailers(address, f"{ENV}/initialize", TRAILERS[trailers], f"Host: {host}")
    assert sent < 9_000_000, "the connection is closed long before"
    assert ask(address, "/health").status == 200


def test_body_in_many_small_chunks_is_accepted(address: str) -> None:
    body = b'{"config": {"seed": 1}}' + b" " * 20_000
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    head = (
        f"POST {ENV}/initialize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    answer = raw(address, head + pieces + b"0\r\nx: y\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
