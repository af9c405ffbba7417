"""Whether a task measures what it says: the reference solves it, nothing else does.

Each check names what is wrong. Tests that pass for a copy without any work give points for
nothing; a reference that fails now and then makes every score a matter of luck.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay._util.files import remove_folder

from .grading import grade
from .sandboxes.base import (
    REPOSITORY,
    Command,
    Mount,
    ResourceLimits,
    SandboxBackend,
    SandboxSpec,
)
from .seams import APP, CodingTask, Grade
from .tasks import exposed_files, make_workspace

__all__ = ["TaskCheck", "check_task", "reference_check", "scores_nothing"]

_NOTHING = b"""\
diff --git a/.assay-nothing b/.assay-nothing
new file mode 100644
index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a
--- /dev/null
+++ b/.assay-nothing
@@ -0,0 +1 @@
+hello
"""
"""A patch that does nothing of what any task asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str


async def check_task(
    task: CodingTask,
    backend: SandboxBackend,
    *,
    folder: Path,
    tries: int,
    limits: ResourceLimits,
    timeout_s: float,
) -> tuple[TaskCheck, ...]:
    """Grade the reference several times and two empty solutions, and look for what leaks.

    Args:
        task: The task.
        backend: Where it is graded.
        folder: For what is needed on the way; removed at the end.
        tries: How often the reference is graded.
        limits: What a sandbox may use.
        timeout_s: The most seconds for each grading.
    """

    async def graded(diff: bytes, name: str) -> Grade:
        return await grade(
            task, diff, backend, folder=folder / name, limits=limits, timeout_s=timeout_s
        )

    checks = [*_about_the_rubrics(task)]
    try:
        if task.reference_patch is None:
            checks.append(
                TaskCheck(
                    name="reference",
                    passed=False,
                    detail="there is no diff.patch, so nobody knows that it can be solved",
                )
            )
        else:
            reference = task.reference_patch
            grades = [await graded(reference, f"reference-{k}") for k in range(tries)]
            checks.append(reference_check(grades))
        empty = await graded(b"", "empty")
        checks.append(scores_nothing("an empty patch", empty))
        idle = await graded(_NOTHING, "idle")
        checks.append(scores_nothing("a patch that does nothing", idle))
        checks.append(await _hidden(task, backend, folder / "seen", limits, timeout_s))
    finally:
        await asyncio.to_thread(remove_folder, folder)
    return tuple(checks)


def _about_the_rubrics(task: CodingTask) -> Iterator[TaskCheck]:
    tested = {script.rubric_id for script in task.test_scripts}
    without = [rubric.id for rubric in task.rubrics if rubric.id not in tested]
    if without:
        yield TaskCheck(
            name="rubrics",
            passed=bool(tested) or task.metrics_script is not None,
            detail=f"without tests, so that only a judge scores them: {', '.join(without)}",
        )


def reference_check(grades: list[Grade]) -> TaskCheck:
    """Whether the reference scored 1 in every try."""
    from assay.stats import exact_share

    solved = sum(grade.total_score >= 1.0 for grade in grades)
    interval = exact_share(len(grades) - solved, len(grades))
    detail = (
        f"the reference solution scored 1 in {solved} of {len(grades)} tries; it fails in "
        f"{100 * interval.low:.0f} to {100 * interval.high:.0f} % of them (95 %)"
    )
    if solved < len(grades):
        worst = min(grades, key=lambda grade: grade.total_score)
        failed = [report.name for report in worst.tests if report.status != "passed"]
        detail += f"; {worst.outcome}: {', '.join(failed[:5]) or 'no test ran'}"
    return TaskCheck(name="reference", passed=solved == len(grades), detail=detail)


def scores_nothing(what: str, graded: Grade) -> TaskCheck:
    """Whether what solves nothing scored 0."""
    passed = [report.name for report in graded.tests if report.status == "passed"]
    detail = f"{what} scored {graded.total_score:.2f} ({graded.outcome})"
    if graded.total_score > 0:
        detail += f"; these tests pass without any work: {', '.join(passed[:5])}"
    return TaskCheck(name=what, passed=graded.total_score == 0.0, detail=detail)


async def _hidden(
    task: CodingTask,
    backend: SandboxBackend,
    folder: Path,
    limits: ResourceLimits,
    timeout_s: float,
) -> TaskCheck:
    """Look for hidden files from inside of the sandbox that an agent would have."""
    workspace = await asyncio.to_thread(make_workspace, task, folder)
    (workspace.app / Path(REPOSITORY).name).mkdir(exist_ok=True)
    spec = SandboxSpec(
        mounts=(Mount(workspace.app, APP), Mount(workspace.repo, REPOSITORY, writable=True)),
        limits=limits,
    )
    lines = _telling_lines(task)
    async with backend.open(spec) as sandbox:
        end = await sandbox.run(
            Command(
                argv=("grep", "-rlFx", "-f", "-", APP),
                stdin="\n".join(lines).encode(),
                timeout_s=timeout_s,
            )
        )
    # grep ends with 1 where it finds nothing, and with 2 where it could not look.
    seen = end.output.decode(errors="replace").split() if lines else []
    seen += await asyncio.to_thread(exposed_files, task, workspace)
    if lines and end.exit_code not in (0, 1):
        return TaskCheck(name="hidden files", passed=False, detail="could not look for them")
    if seen:
        return TaskCheck(
            name="hidden files",
            passed=False,
            detail=f"the agent can read hidden tests or the solution in {', '.join(seen[:5])}",
        )
    return TaskCheck(
        name="hidden files", passed=True, detail="the agent sees no hidden test and no solution"
    )


def _telling_lines(task: CodingTask) -> list[str]:
    """Lines that stand in hidden tests and nowhere else by chance: their `def test_…`."""
    return sorted(
        {
            line.rstrip()
            for script in task.test_scripts
            for line in script.content.splitlines()
            if line.lstrip().startswith(("def test", "async def test"))
        }
    )
