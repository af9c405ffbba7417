"""Checks of a task: the reference solves it, and nothing else does.

Tests that pass without any work give points for nothing; a reference that sometimes fails makes
every score unreliable. Errors in the files of a task are found without running anything.
"""

import asyncio
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from assay.bench.base import APP, NOTHING_ALLOWED, Allowed, CodingTask, Grade
from assay.bench.task import RunnableTask, SandboxSetup, TaskCheck
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.source import check_out, find_repository
from assay.bench.tasks.tree import decode_path, scan
from assay.bench.tasks.workspace import Workspace, make_workspace
from assay.core.files import read_plain_file, remove_folder
from assay.core.wildcards import Wildcards
from assay.errors import UsageError
from assay.sandboxes.base import REPOSITORY, Command, Mount, SandboxSpec


def overrides_problems(
    folder: Path, overrides: Path, allowed: Allowed = NOTHING_ALLOWED
) -> tuple[str, ...]:
    """Return the errors in an `overrides.json`: keys, values, and paths that match nothing.

    Raises:
        UsageError: The task itself cannot be loaded.
        ServiceError: Its remote repository could not be fetched.
    """
    load_task(folder, repository=False)
    try:
        task = load_task(folder, overrides, allowed=allowed)
    except UsageError as error:
        return (str(error),)
    idle = Wildcards(task.remove_repo_paths).idle(_list_repository_paths(task))
    return tuple(
        f"{overrides}: remove_repo_paths: {pattern!r} matches nothing in the repository"
        for pattern in idle
    )


def exposed_files(task: CodingTask, workspace: Workspace) -> tuple[str, ...]:
    """Return hidden files that an agent would see: tests, solution, metrics.

    Files are compared by content, at any path; empty files do not count.
    """
    hidden = {script.content.encode() for script in task.test_scripts}
    hidden |= {*task.evaluation_files.values(), task.reference_patch or b""}
    if task.metrics_script is not None:
        hidden.add(task.metrics_script.content.encode())
    hidden = {content for content in hidden if content.strip()}
    return tuple(
        decode_path(path)
        for path, status in scan(workspace.app).files.items()
        if stat.S_ISREG(status.st_mode) and read_plain_file(workspace.app / path) in hidden
    )


def _list_repository_paths(task: CodingTask) -> Iterable[str]:
    files = find_repository(task.repo, task.folder).files
    if files is not None:
        return files
    with tempfile.TemporaryDirectory(prefix="assay-check-") as scratch:
        root = Path(scratch) / "repo"
        check_out(task.repo, task.folder, root)
        return scan(root).files


async def check_task(
    task: RunnableTask, settings: SandboxSetup, *, tries: int
) -> tuple[TaskCheck, ...]:
    """Grade the reference several times and idle solutions once, and check for leaks.

    Args:
        task: The task.
        settings: Sandbox settings; its folder is removed at the end.
        tries: How often the reference is graded.
    """

    def settings_for(name: str) -> SandboxSetup:
        return replace(settings, folder=settings.folder / name)

    checks = [*_check_rubrics(task.definition)]
    try:
        if task.definition.has_reference:
            grades = [
                await task.grade_solution(None, settings_for(f"reference-{number}"))
                for number in range(tries)
            ]
            checks.append(_check_reference(grades))
        else:
            detail = f"{task.reference_file} is missing, so the task may be unsolvable"
            checks.append(TaskCheck(name="reference", passed=False, detail=detail))
        for number, name in enumerate(task.idle_solutions):
            grade = await task.grade_solution(name, settings_for(f"idle-{number}"))
            checks.append(_check_idle_solution(name, grade))
        checks.append(await task.check_hidden_files(settings_for("seen")))
    finally:
        await asyncio.to_thread(remove_folder, settings.folder)
    return tuple(checks)


def _check_rubrics(task: CodingTask) -> Iterator[TaskCheck]:
    tested = {script.rubric_id for script in task.test_scripts}
    untested = [rubric.id for rubric in task.rubrics if rubric.id not in tested]
    if untested:
        yield TaskCheck(
            name="rubrics",
            passed=bool(tested) or task.metrics_script is not None,
            detail=f"no tests, so that only a judge can score them: {', '.join(untested)}",
        )


def _check_reference(grades: list[Grade]) -> TaskCheck:
    """Check that the reference scored 1 in every try."""
    from assay.stats.shares import exact_share

    solved = sum(grade.total_score >= 1.0 for grade in grades)
    interval = exact_share(len(grades) - solved, len(grades))
    detail = (
        f"the reference solution scored 1 in {solved} of {len(grades)} tries; failure rate "
        f"{100 * interval.low:.0f} to {100 * interval.high:.0f} % (95 % CI)"
    )
    if solved < len(grades):
        worst = min(grades, key=lambda grade: grade.total_score)
        failed = [report.name for report in worst.tests if report.status != "passed"]
        detail += f"; {worst.outcome}: {', '.join(failed[:5]) or 'no test ran'}"
    return TaskCheck(name="reference", passed=solved == len(grades), detail=detail)


def _check_idle_solution(name: str, grade: Grade) -> TaskCheck:
    """Check that an idle solution scored 0."""
    passed = [report.name for report in grade.tests if report.status == "passed"]
    detail = f"{name} scored {grade.total_score:.2f} ({grade.outcome})"
    if grade.total_score > 0:
        detail += f"; these tests pass without any work: {', '.join(passed[:5])}"
    return TaskCheck(name=name, passed=grade.total_score == 0.0, detail=detail)


async def check_hidden_files(task: CodingTask, settings: SandboxSetup) -> TaskCheck:
    """Search for hidden files from inside an agent's sandbox."""
    workspace = await asyncio.to_thread(make_workspace, task, settings.folder)
    (workspace.app / Path(REPOSITORY).name).mkdir(exist_ok=True)
    spec = SandboxSpec(
        mounts=(Mount(workspace.app, APP), Mount(workspace.repo, REPOSITORY, writable=True)),
        limits=settings.limits,
    )
    lines = _list_test_lines(task)
    async with settings.backend.open(spec) as sandbox:
        end = await sandbox.run(
            Command(
                argv=("grep", "-rlFx", "-f", "-", APP),
                stdin="\n".join(lines).encode(),
                timeout_s=settings.timeout_s,
            )
        )
    # grep exits with 1 if it finds nothing, and with 2 if the search failed.
    exposed = end.output.decode(errors="replace").split() if lines else []
    exposed += await asyncio.to_thread(exposed_files, task, workspace)
    if lines and end.exit_code not in (0, 1):
        return TaskCheck(
            name="hidden files", passed=False, detail="the search for hidden files failed"
        )
    if exposed:
        return TaskCheck(
            name="hidden files",
            passed=False,
            detail=f"the agent can read hidden files in {', '.join(exposed[:5])}",
        )
    return TaskCheck(
        name="hidden files",
        passed=True,
        detail="the agent cannot read hidden tests or the solution",
    )


def _list_test_lines(task: CodingTask) -> list[str]:
    """Return lines that prove a leak of hidden tests: their `def test_…` lines."""
    return sorted(
        {
            line.rstrip()
            for script in task.test_scripts
            for line in script.content.splitlines()
            if line.lstrip().startswith(("def test", "async def test"))
        }
    )
