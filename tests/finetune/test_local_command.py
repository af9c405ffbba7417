"""A command that needs local models starts their service, prints its address, and stops it."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import free_port

pytestmark = pytest.mark.local


def usual_place(folder: Path) -> tuple[int, dict[str, str]]:
    """Return an environment whose default address for local models is a free port."""
    port = free_port()
    rows = folder / "models.toml"
    rows.write_text(
        f'[providers.local]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        'base_url_variable = "ASSAY_FINETUNE_URL"\npath = "/v1"\n'
    )
    outside = {
        name: value for name, value in os.environ.items() if name != "ASSAY_FINETUNE_URL"
    }
    own = {"ASSAY_MODELS": str(rows), "XDG_DATA_HOME": str(folder / "data")}
    return port, {**outside, **own}


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_a_service_started_by_a_command_is_announced_and_ends_with_it(tmp_path: Path) -> None:
    port, environment = usual_place(tmp_path)
    played = "--episodes 1 --max-turns 1 --max-tokens 16 --no-baselines"
    done = subprocess.run(
        [sys.executable, "-m", "assay", "run", "--models", "local/tiny", *played.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    announcement = re.search(
        r"served at (\S+) until this command ends \(log: (.+)\)", done.stderr
    )
    assert announcement is not None, done.stderr
    assert announcement[1] == f"http://127.0.0.1:{port}/v1"
    assert Path(announcement[2]).is_file()
    assert not answers(port)


def test_a_service_used_by_two_commands_ends_with_the_last(tmp_path: Path) -> None:
    port, environment = usual_place(tmp_path)
    use = f"""
import sys
from assay.models.local_service import ensure_local
ensure_local("http://127.0.0.1:{port}/v1")
print("ready", flush=True)
sys.stdin.read()
"""

    def command() -> "subprocess.Popen[str]":
        started = subprocess.Popen(
            [sys.executable, "-c", use],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        return started

    first, second = command(), command()
    first.communicate()
    assert first.returncode == 0
    assert answers(port)
    second.communicate()
    for _ in range(1_000):
        if not answers(port):
            break
        time.sleep(0.1)
    assert not answers(port)
