"""A trial of Harbor: what its folder holds, as one session.

Harbor writes `result.json` for a trial, and its agent leaves trajectories (ATIF): one, or one
for each step of the task, each perhaps continued in further files. They are joined. The result
says who played what, what it earned, and what it cost in all, subagents included; it counts
where a trajectory says otherwise. A trial without a trajectory is a session without turns.

The folder of a trial of Harbor: which of its files are read, and which are not.

A trial of one step has its trajectory in `agent/`, a trial of several in `steps/<step>/agent/`.
A trajectory may name the file that continues it; others beside it are of subagents. What the
simulated user of a trial said lies in `user-agent/`, and is no trajectory of the agent.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.core.canonical_json import derived_id
from assay.errors import UsageError
from assay.store.formats.atif_read import AtifReading, is_atif
from assay.store.formats.foreign import (
    ForeignRun,
    as_cost,
    as_count,
    as_list,
    as_mapping,
    as_name,
    as_number,
    as_seconds,
    as_text,
    blame,
    load_object,
)
from assay.store.records import EndRecord, ErrorRecord, Imported, Trace
from assay.types import StopReason, TrialState

_REASON: Final = (
    "Harbor records what was said and earned, not the state of a world that could be replayed"
)
_TOKENS: Final = {
    "prompt_tokens": "n_input_tokens",
    "completion_tokens": "n_output_tokens",
    "cached_tokens": "n_cache_tokens",
}


def is_harbor_trial(value: Mapping[str, Any]) -> bool:
    """Whether an object is the configuration, or the result, of a trial."""
    return isinstance(value.get("trial_name"), str) and ("task" in value or "task_id" in value)


def is_harbor_result(value: Mapping[str, Any]) -> bool:
    """Whether an object is the result of a trial, not of a job."""
    return is_harbor_trial(value) and "agent_info" in value


class _Agent(NamedTuple):
    name: str
    version: str
    model: str
    """Empty if it is not known."""

    @property
    def subject(self) -> str:
        return f"{self.name}/{self.model}"[:200] if self.model else self.name


class HarborTrial:
    """The result of a trial, and the trajectories of its agent in their order."""

    def __init__(
        self, result: Mapping[str, Any], trajectories: Sequence[Mapping[str, Any]]
    ) -> None:
        self._result = result
        self._config = as_mapping(result.get("config"))
        self._steps = [as_mapping(step) for step in as_list(result.get("step_results"))]
        self._agent = self._who(trajectories)
        self._reading = AtifReading(_joined(trajectories), self._agent.model or "unknown")

    def session(self) -> Trace:
        """The trial as a session.

        Raises:
            ValueError: It holds what no session may hold.
        """
        reading = self._reading
        reading.read()
        started = as_seconds(self._result.get("started_at")) or reading.started
        agent = self._agent
        job = as_text(self._config.get("job_id"), 200)
        folder = as_text(self._config.get("trials_dir"), 4096).rstrip("/").split("/")[-1]
        run = ForeignRun(
            source="harbor",
            key=(job or folder, *agent),
            model=agent.subject,
            created_at=started,
            configuration={"agent": agent._asdict()},
            provenance={"program": "Harbor", "job": job, "run": folder},
        )
        name = as_text(self._result.get("trial_name"), 200)
        unique = as_text(self._result.get("id"), 200)
        return run.trace(
            session_id=derived_id("harbor", unique or f"{job or folder}/{name}"),
            task=f"harbor/{as_name(self._result.get('task_name'), 'unknown')}",
            imported=Imported(_REASON, self._totals()),
            conversation=reading.conversation,
            end=self._end(started),
            tools=reading.tools,
            created_at=started,
            metadata={
                "trial": name,
                "task_checksum": as_text(self._result.get("task_checksum"), 200),
            },
            calls=reading.calls,
            played=reading.played,
        )

    def _who(self, trajectories: Sequence[Mapping[str, Any]]) -> _Agent:
        info = as_mapping(self._result.get("agent_info"))
        said = as_mapping(trajectories[0].get("agent")) if trajectories else {}
        model = as_mapping(info.get("model_info"))
        parts = [as_name(model.get(part), "") for part in ("provider", "name")]
        return _Agent(
            name=as_name(info.get("name"), as_name(said.get("name"), "unknown")),
            version=as_text(info.get("version"), 200),
            model="/".join(filter(None, parts)) or as_name(said.get("model_name"), ""),
        )

    def _spent(self, field: str) -> float | None:
        """The sum over the steps of the task, or that of its only one."""
        whole = self._result.get("agent_result")
        contexts = [whole] if whole else [step.get("agent_result") for step in self._steps]
        found = [as_number(as_mapping(context).get(field)) for context in contexts]
        known = [number for number in found if number is not None]
        return sum(known) if known else None

    def _totals(self) -> dict[str, float | None]:
        totals: dict[str, float | None] = dict(self._reading.totals())
        for column, field in _TOKENS.items():
            if (count := self._spent(field)) is not None:
                totals[column] = as_count(int(count))
        if (cost := self._cost()) is not None or not self._reading.calls:
            totals["cost_usd"] = cost
        rewards = self._rewards()
        if "reward" in rewards:
            totals["total_reward"] = rewards["reward"]
        return totals

    def _cost(self) -> float | None:
        cost = as_cost(self._spent("cost_usd"))
        return self._reading.cost() if cost is None else cost

    def _rewards(self) -> dict[str, float]:
        found = _rewards(self._result)
        for step in self._steps:
            name = as_name(step.get("step_name"), "step")
            found |= {f"{key}/{name}"[:200]: value for key, value in _rewards(step).items()}
        return found

    def _end(self, started: float) -> EndRecord:
        state, error = self._state()
        at = as_seconds(self._result.get("finished_at")) or self._reading.ended or started
        return EndRecord(
            at=at,
            state=state,
            stop_reason=error.type if error else StopReason.FINISHED,
            duration_s=self._duration() or max(at - started, 0.0),
            outcomes=self._outcomes() if state is TrialState.RESULT else {},
            error=error,
        )

    def _duration(self) -> float:
        """How long the agent was at work."""
        spans = [
            as_mapping(each.get("agent_execution")) for each in (self._result, *self._steps)
        ]
        times = [
            (as_seconds(span.get("started_at")), as_seconds(span.get("finished_at")))
            for span in spans
        ]
        return sum(max(end - start, 0.0) for start, end in times if start and end)

    def _state(self) -> tuple[TrialState, ErrorRecord | None]:
        said = [as_mapping(each.get("exception_info")) for each in (self._result, *self._steps)]
        first = next(filter(None, said), None)
        if first is None:
            return TrialState.RESULT, None
        error = ErrorRecord(
            type=as_name(first.get("exception_type"), "Error"),
            message=as_text(first.get("exception_message")),
            traceback=as_text(first.get("exception_traceback")),
        )
        if _rewards(self._result):
            return TrialState.RESULT, error
        return blame(error.type, error.message), error

    def _outcomes(self) -> dict[str, float]:
        totals = self._totals()
        outcomes = self._rewards()
        if self._reading.played:
            outcomes["turns"] = float(len(self._reading.played))
        tokens = [totals.get(column) for column in ("prompt_tokens", "completion_tokens")]
        if (
            known := [number for number in tokens if number is not None]
        ) or self._reading.calls:
            outcomes["tokens"] = float(sum(known) if known else self._reading.tokens())
        if (cost := self._cost()) is not None:
            outcomes["cost_usd"] = cost
        if duration := self._duration():
            outcomes["duration_s"] = duration
        return outcomes


def _rewards(value: Mapping[str, Any]) -> dict[str, float]:
    rewards = as_mapping(as_mapping(value.get("verifier_result")).get("rewards"))
    found = {as_name(name, "reward"): as_number(reward) for name, reward in rewards.items()}
    return {name: reward for name, reward in found.items() if reward is not None}


def _joined(trajectories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One trajectory of several; what a later one only repeats is there once."""
    steps: list[Any] = []
    for number, trajectory in enumerate(trajectories):
        found = trajectory.get("steps")
        for step in found if isinstance(found, list) else ():
            if number == 0 or as_mapping(step).get("is_copied_context") is not True:
                steps.append(step)
    first = trajectories[0] if trajectories else {}
    return {"agent": first.get("agent"), "steps": steps}


TRIAL_FILES: Final = ("result.json", "config.json", "lock.json")
"""What Harbor writes into the folder of a job and of a trial; none of it is a trace."""

_RESULT, _CONFIG, _ = TRIAL_FILES
_LONGEST_ABOUT: Final = 64 << 20
_MOST_PARTS: Final = 10_000


def is_trial(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder with these files is that of a trial."""
    for name in (_RESULT, _CONFIG):
        # Other programs write files of these names too; a trial has a log beside them.
        if name in names and (name == _RESULT or "trial.log" in names):
            try:
                if is_harbor_trial(_load(folder / name, _LONGEST_ABOUT)):
                    return True
            except UsageError:
                if "trial.log" in names:
                    return True
    return False


def harbor_session(folder: Path) -> Trace | None:
    """The trial of a folder without its trajectories; None before it has ended.

    Raises:
        UsageError: It cannot be read.
    """
    result = TrialFiles(folder, _LONGEST_ABOUT).result()
    if result is None:
        return None
    try:
        return HarborTrial(result, []).session()
    except ValueError as error:
        raise UsageError(f"holds what no session may hold: {error}") from error


def trial_of(path: Path) -> Path | None:
    """The folder of the trial that a trajectory belongs to, if it is one of a trial."""
    if path.parent.name != "agent" or not path.name.startswith("trajectory"):
        return None
    for folder in path.absolute().parents[1:4]:
        names = {name for name in TRIAL_FILES if (folder / name).is_file()}
        names |= {"trial.log"} if (folder / "trial.log").is_file() else set()
        if names and is_trial(folder, names):
            return folder
    return None


class TrialFiles:
    """The files of one trial, read within bounds."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._left = folder, most
        self.result_path = folder / _RESULT
        self.size = 0
        """Of what was read, in bytes."""
        self.damaged: list[tuple[Path, str]] = []
        self.skipped: list[tuple[Path, str]] = []
        self._result: Mapping[str, Any] = {}

    def result(self) -> Mapping[str, Any] | None:
        """What Harbor says of the trial; None before it has ended.

        Raises:
            UsageError: It cannot be read.
        """
        if not self.result_path.is_file():
            return None
        self._result = self._read(self.result_path)
        if not is_harbor_result(self._result):
            raise UsageError("is not the result of a trial: it names no trial, task and agent")
        return self._result

    def trajectories(self) -> list[Mapping[str, Any]]:
        """Those of the agent, in their order."""
        steps = [as_mapping(step) for step in as_list(self._result.get("step_results"))]
        names = [as_text(step.get("step_name"), 200) for step in steps]
        folders = [self._folder / "agent"]
        # A name comes from a file, and must not lead out of the trial.
        folders += [self._folder / "steps" / name / "agent" for name in names if _is_name(name)]
        found = [trajectory for folder in folders for trajectory in self._of_agent(folder)]
        for path in sorted(self._folder.glob("**/user-agent/trajectory*.json")):
            self.skipped.append((path, "is of a simulated user, not of the agent"))
        return found

    def _of_agent(self, folder: Path) -> Iterator[Mapping[str, Any]]:
        name, seen = "trajectory.json", set[str]()
        while name and name not in seen and len(seen) < _MOST_PARTS:
            path = folder / name
            if not path.is_file():
                if seen:
                    self.damaged.append(
                        (path, "is missing: a trajectory says it continues there")
                    )
                break
            seen.add(name)
            try:
                value = self._read(path)
                if not is_atif(value) or not isinstance(value.get("steps"), list):
                    raise UsageError(
                        "is not a trajectory: it needs 'schema_version' and 'steps'"
                    )
            except UsageError as error:
                self.damaged.append((path, str(error)))
                break
            if within := len(as_list(value.get("subagent_trajectories"))):
                self.skipped.append((path, f"holds {within} trajectories of subagents"))
            yield value
            name = as_text(value.get("continued_trajectory_ref"), 200)
            name = name if _is_name(name) else ""
        for path in sorted(folder.glob("trajectory*.json")):
            if path.name not in seen:
                self.skipped.append((path, "is of a subagent; its tokens are in the totals"))

    def _read(self, path: Path) -> dict[str, Any]:
        value = _load(path, self._left)
        size = path.stat().st_size
        self._left -= size
        self.size += size
        return value


def _is_name(name: str) -> bool:
    return bool(name) and Path(name).name == name


def _load(path: Path, most: int) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            content = stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UsageError(f"is larger than the {most >> 20} MB that are left for its trial")
    return load_object(content)
