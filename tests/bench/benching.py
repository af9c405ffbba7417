"""A small task and its pipeline without a model: workspace, sandbox, patch, grade."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from assay.bench import base
from assay.bench.base import (
    APP,
    AgentResult,
    CodingJob,
    CodingTask,
    Grade,
    Patch,
    RepoSource,
    Rubric,
)
from assay.bench.coders.scripted import CheatAgent
from assay.bench.grading.grade import grade_patch
from assay.bench.grading.llm_judge import Judge
from assay.bench.tasks import capture, make_workspace
from assay.sandboxes.base import Mount, ResourceLimits, SandboxSpec, TrialFinding
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.roots import python_mounts

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a\n"
SOLVED = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"
TEST_ADD = """\
from calc import add


def test_adds():
    assert add(1, 2) == 3


def test_adds_negative():
    assert add(-1, -2) == -3
"""
TEST_DOUBLE = "from calc import double\n\n\ndef test_doubles():\n    assert double(4) == 8\n"
PROGRAM = """\
import sys

word, *numbers = sys.argv[1:]
print(int(numbers[0]) * 2 if word == "double" else 0)
"""
"""Doubles numbers, and does not add them."""
CALLS_PROGRAM = """\
import subprocess
import sys


def calc(*words):
    argv = [sys.executable, "calc.py", *words]
    return subprocess.run(argv, capture_output=True, text=True).stdout


def test_doubles():
    assert calc("double", "4") == "8\\n"


def test_adds():
    assert calc("add", "1", "2") == "3\\n"
"""
CALLS_APART = CALLS_PROGRAM.replace(
    "subprocess.run(argv, capture_output=True, text=True)", "run_program(argv)"
).replace(
    "import subprocess\nimport sys", "import sys\n\nfrom assay_grading import run_program"
)
LIMITS = ResourceLimits(memory_mb=512, processes=64, disk_mb=64)


def script(path: str, content: str, rubric: str = "works") -> base.TestScript:
    return base.TestScript(path=path, rubric_id=rubric, content=content)


def small_task(
    folder: Path,
    *,
    files: Mapping[str, str] | None = None,
    scripts: tuple[base.TestScript, ...] | None = None,
    rubrics: tuple[Rubric, ...] = (),
    metrics: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> CodingTask:
    """Return a task whose repository is `files`, or `calc.py` with two mistakes."""
    repo = folder / "repo"
    for path, text in (files or {"calc.py": BROKEN}).items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text, "utf-8")
    if scripts is None:
        scripts = (
            script("tests/test_add.py", TEST_ADD, "adds"),
            script("tests/test_double.py", TEST_DOUBLE, "doubles"),
        )
        rubrics = rubrics or (
            Rubric(id="adds", criterion="add adds", weight=3.0),
            Rubric(id="doubles", criterion="double doubles"),
        )
    return CodingTask(
        folder=folder,
        task_id="calc",
        title="Mend the calculator",
        instructions="add and double are wrong; mend them.",
        repo=RepoSource(),
        rubrics=rubrics,
        test_scripts=scripts,
        metrics_script=None
        if metrics is None
        else base.MetricsScript(path="metrics.py", content=metrics),
        environment=environment or {},
    )


def read_patch(task: CodingTask, folder: Path, files: Mapping[str, str | None]) -> Patch:
    """Return the patch of an agent that writes these files; None deletes a file."""
    workspace = make_workspace(task, folder)
    for path, text in files.items():
        target = workspace.repo / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            target.unlink()
        else:
            target.write_text(text, "utf-8")
    patch = capture(workspace)
    workspace.remove()
    return patch


async def grade_files(
    task: CodingTask,
    folder: Path,
    files: Mapping[str, str | None],
    *,
    timeout_s: float = 30,
    judge: Judge | None = None,
) -> Grade:
    """Grade the patch of an agent that writes these files."""
    patch = read_patch(task, folder / "agent", files)
    return await grade_patch(
        task,
        patch.diff,
        BubblewrapBackend(),
        folder=folder / "grading",
        limits=LIMITS,
        timeout_s=timeout_s,
        judge=judge,
    )


class Attack(NamedTuple):
    """The result of an attack."""

    end: AgentResult
    patch: Patch
    grade: Grade

    @property
    def findings(self) -> dict[str, str]:
        found: list[TrialFinding] = [
            *self.end.findings,
            *self.patch.findings,
            *self.grade.findings,
        ]
        return {finding.name: finding.detail for finding in found}


async def attack(
    name: str,
    task: CodingTask,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    limits: ResourceLimits = LIMITS,
) -> Attack:
    """Run an attack as an agent in a sandbox, then grade its patch."""
    backend = BubblewrapBackend()
    workspace = make_workspace(task, folder / "agent")

    async def record_action(what: str, result: str) -> None:
        assert what == f"cheat/{name}"

    mounts = (*python_mounts(), Mount(workspace.app, APP, True))
    async with backend.open(SandboxSpec(mounts=mounts, limits=limits)) as sandbox:
        job = CodingJob(task=task, sandbox=sandbox, timeout_s=30, record_action=record_action)
        end = await CheatAgent(name, environment=environment).work(job)
    patch = capture(workspace)
    workspace.remove()
    result = await grade_patch(
        task,
        patch.diff,
        backend,
        folder=folder / "grading",
        limits=LIMITS,
        timeout_s=30,
    )
    return Attack(end, patch, result)
