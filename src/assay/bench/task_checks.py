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
from assay.bench.task import Task, TaskCheck, Workplace
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
    SandboxSpec,
)


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
    idle = Wildcards(task.remove_repo_paths).idle(_paths(task))
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


async def check_task(task: Task, place: Workplace, *, tries: int) -> tuple[TaskCheck, ...]:
    """Grade the reference several times and idle solutions once, and check for leaks.

    Args:
        task: The task.
        place: Sandbox settings; its folder is removed at the end.
        tries: How often the reference is graded.
    """

    def place_for(name: str) -> Workplace:
        return replace(place, folder=place.folder / name)

    checks = [*_about_the_rubrics(task.definition)]
    try:
        if task.definition.has_reference:
            grades = [
                await task.grade_solution(None, place_for(f"reference-{k}"))
                for k in range(tries)
            ]
            checks.append(_reference_check(grades))
        else:
            detail = f"there is no {task.reference_file}, so nobody knows that it can be solved"
            checks.append(TaskCheck(name="reference", passed=False, detail=detail))
        for k, what in enumerate(task.idle_solutions):
            graded = await task.grade_solution(what, place_for(f"idle-{k}"))
            checks.append(_scores_nothing(what, graded))
        checks.append(await task.check_hidden_files(place_for("seen")))
    finally:
        await asyncio.to_thread(remove_folder, place.folder)
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


def _reference_check(grades: list[Grade]) -> TaskCheck:
    """Check that the reference scored 1 in every try."""
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


def _scores_nothing(what: str, graded: Grade) -> TaskCheck:
    """Check that an idle solution scored 0."""
    passed = [report.name for report in graded.tests if report.status == "passed"]
    detail = f"{what} scored {graded.total_score:.2f} ({graded.outcome})"
    if graded.total_score > 0:
        detail += f"; these tests pass without any work: {', '.join(passed[:5])}"
    return TaskCheck(name=what, passed=graded.total_score == 0.0, detail=detail)


async def check_hidden_files(task: CodingTask, place: Workplace) -> TaskCheck:
    """Search for hidden files from inside an agent's sandbox."""
    workspace = await asyncio.to_thread(make_workspace, task, place.folder)
    (workspace.app / Path(REPOSITORY).name).mkdir(exist_ok=True)
    spec = SandboxSpec(
        mounts=(Mount(workspace.app, APP), Mount(workspace.repo, REPOSITORY, writable=True)),
        limits=place.limits,
    )
    lines = _telling_lines(task)
    async with place.backend.open(spec) as sandbox:
        end = await sandbox.run(
            Command(
                argv=("grep", "-rlFx", "-f", "-", APP),
                stdin="\n".join(lines).encode(),
                timeout_s=place.timeout_s,
            )
        )
    # grep exits with 1 if it finds nothing, and with 2 if the search failed.
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
    """Return lines that prove a leak of hidden tests: their `def test_…` lines."""
    return sorted(
        {
            line.rstrip()
            for script in task.test_scripts
            for line in script.content.splitlines()
            if line.lstrip().startswith(("def test", "async def test"))
        }
    )
