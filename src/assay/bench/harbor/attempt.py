"""One attempt at a Harbor task: the agent works on its steps in order, then they are graded."""

import asyncio
import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from assay.bench.attempt import (
    CodingAttempt,
    coder_of,
    network_of,
    program_mounts,
    shared_folder,
)
from assay.bench.base import (
    Coder,
    CoderEnd,
    CoderStop,
    CodingJob,
    Grade,
    GradingMode,
    TestReport,
)
from assay.bench.coders.agents import make_coder
from assay.bench.harbor.phases import (
    SOLUTION,
    TESTS,
    HarborPhases,
    Verified,
    changed_programs,
    has_python,
)
from assay.bench.harbor.rewards import combined, outcome_of, score_of
from assay.bench.harbor.task import SOLVE, HarborStep, HarborTask
from assay.bench.task import PYTHON, TaskCheck, Workplace
from assay.bench.trial_files import AgentEnd, CodingTranscript
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import Command, Sandbox, TrialFinding
from assay.sandboxes.folders import enforcement_with_disk
from assay.sandboxes.layers import layer_paths
from assay.sandboxes.self_test import verify_enforcement

_DEFAULT_S = 600.0


def layer_of(artifacts: Path, step: HarborStep) -> Path:
    """Return the path of the tar file with the agent's changes in a step."""
    return artifacts / (f"changes-{step.name}.tar" if step.name else "changes.tar")


def verifier_timeout(step: HarborStep, said: float) -> float:
    """Return the time limit of a step's tests: the task's, unless the user changed it."""
    return step.verification.timeout_s if said == _DEFAULT_S else said


async def grade_steps(
    task: HarborTask, phases: HarborPhases, artifacts: Path, *, timeout_s: float
) -> Grade:
    """Verify every step that was worked on.

    Args:
        task: The loaded task.
        phases: Creates the sandboxes.
        artifacts: Folder with the changes of each step.
        timeout_s: Time limit of each step in seconds, if it is not the default.
    """
    start = time.monotonic()
    verified: list[tuple[HarborStep, Verified]] = []
    for step in task.steps:
        layer = layer_of(artifacts, step)
        if layer.is_file():
            found = await phases.verify(step, layer, verifier_timeout(step, timeout_s))
            verified.append((step, found))
    return _grade(task, verified, time.monotonic() - start)


def _grade(
    task: HarborTask, verified: list[tuple[HarborStep, Verified]], seconds: float
) -> Grade:
    strategy = task.config.multi_step_reward_strategy or "mean"
    rewards = combined([found.rewards for _, found in verified], strategy)
    findings = [finding for _, found in verified for finding in found.findings]
    missing = [found.outcome for _, found in verified if found.outcome is not None]
    total = 0.0
    if rewards:
        reward = score_of(rewards)
        total = min(1.0, max(0.0, reward))
        if total != reward:
            text = f"the reward {reward:g} is counted as {total:g}; scores are from 0 to 1"
            findings.append(TrialFinding("reward_out_of_range", text))
    metrics = dict(rewards)
    for step, found in verified:
        if step.name:
            for name, value in (found.rewards or {}).items():
                metrics[f"{step.name}/{name}"] = value
    return Grade(
        outcome=missing[-1] if missing and not total else outcome_of(total),
        total_score=total,
        tests=tuple(test for step, found in verified for test in _tests(step, found)),
        custom_metrics=metrics,
        findings=tuple(dict.fromkeys(findings)),
        seconds=seconds,
        log="\n".join(found.log for _, found in verified),
        # Harbor tests start the agent's programs freely, in their own sandbox.
        mode=GradingMode.IN_PROCESS if verified else None,
    )


def _tests(step: HarborStep, found: Verified) -> tuple[TestReport, ...]:
    """Return the single tests if the verifier reports them, or else one test for the step."""
    name = step.name or "reward"
    if found.tests:
        return found.tests
    if found.rewards is None:
        return (TestReport("tests/test.sh", name, "missing", str(found.outcome)),)
    reward = score_of(found.rewards)
    status = "passed" if reward >= 1.0 else "failed"
    return (TestReport("tests/test.sh", name, status, f"reward {reward:g}"),)


_AGENT_S = 1800.0
"""Default time limit of agents."""
_MOST_FILES = 2000


class HarborAttempt(CodingAttempt[HarborTask]):
    """One attempt at a trial of a Harbor task."""

    async def _work(self) -> AgentEnd:
        """Run the agent on each step, until a step does not reach the rewards for the next."""
        task, entry = self._task, self._setup.entry
        coder = coder_of(entry, self._setup.config)
        backend = self._setup.backend
        proven = await asyncio.to_thread(verify_enforcement, backend, self._limits)
        enforcement = enforcement_with_disk(None, proven)
        allowed = partial(network_of, entry, self._setup.config.allow_network)
        phases = HarborPhases(task, self._place("work"), network=allowed)
        start = time.monotonic()
        await phases.image()
        self._seconds["setup"] = time.monotonic() - start
        talk = CodingTranscript(self._setup.recorder, self._setup.context)
        ends: list[CoderEnd] = []
        seconds, layer = 0.0, None
        for step in task.steps:
            target = layer_of(self._run_dir / "artifacts", step)
            end, took = await self._step(phases, coder, step, layer, target, talk)
            ends.append(end)
            seconds, layer = seconds + took, target
            if changed_programs(target) and end.stop is CoderStop.FAILED:
                break
            if not await _may_go_on(task, phases, step, target, entry.grading_timeout):
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
        phases: HarborPhases,
        coder: Coder,
        step: HarborStep,
        layer: Path | None,
        target: Path,
        talk: CodingTranscript,
    ) -> tuple[CoderEnd, float]:
        said = self._setup.entry.timeout
        timeout_s = step.timeout_s if step.timeout_s and said == _AGENT_S else said
        solves = coder.name == "oracle"
        with shared_folder(coder) as shared:
            mounts = program_mounts(coder, shared)
            async with phases.working(step, layer, mounts, with_solution=solves) as opened:
                sandbox, workdir = opened
                if coder.runs_inside:
                    await _check_python(sandbox, coder.name)
                self._launched = True
                start = time.monotonic()
                job = replace(
                    self._job(sandbox, talk, coder.needs_model),
                    task=replace(self._task, instructions=step.instructions),
                    timeout_s=timeout_s,
                    shared=shared,
                    workdir=workdir,
                    solution=solution_of(self._task) if solves else None,
                    python=PYTHON,
                )
                try:
                    end = await self._coded(coder.work(job), timeout_s)
                except SandboxUnavailable as error:
                    # No program starts if the agent has removed the shell.
                    await phases.export(sandbox, target)
                    if not changed_programs(target):
                        raise
                    end = CoderEnd(stop=CoderStop.FAILED, notes=str(error))
                seconds = time.monotonic() - start
                await phases.export(sandbox, target)
        return end, seconds


async def _may_go_on(
    task: HarborTask, phases: HarborPhases, step: HarborStep, layer: Path, timeout_s: float
) -> bool:
    """Return whether the result of a step is good enough to begin the next one."""
    if step is task.steps[-1] or not step.min_rewards:
        return True
    verified = await phases.verify(step, layer, verifier_timeout(step, timeout_s))
    rewards = verified.rewards or {}
    return all(
        rewards.get(name, float("-inf")) >= least for name, least in step.min_rewards.items()
    )


def solution_of(task: HarborTask) -> str:
    """Return the command line that runs the reference solution in its sandbox."""
    variables = {"DEBIAN_FRONTEND": "noninteractive", **task.solution_variables}
    said = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return f"{said} {SOLUTION}/{SOLVE}"


async def _check_python(sandbox: Sandbox, agent: str) -> None:
    """Raise SandboxUnavailable without Python: programs reach their model through a script."""
    if not await has_python(sandbox):
        raise SandboxUnavailable(
            f"agent {agent!r} needs {PYTHON} in the image of the task, which has none; add it "
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
    """Combine the results of all steps; the first one that did not complete decides."""
    stops = [end.stop for end in ends if end.stop is not CoderStop.COMPLETED]
    return CoderEnd(
        stop=stops[0] if stops else CoderStop.COMPLETED,
        notes=ends[-1].notes,
        log=b"".join(end.log for end in ends),
        cpu_s=sum(end.cpu_s for end in ends),
        peak_memory_mb=max(end.peak_memory_mb for end in ends),
        findings=(*(finding for end in ends for finding in end.findings), *findings),
    )


async def grade_built_in_agent(task: HarborTask, agent: str, place: Workplace) -> Grade:
    """Run an agent without a model on a task, and grade its work; nothing is stored.

    Args:
        task: The task.
        agent: `oracle` or `nop`.
        place: Sandbox settings; its time limit applies to agents if the task has none, and to
            tests if it is not the default.
    """
    phases, artifacts = HarborPhases(task, place), place.folder / "artifacts"
    coder, layer = make_coder(agent), None
    solves = agent == "oracle"

    async def acted(action: str, came_of_it: str) -> None:
        """Record nothing."""

    for step in task.steps:
        async with phases.working(step, layer, with_solution=solves) as (sandbox, workdir):
            job = CodingJob(
                task=replace(task, instructions=step.instructions),
                sandbox=sandbox,
                timeout_s=step.timeout_s or place.timeout_s,
                acted=acted,
                workdir=workdir,
                solution=solution_of(task) if solves else None,
            )
            await coder.work(job)
            layer = layer_of(artifacts, step)
            await phases.export(sandbox, layer)
        if not await _may_go_on(task, phases, step, layer, place.timeout_s):
            break
    return await grade_steps(task, phases, artifacts, timeout_s=place.timeout_s)


async def check_harbor_hidden_files(task: HarborTask, place: Workplace) -> TaskCheck:
    """Check that tests and solution cannot be read from inside an agent's sandbox."""
    script = f"for p in {TESTS}/test.sh {SOLUTION}; do [ ! -e $p ] || echo $p; done"
    async with HarborPhases(task, place).working(task.steps[0], None) as (sandbox, _):
        end = await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=60.0))
    seen = end.output.decode(errors="replace").split()
    detail = "the agent sees neither tests nor solution"
    if seen:
        detail = f"the agent can read {', '.join(seen)}"
    return TaskCheck(name="hidden files", passed=not seen, detail=detail)
