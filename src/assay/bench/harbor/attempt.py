"""One attempt at a Harbor task: its steps are worked on one after another, then graded."""

import asyncio
import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from assay._util.files import remove_folder
from assay.bench.attempt import CodingAttempt, network_of, program_mounts, shared_folder
from assay.bench.coders import make_coder
from assay.bench.ends import AgentEnd
from assay.bench.grading import Judge
from assay.bench.sandboxes import proven_enforcement
from assay.bench.sandboxes.base import Command, Sandbox, TrialFinding
from assay.bench.sandboxes.disk import held_with
from assay.bench.sandboxes.layers import layer_paths
from assay.bench.seams import Coder, CoderEnd, CoderStop, Grade
from assay.bench.transcript import CodingTranscript
from assay.errors import SandboxUnavailable

from .grading import grade_steps, layer_of, passes, verifier_timeout
from .task import SOLVE, HarborStep, HarborTask
from .trial import SOLUTION, BaseImages, HarborPhases, changed_programs

__all__ = ["HarborAttempt", "solution_of"]

_AGENT_S = 1800.0
"""The time limit of agents where nobody says another."""
_MOST_FILES = 2000
_PYTHON = "python3"


class HarborAttempt(CodingAttempt):
    """One attempt at a trial of a Harbor task."""

    @property
    def _harbor(self) -> HarborTask:
        assert isinstance(self._task, HarborTask), "kind.py gives no other"
        return self._task

    @property
    def _artifacts(self) -> Path:
        return self._run_dir / "artifacts"

    def _trial(self, folder: Path) -> HarborPhases:
        config = self._config
        bases = BaseImages.of(config.base_images, network=config.build_network)
        folder.mkdir(parents=True, exist_ok=True)
        return HarborPhases(
            self._harbor,
            self._backend,
            bases,
            folder=folder,
            limits=self._limits,
            variables=self._entry.environment_variables,
            network=partial(network_of, self._entry, config.allow_network),
        )

    async def _work(self) -> AgentEnd:
        """Let the agent work on each step, until one is not good enough for the next."""
        task, work = self._harbor, self._run_dir / "work"
        coder = make_coder(self._entry.agent, self._entry.command)
        proven = await asyncio.to_thread(proven_enforcement, self._backend, self._limits)
        enforcement = held_with(None, proven)
        trial = self._trial(work)
        start = time.monotonic()
        await trial.image()
        self._seconds["setup"] = time.monotonic() - start
        talk = CodingTranscript(self._recorder, self._context)
        ends: list[CoderEnd] = []
        seconds, layer = 0.0, None
        for step in task.steps:
            target = layer_of(self._artifacts, step)
            end, took = await self._step(trial, coder, step, layer, target, talk)
            ends.append(end)
            seconds, layer = seconds + took, target
            if changed_programs(target) and end.stop is CoderStop.FAILED:
                break
            if step is not task.steps[-1] and step.min_rewards:
                limit = verifier_timeout(step, self._entry.grading_timeout)
                verified = await trial.verify(step, target, limit)
                if not passes(step, verified.rewards):
                    break
        await talk.flush()
        assert layer is not None, "a task has a step"
        changed = await asyncio.to_thread(lambda: [path for path, _ in layer_paths(layer)])
        whole = _together(ends, _stopped_early(task, len(ends)))
        agent = self._agent_end(
            whole,
            talk,
            seconds=seconds,
            disk_mb=layer.stat().st_size / 1e6,
            files=changed[:_MOST_FILES],
            enforcement=enforcement,
        )
        self._keep(agent, whole)
        return agent

    async def _step(
        self,
        trial: HarborPhases,
        coder: Coder,
        step: HarborStep,
        layer: Path | None,
        target: Path,
        talk: CodingTranscript,
    ) -> tuple[CoderEnd, float]:
        said = self._entry.timeout
        timeout_s = step.timeout_s if step.timeout_s and said == _AGENT_S else said
        solves = coder.name == "oracle"
        with shared_folder(coder) as shared:
            mounts = program_mounts(coder, shared)
            async with trial.working(step, layer, mounts, with_solution=solves) as opened:
                sandbox, workdir = opened
                if coder.program is not None:
                    await _check_python(sandbox, coder.name)
                self._launched = True
                start = time.monotonic()
                job = replace(
                    self._job(sandbox, talk, coder.needs_model),
                    task=replace(self._harbor, instructions=step.instructions),
                    timeout_s=timeout_s,
                    shared=shared,
                    workdir=workdir,
                    solution=solution_of(self._harbor) if solves else None,
                    python=_PYTHON,
                )
                try:
                    end = await self._coded(coder.work(job), timeout_s)
                except SandboxUnavailable as error:
                    # Nothing starts where the agent has removed the shell.
                    await trial.export(sandbox, target)
                    if not changed_programs(target):
                        raise
                    end = CoderEnd(stop=CoderStop.FAILED, notes=str(error))
                seconds = time.monotonic() - start
                await trial.export(sandbox, target)
        return end, seconds

    async def _graded(self, diff: bytes, judge: Judge | None) -> Grade:
        folder = self._run_dir / "grading"
        limit = self._entry.grading_timeout
        try:
            return await grade_steps(
                self._harbor, self._trial(folder), self._artifacts, timeout_s=limit
            )
        finally:
            await asyncio.to_thread(remove_folder, folder)


def solution_of(task: HarborTask) -> str:
    """The command line that runs the reference solution in its sandbox."""
    variables = {"DEBIAN_FRONTEND": "noninteractive", **task.solution_variables}
    said = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return f"{said} {SOLUTION}/{SOLVE}"


async def _check_python(sandbox: Sandbox, agent: str) -> None:
    """An agent that is a program reaches its model by a script."""
    end = await sandbox.run(Command(argv=("sh", "-c", f"command -v {_PYTHON}"), timeout_s=30.0))
    if end.exit_code != 0:
        raise SandboxUnavailable(
            f"agent {agent!r} needs {_PYTHON} in the image of the task, which has none; add it "
            "to environment/Dockerfile"
        )


def _stopped_early(task: HarborTask, begun: int) -> tuple[TrialFinding, ...]:
    if begun == len(task.steps):
        return ()
    step = task.steps[begun - 1]
    left = ", ".join(later.name for later in task.steps[begun:])
    text = f"{step.name} was not good enough, so {left} was not begun"
    return (TrialFinding("steps_not_begun", text),)


def _together(ends: list[CoderEnd], findings: tuple[TrialFinding, ...]) -> CoderEnd:
    """How the agent ended in all steps: the first that was cut off counts."""
    stops = [end.stop for end in ends if end.stop is not CoderStop.COMPLETED]
    return CoderEnd(
        stop=stops[0] if stops else CoderStop.COMPLETED,
        notes=ends[-1].notes,
        log=b"".join(end.log for end in ends),
        cpu_s=sum(end.cpu_s for end in ends),
        peak_memory_mb=max(end.peak_memory_mb for end in ends),
        findings=(*(finding for end in ends for finding in end.findings), *findings),
    )
