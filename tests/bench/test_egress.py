"""The network of a sandbox: only the user allows it, and only through a proxy."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from assay.bench.attempt import resolve_limits
from assay.bench.config import BenchConfig, TaskEntry
from assay.bench.tasks import load_task
from assay.errors import UsageError
from assay.sandboxes.base import ResourceLimits, SandboxBackend
from assay.sandboxes.egress import Destination, _is_public, _parse_head, parse_destination
from tests.bench.runs import calc_task, entry, here, toml
from tests.sandboxes.boxes import ANY_WAY, run, spec, usable

PROBE = """
import json, os, socket, urllib.request
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
def reached(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except OSError as error:
        return f"refused {getattr(error, 'code', error)}"
print(json.dumps([reached(url) for url in URLS]))
"""


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"hello {self.path}".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def server() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hello) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        try:
            yield made.server_port
        finally:
            made.shutdown()


@pytest.fixture(params=ANY_WAY)
def backend(request: pytest.FixtureRequest) -> SandboxBackend:
    return usable(request.param)


def test_proxy_reaches_only_hosts_that_the_user_allowed(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    with server() as port, server() as other:
        urls = [
            f"http://127.0.0.1:{port}/a",
            f"http://localhost:{port}/",
            f"http://127.0.0.1:{other}/",
            f"http://[::ffff:127.0.0.1]:{other}/",
            "http://169.254.169.254/latest/meta-data/",
            "https://10.0.0.1/",
        ]
        limits = ResourceLimits(network=("public", f"127.0.0.1:{port}"))
        text = f"URLS = {urls!r}\n{PROBE}"
        end = run(backend, spec(tmp_path, limits), "/usr/bin/python3", "-c", text)
    first, *rest = json.loads(end.output)
    assert first == "hello /a"
    assert all(answer.startswith("refused") for answer in rest), rest
    (refused,) = [finding for finding in end.findings if finding.name == "network_refused"]
    assert f"127.0.0.1:{other}" in refused.detail
    assert "169.254.169.254:80" in refused.detail


def test_abstract_sockets_of_the_host_are_unreachable_with_a_network(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0assay-test-egress")
        listener.listen()
        text = "import socket; socket.socket(socket.AF_UNIX).connect('\\0assay-test-egress')"
        limits = ResourceLimits(network=("public",))
        end = run(backend, spec(tmp_path, limits), "/usr/bin/python3", "-c", text)
    assert b"Connection refused" in end.output


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("public", Destination("public", None)),
        ("Mirror.lan:8080", Destination("mirror.lan", 8080)),
        ("[::1]:80", Destination("::1", 80)),
        ("[::1]", Destination("::1", None)),
    ],
)
def test_destinations_are_hosts_with_or_without_a_port(text: str, parsed: Destination) -> None:
    assert parse_destination(text) == parsed


@pytest.mark.parametrize("text", ["", "a b", "http://x", "x:0", "x:70000", "x:y", "u@x", "x:"])
def test_other_destinations_are_rejected_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"(?s)public.*HOST:PORT"):
        BenchConfig(allow_network=(text,))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "168.63.129.16", "::1", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "ff0e::1"),
    ],
)
def test_addresses_that_are_not_public_are_recognized(address: str) -> None:
    assert not _is_public(address)


def test_public_addresses_are_recognized() -> None:
    assert _is_public("93.184.216.34")
    assert _is_public("2606:2800:220:1::1")


def test_request_is_forwarded_without_proxy_headers() -> None:
    head = "GET http://a.org/x?y HTTP/1.1\r\nHost: a.org\r\nProxy-Authorization: z\r\n\r\n"
    request = _parse_head(head)
    assert request is not None
    assert request.target == Destination("a.org", 80)
    assert request.forwarded == (
        b"GET /x?y HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize("line", ["GET /", "GET ftp://a/ HTTP/1.1", "CONNECT a HTTP/1.1", "x"])
def test_invalid_proxy_request_is_rejected(line: str) -> None:
    assert _parse_head(f"{line}\r\n\r\n") is None


def test_task_cannot_enable_its_network(tmp_path: Path) -> None:
    task = load_task(calc_task(tmp_path / "task", limits={"network": True}))
    silent = TaskEntry(prepared_dir="task")
    assert resolve_limits(task, silent).network == ()
    assert resolve_limits(task, silent, ("a.org",)).network == ("a.org",)
    assert resolve_limits(task, replace(silent, network=True)).network == ("public",)
    assert resolve_limits(task, replace(silent, network=False), ("a.org",)).network == ()


def test_plan_lists_tasks_with_a_network_and_tasks_denied_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    calc_task(tmp_path / "task", limits={"network": True})
    toml(tmp_path / "bench.toml", entry(agent="nop"))
    plan = here(capsys, "bench", "run", "bench.toml", "--dry-run")
    assert (
        "requests network access and does not have it; allow it with --allow-network"
        in plan.errors
    )
    plan = here(capsys, "bench", "run", "bench.toml", "--dry-run", "--allow-network", "a.org")
    assert "HTTP(S) proxy to a.org" in plan.errors
