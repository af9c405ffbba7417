"""Benchmarks for tests: a TOML file, and commands in this process or in a subprocess."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from tests.support import Finished, run_python

from .benching import BROKEN, SOLVED, TEST_ADD, TEST_DOUBLE
from .tasks import write

PATCH = """\
diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,6 +1,6 @@
 def add(a, b):
-    return a - b
+    return a + b
 
 
 def double(a):
-    return a
+    return 2 * a
"""
HALF = "sed -i 's/a - b/a + b/' calc.py"
"""A command that solves rubrics with three quarters of the weight."""
WHOLE = f"cat > calc.py <<'END'\n{SOLVED}END"


def calc_task(folder: Path, *, tests: bool = True, **meta: Any) -> Path:
    """Write a task with two mistakes; without tests, one rubric needs a judge."""
    write(folder, {"LM_INSTRUCTIONS.md": "Mend add and double.\n", "diff.patch": PATCH})
    write(folder / "repo", {"calc.py": BROKEN})
    rubrics: list[dict[str, Any]] = [
        {"id": "adds", "criterion": "add adds", "weight": 3},
        {"id": "doubles", "criterion": "double doubles"},
    ]
    scripts = [
        {"path": "test_add.py", "rubric_id": "adds", "content": TEST_ADD},
        {"path": "test_double.py", "rubric_id": "doubles", "content": TEST_DOUBLE},
    ]
    if not tests:
        rubrics, scripts = [{"id": "reads", "criterion": "It reads well"}], []
    evaluation = {"rubrics": rubrics, "test_scripts": scripts}
    whole = {"task_id": folder.name, "evaluation": evaluation, **meta}
    write(folder, {"tb_meta.json": json.dumps(whole)})
    return folder


def command(folder: Path, *arguments: str, **variables: str) -> Finished:
    """Run a command in a subprocess, as a user does."""
    return run_python(
        "-m", "assay", *arguments, folder=folder, expected=None, variables=variables
    )


def here(capsys: pytest.CaptureFixture[str], *arguments: str) -> Finished:
    """Run a command in this process."""
    capsys.readouterr()
    code = main([*arguments])
    said = capsys.readouterr()
    return Finished(code, said.out, said.err)


def toml(path: Path, text: str, **values: Any) -> Path:
    """Write a benchmark file: first the values (strings, numbers, lists), then the tables."""
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items()]
    write(path.parent, {path.name: "".join(lines) + text})
    return path


def entry(prepared: str | Path = "task", **values: Any) -> str:
    """Format a table of `[[tasks]]`."""
    lines = [
        f"{name} = {_value(value)}"
        for name, value in {"prepared_dir": str(prepared), **values}.items()
    ]
    return "\n".join(["", "[[tasks]]", *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{name} = {json.dumps(said)}" for name, said in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value)


def rollout(folder: Path, name: str = "bench") -> Path:
    """Return the folder of the latest rollout of a benchmark."""
    return max((folder / "data" / "rollouts" / name).iterdir())


def results(folder: Path, name: str = "bench") -> list[dict[str, Any]]:
    """Return the trials in the manifest of the latest rollout."""
    said = json.loads((rollout(folder, name) / "manifest.json").read_text("utf-8"))
    trials: list[dict[str, Any]] = said["results"]
    return trials
