"""Coding tasks as a kind of trial: the list of trials, and the execution of one."""

import asyncio
import os
import time
from collections.abc import Awaitable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from assay.bench.attempt import make_entry_agent, resolve_limits
from assay.bench.coders.installation import find_installed_agent
from assay.bench.coders.react import TOOLS
from assay.bench.config import BenchConfig, make_arm_labels
from assay.bench.manifest import RolloutFolder, TrialResult
from assay.bench.task import RunnableTask, TrialSetup
from assay.bench.trial_files import CodingResult, make_outcomes, read_agent_record, read_patch
from assay.core.canonical_json import derive_id
from assay.errors import BudgetSpent
from assay.runs.control import GroupStop, Interrupted, classify
from assay.runs.engine import Context
from assay.runs.kind import Arm, TrialKind
from assay.runs.plan import Group, Plan, Trial
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import SandboxBackend
from assay.store.recorder import Recorder
from assay.store.records import RunRecord, SessionHeader
from assay.store.schema import StoredKind
from assay.types import ChatModel, TrialState

TASK = "bench/"
"""Prefix of the names of coding tasks in the database."""
_POLL_S = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingSpec:
    """One rollout of an arm on a task; the payload of a trial."""

    run_id: str
    arm: str
    episode: int
    """Counted from 0 within the arm."""
    entry: int
    """Index of the task in the file."""
    rollout: int
    """Number of earlier rollouts of the arm on this task."""
    index: int
    """Counted from 0 over the whole benchmark, in the order of the file."""

    @property
    def session_id(self) -> str:
        """Id of its session, identical in every process."""
        repeat = (self.rollout,) if self.rollout else ()
        return derive_id(self.run_id, self.arm, 0, self.episode, *repeat)


def list_specs(config: BenchConfig, run_id: str) -> tuple[CodingSpec, ...]:
    """Return all trials of a benchmark, in the order of the file."""
    labels = make_arm_labels(config)
    episodes: dict[str, int] = {}
    rollouts: dict[tuple[str, str], int] = {}
    specs: list[CodingSpec] = []
    for number, (label, entry) in enumerate(zip(labels, config.tasks, strict=True)):
        for _ in range(entry.rollouts):
            # A folder may be spelled in several ways in the file.
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


def make_planned_results(
    config: BenchConfig, run_id: str, tasks: Sequence[RunnableTask], folder: RolloutFolder
) -> tuple[TrialResult, ...]:
    """Return the manifest entries of all trials before they start."""
    return tuple(
        TrialResult(
            run_id=f"{folder.stamp}-{spec.index}",
            run_dir=str(folder.get_run_dir(f"{folder.stamp}-{spec.index}")),
            task_dir=config.tasks[spec.entry].prepared_dir,
            task_id=tasks[spec.entry].definition.task_id,
            arm=spec.arm,
            agent=config.tasks[spec.entry].agent,
            model=config.tasks[spec.entry].model,
            rollout=spec.rollout,
            session_id=spec.session_id,
            task_checksum=tasks[spec.entry].definition.checksum,
        )
        for spec in list_specs(config, run_id)
    )


class CodingKind(TrialKind[CodingSpec]):
    """Coding tasks, each run by its arms as often as the file specifies."""

    name = StoredKind.CODING.value

    def __init__(
        self,
        config: BenchConfig,
        arms: Sequence[Arm],
        tasks: Sequence[RunnableTask],
        backends: Mapping[str, SandboxBackend],
        models: Mapping[str, ChatModel],
        folder: RolloutFolder,
        planned: Sequence[TrialResult],
    ) -> None:
        """Create the kind; it reports each result as progress, as a `TrialResult`."""
        self.models = models
        self._config, self._arms, self._tasks = config, [*arms], tasks
        self._backends, self._folder = backends, folder
        self._planned = {result.session_id: result for result in planned}

    def __getstate__(self) -> dict[str, Any]:
        config = copy(self._config)
        object.__setattr__(config, "openai_api_key", None)
        return {
            "config": config,
            "arms": self._arms,
            "tasks": self._tasks,
            "backends": [*self._backends],
            "folder": self._folder,
            "planned": [*self._planned.values()],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Sandboxes belong to the machine that executes the trials.
        backends = {name: choose_backend(name) for name in state["backends"]}
        self.__init__(**{**state, "backends": backends, "models": {}})  # type: ignore[misc]

    def plan(self, run: RunRecord) -> Plan[CodingSpec]:
        """Return a group for each arm: every task once, then every task again, and so on."""
        groups: dict[str, list[CodingSpec]] = {arm.label: [] for arm in self._arms}
        for spec in sorted(
            list_specs(self._config, run.id), key=attrgetter("rollout", "entry")
        ):
            groups[spec.arm].append(spec)
        return Plan(
            tuple(
                Group.of(
                    label,
                    [
                        Trial(spec.session_id, label, position, spec)
                        for position, spec in enumerate(specs)
                    ],
                )
                for label, specs in groups.items()
            )
        )

    def header(self, trial: Trial[CodingSpec]) -> SessionHeader:
        """Return the header of a trial's journal."""
        spec = trial.payload
        task, entry = self._tasks[spec.entry].definition, self._config.tasks[spec.entry]
        agent = make_entry_agent(entry, self._config)
        return SessionHeader(
            session_id=spec.session_id,
            run_id=spec.run_id,
            experiment_id=derive_id(spec.run_id, spec.arm),
            subject=spec.arm,
            task=f"{TASK}{task.task_id}",
            seed=0,
            episode=spec.episode,
            replicate=spec.rollout,
            created_at=time.time(),
            # A program has its own tools, and may change them while it runs.
            tools=TOOLS if agent.needs_model and not agent.runs_inside else None,
            metadata={
                "benchmark": self._config.name,
                "task_checksum": task.checksum,
                "task_dir": entry.prepared_dir,
                "run_dir": self._planned[spec.session_id].run_dir,
                "agent": entry.agent,
                **self._describe_agent(entry.agent),
                "sandbox": entry.sandbox,
                "limits": asdict(resolve_limits(task, entry, self._config.allow_network)),
                "timeout": entry.timeout,
            },
            trial_kind=self.name,
        )

    def _describe_agent(self, name: str) -> dict[str, str]:
        if (sha := self._config.get_agent_hash(name)) is not None:
            return {"agent_hash": sha}
        agent = find_installed_agent(name)
        if agent is None:
            return {}
        return {"agent_version": agent.version, "agent_sha256": agent.sha256}

    def resumes(self, trial: Trial[CodingSpec]) -> bool:
        """Return whether the agent has ended, so that the trial continues with its grading."""
        run_dir = Path(self._planned[trial.id].run_dir)
        return read_agent_record(run_dir, trial.id) is not None

    async def attempt(
        self, trial: Trial[CodingSpec], recorder: Recorder, context: Context
    ) -> CodingResult:
        """Run the agent, unless it has ended before, and grade its work."""
        spec = trial.payload
        if (finished := self._read_finished_trial(trial)) is not None:
            recorder.seconds = finished.result.seconds["agent"]
            return finished
        entry = self._config.tasks[spec.entry]
        attempt = self._tasks[spec.entry].start_attempt(
            TrialSetup(
                entry=entry,
                config=self._config,
                backend=self._backends[entry.sandbox],
                planned=self._planned[trial.id],
                recorder=recorder,
                context=context,
                models=self.models,
            )
        )
        try:
            end = await _run_until_stopped(attempt.run(), context)
        except (Interrupted, BudgetSpent):
            raise
        except Exception as error:
            failure = classify(error)
            if not isinstance(failure, GroupStop):
                context.report_progress(attempt.make_failed_result(failure.state, error))
            raise
        context.report_progress(end.result)
        return end

    def _read_finished_trial(self, trial: Trial[CodingSpec]) -> CodingResult | None:
        """Return the result of a trial that was graded but killed before its journal ended."""
        planned = self._planned[trial.id]
        result = self._folder.read_result(planned.run_id)
        if result is None or result.state is not TrialState.RESULT or not self.resumes(trial):
            return None
        outcomes = make_outcomes(result, read_patch(Path(result.run_dir)))
        return CodingResult(stop_reason=result.outcome or "", outcomes=outcomes, result=result)

    async def close(self) -> None:
        """Do nothing: no resource is open between trials."""


async def _run_until_stopped(work: Awaitable[_T], context: Context) -> _T:
    """Wait for work; if the run is stopping, cancel the work at once, with its processes."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_POLL_S)
            if context.stopping and not task.done():
                raise Interrupted("stop requested; resuming the run restarts this trial")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
