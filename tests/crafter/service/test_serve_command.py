"""`assay serve` as a program: start, output and exit."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from assay.cli import main
from tests.support import read_line, serve_apart

from .calls import ENV, ask, start

pytestmark = pytest.mark.usefixtures("compiled_engine")

TOKEN = "never-shown-anywhere"


def rest(program: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the remaining output and the errors after the exit."""
    program.wait(timeout=120)
    assert program.stdout is not None
    assert program.stderr is not None
    # `communicate` would miss the lines that were read ahead together with the first.
    return program.stdout.read(), program.stderr.read()


@pytest.fixture
def fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Run a command that must fail before serving; return its one line of output."""

    def run(*arguments: str, **environment: str) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert main(["serve", *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    return run


@pytest.mark.extras
def test_serve_prints_the_address_and_a_working_example() -> None:
    with serve_apart("serve", "--seed", "5") as program:
        line = read_line(program)
        assert line.startswith("serving CrafterClassic on http://127.0.0.1:")
        address = line.split()[3]
        assert ask(address, "/health").status == 200
        program.send_signal(signal.SIGINT)
        output, errors = rest(program)
        assert (program.returncode, errors) == (0, "")
    *_, example, last = output.splitlines()
    assert last == "stopped"
    assert "--seed 5" in output
    assert example.startswith(f"try: curl {address}/env/CrafterClassic/initialize -d ")
    assert json.loads(example.split("'")[1]) == {"config": {"seed": 7}}


@pytest.mark.extras
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_serve_shuts_down_cleanly_with_connected_clients(number: signal.Signals) -> None:
    with serve_apart("serve", "--json") as program:
        told: dict[str, Any] = json.loads(read_line(program))
        address = told["address"]
        start(address, seed=1)
        assert told["pid"] == program.pid
        with connect(address.replace("http", "ws") + f"{ENV}/ws") as line:
            program.send_signal(number)
            assert program.wait(timeout=120) == 0
            with pytest.raises(ConnectionClosed):
                line.recv(timeout=60)
            assert line.close_code == 1012
        assert rest(program) == ("", "")


def test_used_port_is_reported_in_one_line(fails: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = fails("--port", port)
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line
    assert "--port" in line


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--host", "no.such.host.invalid"], ["no.such.host.invalid", "--host"]),
        (["--host", "192.0.2.1"], ["192.0.2.1", "--host"]),
        (["--host", ""], ["host is empty"]),
        (["--port", "70000"], ["70000", "--port"]),
        (["--max-instances", "0"], ["0", "--max-instances"]),
        (["--idle-timeout", "0"], ["0", "--idle-timeout"]),
        (["--idle-timeout", "nan"], ["nan"]),
        (["--token-env", "NOT_SET_ANYWHERE"], ["NOT_SET_ANYWHERE", "--token-env"]),
    ],
    ids=lambda value: value[0] if value[0].startswith("--") else "",
)
def test_invalid_option_is_reported_in_one_line(
    fails: Callable[..., str], arguments: list[str], parts: list[str]
) -> None:
    line = fails(*arguments)
    assert [part for part in parts if part not in line] == []


@pytest.mark.parametrize("token", ["", "with blank", "é", "a\tb"], ids=repr)
def test_token_invalid_in_headers_is_rejected_and_not_shown(
    fails: Callable[..., str], token: str
) -> None:
    line = fails(ASSAY_SERVICE_TOKEN=token)
    assert "ASSAY_SERVICE_TOKEN" in line
    assert not token or token not in line


@pytest.mark.extras
def test_token_from_the_environment_is_required_and_never_shown() -> None:
    with serve_apart("serve", "--token-env", "MINE", MINE=TOKEN) as program:
        address = read_line(program).split()[3]
        assert ask(address, f"{ENV}/initialize", {}).status == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert ask(address, f"{ENV}/initialize", {}, headers=headers).status == 200
        program.send_signal(signal.SIGTERM)
        output, errors = rest(program)
    assert "Authorization: Bearer $MINE" in output
    assert TOKEN not in output + errors


@pytest.mark.extras
def test_serve_warns_if_other_machines_can_reach_it() -> None:
    with serve_apart("serve", "--host", "0.0.0.0", "--quiet") as program:
        line = read_line(program)
        assert line.startswith("http://0.0.0.0:")
        port = line.rsplit(":", 1)[1]
        assert ask(f"http://127.0.0.1:{port}", "/health").status == 200
        program.send_signal(signal.SIGINT)
        output, errors = rest(program)
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith("warning: other machines can reach 0.0.0.0")
    assert "ASSAY_SERVICE_TOKEN" in errors
