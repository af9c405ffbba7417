"""Import of a Harbor trial folder as one session.

Harbor writes `result.json` for a trial, and its agent writes trajectories (ATIF): one, or one
for each step of the task, maybe continued in further files. They are joined. The result has the
agent, the task, the rewards and the total cost including subagents; it takes precedence over
the trajectories. A trial without a trajectory is a session without turns.

A trial of one step has its trajectory in `agent/`, a trial of several in `steps/<step>/agent/`.
A trajectory may name the file that continues it; other trajectories in the folder are of
subagents. The messages of a simulated user are in `user-agent/` and are not imported.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.core.canonical_json import derive_id
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
    classify_error,
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
    """Return whether an object is the configuration or the result of a trial."""
    return isinstance(value.get("trial_name"), str) and ("task" in value or "task_id" in value)


def is_harbor_result(value: Mapping[str, Any]) -> bool:
    """Return whether an object is the result of a trial, not of a job."""
    return is_harbor_trial(value) and "agent_info" in value


class _Agent(NamedTuple):
    name: str
    version: str
    model: str
    """Empty if unknown."""

    @property
    def subject(self) -> str:
        return f"{self.name}/{self.model}"[:200] if self.model else self.name


class HarborTrial:
    """The result of a trial and the trajectories of its agent, in order."""

    def __init__(
        self, result: Mapping[str, Any], trajectories: Sequence[Mapping[str, Any]]
    ) -> None:
        self._result = result
        self._config = as_mapping(result.get("config"))
        self._steps = [as_mapping(step) for step in as_list(result.get("step_results"))]
        self._agent = self._find_agent(trajectories)
        self._reading = AtifReading(_join(trajectories), self._agent.model or "unknown")

    def session(self) -> Trace:
        """Convert the trial to a session.

        Raises:
            ValueError: It contains an invalid value.
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
            session_id=derive_id("harbor", unique or f"{job or folder}/{name}"),
            task=f"harbor/{as_name(self._result.get('task_name'), 'unknown')}",
            imported=Imported(_REASON, self._make_totals()),
            conversation=reading.conversation,
            end=self._make_end(started),
            tools=reading.tools,
            created_at=started,
            metadata={
                "trial": name,
                "task_checksum": as_text(self._result.get("task_checksum"), 200),
            },
            calls=reading.calls,
            played=reading.played,
        )

    def _find_agent(self, trajectories: Sequence[Mapping[str, Any]]) -> _Agent:
        info = as_mapping(self._result.get("agent_info"))
        agent = as_mapping(trajectories[0].get("agent")) if trajectories else {}
        model = as_mapping(info.get("model_info"))
        parts = [as_name(model.get(part), "") for part in ("provider", "name")]
        return _Agent(
            name=as_name(info.get("name"), as_name(agent.get("name"), "unknown")),
            version=as_text(info.get("version"), 200),
            model="/".join(filter(None, parts)) or as_name(agent.get("model_name"), ""),
        )

    def _sum_usage(self, field: str) -> float | None:
        """Return a usage field of the trial, or its sum over the steps; None if unknown."""
        whole = self._result.get("agent_result")
        contexts = [whole] if whole else [step.get("agent_result") for step in self._steps]
        found = [as_number(as_mapping(context).get(field)) for context in contexts]
        known = [number for number in found if number is not None]
        return sum(known) if known else None

    def _make_totals(self) -> dict[str, float | None]:
        totals: dict[str, float | None] = dict(self._reading.totals())
        for column, field in _TOKENS.items():
            if (count := self._sum_usage(field)) is not None:
                totals[column] = as_count(int(count))
        if (cost := self._get_cost()) is not None or not self._reading.calls:
            totals["cost_usd"] = cost
        rewards = self._rewards()
        if "reward" in rewards:
            totals["total_reward"] = rewards["reward"]
        return totals

    def _get_cost(self) -> float | None:
        cost = as_cost(self._sum_usage("cost_usd"))
        return self._reading.cost() if cost is None else cost

    def _rewards(self) -> dict[str, float]:
        found = _rewards(self._result)
        for step in self._steps:
            name = as_name(step.get("step_name"), "step")
            found |= {f"{key}/{name}"[:200]: value for key, value in _rewards(step).items()}
        return found

    def _make_end(self, started: float) -> EndRecord:
        state, error = self._get_state()
        at = as_seconds(self._result.get("finished_at")) or self._reading.ended or started
        return EndRecord(
            at=at,
            state=state,
            stop_reason=error.type if error else StopReason.FINISHED,
            duration_s=self._compute_duration() or max(at - started, 0.0),
            outcomes=self._make_outcomes() if state is TrialState.RESULT else {},
            error=error,
        )

    def _compute_duration(self) -> float:
        spans = [
            as_mapping(part.get("agent_execution")) for part in (self._result, *self._steps)
        ]
        times = [
            (as_seconds(span.get("started_at")), as_seconds(span.get("finished_at")))
            for span in spans
        ]
        return sum(max(end - start, 0.0) for start, end in times if start and end)

    def _get_state(self) -> tuple[TrialState, ErrorRecord | None]:
        parts = (self._result, *self._steps)
        first = next(filter(None, (as_mapping(p.get("exception_info")) for p in parts)), None)
        if first is None:
            return TrialState.RESULT, None
        error = ErrorRecord(
            type=as_name(first.get("exception_type"), "Error"),
            message=as_text(first.get("exception_message")),
            traceback=as_text(first.get("exception_traceback")),
        )
        if _rewards(self._result):
            return TrialState.RESULT, error
        return classify_error(error.type, error.message), error

    def _make_outcomes(self) -> dict[str, float]:
        totals = self._make_totals()
        outcomes = self._rewards()
        if self._reading.played:
            outcomes["turns"] = float(len(self._reading.played))
        tokens = [totals.get(column) for column in ("prompt_tokens", "completion_tokens")]
        if (
            known := [number for number in tokens if number is not None]
        ) or self._reading.calls:
            outcomes["tokens"] = float(sum(known) if known else self._reading.tokens())
        if (cost := self._get_cost()) is not None:
            outcomes["cost_usd"] = cost
        if duration := self._compute_duration():
            outcomes["duration_s"] = duration
        return outcomes


def _rewards(value: Mapping[str, Any]) -> dict[str, float]:
    rewards = as_mapping(as_mapping(value.get("verifier_result")).get("rewards"))
    found = {as_name(name, "reward"): as_number(reward) for name, reward in rewards.items()}
    return {name: reward for name, reward in found.items() if reward is not None}


def _join(trajectories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join trajectories into one, without the steps that later ones only repeat."""
    steps: list[Any] = []
    for number, trajectory in enumerate(trajectories):
        found = trajectory.get("steps")
        for step in found if isinstance(found, list) else ():
            if number == 0 or as_mapping(step).get("is_copied_context") is not True:
                steps.append(step)
    first = trajectories[0] if trajectories else {}
    return {"agent": first.get("agent"), "steps": steps}


TRIAL_FILES: Final = ("result.json", "config.json", "lock.json")
"""Files in the folders of jobs and trials that are not traces."""

_RESULT, _CONFIG, _ = TRIAL_FILES
_LONGEST_ABOUT: Final = 64 << 20
_MOST_PARTS: Final = 10_000


def is_trial(folder: Path, names: Collection[str]) -> bool:
    """Return whether a folder with these files is a trial folder."""
    for name in (_RESULT, _CONFIG):
        # Other programs use these names too, but a trial also has a log.
        if name in names and (name == _RESULT or "trial.log" in names):
            try:
                if is_harbor_trial(_load_file(folder / name, _LONGEST_ABOUT)):
                    return True
            except UsageError:
                if "trial.log" in names:
                    return True
    return False


def harbor_session(folder: Path) -> Trace | None:
    """Read a trial folder as a session without trajectories; None if it is not finished.

    Raises:
        UsageError: It cannot be read.
    """
    result = TrialFiles(folder, _LONGEST_ABOUT).result()
    if result is None:
        return None
    try:
        return HarborTrial(result, []).session()
    except ValueError as error:
        raise UsageError(f"contains an invalid value: {error}") from error


def find_trial_folder(path: Path) -> Path | None:
    """Return the trial folder of a trajectory file; None if it is not part of a trial."""
    if path.parent.name != "agent" or not path.name.startswith("trajectory"):
        return None
    for folder in path.absolute().parents[1:4]:
        names = {name for name in TRIAL_FILES if (folder / name).is_file()}
        names |= {"trial.log"} if (folder / "trial.log").is_file() else set()
        if names and is_trial(folder, names):
            return folder
    return None


class TrialFiles:
    """Files of one trial, read with a size limit."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._left = folder, most
        self.result_path = folder / _RESULT
        self.size = 0
        """Bytes read so far."""
        self.damaged: list[tuple[Path, str]] = []
        self.skipped: list[tuple[Path, str]] = []
        self._result: Mapping[str, Any] = {}

    def result(self) -> Mapping[str, Any] | None:
        """Read the result of the trial; None if it is not finished.

        Raises:
            UsageError: It cannot be read.
        """
        if not self.result_path.is_file():
            return None
        self._result = self._read(self.result_path)
        if not is_harbor_result(self._result):
            raise UsageError("is not a trial result: it has no trial name, task or agent")
        return self._result

    def trajectories(self) -> list[Mapping[str, Any]]:
        """Read the trajectories of the agent, in order."""
        steps = [as_mapping(step) for step in as_list(self._result.get("step_results"))]
        names = [as_text(step.get("step_name"), 200) for step in steps]
        folders = [self._folder / "agent"]
        # The names come from a file and must not point outside the trial.
        folders += [
            self._folder / "steps" / name / "agent" for name in names if _is_plain_name(name)
        ]
        found = [trajectory for folder in folders for trajectory in self._read_agent(folder)]
        for path in sorted(self._folder.glob("**/user-agent/trajectory*.json")):
            self.skipped.append((path, "belongs to a simulated user, not to the agent"))
        return found

    def _read_agent(self, folder: Path) -> Iterator[Mapping[str, Any]]:
        name, seen = "trajectory.json", set[str]()
        while name and name not in seen and len(seen) < _MOST_PARTS:
            path = folder / name
            if not path.is_file():
                if seen:
                    self.damaged.append((path, "is missing, but continues a trajectory"))
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
                self.skipped.append((path, f"contains {within} trajectories of subagents"))
            yield value
            name = as_text(value.get("continued_trajectory_ref"), 200)
            name = name if _is_plain_name(name) else ""
        for path in sorted(folder.glob("trajectory*.json")):
            if path.name not in seen:
                self.skipped.append(
                    (path, "belongs to a subagent; its tokens are in the totals")
                )

    def _read(self, path: Path) -> dict[str, Any]:
        value = _load_file(path, self._left)
        size = path.stat().st_size
        self._left -= size
        self.size += size
        return value


def _is_plain_name(name: str) -> bool:
    return bool(name) and Path(name).name == name


def _load_file(path: Path, most: int) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            content = stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise UsageError(f"exceeds the size limit of its trial ({most >> 20} MB left)")
    return load_object(content)
