"""Small tasks and repositories for tests."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

RUBRIC = {"id": "right", "criterion": "It is right"}
TEST = {"path": "test_it.py", "rubric_id": "right", "content": "def test_it(): pass\n"}


def make_task(
    folder: Path, files: dict[str, str] | None = None, with_repo: bool = True, **meta: Any
) -> Path:
    """Write a task folder: a repository of two files, and other files."""
    write(folder, {"LM_INSTRUCTIONS.md": "Do it.\n"})
    if with_repo:
        write(folder / "repo", {"app.py": "x = 1\ny = 2\nz = 3\n", "src/util.py": "u = 1\n"})
    write(folder, files or {})
    whole = {"evaluation": {"rubrics": [RUBRIC], "test_scripts": [TEST]}, **meta}
    write(folder, {"tb_meta.json": json.dumps(whole)})
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, "utf-8")


def git(folder: Path, *arguments: str) -> str:
    """Run git without user settings."""
    variables = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "gc.auto=0")
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode("utf-8", "replace").strip()


def make_repository(folder: Path) -> tuple[str, str]:
    """Make a repository with a fault and its fix; return the commits before and after."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "trunk")
    write(folder, {"lib/calc.py": "def add(a, b):\n    return a - b\n", "README.md": "calc\n"})
    write(folder, {"tests/test_old.py": "def test_old():\n    assert True\n"})
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "The start")
    start = git(folder, "rev-parse", "HEAD")
    write(folder, {"lib/calc.py": "def add(a, b):\n    return a + b\n"})
    write(
        folder,
        {
            "tests/test_calc.py": "from lib.calc import add\n\n\ndef test_add():\n"
            "    assert add(1, 2) == 3\n",
            "tests/numbers.txt": "1 2 3\n",
        },
    )
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Add what is added\n\nIt was taken away before.")
    return start, git(folder, "rev-parse", "HEAD")
