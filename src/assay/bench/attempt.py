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

from assay.bench.base import APP, Coder, CoderEnd, CoderStop, CodingJob, CodingTask, Grade
from assay.bench.coders.agents import make_coder
from assay.bench.config import BenchConfig, TaskEntry
from assay.bench.grading.llm_judge import Judge
from assay.bench.grading.results import write_grade
from assay.bench.manifest import LAUNCH_FAILED, LAUNCHED, TrialResult
from assay.bench.task import BaseImages, Task, TrialSetup, Workplace
from assay.bench.tasks.tree import walk
from assay.bench.tasks.workspace import Workspace, capture, make_workspace
from assay.bench.trial_files import (
    AGENT_FILE,
    AgentEnd,
    CallSettings,
    CodingEnd,
    CodingTranscript,
    JudgeBill,
    agent_end,
    graded_result,
    outcomes_of,
    patch_of,
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


def network_of(entry: TaskEntry, allowed: Sequence[str], *, asked: bool) -> tuple[str, ...]:
    """Return the hosts a sandbox may connect to; only the user can allow them, not the task.

    Args:
        entry: Its key `network` is the user's: true allows public addresses, false nothing.
        allowed: The destinations of `--allow-network`.
        asked: Whether the task requests network access.
    """
    if entry.network is False or not (asked or entry.network):
        return ()
    return tuple(allowed) or ((PUBLIC,) if entry.network else ())


def limits_of(
    task: CodingTask, entry: TaskEntry, allowed_network: Sequence[str] = ()
) -> ResourceLimits:
    """Return the limits of a sandbox; the benchmark file overrides those of the task."""
    said: dict[str, Any] = {**task.limits, **entry.limits}
    said["network"] = network_of(entry, allowed_network, asked=task.asks_network)
    for name in ("memory_mb", "processes", "disk_mb"):
        if name in said:  # the kernel accepts only whole numbers
            said[name] = int(said[name])
    return replace(ResourceLimits(), **said)


def coder_of(entry: TaskEntry, config: BenchConfig) -> Coder:
    """Create the agent of a task; raise UsageError if its file changed since the start."""
    return make_coder(entry.agent, entry.command, sha=config.agent_hash(entry.agent))


def workplace_of(
    entry: TaskEntry,
    config: BenchConfig,
    backend: SandboxBackend,
    limits: ResourceLimits,
    folder: Path,
) -> Workplace:
    """Return the sandbox settings for working on a trial or grading it."""
    return Workplace(
        backend=backend,
        images=BaseImages.of(config.base_images, network=config.build_network),
        folder=folder,
        limits=limits,
        timeout_s=entry.grading_timeout,
        variables=entry.environment_variables,
    )


async def grade_trial(
    task: Task, run_dir: Path, place: Workplace, judge: Judge | None
) -> tuple[Grade, float]:
    """Grade the work in a trial folder; return the grade and the seconds it took."""
    start = time.monotonic()
    # A process that was killed during grading leaves files there.
    await asyncio.to_thread(remove_folder, place.folder)
    try:
        graded = await task.grade(run_dir, place, judge)
    finally:
        await asyncio.to_thread(remove_folder, place.folder)
    return graded, time.monotonic() - start


T = TypeVar("T", bound=CodingTask)


class CodingAttempt(Generic[T]):
    """One attempt at a trial of a task on a repository."""

    def __init__(self, task: Task, definition: T, setup: TrialSetup) -> None:
        self._layout, self._task, self._setup = task, definition, setup
        # Absolute, because programs start in other folders.
        self._run_dir = Path(setup.planned.run_dir).absolute()
        self._limits = limits_of(definition, setup.entry, setup.config.allow_network)
        self._launched = False
        self._seconds: dict[str, float] = {}

    async def run(self) -> CodingEnd:
        """Run the trial from its first file to its grade."""
        agent = agent_end(self._run_dir, self._setup.planned.session_id)
        if agent is None:
            remove_folder(self._run_dir)
            self._run_dir.mkdir(parents=True, mode=0o700)
            agent = await self._work()
        # Here too, because the process may have been killed just after the agent ended.
        await asyncio.to_thread(remove_folder, self._run_dir / "work")
        self._launched = True
        self._seconds |= {"setup": agent.setup_s, "agent": agent.seconds}
        talk = CodingTranscript(
            self._setup.recorder,
            self._setup.context,
            turn=agent.turn,
            position=agent.position,
            steps=agent.steps,
        )
        diff = patch_of(self._run_dir)
        graded = await self._grade(agent, diff, talk)
        self._setup.recorder.seconds = agent.seconds
        return self._end(agent, graded, talk, diff)

    def failed(self, state: TrialState, error: Exception) -> TrialResult:
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

    async def _work(self) -> AgentEnd:
        """Run the agent on a copy of the repository, and store its changes."""
        entry, task, backend = self._setup.entry, self._task, self._setup.backend
        coder = coder_of(entry, self._setup.config)
        enforcement = await asyncio.to_thread(verify_enforcement, backend, self._limits)
        start = time.monotonic()
        workspace = await self._workspace()
        talk = CodingTranscript(self._setup.recorder, self._setup.context)
        async with limited_disk(backend, self._limits, workspace.app) as disk:
            workspace = replace(workspace, disk=disk)
            self._seconds["setup"] = time.monotonic() - start
            with shared_folder(coder) as shared:
                async with self._sandbox(workspace, program_mounts(coder, shared)) as sandbox:
                    self._launched = True
                    start = time.monotonic()
                    job = self._job(sandbox, talk, coder.needs_model)
                    work = coder.work(replace(job, shared=shared))
                    end = await self._coded(work, entry.timeout)
                    seconds = time.monotonic() - start
            await talk.flush()
            disk_mb = await asyncio.to_thread(_size_mb, workspace.repo)
            patch = await asyncio.to_thread(capture, workspace)
        findings = (*end.findings, *patch.findings, *_looked(end.log, task))
        agent = self._agent_end(
            replace(end, findings=findings),
            talk,
            seconds=seconds,
            disk_mb=disk_mb,
            files=patch.files,
            enforcement=enforcement_with_disk(disk, enforcement),
        )
        atomic_write(self._run_dir / "artifacts" / "diff.patch", patch.diff)
        self._keep(agent, end)
        return agent

    def _agent_end(
        self,
        end: CoderEnd,
        talk: CodingTranscript,
        *,
        seconds: float,
        disk_mb: float,
        files: Sequence[str],
        enforcement: Enforcement,
    ) -> AgentEnd:
        return AgentEnd(
            session_id=self._setup.planned.session_id,
            stop=end.stop.value,
            notes=end.notes,
            seconds=seconds,
            setup_s=self._seconds["setup"],
            cpu_s=end.cpu_s,
            peak_memory_mb=end.peak_memory_mb,
            disk_mb=disk_mb,
            findings=tuple((finding.name, finding.detail) for finding in end.findings),
            files=tuple(files),
            enforcement=asdict(enforcement),
            tokens=asdict(talk.usage),
            cost_usd=talk.totals.cost_usd,
            calls=talk.calls,
            answered_as=talk.answered_as,
            turn=talk.turn,
            position=talk.position,
            steps=talk.steps,
        )

    async def _workspace(self) -> Workspace:
        made = asyncio.to_thread(make_workspace, self._task, self._run_dir / "work")
        try:
            return await asyncio.wait_for(made, self._setup.entry.setup_timeout)
        except TimeoutError as error:
            raise SetupTimeout(
                f"the repository of {self._task.task_id} was not ready after "
                f"{self._setup.entry.setup_timeout:g} s; allow more with setup_timeout"
            ) from error

    @asynccontextmanager
    async def _sandbox(
        self, workspace: Workspace, more: Sequence[Mount]
    ) -> AsyncIterator[Sandbox]:
        spec = SandboxSpec(
            mounts=(
                *python_mounts(),
                *more,
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

    def _job(self, sandbox: Sandbox, talk: CodingTranscript, asks: bool) -> CodingJob:
        entry = self._setup.entry
        ask = None
        if asks:
            settings = CallSettings(entry.temperature, entry.max_tokens)
            model = self._setup.models[entry.model or ""]
            ask = partial(talk.ask, model, settings=settings)

        async def acted(action: str, came_of_it: str) -> None:
            await (talk.act(action) if asks else talk.tell(action, came_of_it))

        return CodingJob(
            task=self._task,
            sandbox=sandbox,
            timeout_s=entry.timeout,
            ask=ask,
            acted=acted,
            spent=partial(_spent, entry, talk),
            max_turns=entry.max_turns,
        )

    async def _coded(self, work: Awaitable[CoderEnd], timeout_s: float) -> CoderEnd:
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
            return CoderEnd(stop=CoderStop.TIME_LIMIT, notes="")

    def _keep(self, agent: AgentEnd, end: CoderEnd) -> None:
        """Write the agent's results to the trial folder; the last file marks it as ended."""
        artifacts = self._run_dir / "artifacts"
        atomic_write(artifacts / "notes.md", f"{mask(end.notes)}\n".encode(errors="replace"))
        repo = self._task.repo
        about = {
            "remote_urls": [repo.git_url] if repo.git_url else [],
            "branch": repo.branch,
            "start_commit": repo.start_commit,
            "touched_files": list(agent.files),
        }
        atomic_write(artifacts / "repo_info.json", json.dumps(about, indent=2).encode())
        atomic_write(self._run_dir / "logs" / "agent.log", end.log)
        atomic_write(self._run_dir / AGENT_FILE, json.dumps(asdict(agent), indent=2).encode())

    async def _grade(self, agent: AgentEnd, diff: bytes, talk: CodingTranscript) -> Grade:
        config = self._setup.config
        judge = None
        if config.judge is not None:
            ask = partial(talk.ask, self._setup.models[config.judge])
            judge = Judge(ask, model=config.judge, votes=config.judge_votes)
        place = self._place("grading")
        graded, self._seconds["grading"] = await grade_trial(
            self._layout, self._run_dir, place, judge
        )
        await talk.graded(graded.outcome.value, graded.total_score)
        write_grade(
            self._run_dir,
            self._task,
            graded,
            diff=diff,
            judge=None if judge is None else judge.record(),
            agent_metrics=agent.metrics(),
        )
        return graded

    def _place(self, folder: str) -> Workplace:
        setup = self._setup
        return workplace_of(
            setup.entry, setup.config, setup.backend, self._limits, self._run_dir / folder
        )

    def _end(
        self, agent: AgentEnd, graded: Grade, talk: CodingTranscript, diff: bytes
    ) -> CodingEnd:
        result = graded_result(
            self._setup.planned,
            agent,
            graded,
            grading_s=self._seconds["grading"],
            judge=JudgeBill(talk.usage, talk.totals.cost_usd, talk.calls),
        )
        outcomes = outcomes_of(result, diff)
        return CodingEnd(stop_reason=str(result.outcome), outcomes=outcomes, result=result)


@contextmanager
def shared_folder(coder: Coder) -> Iterator[Path | None]:
    """Yield a folder to share with an agent that runs in the sandbox.

    Its path is short enough for sockets. Any user of a sandbox can read it, but only this user
    can enter its parent folder.
    """
    if not coder.runs_inside:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="assay-agent-") as folder:
        shared = Path(folder, "s")
        shared.mkdir()
        shared.chmod(0o755)
        yield shared


def program_mounts(coder: Coder, shared: Path | None) -> tuple[Mount, ...]:
    """Return the mounts for an agent that runs in the sandbox."""
    if shared is None:
        return ()
    installed = () if coder.program is None else (Mount(coder.program, PROGRAM),)
    return *installed, Mount(shared, SHARED)


def _spent(entry: TaskEntry, talk: CodingTranscript) -> CoderStop | None:
    if entry.token_limit is not None and talk.totals.tokens >= entry.token_limit:
        return CoderStop.TOKEN_LIMIT
    cost = talk.totals.cost_usd
    if entry.cost_limit is not None and cost is not None and cost >= entry.cost_limit:
        return CoderStop.COST_LIMIT
    return None


def _looked(log: bytes, task: CodingTask) -> tuple[TrialFinding, ...]:
    """Report hidden files whose names appear in the agent's log."""
    hidden = {Path(script.path).name for script in task.test_scripts} | {"tb_meta.json"}
    named = sorted(name for name in hidden if name.encode() in log)
    if not named:
        return ()
    return (TrialFinding("hidden_files_named", f"its log names {', '.join(named)}"),)


def _size_mb(folder: Path) -> float:
    return sum(status.st_size for _, status in walk(folder) if status is not None) / 1e6
