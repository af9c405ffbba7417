"""Asking programs that we are checked against, in an environment of their own."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ask", "ask_statsmodels", "needs_oracles"]

ROOT = Path(__file__).parents[2]
PYTHON = Path(
    os.environ.get("ASSAY_ORACLES_PYTHON") or ROOT / ".venv-oracles" / "bin" / "python"
)

needs_oracles = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="rliable, AdaStop, statsmodels and datasets are not there: make install-oracles",
)


def ask(script: str, question: Any) -> Any:
    """What a script of this folder answers, in the environment of the oracles."""
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests" / "oracles" / script)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def ask_statsmodels(questions: Sequence[tuple[str, list[Any]]]) -> list[Any]:
    """An answer for each function of `statsmodels_side.py` and its arguments."""
    answers: list[Any] = ask("statsmodels_side.py", questions)
    return answers
