"""A command that needs local models starts their service, tells where it is, and ends it."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra local; make test-local has it")

pytestmark = pytest.mark.local


def test_a_service_that_a_command_started_is_told_of_and_ends_with_it(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rows = tmp_path / "models.toml"
    rows.write_text(
        f'[providers.local]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        'base_url_variable = "ASSAY_FINETUNE_URL"\npath = "/v1"\n'
    )
    outside = {
        name: value for name, value in os.environ.items() if name != "ASSAY_FINETUNE_URL"
    }
    played = "--episodes 1 --max-turns 1 --max-tokens 16 --no-baselines"
    done = subprocess.run(
        [sys.executable, "-m", "assay", "run", "--models", "local/tiny", *played.split()],
        cwd=tmp_path,
        env={**outside, "ASSAY_MODELS": str(rows), "XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = re.search(r"answer at (\S+) until this command ends \(log: (.+)\)", done.stderr)
    assert told is not None, done.stderr
    assert told[1] == f"http://127.0.0.1:{port}/v1"
    assert Path(told[2]).is_file()
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0
