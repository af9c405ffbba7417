"""One attempt at a coding trial: an agent works in a sandbox, then a fresh sandbox grades it.

A file in the trial folder records that the agent has ended. A trial that was killed during
grading is therefore only graded again; one that was killed earlier restarts from the beginning.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from assay.bench.base import (
    APP,
    AgentResult,
    AgentStop,
    CodingAgent,
    CodingJob,
    CodingTask,
    Grade,
)
from assay.bench.coders.agents import make_coding_agent
from assay.bench.config import BenchConfig, TaskEntry
from assay.bench.grading.llm_judge import Judge
from assay.bench.grading.results import write_grade
from assay.bench.manifest import LAUNCH_FAILED, LAUNCHED, TrialResult
from assay.bench.task import BaseImages, RunnableTask, SandboxSetup, TrialSetup
from assay.bench.tasks.tree import walk
from assay.bench.tasks.workspace import Workspace, capture, make_workspace
from assay.bench.trial_files import (
    AGENT_FILE,
    AgentRecord,
    CodingResult,
    CodingTranscript,
    JudgeUsage,
    make_graded_result,
    make_outcomes,
    read_agent_record,
    read_patch,
)
from assay.core.files import atomic_write, remove_folder
from assay.core.secrets import mask
from assay.errors import SetupTimeout
from assay.sandboxes.base import (
    PROGRAM,
    REPOSITORY,
    SHARED,
    Enforcement,
    Mount,
    ResourceLimits,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.egress import PUBLIC
from assay.sandboxes.folders import enforcement_with_disk, limited_disk
from assay.sandboxes.roots import python_mounts, sandbox_environment
from assay.sandboxes.self_test import verify_enforcement
from assay.types import TrialState

_GRACE_S = 10.0
"""Seconds between an agent's time limit and the moment it is stopped."""


def resolve_network(
    entry: TaskEntry, allowed: Sequence[str], *, requested: bool
) -> tuple[str, ...]:
    """Return the hosts a sandbox may connect to; only the user can allow them, not the task.

    Args:
        entry: Its key `network` is the user's: true allows public addresses, false nothing.
        allowed: The destinations of `--allow-network`.
        requested: Whether the task requests network access.
    """
    if entry.network is False or not (requested or entry.network):
        return ()
    return tuple(allowed) or ((PUBLIC,) if entry.network else ())


def resolve_limits(
    task: CodingTask, entry: TaskEntry, allowed_network: Sequence[str] = ()
) -> ResourceLimits:
    """Return the limits of a sandbox; the benchmark file overrides those of the task."""
    limits: dict[str, Any] = {**task.limits, **entry.limits}
    limits["network"] = resolve_network(entry, allowed_network, requested=task.asks_network)
    for name in ("memory_mb", "processes", "disk_mb"):
        if name in limits:  # the kernel accepts only whole numbers
            limits[name] = int(limits[name])
    return replace(ResourceLimits(), **limits)


def make_entry_agent(entry: TaskEntry, config: BenchConfig) -> CodingAgent:
    """Create the agent of a task; raise UsageError if its file changed since the start."""
    return make_coding_agent(entry.agent, entry.command, sha=config.get_agent_hash(entry.agent))


def make_sandbox_setup(
    entry: TaskEntry,
    config: BenchConfig,
    backend: SandboxBackend,
    limits: ResourceLimits,
    folder: Path,
) -> SandboxSetup:
    """Return the sandbox settings for working on a trial or grading it."""
    return SandboxSetup(
        backend=backend,
        images=BaseImages.parse(config.base_images, network=config.build_network),
        folder=folder,
        limits=limits,
        timeout_s=entry.grading_timeout,
        variables=entry.environment_variables,
    )


async def grade_trial(
    task: RunnableTask, run_dir: Path, settings: SandboxSetup, judge: Judge | None
) -> tuple[Grade, float]:
    """Grade the work in a trial folder; return the grade and the seconds it took."""
    start = time.monotonic()
    # A process that was killed during grading leaves files there.
    await asyncio.to_thread(remove_folder, settings.folder)
    try:
        grade = await task.grade(run_dir, settings, judge)
    finally:
        await asyncio.to_thread(remove_folder, settings.folder)
    return grade, time.monotonic() - start


T = TypeVar("T", bound=CodingTask)


class CodingAttempt(Generic[T]):
    """One attempt at a trial of a task on a repository."""

    def __init__(self, task: RunnableTask, definition: T, setup: TrialSetup) -> None:
        self._layout, self._task, self._setup = task, definition, setup
        # Absolute, because programs start in other folders.
        self._run_dir = Path(setup.planned.run_dir).absolute()
        self._limits = resolve_limits(definition, setup.entry, setup.config.allow_network)
        self._launched = False
        self._seconds: dict[str, float] = {}

    async def run(self) -> CodingResult:
        """Run the trial from its first file to its grade."""
        record = read_agent_record(self._run_dir, self._setup.planned.session_id)
        if record is None:
            remove_folder(self._run_dir)
            self._run_dir.mkdir(parents=True, mode=0o700)
            record = await self._run_agent()
        # Here too, because the process may have been killed just after the agent ended.
        await asyncio.to_thread(remove_folder, self._run_dir / "work")
        self._launched = True
        self._seconds |= {"setup": record.setup_s, "agent": record.seconds}
        transcript = CodingTranscript(
            self._setup.recorder,
            self._setup.context,
            turn=record.turn,
            position=record.position,
            steps=record.steps,
        )
        diff = read_patch(self._run_dir)
        grade = await self._grade_work(record, diff, transcript)
        self._setup.recorder.seconds = record.seconds
        return self._make_result(record, grade, transcript, diff)

    def make_failed_result(self, state: TrialState, error: Exception) -> TrialResult:
        """Return the manifest entry of a trial that ended without a grade."""
        return replace(
            self._setup.planned,
            status=LAUNCHED if self._launched else LAUNCH_FAILED,
            launch_rc=0 if self._launched else 1,
            state=state,
            outcome=type(error).__name__,
            error=mask(str(error)),
            seconds=self._seconds,
            ended_at=time.time(),
        )

    async def _run_agent(self) -> AgentRecord:
        """Run the agent on a copy of the repository, and store its changes."""
        entry, task, backend = self._setup.entry, self._task, self._setup.backend
        agent = make_entry_agent(entry, self._setup.config)
        enforcement = await asyncio.to_thread(verify_enforcement, backend, self._limits)
        start = time.monotonic()
        workspace = await self._make_workspace()
        transcript = CodingTranscript(self._setup.recorder, self._setup.context)
        async with limited_disk(backend, self._limits, workspace.app) as disk:
            workspace = replace(workspace, disk=disk)
            self._seconds["setup"] = time.monotonic() - start
            with make_shared_folder(agent) as shared:
                mounts = make_program_mounts(agent, shared)
                async with self._open_sandbox(workspace, mounts) as sandbox:
                    self._launched = True
                    start = time.monotonic()
                    job = self._make_job(sandbox, transcript, agent.needs_model)
                    work = agent.work(replace(job, shared=shared))
                    result = await self._await_agent(work, entry.timeout)
                    seconds = time.monotonic() - start
            await transcript.flush()
            disk_mb = await asyncio.to_thread(_measure_size_mb, workspace.repo)
            patch = await asyncio.to_thread(capture, workspace)
        findings = (*result.findings, *patch.findings, *_find_hidden_mentions(result.log, task))
        record = self._make_agent_record(
            replace(result, findings=findings),
            transcript,
            seconds=seconds,
            disk_mb=disk_mb,
            files=patch.files,
            enforcement=enforcement_with_disk(disk, enforcement),
        )
        atomic_write(self._run_dir / "artifacts" / "diff.patch", patch.diff)
        self._write_agent_files(record, result)
        return record

    def _make_agent_record(
        self,
        result: AgentResult,
        transcript: CodingTranscript,
        *,
        seconds: float,
        disk_mb: float,
        files: Sequence[str],
        enforcement: Enforcement,
    ) -> AgentRecord:
        return AgentRecord(
            session_id=self._setup.planned.session_id,
            stop=result.stop.value,
            notes=result.notes,
            seconds=seconds,
            setup_s=self._seconds["setup"],
            cpu_s=result.cpu_s,
            peak_memory_mb=result.peak_memory_mb,
            disk_mb=disk_mb,
            findings=tuple((finding.name, finding.detail) for finding in result.findings),
            files=tuple(files),
            enforcement=asdict(enforcement),
            tokens=asdict(transcript.usage),
            cost_usd=transcript.totals.cost_usd,
            calls=transcript.calls,
            answered_as=transcript.answered_as,
            turn=transcript.turn,
            position=transcript.position,
            steps=transcript.steps,
        )

    async def _make_workspace(self) -> Workspace:
        creation = asyncio.to_thread(make_workspace, self._task, self._run_dir / "work")
        try:
            return await asyncio.wait_for(creation, self._setup.entry.setup_timeout)
        except TimeoutError as error:
            raise SetupTimeout(
                f"the repository of {self._task.task_id} was not ready after "
                f"{self._setup.entry.setup_timeout:g} s; increase setup_timeout"
            ) from error

    @asynccontextmanager
    async def _open_sandbox(
        self, workspace: Workspace, agent_mounts: Sequence[Mount]
    ) -> AsyncIterator[Sandbox]:
        spec = SandboxSpec(
            mounts=(
                *python_mounts(),
                *agent_mounts,
                Mount(workspace.app, APP),
                Mount(workspace.repo, REPOSITORY, writable=True),
            ),
            environment={
                **sandbox_environment(),
                **self._task.environment,
                **self._setup.entry.environment_variables,
            },
            limits=self._limits,
            disk=workspace.disk,
        )
        # Mount point of the repository.
        (workspace.app / Path(REPOSITORY).name).mkdir(exist_ok=True)
        async with self._setup.backend.open(spec) as sandbox:
            yield sandbox

    def _make_job(
        self, sandbox: Sandbox, transcript: CodingTranscript, needs_model: bool
    ) -> CodingJob:
        entry = self._setup.entry
        call_model = None
        if needs_model:
            call_model = partial(
                transcript.call_model,
                self._setup.models[entry.model or ""],
                temperature=entry.temperature,
                max_tokens=entry.max_tokens,
            )

        async def record_action(action: str, output: str) -> None:
            if needs_model:
                await transcript.record_action(action)
            else:
                await transcript.record_exchange(action, output)

        return CodingJob(
            task=self._task,
            sandbox=sandbox,
            timeout_s=entry.timeout,
            call_model=call_model,
            record_action=record_action,
            find_reached_limit=partial(_find_reached_limit, entry, transcript),
            max_turns=entry.max_turns,
        )

    async def _await_agent(self, work: Awaitable[AgentResult], timeout_s: float) -> AgentResult:
        """Wait for an agent; stop it if it runs past its time limit and a short grace period.

        Agents should end on their own, because only the agent has its log and its last message.
        """
        scope = asyncio.timeout(timeout_s + _GRACE_S)
        try:
            async with scope:
                return await work
        except TimeoutError:
            if not scope.expired():
                raise
            return AgentResult(stop=AgentStop.TIME_LIMIT, notes="")

    def _write_agent_files(self, record: AgentRecord, result: AgentResult) -> None:
        """Write the agent's results to the trial folder; the last file marks it as ended."""
        artifacts = self._run_dir / "artifacts"
        atomic_write(artifacts / "notes.md", f"{mask(result.notes)}\n".encode(errors="replace"))
        repo = self._task.repo
        repo_info = {
            "remote_urls": [repo.git_url] if repo.git_url else [],
            "branch": repo.branch,
            "start_commit": repo.start_commit,
            "touched_files": list(record.files),
        }
        atomic_write(artifacts / "repo_info.json", json.dumps(repo_info, indent=2).encode())
        atomic_write(self._run_dir / "logs" / "agent.log", result.log)
        atomic_write(self._run_dir / AGENT_FILE, json.dumps(asdict(record), indent=2).encode())

    async def _grade_work(
        self, record: AgentRecord, diff: bytes, transcript: CodingTranscript
    ) -> Grade:
        config = self._setup.config
        judge = None
        if config.judge is not None:
            call_model = partial(transcript.call_model, self._setup.models[config.judge])
            judge = Judge(call_model, model=config.judge, votes=config.judge_votes)
        settings = self._make_settings("grading")
        grade, self._seconds["grading"] = await grade_trial(
            self._layout, self._run_dir, settings, judge
        )
        await transcript.record_grade(grade.outcome.value, grade.total_score)
        write_grade(
            self._run_dir,
            self._task,
            grade,
            diff=diff,
            judge=None if judge is None else judge.describe(),
            agent_metrics=record.collect_metrics(),
        )
        return grade

    def _make_settings(self, folder: str) -> SandboxSetup:
        setup = self._setup
        return make_sandbox_setup(
            setup.entry, setup.config, setup.backend, self._limits, self._run_dir / folder
        )

    def _make_result(
        self, record: AgentRecord, grade: Grade, transcript: CodingTranscript, diff: bytes
    ) -> CodingResult:
        result = make_graded_result(
            self._setup.planned,
            record,
            grade,
            grading_s=self._seconds["grading"],
            judge=JudgeUsage(transcript.usage, transcript.totals.cost_usd, transcript.calls),
        )
        outcomes = make_outcomes(result, diff)
        return CodingResult(stop_reason=str(result.outcome), outcomes=outcomes, result=result)


@contextmanager
def make_shared_folder(agent: CodingAgent) -> Iterator[Path | None]:
    """Yield a folder to share with an agent that runs in the sandbox.

    Its path is short enough for sockets. Any user of a sandbox can read it, but only this user
    can enter its parent folder.
    """
    if not agent.runs_inside:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="assay-agent-") as folder:
        shared = Path(folder, "s")
        shared.mkdir()
        shared.chmod(0o755)
        yield shared


def make_program_mounts(agent: CodingAgent, shared: Path | None) -> tuple[Mount, ...]:
    """Return the mounts for an agent that runs in the sandbox."""
    if shared is None:
        return ()
    installed = () if agent.program is None else (Mount(agent.program, PROGRAM),)
    return *installed, Mount(shared, SHARED)


def _find_reached_limit(entry: TaskEntry, transcript: CodingTranscript) -> AgentStop | None:
    if entry.token_limit is not None and transcript.totals.tokens >= entry.token_limit:
        return AgentStop.TOKEN_LIMIT
    cost = transcript.totals.cost_usd
    if entry.cost_limit is not None and cost is not None and cost >= entry.cost_limit:
        return AgentStop.COST_LIMIT
    return None


def _find_hidden_mentions(log: bytes, task: CodingTask) -> tuple[TrialFinding, ...]:
    """Report hidden files whose names appear in the agent's log."""
    hidden = {Path(script.path).name for script in task.test_scripts} | {"tb_meta.json"}
    named = sorted(name for name in hidden if name.encode() in log)
    if not named:
        return ()
    return (TrialFinding("hidden_files_named", f"the agent's log contains {', '.join(named)}"),)


def _measure_size_mb(folder: Path) -> float:
    return sum(status.st_size for _, status in walk(folder) if status is not None) / 1e6
