"""Whether a task measures what it says: the reference solves it, nothing else does.

Each check names what is wrong. Tests that pass for a copy without any work give points for
nothing; a reference that fails now and then makes every score a matter of luck.

What is wrong with the files of a task, as far as it shows without running anything.
"""

import asyncio
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.bench.base import APP, NOTHING_ALLOWED, Allowed, CodingTask, Grade
from assay.bench.grading.grade import grade
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.source import check_out, look_up
from assay.bench.tasks.tree import path_text, scan
from assay.bench.tasks.workspace import Workspace, make_workspace
from assay.core.files import read_plain_file, remove_folder
from assay.core.wildcards import Wildcards
from assay.errors import UsageError
from assay.sandboxes.base import (
    REPOSITORY,
    Command,
    Mount,
    ResourceLimits,
    SandboxBackend,
    SandboxSpec,
)


def overrides_problems(
    folder: Path, overrides: Path, allowed: Allowed = NOTHING_ALLOWED
) -> tuple[str, ...]:
    """What is wrong with an `overrides.json`: keys, values, and paths that match nothing.

    Raises:
        UsageError: The task itself cannot be loaded.
        ServiceError: Its repository is far away, and could not be fetched.
    """
    load_task(folder, repository=False)
    try:
        task = load_task(folder, overrides, allowed=allowed)
    except UsageError as error:
        return (str(error),)
    idle = Wildcards(task.remove_repo_paths).idle(_paths(task))
    return tuple(
        f"{overrides}: remove_repo_paths: {pattern!r} matches nothing in the repository"
        for pattern in idle
    )


def exposed_files(task: CodingTask, workspace: Workspace) -> tuple[str, ...]:
    """The files that an agent would see though they are hidden: tests, solution, metrics.

    A file counts as the same if it has the same content, wherever it is; empty ones do not.
    """
    hidden = {script.content.encode() for script in task.test_scripts}
    hidden |= {*task.evaluation_files.values(), task.reference_patch or b""}
    if task.metrics_script is not None:
        hidden.add(task.metrics_script.content.encode())
    hidden = {content for content in hidden if content.strip()}
    return tuple(
        path_text(path)
        for path, status in scan(workspace.app).files.items()
        if stat.S_ISREG(status.st_mode) and read_plain_file(workspace.app / path) in hidden
    )


def _paths(task: CodingTask) -> Iterable[str]:
    known = look_up(task.repo, task.folder).files
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="assay-check-") as scratch:
        root = Path(scratch) / "repo"
        check_out(task.repo, task.folder, root)
        return scan(root).files


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
    from assay.stats.shares import exact_share

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
