"""`assay serve-models` as a program: output, errors and exit."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from assay.cli import main
from tests.crafter.service.calls import ask
from tests.support import read_line, serve_apart

from .calls import CHAT, HELLO, post

KEY = "never-shown-anywhere"


def ended(program: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    """Return the remaining output and the errors after the exit."""
    program.send_signal(number)
    assert program.wait(timeout=120) == 0
    assert program.stdout is not None
    assert program.stderr is not None
    return program.stdout.read(), program.stderr.read()


def test_serve_models_prints_the_base_url_and_a_working_example() -> None:
    with serve_apart("serve-models", "--alias", "a=builtin/noop") as program:
        line = read_line(program)
        assert line.startswith("serving models on http://127.0.0.1:")
        base_url = line.split()[3]
        models, counts, clients, example = (read_line(program) for _ in range(4))
        assert models.endswith("builtin/expert, a")
        assert ask(counts.removeprefix("counts: "), "/stats").json["calls"] == 0
        assert f"OPENAI_BASE_URL={base_url} " in clients
        url, _, body = shlex.split(example.removeprefix("try: curl "))
        assert url == f"{base_url}/chat/completions"
        assert post(base_url, body.encode()).status == 200
        assert ended(program, signal.SIGINT) == ("stopped\n", "")


def test_options_reach_the_server_and_open_calls_do_not_block_its_exit() -> None:
    options = "--rate-limit 100/min --rate-burst 2 --max-concurrency 9 --late-rate 0.5"
    with serve_apart(
        "serve-models", "--json", "--seed", "3", "--jitter", "0.001", *options.split()
    ) as program:
        told: dict[str, Any] = json.loads(read_line(program))
        assert told["limits"] == {"per_minute": 100, "burst": 2, "at_once": 9}
        assert told["faults"]["seed"] == 3
        assert told["faults"]["late_seconds"] == 30.0
        assert told["pid"] == program.pid
        late = {**HELLO, "stream": True}
        with subprocess.Popen(
            [sys.executable, "-c", ASK, told["address"], json.dumps(late)],
            stdout=subprocess.PIPE,
            text=True,
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "sent\n"
            assert ended(program, signal.SIGTERM) == ("", "")


ASK = f"""
import http.client, sys
host, body = sys.argv[1].removeprefix("http://"), sys.argv[2]
line = http.client.HTTPConnection(host)
line.request("POST", {CHAT!r}, body)
print("sent", flush=True)
line.getresponse().read()
"""


@pytest.mark.extras
def test_key_from_the_environment_is_required_and_never_shown() -> None:
    with serve_apart("serve-models", "--api-key-env", "MINE", MINE=KEY) as program:
        base_url = read_line(program).split()[3]
        assert post(base_url, HELLO).status == 401
        assert post(base_url, HELLO, Authorization=f"Bearer {KEY}").status == 200
        output, errors = ended(program, signal.SIGTERM)
    assert "Authorization: Bearer $MINE" in output
    assert KEY not in output + errors


@pytest.mark.extras
def test_serve_warns_if_other_machines_can_reach_it() -> None:
    with serve_apart("serve-models", "--host", "0.0.0.0", "--quiet") as program:
        line = read_line(program)
        port = line.removesuffix("/v1").rsplit(":", 1)[1]
        assert ask(f"http://127.0.0.1:{port}", "/health").status == 200
        output, errors = ended(program, signal.SIGINT)
    assert output == ""
    assert errors.startswith("warning: other machines can reach 0.0.0.0")
    assert "ASSAY_SERVE_MODELS_KEY" in errors


@pytest.fixture
def fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    def run(*arguments: str, **environment: str) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert main(["serve-models", *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    return run


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("--latency -1", ["-1", "--latency"]),
        ("--latency nan", ["nan"]),
        ("--error-rate 2", ["2", "--error-rate"]),
        ("--error-rate 0.6 --cut-rate 0.6", ["1.2", "must not exceed 1"]),
        ("--rate-limit many", ["many", "--rate-limit", "300/min"]),
        ("--rate-limit 0", ["0", "--rate-limit"]),
        ("--rate-burst 3", ["--rate-burst", "--rate-limit"]),
        ("--max-concurrency 0", ["0", "--max-concurrency"]),
        ("--alias noop", ["noop", "NAME=builtin/noop"]),
        ("--alias a=builtin/nop", ["builtin/nop", "did you mean 'builtin/noop'"]),
        ("--alias a=builtin/noop --alias a=builtin/random", ["'a'", "twice"]),
        ("--alias builtin/noop=builtin/random", ["builtin/noop", "already"]),
        ("--script not/there.toml", ["not/there.toml", "does not exist"]),
        ("--host no.such.host.invalid", ["no.such.host.invalid", "--host"]),
        ("--api-key-env NOT_SET_ANYWHERE", ["NOT_SET_ANYWHERE", "--api-key-env"]),
    ],
)
def test_invalid_option_is_reported_in_one_line(
    fails: Callable[..., str], options: str, parts: list[str]
) -> None:
    line = fails(*options.split())
    assert [part for part in parts if part not in line] == []


def test_key_invalid_in_headers_is_rejected_and_not_shown(
    fails: Callable[..., str],
) -> None:
    line = fails(ASSAY_SERVE_MODELS_KEY="with blank")
    assert "ASSAY_SERVE_MODELS_KEY" in line
    assert "with blank" not in line
