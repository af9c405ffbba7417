"""Access to a model server, its limits, and that no request is answered with a 500."""

import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.agents.builtin import make_builtin_models
from assay.api.servers import serve_models
from assay.errors import UsageError
from assay.models.serving.app import (
    MAX_BODY,
    ModelServerSettings,
    ModelTable,
    RunningModels,
    running,
)
from assay.models.serving.faults import CallOutcome, Faults
from tests.crafter.service.calls import TRAILERS, ask, raw, send_trailers
from tests.crafter.service.test_fuzz import BODIES, HEADS, mutated
from tests.support import free_port

from .calls import CHAT, HELLO, body_of, game, post

KEY = "sk-a-secret.for/tests"


def error_of(body: bytes) -> dict[str, Any]:
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].isprintable()
    assert len(error["message"]) < 1000
    return dict(error)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8902"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
    ids=str,
)
def test_other_hosts_and_origins_are_forbidden(address: str, headers: dict[str, str]) -> None:
    got = post(address, HELLO, **headers)
    assert got.status == 403
    assert error_of(got.body)["code"] == "forbidden"
    for path in ("/v1/models", "/stats", "/health"):
        assert ask(address, path, headers=headers).status == 403


@pytest.fixture(scope="module")
def locked() -> Iterator[RunningModels]:
    with serve_models(port=0, api_key=KEY) as server:
        yield server


@pytest.mark.parametrize("given", [None, "", "Bearer", f"Basic {KEY}", f"Bearer {KEY}x"])
def test_requests_without_the_key_are_rejected(
    locked: RunningModels, given: str | None
) -> None:
    headers = {} if given is None else {"Authorization": given}
    got = post(locked.address, HELLO, **headers)
    error = error_of(got.body)
    assert (got.status, error["code"]) == (401, "invalid_api_key")
    assert KEY not in error["message"]
    for path in ("/v1/models", "/stats"):
        assert ask(locked.address, path, headers=headers).status == 401
    assert ask(locked.address, "/health", headers=headers).status == 200


@pytest.mark.parametrize("trailers", TRAILERS)
@pytest.mark.parametrize(
    "head",
    [
        ("Host: localhost", f"Authorization: Bearer {KEY}"),
        ("Host: localhost",),
        ("Host: elsewhere",),
    ],
    ids=["allowed", "401", "403"],
)
def test_endless_trailers_close_the_connection(
    locked: RunningModels, trailers: str, head: tuple[str, ...]
) -> None:
    sent = send_trailers(locked.address, CHAT, TRAILERS[trailers], *head)
    assert sent < 9_000_000, "the connection is closed long before"
    assert ask(locked.address, "/health").status == 200


def test_requests_with_the_key_are_accepted(locked: RunningModels) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    assert post(locked.address, HELLO, **headers).status == 200
    assert ask(locked.address, "/stats", headers=headers).status == 200
    assert KEY not in repr(locked)


@pytest.mark.parametrize("aliases", [{"": "builtin/noop"}, {"a": "b"}, {"a\n": "builtin/noop"}])
def test_alias_of_an_unknown_model_is_rejected(aliases: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        ModelTable.with_aliases(make_builtin_models(), aliases)


def test_request_body_size_is_limited(address: str) -> None:
    def sized(size: int) -> bytes:
        start = b'{"model":"builtin/noop","messages":[{"role":"user","content":"'
        end = b'"}]}'
        return start + b"x" * (size - len(start) - len(end)) + end

    assert post(address, sized(MAX_BODY)).status == 200
    got = post(address, sized(MAX_BODY + 1))
    assert (got.status, error_of(got.body)["code"]) == (413, "too_large")
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    assert b" 413 " in raw(address, head.encode()).split(b"\r\n")[0]


@pytest.mark.parametrize("name", BODIES)
def test_random_request_body_is_rejected(address: str, name: str) -> None:
    got = post(address, BODIES[name])
    assert got.status == 400
    error_of(got.body)


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "9" * 5000, "NaN", "-Infinity"], ids=lambda text: text[:9]
)
def test_number_that_cannot_be_serialised_is_rejected(address: str, number: str) -> None:
    body = json.dumps({**HELLO, "tools": [{"type": "function", "function": {"name": "0"}}]})
    got = post(address, body.replace('"0"', f'"0", "x": {number}').encode())
    assert got.status == 400
    error_of(got.body)


@pytest.mark.parametrize("name", HEADS)
def test_random_headers_are_rejected_or_answered(address: str, name: str) -> None:
    line = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n".encode()
    answer = raw(address, line + HEADS[name], wait=0.3)
    assert b" 500 " not in answer.split(b"\r\n")[0]
    assert ask(address, "/health").status == 200


def test_nearly_valid_requests_are_rejected_or_answered(server: RunningModels) -> None:
    rng = random.Random(11)
    good = [json.loads(body_of(game(name, turns=3)[-1])) for name in server.names[:4]]
    odd: list[Any] = [
        *(None, True, -1, 0, 2**63, 1e308, "", "x" * 300, [], {}, [[]], {"a": {}}, 0.5),
        *("tool", "assistant", "user", "\u202e\x00", "interact", [None], {"maxItems": -5}),
    ]
    seen = set()
    for _ in range(500):
        body = json.loads(json.dumps(rng.choice(good)))
        for _ in range(rng.randint(1, 3)):
            body = mutated(rng, body, odd)
        got = post(server.address, json.dumps(body).encode())
        seen.add(got.status)
        assert got.status in (200, 400, 404), (body, got)
        if got.status != 200:
            error_of(got.body)
    assert {200, 400} <= seen
    assert server.stats()["outcomes"]["bug"] == 0


def test_only_the_first_of_many_invalid_items_is_reported(address: str) -> None:
    body = b'{"model":"a","messages":[' + b"{}," * 500_000 + b"{}]}"
    got = post(address, body)
    assert (got.status, error_of(got.body)["param"]) == (400, "messages[0]")


def test_stats_count_the_requests() -> None:
    with serve_models(port=0, aliases={"a": "builtin/noop"}) as server:
        bodies = [HELLO, HELLO, {**HELLO, "model": "a"}, {**HELLO, "model": "b"}, {}]
        for body in bodies:
            post(server.address, body)
        told = ask(server.address, "/stats").json
        assert told["calls"] == 5
        assert told["models"] == {"builtin/noop": 2, "a": 1}
        assert list(told["outcomes"]) == sorted(CallOutcome)
        counted = {name: count for name, count in told["outcomes"].items() if count}
        assert counted == {"answered": 3, "refused": 2}
        assert (told["unique"], told["repeats"], told["answered_again"]) == (2, 1, 1)
        assert (
            told["prompt_tokens"]
            == 3 * json.loads(post(server.address, HELLO).body)["usage"]["prompt_tokens"]
        )
        assert ask(server.address, "/stats/reset").status == 405
        told = ask(server.address, "/stats/reset", {}).json
        assert (told["calls"], told["unique"], told["models"]) == (0, 0, {})


def test_stopping_server_answers_open_calls_and_frees_its_port() -> None:
    slow = ModelServerSettings(port=free_port(), faults=Faults(latency=60.0))
    with ThreadPoolExecutor(1) as threads:
        with running(slow, make_builtin_models()) as server:
            waiting = threads.submit(post, server.address, HELLO)
            while not server.stats()["in_flight"]:
                time.sleep(0.01)
        got = waiting.result(timeout=60)
    assert got.status == 503
    error_of(got.body)
    port = int(server.address.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
    with serve_models(port=port) as again:
        assert again.address == server.address
        assert post(again.address, HELLO).status == 200
