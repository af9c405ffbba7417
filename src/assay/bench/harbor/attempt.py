"""One attempt at a Harbor task: the agent works on its steps in order, then they are graded."""

import asyncio
import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from assay.bench.attempt import (
    CodingAttempt,
    make_entry_agent,
    make_program_mounts,
    make_shared_folder,
    resolve_network,
)
from assay.bench.base import (
    AgentResult,
    AgentStop,
    CodingAgent,
    CodingJob,
    Grade,
    GradingMode,
    TestReport,
)
from assay.bench.coders.agents import make_coding_agent
from assay.bench.harbor.rewards import (
    VerifierResult,
    classify_score,
    combine_rewards,
    select_reward,
)
from assay.bench.harbor.sandboxes import (
    SOLUTION,
    TESTS,
    HarborSandboxes,
    has_python,
    list_changed_programs,
)
from assay.bench.harbor.task import SOLVE, HarborStep, HarborTask
from assay.bench.task import PYTHON, SandboxSetup, TaskCheck
from assay.bench.trial_files import AgentRecord, CodingTranscript
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import Command, Sandbox, TrialFinding
from assay.sandboxes.folders import enforcement_with_disk
from assay.sandboxes.layers import layer_paths
from assay.sandboxes.self_test import verify_enforcement

_DEFAULT_VERIFIER_S = 600.0


def get_layer_path(artifacts: Path, step: HarborStep) -> Path:
    """Return the path of the tar file with the agent's changes in a step."""
    return artifacts / (f"changes-{step.name}.tar" if step.name else "changes.tar")


def choose_timeout(step: HarborStep, timeout_s: float) -> float:
    """Return the time limit of a step's tests: the task's, unless the user changed it."""
    return step.verification.timeout_s if timeout_s == _DEFAULT_VERIFIER_S else timeout_s


async def grade_steps(
    task: HarborTask, sandboxes: HarborSandboxes, artifacts: Path, *, timeout_s: float
) -> Grade:
    """Verify every step that was worked on.

    Args:
        task: The loaded task.
        sandboxes: Creates the sandboxes.
        artifacts: Folder with the changes of each step.
        timeout_s: Time limit of each step in seconds, if it is not the default.
    """
    start = time.monotonic()
    verified: list[tuple[HarborStep, VerifierResult]] = []
    for step in task.steps:
        layer = get_layer_path(artifacts, step)
        if layer.is_file():
            result = await sandboxes.verify(step, layer, choose_timeout(step, timeout_s))
            verified.append((step, result))
    return _make_grade(task, verified, time.monotonic() - start)


def _make_grade(
    task: HarborTask, verified: list[tuple[HarborStep, VerifierResult]], seconds: float
) -> Grade:
    strategy = task.config.multi_step_reward_strategy or "mean"
    rewards = combine_rewards([result.rewards for _, result in verified], strategy)
    findings = [finding for _, result in verified for finding in result.findings]
    missing = [result.outcome for _, result in verified if result.outcome is not None]
    total = 0.0
    if rewards:
        reward = select_reward(rewards)
        total = min(1.0, max(0.0, reward))
        if total != reward:
            text = f"the reward {reward:g} is counted as {total:g}; scores are from 0 to 1"
            findings.append(TrialFinding("reward_out_of_range", text))
    metrics = dict(rewards)
    for step, result in verified:
        if step.name:
            for name, value in (result.rewards or {}).items():
                metrics[f"{step.name}/{name}"] = value
    return Grade(
        outcome=missing[-1] if missing and not total else classify_score(total),
        total_score=total,
        tests=tuple(test for step, result in verified for test in _list_tests(step, result)),
        custom_metrics=metrics,
        findings=tuple(dict.fromkeys(findings)),
        seconds=seconds,
        log="\n".join(result.log for _, result in verified),
        # Harbor tests start the agent's programs freely, in their own sandbox.
        mode=GradingMode.IN_PROCESS if verified else None,
    )


def _list_tests(step: HarborStep, result: VerifierResult) -> tuple[TestReport, ...]:
    """Return the single tests if the verifier reports them, or else one test for the step."""
    name = step.name or "reward"
    if result.tests:
        return result.tests
    if result.rewards is None:
        return (TestReport("tests/test.sh", name, "missing", str(result.outcome)),)
    reward = select_reward(result.rewards)
    status = "passed" if reward >= 1.0 else "failed"
    return (TestReport("tests/test.sh", name, status, f"reward {reward:g}"),)


_DEFAULT_AGENT_S = 1800.0
"""Default time limit of agents."""
_MAX_FILES = 2000


class HarborAttempt(CodingAttempt[HarborTask]):
    """One attempt at a trial of a Harbor task."""

    async def _run_agent(self) -> AgentRecord:
        """Run the agent on each step, until a step does not reach the rewards for the next."""
        task, entry = self._task, self._setup.entry
        agent = make_entry_agent(entry, self._setup.config)
        backend = self._setup.backend
        verified = await asyncio.to_thread(verify_enforcement, backend, self._limits)
        enforcement = enforcement_with_disk(None, verified)
        network = partial(resolve_network, entry, self._setup.config.allow_network)
        sandboxes = HarborSandboxes(task, self._make_settings("work"), network=network)
        start = time.monotonic()
        await sandboxes.ensure_image()
        self._seconds["setup"] = time.monotonic() - start
        transcript = CodingTranscript(self._setup.recorder, self._setup.context)
        results: list[AgentResult] = []
        seconds, layer = 0.0, None
        for step in task.steps:
            target = get_layer_path(self._run_dir / "artifacts", step)
            result, step_seconds = await self._run_step(
                sandboxes, agent, step, layer, target, transcript
            )
            results.append(result)
            seconds, layer = seconds + step_seconds, target
            if list_changed_programs(target) and result.stop is AgentStop.FAILED:
                break
            if not await _can_continue(task, sandboxes, step, target, entry.grading_timeout):
                break
        await transcript.flush()
        assert layer is not None, "a task has a step"
        changed = await asyncio.to_thread(lambda: [path for path, _ in layer_paths(layer)])
        combined = _combine_results(results, _report_skipped_steps(task, len(results)))
        record = self._make_agent_record(
            combined,
            transcript,
            seconds=seconds,
            disk_mb=layer.stat().st_size / 1e6,
            files=changed[:_MAX_FILES],
            enforcement=enforcement,
        )
        self._write_agent_files(record, combined)
        return record

    async def _run_step(
        self,
        sandboxes: HarborSandboxes,
        agent: CodingAgent,
        step: HarborStep,
        layer: Path | None,
        target: Path,
        transcript: CodingTranscript,
    ) -> tuple[AgentResult, float]:
        limit = self._setup.entry.timeout
        timeout_s = step.timeout_s if step.timeout_s and limit == _DEFAULT_AGENT_S else limit
        is_oracle = agent.name == "oracle"
        with make_shared_folder(agent) as shared:
            mounts = make_program_mounts(agent, shared)
            async with sandboxes.open_agent_sandbox(
                step, layer, mounts, with_solution=is_oracle
            ) as opened:
                sandbox, workdir = opened
                if agent.runs_inside:
                    await _check_python(sandbox, agent.name)
                self._launched = True
                start = time.monotonic()
                job = replace(
                    self._make_job(sandbox, transcript, agent.needs_model),
                    task=replace(self._task, instructions=step.instructions),
                    timeout_s=timeout_s,
                    shared=shared,
                    workdir=workdir,
                    solution=make_solution_command(self._task) if is_oracle else None,
                    python=PYTHON,
                )
                try:
                    result = await self._await_agent(agent.work(job), timeout_s)
                except SandboxUnavailable as error:
                    # No program starts if the agent has removed the shell.
                    await sandboxes.export(sandbox, target)
                    if not list_changed_programs(target):
                        raise
                    result = AgentResult(stop=AgentStop.FAILED, notes=str(error))
                seconds = time.monotonic() - start
                await sandboxes.export(sandbox, target)
        return result, seconds


async def _can_continue(
    task: HarborTask,
    sandboxes: HarborSandboxes,
    step: HarborStep,
    layer: Path,
    timeout_s: float,
) -> bool:
    """Return whether the result of a step is good enough to begin the next one."""
    if step is task.steps[-1] or not step.min_rewards:
        return True
    verified = await sandboxes.verify(step, layer, choose_timeout(step, timeout_s))
    rewards = verified.rewards or {}
    return all(
        rewards.get(name, float("-inf")) >= minimum
        for name, minimum in step.min_rewards.items()
    )


def make_solution_command(task: HarborTask) -> str:
    """Return the command line that runs the reference solution in its sandbox."""
    variables = {"DEBIAN_FRONTEND": "noninteractive", **task.solution_variables}
    assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return f"{assignments} {SOLUTION}/{SOLVE}"


async def _check_python(sandbox: Sandbox, agent: str) -> None:
    """Raise SandboxUnavailable without Python: programs reach their model through a script."""
    if not await has_python(sandbox):
        raise SandboxUnavailable(
            f"agent {agent!r} needs {PYTHON} in the image of the task, which does not have it; "
            "install it in environment/Dockerfile"
        )


def _report_skipped_steps(task: HarborTask, started: int) -> tuple[TrialFinding, ...]:
    if started == len(task.steps):
        return ()
    step = task.steps[started - 1]
    skipped = ", ".join(later.name for later in task.steps[started:])
    text = f"{skipped} was not started, because {step.name} did not succeed"
    return (TrialFinding("steps_not_begun", text),)


def _combine_results(
    results: list[AgentResult], findings: tuple[TrialFinding, ...]
) -> AgentResult:
    """Combine the results of all steps; the first one that did not complete decides."""
    stops = [result.stop for result in results if result.stop is not AgentStop.COMPLETED]
    return AgentResult(
        stop=stops[0] if stops else AgentStop.COMPLETED,
        notes=results[-1].notes,
        log=b"".join(result.log for result in results),
        cpu_s=sum(result.cpu_s for result in results),
        peak_memory_mb=max(result.peak_memory_mb for result in results),
        findings=(*(finding for result in results for finding in result.findings), *findings),
    )


async def grade_builtin_agent(task: HarborTask, agent: str, settings: SandboxSetup) -> Grade:
    """Run an agent without a model on a task, and grade its work; nothing is stored.

    Args:
        task: The task.
        agent: `oracle` or `nop`.
        settings: Sandbox settings; its time limit applies to agents if the task has none, and
            to tests if it is not the default.
    """
    sandboxes, artifacts = HarborSandboxes(task, settings), settings.folder / "artifacts"
    coding_agent, layer = make_coding_agent(agent), None
    is_oracle = agent == "oracle"

    async def record_action(action: str, output: str) -> None:
        """Record nothing."""

    for step in task.steps:
        async with sandboxes.open_agent_sandbox(step, layer, with_solution=is_oracle) as (
            sandbox,
            workdir,
        ):
            job = CodingJob(
                task=replace(task, instructions=step.instructions),
                sandbox=sandbox,
                timeout_s=step.timeout_s or settings.timeout_s,
                record_action=record_action,
                workdir=workdir,
                solution=make_solution_command(task) if is_oracle else None,
            )
            await coding_agent.work(job)
            layer = get_layer_path(artifacts, step)
            await sandboxes.export(sandbox, layer)
        if not await _can_continue(task, sandboxes, step, layer, settings.timeout_s):
            break
    return await grade_steps(task, sandboxes, artifacts, timeout_s=settings.timeout_s)


async def check_harbor_hidden_files(task: HarborTask, settings: SandboxSetup) -> TaskCheck:
    """Check that tests and solution cannot be read from inside an agent's sandbox."""
    script = f"for p in {TESTS}/test.sh {SOLUTION}; do [ ! -e $p ] || echo $p; done"
    async with HarborSandboxes(task, settings).open_agent_sandbox(task.steps[0], None) as (
        sandbox,
        _,
    ):
        end = await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=60.0))
    readable = end.output.decode(errors="replace").split()
    detail = "the agent cannot read hidden tests or the solution"
    if readable:
        detail = f"the agent can read {', '.join(readable)}"
    return TaskCheck(name="hidden files", passed=not readable, detail=detail)
