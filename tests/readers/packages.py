"""Runs logged by the real trackers, in an environment of their own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ROOT", "log_runs", "needs_readers"]

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("ASSAY_READERS_PYTHON") or ROOT / ".venv-readers/bin/python")

needs_readers = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="wandb, tensorboard, tensorboardX and mlflow are not there: make install-readers",
)


def log_runs(script: str, question: Any, folder: Path, **environment: str) -> Any:
    """What a script of this folder says after it logged into a folder."""
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "readers" / script)],
        input=json.dumps(question),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
