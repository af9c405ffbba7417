"""Whether a Harbor task measures what it says: its solution solves it, nothing else does."""

import asyncio
from dataclasses import replace
from pathlib import Path

from assay._util.files import remove_folder
from assay.bench.checking import TaskCheck, reference_check, scores_nothing
from assay.bench.coders import make_coder
from assay.bench.sandboxes.base import Command, ResourceLimits, SandboxBackend
from assay.bench.seams import CodingJob, Grade

from .attempt import solution_of
from .grading import grade_steps, layer_of, passes, verifier_timeout
from .task import HarborTask
from .trial import SOLUTION, TESTS, BaseImages, HarborPhases

__all__ = ["check_harbor_task"]


async def check_harbor_task(
    task: HarborTask,
    backend: SandboxBackend,
    bases: BaseImages,
    *,
    folder: Path,
    tries: int,
    limits: ResourceLimits,
    timeout_s: float,
) -> tuple[TaskCheck, ...]:
    """Grade the solution several times and doing nothing once, and look for what leaks.

    Args:
        task: The task.
        backend: Where it is graded.
        bases: What its images are built over.
        folder: For what is needed on the way; removed at the end.
        tries: How often the solution is graded.
        limits: What a sandbox may use.
        timeout_s: The most seconds for each grading, if it is not the default.
    """
    check = _Check(task, backend, bases, folder, limits, timeout_s)
    checks = []
    try:
        if task.has_reference:
            grades = [await check.graded("oracle", f"oracle-{k}") for k in range(tries)]
            checks.append(reference_check(grades))
        else:
            detail = "there is no solution/solve.sh, so nobody knows that it can be solved"
            checks.append(TaskCheck(name="reference", passed=False, detail=detail))
        checks.append(scores_nothing("doing nothing", await check.graded("nop", "nop")))
        checks.append(await check.hidden())
    finally:
        await asyncio.to_thread(remove_folder, folder)
    return tuple(checks)


class _Check:
    """Works on a task without a store."""

    def __init__(
        self,
        task: HarborTask,
        backend: SandboxBackend,
        bases: BaseImages,
        folder: Path,
        limits: ResourceLimits,
        timeout_s: float,
    ) -> None:
        self._task, self._backend, self._bases = task, backend, bases
        self._folder, self._limits, self._timeout_s = folder, limits, timeout_s

    def _trial(self, name: str) -> HarborPhases:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return HarborPhases(
            self._task,
            self._backend,
            self._bases,
            folder=folder,
            limits=self._limits,
            network=lambda *, asked: self._limits.network if asked else (),
        )

    async def graded(self, agent: str, name: str) -> Grade:
        """What an agent without a model comes to."""
        trial, artifacts = self._trial(name), self._folder / name / "artifacts"
        coder, layer = make_coder(agent), None
        solves = agent == "oracle"
        for step in self._task.steps:
            async with trial.working(step, layer, with_solution=solves) as (sandbox, workdir):
                job = CodingJob(
                    task=replace(self._task, instructions=step.instructions),
                    sandbox=sandbox,
                    timeout_s=step.timeout_s or self._timeout_s,
                    acted=_ignored,
                    workdir=workdir,
                    solution=solution_of(self._task) if solves else None,
                )
                await coder.work(job)
                layer = layer_of(artifacts, step)
                await trial.export(sandbox, layer)
            if step is not self._task.steps[-1] and step.min_rewards:
                limit = verifier_timeout(step, self._timeout_s)
                if not passes(step, (await trial.verify(step, layer, limit)).rewards):
                    break
        return await grade_steps(self._task, trial, artifacts, timeout_s=self._timeout_s)

    async def hidden(self) -> TaskCheck:
        """Look for tests and solution from inside of the sandbox that an agent would have."""
        script = f"for p in {TESTS}/test.sh {SOLUTION}; do [ ! -e $p ] || echo $p; done"
        async with self._trial("seen").working(self._task.steps[0], None) as (sandbox, _):
            end = await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=60.0))
        seen = end.output.decode(errors="replace").split()
        detail = "the agent sees neither tests nor solution"
        if seen:
            detail = f"the agent can read {', '.join(seen)}"
        return TaskCheck(name="hidden files", passed=not seen, detail=detail)


async def _ignored(action: str, came_of_it: str) -> None:
    """Nobody writes down what a check does."""
