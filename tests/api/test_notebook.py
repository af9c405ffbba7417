"""A run shows its progress in a notebook; other programs that import assay print nothing."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from assay.api.notebook import NotebookProgress
from assay.runs.control import TrialVerdict
from assay.runs.events import (
    CallRetried,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialProgress,
    TrialStarted,
)
from assay.runs.plan import Trial
from assay.types import TrialState

PROGRAM = """
import sys
if "notebook" in sys.argv:
    import IPython
import assay.api.notebook
assay.api.notebook._FIRST_UPDATE_S = 0.0
import assay
assay.run(models=["builtin/noop"], episodes=2, max_turns=3, baselines=False, save_traces=False)
"""
SHELL = "def get_ipython():\n    return object()\n"


@pytest.mark.extras
@pytest.mark.usefixtures("compiled_engine")
@pytest.mark.parametrize("where", ["notebook", "program"])
def test_a_run_shows_progress_only_in_a_notebook(tmp_path: Path, where: str) -> None:
    # A notebook has the package loaded, a shell, and no terminal.
    (tmp_path / "IPython.py").write_text(SHELL, "utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    done = subprocess.run(
        [sys.executable, "program.py", where],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert done.stdout == b""
    # DuckDB may list objects at the end of any program.
    printed = done.stderr.decode().partition("nanobind: ")[0]
    if where == "notebook":
        # On a busy machine a line on storing may follow.
        last = printed.rpartition("\r")[2].partition("\n")[0]
        assert last.startswith("builtin/noop: 2 of 2 episodes, 6 turns in total, ")
        assert last.endswith(" s")
    else:
        assert printed == ""


def test_the_progress_line_is_overwritten_and_names_retries() -> None:
    now, out = 0.0, StringIO()
    progress = NotebookProgress(out, clock=lambda: now)
    tell = progress.on_event
    trial = Trial("t", "a", 0, None)
    tell(RunStarted({"a": 2}))
    tell(TrialStarted(trial, 1))
    assert out.getvalue() == "", "short work is not reported"
    now = 3.0
    tell(CallRetried("a", "it is busy\x1b[31m", 1, 20.0))
    now = 4.0
    tell(TrialProgress(trial, None))
    progress.on_message("something else")
    now = 9.0
    tell(TrialEnded(trial, 1, TrialVerdict(TrialState.RESULT, "died")))
    tell(RunEnded({}))
    long = r"a: 0 of 2 episodes, 0 turns in total, 3 s; retrying in 20 s: it is busy\x1b[31m"
    assert out.getvalue().split("\r") == [
        "",
        long,
        f"{'a: 0 of 2 episodes, 1 turns in total, 4 s':{len(long)}}\nsomething else\n",
        "a: 1 of 2 episodes, 1 turns in total, 9 s",
        "a: 1 of 2 episodes, 1 turns in total, 9 s\n",
    ]
