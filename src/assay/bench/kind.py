"""The coding task as a kind of trial: an agent works in a sandbox, a fresh one grades it.

The folder of a trial remembers that its agent has ended, so that a trial which was killed while
it was graded is graded again and not worked on again. One that was killed earlier begins anew.
"""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from assay._util.canonical import derived_id
from assay._util.files import atomic_write
from assay._util.redact import mask
from assay.errors import BudgetSpent, SetupTimeout
from assay.runs import Arm, TrialEnd
from assay.traces.recorder import Recorder
from assay.traces.records import RunRecord, SessionHeader
from assay.traces.schema import StoredKind
from assay.trials import Context, Group, GroupStop, Interrupted, Plan, Trial, classify
from assay.types import ChatModel, ChatReply, Encoded, Message, TrialState, Usage

from .arms import arm_labels
from .coders import installed_agent, make_coder
from .coders.react import TOOLS
from .config import BenchConfig, TaskEntry
from .conversation import CallSettings, Conversation
from .grading import Judge, grade, write_grade
from .manifest import LAUNCH_FAILED, LAUNCHED, RolloutFolder, TrialResult
from .sandboxes import python_mounts, sandbox_environment
from .seams import (
    APP,
    PROGRAM,
    REPOSITORY,
    SHARED,
    Coder,
    CoderEnd,
    CoderStop,
    CodingJob,
    CodingOutcome,
    CodingTask,
    Finding,
    Grade,
    Mount,
    ResourceLimits,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
)
from .tasks import Workspace, capture, make_workspace

__all__ = [
    "AgentEnd",
    "CodingEnd",
    "CodingKind",
    "CodingSpec",
    "JudgeBill",
    "agent_end",
    "graded_result",
    "limits_of",
    "outcomes_of",
    "planned_results",
    "specs_of",
]

TASK = "bench/"
"""What the names of coding tasks begin with in the store."""
_AGENT_FILE = "agent.json"
_POLL_S = 0.1
_GRACE_S = 10.0
"""Seconds after its time limit until an agent that has not ended is stopped."""
_SAYS_MORE = (CodingOutcome.SOLVED, CodingOutcome.TAMPERED)
"""What a grade says that counts more than how the agent stopped."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingSpec:
    """One arm on one task, once; the payload of a trial."""

    run_id: str
    arm: str
    episode: int
    """Counted from 0 within the arm."""
    entry: int
    """Which of the tasks of the file, counted from 0."""
    rollout: int
    """How often the arm works on this task before."""
    index: int
    """Counted from 0 over the whole benchmark, in the order of the file."""

    @property
    def session_id(self) -> str:
        """The id of its session, the same in every process."""
        again = (self.rollout,) if self.rollout else ()
        return derived_id(self.run_id, self.arm, 0, self.episode, *again)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingEnd(TrialEnd):
    """What a coding trial came to."""

    result: TrialResult


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """What the folder of a trial says of its agent."""

    session_id: str
    stop: str
    notes: str
    seconds: float
    setup_s: float
    cpu_s: float
    peak_memory_mb: float
    disk_mb: float
    findings: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    enforcement: Mapping[str, str]
    tokens: Mapping[str, int]
    cost_usd: float | None
    calls: int
    answered_as: str | None
    turn: int
    position: int
    steps: int

    def metrics(self) -> dict[str, Any]:
        """Tokens, calls, time and dollars, for the file of a grade."""
        return {
            "tokens_total": self.tokens["prompt"] + self.tokens["completion"],
            "model_calls": self.calls,
            "time_taken_seconds": round(self.seconds, 3),
            "money_spent_usd": self.cost_usd,
        }


def limits_of(task: CodingTask, entry: TaskEntry) -> ResourceLimits:
    """What a sandbox may use: the file says more than the task, the task more than defaults."""
    said: dict[str, Any] = {**task.limits, **entry.limits}
    return replace(ResourceLimits(), **said)


def specs_of(config: BenchConfig, run_id: str) -> tuple[CodingSpec, ...]:
    """Every trial of a benchmark, in the order of the file."""
    labels = arm_labels(config)
    episodes: dict[str, int] = {}
    rollouts: dict[tuple[str, str], int] = {}
    specs: list[CodingSpec] = []
    for number, (label, entry) in enumerate(zip(labels, config.tasks, strict=True)):
        for _ in range(entry.rollouts):
            # However the file spells the folder, it is the same task.
            world = (label, os.path.realpath(entry.prepared_dir))
            spec = CodingSpec(
                run_id=run_id,
                arm=label,
                episode=episodes.get(label, 0),
                entry=number,
                rollout=rollouts.get(world, 0),
                index=len(specs),
            )
            episodes[label] = spec.episode + 1
            rollouts[world] = spec.rollout + 1
            specs.append(spec)
    return tuple(specs)


def planned_results(
    config: BenchConfig, run_id: str, tasks: Sequence[CodingTask], folder: RolloutFolder
) -> tuple[TrialResult, ...]:
    """Every trial of a benchmark as the manifest has it before it has begun."""
    return tuple(
        TrialResult(
            run_id=f"{folder.stamp}-{spec.index}",
            run_dir=str(folder.run_dir(f"{folder.stamp}-{spec.index}")),
            task_dir=config.tasks[spec.entry].prepared_dir,
            task_id=tasks[spec.entry].task_id,
            arm=spec.arm,
            agent=config.tasks[spec.entry].agent,
            model=config.tasks[spec.entry].model,
            rollout=spec.rollout,
            session_id=spec.session_id,
            task_checksum=tasks[spec.entry].checksum,
        )
        for spec in specs_of(config, run_id)
    )


class CodingKind:
    """Coding tasks, each worked on by its arm as often as the file says."""

    name = StoredKind.CODING.value

    def __init__(
        self,
        config: BenchConfig,
        arms: Sequence[Arm],
        tasks: Sequence[CodingTask],
        backends: Mapping[str, SandboxBackend],
        models: Mapping[str, ChatModel],
        folder: RolloutFolder,
        planned: Sequence[TrialResult],
        ended: Callable[[TrialResult], None],
    ) -> None:
        self.models = models
        self._config, self._arms, self._tasks = config, [arm.label for arm in arms], tasks
        self._backends, self._folder, self._ended = backends, folder, ended
        self._planned = {result.session_id: result for result in planned}

    def plan(self, run: RunRecord) -> Plan[CodingSpec]:
        """A group for each arm: every task once, then every task again, and so on."""
        groups: dict[str, list[CodingSpec]] = {label: [] for label in self._arms}
        for spec in specs_of(self._config, run.id):
            groups[spec.arm].append(spec)
        return Plan(
            tuple(
                Group.of(
                    label,
                    [
                        Trial(spec.session_id, label, place, spec)
                        for place, spec in enumerate(sorted(specs, key=_turn))
                    ],
                )
                for label, specs in groups.items()
            )
        )

    def header(self, trial: Trial[CodingSpec]) -> SessionHeader:
        """What the journal of a trial begins with."""
        spec = trial.payload
        task, entry = self._tasks[spec.entry], self._config.tasks[spec.entry]
        coder = make_coder(entry.agent, entry.command)
        return SessionHeader(
            session_id=spec.session_id,
            run_id=spec.run_id,
            experiment_id=derived_id(spec.run_id, spec.arm),
            subject=spec.arm,
            task=f"{TASK}{task.task_id}",
            seed=0,
            episode=spec.episode,
            replicate=spec.rollout,
            created_at=time.time(),
            # A program offers tools of its own, and may change them while it runs.
            tools=TOOLS if coder.needs_model and coder.program is None else None,
            metadata={
                "benchmark": self._config.name,
                "task_checksum": task.checksum,
                "task_dir": entry.prepared_dir,
                "run_dir": self._planned[spec.session_id].run_dir,
                "agent": entry.agent,
                **_program_record(entry.agent),
                "sandbox": entry.sandbox,
                "limits": asdict(limits_of(task, entry)),
                "timeout": entry.timeout,
            },
            trial_kind=self.name,
        )

    def resumes(self, trial: Trial[CodingSpec]) -> bool:
        """A trial resumes where its agent has ended, with the grading."""
        run_dir = Path(self._planned[trial.id].run_dir)
        return agent_end(run_dir, trial.id) is not None

    async def attempt(
        self, trial: Trial[CodingSpec], recorder: Recorder, context: Context
    ) -> CodingEnd:
        """Let the agent work, unless it has, and grade what it leaves."""
        spec = trial.payload
        if (known := self._graded(trial)) is not None:
            recorder.seconds = known.result.seconds["agent"]
            return known
        attempt = _Attempt(
            self._config.tasks[spec.entry],
            self._tasks[spec.entry],
            self._backends[self._config.tasks[spec.entry].sandbox],
            self._planned[trial.id],
            recorder,
            context,
            self.models,
            self._config,
        )
        try:
            end = await _unless_stopped(attempt.run(), context)
        except (Interrupted, BudgetSpent):
            raise
        except Exception as error:
            sorted_as = classify(error)
            if not isinstance(sorted_as, GroupStop):
                self._ended(attempt.failed(sorted_as.state, error))
            raise
        self._ended(end.result)
        return end

    def _graded(self, trial: Trial[CodingSpec]) -> CodingEnd | None:
        """What a trial came to that was killed between its result and its journal's end."""
        planned = self._planned[trial.id]
        known = self._folder.result(planned.run_id)
        if known is None or known.state is not TrialState.RESULT or not self.resumes(trial):
            return None
        diff = (Path(known.run_dir) / "artifacts" / "diff.patch").read_bytes()
        outcomes = outcomes_of(known, diff)
        return CodingEnd(stop_reason=known.outcome or "", outcomes=outcomes, result=known)

    async def close(self) -> None:
        """Nothing is held open between trials."""


def _turn(spec: CodingSpec) -> tuple[int, int]:
    return spec.rollout, spec.entry


async def _unless_stopped(work: Awaitable[_T], context: Context) -> _T:
    """Wait for work; when the run is to stop, it is given up at once and leaves no process."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_POLL_S)
            if context.stopping and not task.done():
                raise Interrupted("asked to stop; resume begins this trial anew")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


class _Attempt:
    """One attempt at a trial."""

    def __init__(
        self,
        entry: TaskEntry,
        task: CodingTask,
        backend: SandboxBackend,
        planned: TrialResult,
        recorder: Recorder,
        context: Context,
        models: Mapping[str, ChatModel],
        config: BenchConfig,
    ) -> None:
        self._entry, self._task, self._backend = entry, task, backend
        self._planned, self._recorder, self._context = planned, recorder, context
        self._models, self._config = models, config
        # Programs start in folders of their own.
        self._run_dir = Path(planned.run_dir).absolute()
        self._limits = limits_of(task, entry)
        self._launched = False
        self._seconds: dict[str, float] = {}

    async def run(self) -> CodingEnd:
        """From the first file to the grade."""
        agent = agent_end(self._run_dir, self._planned.session_id)
        if agent is None:
            shutil.rmtree(self._run_dir, ignore_errors=True)
            self._run_dir.mkdir(parents=True)
            agent = await self._work()
        # Also where it was killed between the end of the agent and this line.
        await asyncio.to_thread(shutil.rmtree, self._run_dir / "work", ignore_errors=True)
        self._launched = True
        self._seconds |= {"setup": agent.setup_s, "agent": agent.seconds}
        talk = Conversation(
            self._recorder,
            self._context,
            turn=agent.turn,
            position=agent.position,
            steps=agent.steps,
        )
        diff = (self._run_dir / "artifacts" / "diff.patch").read_bytes()
        graded = await self._grade(agent, diff, talk)
        self._recorder.seconds = agent.seconds
        return self._end(agent, graded, talk, diff)

    def failed(self, state: TrialState, error: Exception) -> TrialResult:
        """The trial as the manifest has it when it ended without a grade."""
        return replace(
            self._planned,
            status=LAUNCHED if self._launched else LAUNCH_FAILED,
            launch_rc=0 if self._launched else 1,
            state=state,
            outcome=type(error).__name__,
            error=mask(str(error)),
            seconds=self._seconds,
            ended_at=time.time(),
        )

    async def _work(self) -> AgentEnd:
        """Let the agent work on a copy of the repository, and keep what it changed."""
        entry, task = self._entry, self._task
        coder = make_coder(entry.agent, entry.command)
        enforcement = self._backend.enforcement(self._limits)
        start = time.monotonic()
        workspace = await self._workspace()
        self._seconds["setup"] = time.monotonic() - start
        talk = Conversation(self._recorder, self._context)
        with _shared_folder(coder) as shared:
            async with self._sandbox(workspace, _program_mounts(coder, shared)) as sandbox:
                self._launched = True
                start = time.monotonic()
                job = self._job(sandbox, talk, coder.needs_model)
                end = await self._coded(coder.work(replace(job, shared=shared)))
                seconds = time.monotonic() - start
        await talk.flush()
        disk_mb = await asyncio.to_thread(_size_mb, workspace.repo)
        patch = await asyncio.to_thread(capture, workspace)
        findings = (*end.findings, *patch.findings, *_looked(end.log, task))
        agent = AgentEnd(
            session_id=self._planned.session_id,
            stop=end.stop.value,
            notes=end.notes,
            seconds=seconds,
            setup_s=self._seconds["setup"],
            cpu_s=end.cpu_s,
            peak_memory_mb=end.peak_memory_mb,
            disk_mb=disk_mb,
            findings=tuple((finding.name, finding.detail) for finding in findings),
            files=patch.files,
            enforcement=asdict(enforcement),
            tokens=asdict(talk.usage),
            cost_usd=talk.totals.cost_usd,
            calls=talk.calls,
            answered_as=talk.answered_as,
            turn=talk.turn,
            position=talk.position,
            steps=talk.steps,
        )
        self._keep(agent, patch.diff, end)
        return agent

    async def _workspace(self) -> Workspace:
        made = asyncio.to_thread(make_workspace, self._task, self._run_dir / "work")
        try:
            return await asyncio.wait_for(made, self._entry.setup_timeout)
        except TimeoutError as error:
            raise SetupTimeout(
                f"the repository of {self._task.task_id} was not ready after "
                f"{self._entry.setup_timeout:g} s; allow more with setup_timeout"
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
                **self._entry.environment_variables,
            },
            limits=self._limits,
        )
        # The repository is mounted into it.
        (workspace.app / Path(REPOSITORY).name).mkdir(exist_ok=True)
        async with self._backend.open(spec) as sandbox:
            yield sandbox

    def _job(self, sandbox: Sandbox, talk: Conversation, asks: bool) -> CodingJob:
        entry = self._entry
        settings = CallSettings(entry.temperature, entry.max_tokens)

        async def ask(messages: Sequence[Message], tools: Encoded) -> ChatReply:
            return await talk.ask(self._models[entry.model or ""], messages, tools, settings)

        async def acted(action: str, came_of_it: str) -> None:
            await (talk.act(action) if asks else talk.tell(action, came_of_it))

        return CodingJob(
            task=self._task,
            sandbox=sandbox,
            timeout_s=entry.timeout,
            ask=ask if asks else None,
            acted=acted,
            spent=partial(_spent, entry, talk),
            max_turns=entry.max_turns,
        )

    async def _coded(self, work: Awaitable[CoderEnd]) -> CoderEnd:
        """Wait for an agent; one that does not keep the time itself is stopped a little later.

        Only the agent knows its log and its last message, so that it is to end by itself.
        """
        scope = asyncio.timeout(self._entry.timeout + _GRACE_S)
        try:
            async with scope:
                return await work
        except TimeoutError:
            if not scope.expired():
                raise
            return CoderEnd(stop=CoderStop.TIME_LIMIT, notes="")

    def _keep(self, agent: AgentEnd, diff: bytes, end: CoderEnd) -> None:
        """Put what the agent left into the folder of the trial; the last file settles it."""
        artifacts = self._run_dir / "artifacts"
        atomic_write(artifacts / "diff.patch", diff)
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
        atomic_write(self._run_dir / _AGENT_FILE, json.dumps(asdict(agent), indent=2).encode())

    async def _grade(self, agent: AgentEnd, diff: bytes, talk: Conversation) -> Grade:
        config = self._config
        judge = None
        if config.judge is not None:
            model = self._models[config.judge]

            async def ask(messages: Sequence[Message], tools: Encoded) -> ChatReply:
                return await talk.ask(model, messages, tools, CallSettings())

            judge = Judge(ask, model=config.judge, votes=config.judge_votes)
        start = time.monotonic()
        # Whoever was killed while it graded has left something there.
        await asyncio.to_thread(shutil.rmtree, self._run_dir / "grading", ignore_errors=True)
        graded = await grade(
            self._task,
            diff,
            self._backend,
            folder=self._run_dir / "grading",
            limits=self._limits,
            timeout_s=self._entry.grading_timeout,
            judge=judge,
        )
        await talk.graded(graded.outcome.value, graded.total_score)
        self._seconds["grading"] = time.monotonic() - start
        await asyncio.to_thread(shutil.rmtree, self._run_dir / "grading", ignore_errors=True)
        write_grade(
            self._run_dir,
            self._task,
            graded,
            diff=diff,
            judge=None if judge is None else judge.record(),
            agent_metrics=agent.metrics(),
        )
        return graded

    def _end(
        self, agent: AgentEnd, graded: Grade, talk: Conversation, diff: bytes
    ) -> CodingEnd:
        result = graded_result(
            self._planned,
            agent,
            graded,
            grading_s=self._seconds["grading"],
            judge=JudgeBill(talk.usage, talk.totals.cost_usd, talk.calls),
        )
        outcomes = outcomes_of(result, diff)
        return CodingEnd(stop_reason=str(result.outcome), outcomes=outcomes, result=result)


class JudgeBill(NamedTuple):
    """What the judge of one trial took."""

    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    calls: int = 0


def graded_result(
    planned: TrialResult,
    agent: AgentEnd,
    graded: Grade,
    *,
    grading_s: float,
    judge: JudgeBill,
) -> TrialResult:
    """A trial with what its agent left and the grade of it, as the manifest has it."""
    outcome = graded.outcome.value
    if agent.stop != CoderStop.COMPLETED and graded.outcome not in _SAYS_MORE:
        outcome = agent.stop  # a limit explains more than what it left undone
    costs = (agent.cost_usd, judge.cost_usd)
    seconds = {"setup": agent.setup_s, "agent": agent.seconds, "grading": grading_s}
    return replace(
        planned,
        status=LAUNCHED,
        launch_rc=0,
        state=TrialState.RESULT,
        outcome=outcome,
        agent_stop=agent.stop,
        score=graded.total_score,
        tests_passed=sum(report.status == "passed" for report in graded.tests),
        tests_total=len(graded.tests),
        rubrics={scored.rubric.id: scored.score for scored in graded.rubrics},
        standard_metrics=graded.standard_metrics,
        custom_metrics=graded.custom_metrics,
        findings=(
            *agent.findings,
            *((found.name, found.detail) for found in graded.findings),
        ),
        error=None,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        tokens=asdict(Usage(**agent.tokens) + judge.usage),
        cost_usd=None if None in costs else sum(filter(None, costs)),
        model_calls=agent.calls + judge.calls,
        answered_as=agent.answered_as,
        cpu_s=round(agent.cpu_s, 3),
        peak_memory_mb=round(agent.peak_memory_mb, 1),
        disk_mb=round(agent.disk_mb, 3),
        enforcement=agent.enforcement,
        ended_at=time.time(),
    )


def outcomes_of(result: TrialResult, diff: bytes) -> dict[str, float]:
    """What a trial earned, as the store keeps it."""
    scored = {name: value for name, value in result.rubrics.items() if value is not None}
    return {
        "score": result.score or 0.0,
        "solved": float(result.passed),
        "duration_s": result.seconds.get("agent", 0.0),
        "tokens": float(sum(result.tokens.get(kind, 0) for kind in ("prompt", "completion"))),
        **({} if result.cost_usd is None else {"cost_usd": result.cost_usd}),
        "patch_bytes": float(len(diff)),
        **{f"rubric/{name}": value for name, value in scored.items()},
        **{f"metric/{name}": value for name, value in result.custom_metrics.items()},
    }


def agent_end(run_dir: Path, session_id: str) -> AgentEnd | None:
    """What the agent of a trial came to; None if it has not ended."""
    try:
        said = json.loads((run_dir / _AGENT_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if said.get("session_id") != session_id or said.keys() != {
        part.name for part in fields(AgentEnd)
    }:
        return None
    findings = tuple((name, detail) for name, detail in said["findings"])
    return AgentEnd(**{**said, "findings": findings, "files": tuple(said["files"])})


@contextmanager
def _shared_folder(coder: Coder) -> Iterator[Path | None]:
    """A folder that a program shares with its coder; its path is short enough for sockets."""
    if coder.program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="assay-agent-") as folder:
        yield Path(folder)


def _program_record(name: str) -> dict[str, str]:
    agent = installed_agent(name)
    if agent is None:
        return {}
    return {"agent_version": agent.version, "agent_sha256": agent.sha256}


def _program_mounts(coder: Coder, shared: Path | None) -> tuple[Mount, ...]:
    if coder.program is None or shared is None:
        return ()
    return Mount(coder.program, PROGRAM), Mount(shared, SHARED)


def _spent(entry: TaskEntry, talk: Conversation) -> CoderStop | None:
    if entry.token_limit is not None and talk.totals.tokens >= entry.token_limit:
        return CoderStop.TOKEN_LIMIT
    cost = talk.totals.cost_usd
    if entry.cost_limit is not None and cost is not None and cost >= entry.cost_limit:
        return CoderStop.COST_LIMIT
    return None


def _looked(log: bytes, task: CodingTask) -> tuple[Finding, ...]:
    """Hidden files that stand in what the agent ran or was told."""
    hidden = {Path(script.path).name for script in task.test_scripts} | {"tb_meta.json"}
    named = sorted(name for name in hidden if name.encode() in log)
    if not named:
        return ()
    return (Finding("hidden_files_named", f"its log names {', '.join(named)}"),)


def _size_mb(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total / 1e6
