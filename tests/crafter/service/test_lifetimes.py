"""Lifetimes of instances, repeatable responses and connections."""

import os
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

from assay.core import hosting
from assay.crafter.service.app import ServiceSettings, running
from assay.crafter.service.requests import InitializeRequest, StepRequest
from assay.crafter.service.worlds import Worlds
from assay.errors import UnknownInstance

from .calls import ENV, ask, raw, start, step, step_body


class Clock:
    """A clock that is advanced by the test."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_idle_instances_expire_and_active_ones_do_not() -> None:
    clock = Clock()
    worlds = Worlds(seed=0, idle_timeout=10, clock=clock)
    idle, used = (worlds.initialize(InitializeRequest()).env_id for _ in range(2))
    clock.now += 9
    worlds.step(StepRequest.model_validate(step_body(used, 0)))
    clock.now += 9
    assert worlds.metadata(used)["engine_info"]["step"] == 1
    with pytest.raises(UnknownInstance, match="idle for 10 s"):
        worlds.checkpoint(idle)
    assert len(worlds.instances) == 1
    clock.now += 11
    worlds.instances.expire()
    assert len(worlds.instances) == 0


def test_expired_instances_free_capacity() -> None:
    clock = Clock()
    worlds = Worlds(seed=0, max_instances=1, idle_timeout=10, clock=clock)
    worlds.initialize(InitializeRequest())
    clock.now += 11
    worlds.initialize(InitializeRequest())
    assert len(worlds.instances) == 1


def test_service_removes_idle_instances() -> None:
    with running(ServiceSettings(port=0, idle_timeout=0.3)) as service:
        env_id = start(service.address)["env_id"]
        time.sleep(0.5)
        assert step(service.address, env_id, 0).status == 404


def test_repeated_step_request_is_answered_without_another_step(address: str) -> None:
    env_id = start(address, seed=2)["env_id"]
    first = step(address, env_id, 1, 5, request_id="a")
    again = step(address, env_id, "move_left", "do", request_id="a")
    assert first.json == again.json
    assert first.json["observation"]["num_steps_taken"] == 2
    second = step(address, env_id, 1, 5, request_id="b")
    assert second.json["observation"]["num_steps_taken"] == 4
    assert step(address, env_id, 1, 5, request_id="a").json == first.json


def test_last_step_of_an_episode_can_be_requested_again(address: str) -> None:
    env_id = start(address, seed=2, length=1)["env_id"]
    last = step(address, env_id, 0, request_id="last")
    assert last.json["done"] is True
    assert step(address, env_id, 0, request_id="last").json == last.json
    assert step(address, env_id, 0, request_id="next").status == 409


def test_request_id_cannot_be_reused_for_another_step(address: str) -> None:
    env_id = start(address, seed=2)["env_id"]
    step(address, env_id, 1, request_id="a")
    refused = step(address, env_id, 2, request_id="a")
    assert refused.status == 422
    assert refused.json["errors"][0]["field"] == "request_id"
    other = start(address, seed=2)["env_id"]
    assert step(address, other, 2, request_id="a").status == 200


def test_only_the_latest_responses_are_kept(address: str) -> None:
    env_id = start(address, seed=2)["env_id"]
    for count in range(6):
        step(address, env_id, 0, request_id=str(count))
    assert step(address, env_id, 0, request_id="5").json["observation"]["num_steps_taken"] == 6
    assert step(address, env_id, 0, request_id="0").json["observation"]["num_steps_taken"] == 7


DYING = """
import http.client, json, os, sys
host, port, env_id, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
calls = [{"tool": "interact", "args": {"action": 0}}] * 100
body = json.dumps({"env_id": env_id, "action": {"tool_calls": calls}}).encode()
line = http.client.HTTPConnection(host, port)
line.putrequest("POST", "/env/CrafterClassic/step")
line.putheader("Content-Length", str(len(body)))
line.endheaders(body[:size] if size else body)
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("size", [0, 1000], ids=["whole request", "half a request"])
def test_killed_client_does_not_affect_the_service(address: str, size: int) -> None:
    env_id = start(address, seed=2)["env_id"]
    parts = urlsplit(address)
    command = [sys.executable, "-c", DYING, "127.0.0.1", str(parts.port), env_id, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
    reply = step(address, env_id, 0)
    assert reply.status == 200
    assert reply.json["observation"]["num_steps_taken"] in ({1} if size else {1, 101})


def test_endless_request_head_is_cut_off(address: str) -> None:
    endless = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 300_000
    assert raw(address, endless).startswith(b"HTTP/1.1 400 ")
    lines = b"".join(b"X-%d: y\r\n" % count for count in range(20_000))
    assert raw(address, b"GET /health HTTP/1.1\r\n" + lines).startswith(b"HTTP/1.1 400 ")
    assert ask(address, "/health").status == 200


def test_slow_request_head_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "HEAD_SECONDS", 0.3)
    with running(ServiceSettings(port=0)) as service:
        port = urlsplit(service.address).port
        for sent in (b"", b"GET /health HTTP/1.1\r\nHost: loc"):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
                line.sendall(sent)
                assert line.recv(100) == b""


def test_missing_request_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.core.http.BODY_SECONDS", 0.2)
    head = (
        f"POST {ENV}/step HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{{"
    ).encode()
    with running(ServiceSettings(port=0)) as service:
        assert raw(service.address, head).startswith(b"HTTP/1.1 408 ")
