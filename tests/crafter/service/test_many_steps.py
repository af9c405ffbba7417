"""Many steps per message: the batch, and the WebSocket."""

import json
import socket as raw_socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from assay.core.refusal import MAX_BODY
from assay.crafter import World
from assay.crafter.service.requests import MAX_BATCH

from .calls import ENV, ask, raw, start, step, step_body


def worlds(address: str, count: int, **config: Any) -> list[str]:
    return [start(address, seed=seed, **config)["env_id"] for seed in range(count)]


def test_batch_steps_many_worlds_with_one_response_each(address: str) -> None:
    ids = worlds(address, 8)
    replies = ask(address, f"{ENV}/batch", [step_body(env_id, 1, 5) for env_id in ids])
    assert replies.status == 200
    for seed, reply in enumerate(replies.json):
        world = World(seed)
        world.step(1)
        world.step(5)
        assert reply["status"] == 200
        assert reply["info"]["digests"][-1] == f"{world.digest():016x}"


def test_the_steps_of_one_world_in_a_batch_run_in_order(address: str) -> None:
    (one, other) = (start(address, seed=7)["env_id"] for _ in range(2))
    actions = [2, 5, 3, 5, 1, 0]
    replies = ask(address, f"{ENV}/batch", [step_body(one, action) for action in actions]).json
    alone = [step(address, other, action).json for action in actions]
    assert [{**reply, "status": 200} for reply in alone] == replies


def test_rejected_step_does_not_affect_the_others(address: str) -> None:
    (good, short) = (*worlds(address, 1), start(address, length=1)["env_id"])
    wrong: list[Any] = [step_body(good, 99), {}, "step", None, step_body("nobody", 0)]
    bodies = [step_body(short, 0), *wrong, step_body(short, 0), step_body(good, 0)]
    replies = ask(address, f"{ENV}/batch", bodies).json
    assert [reply["status"] for reply in replies] == [200, 422, 422, 422, 422, 404, 409, 200]
    assert replies[1]["errors"][0]["field"] == "action.tool_calls.0.args.action"
    assert replies[-1]["observation"]["num_steps_taken"] == 1
    assert all("detail" in reply for reply in replies[1:-1])


def test_batch_size_is_limited(address: str) -> None:
    (env_id,) = worlds(address, 1)
    most = ask(address, f"{ENV}/batch", [step_body(env_id, 0)] * MAX_BATCH)
    assert most.status == 200
    assert len(most.json) == MAX_BATCH
    for body in ([step_body(env_id, 0)] * (MAX_BATCH + 1), [None] * (MAX_BATCH + 1)):
        refused = ask(address, f"{ENV}/batch", body)
        assert (refused.status, refused.json["code"]) == (413, "too_large")
    assert ask(address, f"{ENV}/batch", []).json == []


def test_a_repeated_request_id_in_a_batch_is_played_once(address: str) -> None:
    (env_id,) = worlds(address, 1)
    body = step_body(env_id, 1, request_id="same")
    first, again = ask(address, f"{ENV}/batch", [body, body]).json
    assert first == again


@pytest.fixture
def socket(address: str) -> Iterator[ClientConnection]:
    url = address.replace("http://", "ws://") + f"{ENV}/ws"
    with connect(url, max_size=None) as connection:
        yield connection


def say(socket: ClientConnection, message: Any) -> Any:
    socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
    return json.loads(socket.recv(timeout=60))


def test_socket_response_equals_the_http_response(
    address: str, socket: ClientConnection
) -> None:
    (one, other) = (start(address, seed=7)["env_id"] for _ in range(2))
    for action in (1, "do", 3):
        told = say(socket, step_body(one, action))
        assert told == {"status": 200, **step(address, other, action).json}
    assert say(socket, json.dumps(step_body(one, 0)).encode())["status"] == 200


def test_a_socket_answers_a_list_with_a_list(address: str, socket: ClientConnection) -> None:
    ids = worlds(address, 4)
    replies = say(socket, [step_body(env_id, 0) for env_id in ids] + [{}])
    assert [reply["status"] for reply in replies] == [200] * 4 + [422]
    assert say(socket, []) == []


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("", 422),
        ("nonsense", 422),
        ("3", 422),
        ("null", 422),
        ("{}", 422),
        ("[" * 100_000, 422),
        ('{"env_id": NaN}', 422),
        (b"\xff\xfe", 422),
        (json.dumps(step_body("nobody", 0)), 404),
        (json.dumps([step_body("nobody", 0)] * (MAX_BATCH + 1)), 413),
    ],
    ids=lambda value: str(value)[:20],
)
def test_invalid_message_does_not_close_the_socket(
    socket: ClientConnection, message: str | bytes, status: int
) -> None:
    reply = say(socket, message)
    assert reply["status"] == status
    assert reply["detail"]
    assert say(socket, []) == []


def test_a_message_that_is_too_large_closes_the_socket(socket: ClientConnection) -> None:
    socket.send(" " * (MAX_BODY + 1))
    with pytest.raises(ConnectionClosed):
        socket.recv(timeout=60)
    assert socket.close_code == 1009


@pytest.mark.parametrize(
    "frame",
    [
        b"\x81\x05abcde",  # not masked
        b"\xf1\x80abcd",  # reserved bits
        b"\x83\x80abcd",  # unknown opcode
        b"\x81\x82\x00\x00\x00\x00\xff\xfe",  # text that is not UTF-8
        b"\x88\x81abcdx",  # a close without a whole code
    ],
    ids=["unmasked", "reserved", "opcode", "utf-8", "close"],
)
def test_invalid_frames_do_no_harm_and_are_not_logged(
    address: str, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        f"GET {ENV}/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
    with raw_socket.create_connection(("127.0.0.1", urlsplit(address).port), 5) as line:
        line.sendall(head)
        assert line.recv(4096).startswith(b"HTTP/1.1 101 ")
        line.sendall(frame)
        assert line.recv(4096)[:1] == b"\x88"  # the service closes
    assert ask(address, "/health").status == 200
    assert caplog.text == ""


@pytest.mark.parametrize(
    "extra",
    [
        b"",
        b"Sec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Version: 99\r\nSec-WebSocket-Key: x\r\n",
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n",
    ],
    ids=["nothing", "no key", "version", "key"],
)
def test_invalid_handshake_is_rejected(address: str, extra: bytes) -> None:
    head = (
        f"GET {ENV}/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\n"
    ).encode()
    answer = raw(address, head + extra + b"\r\n", wait=1)
    assert answer.startswith(b"HTTP/1.1 4")
    assert b"GET " not in answer
