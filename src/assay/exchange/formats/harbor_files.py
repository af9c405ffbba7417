"""The folder of a trial of Harbor: which of its files are read, and which are not.

A trial of one step has its trajectory in `agent/`, a trial of several in `steps/<step>/agent/`.
A trajectory may name the file that continues it; others beside it are of subagents. What the
simulated user of a trial said lies in `user-agent/`, and is no trajectory of the agent.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from assay.errors import UsageError
from assay.exchange.formats.atif_read import is_atif
from assay.exchange.formats.foreign import as_list, as_mapping, as_text, load_object
from assay.exchange.formats.harbor import HarborTrial, is_harbor_result, is_harbor_trial
from assay.traces.trace import Trace

__all__ = ["TRIAL_FILES", "TrialFiles", "harbor_session", "is_trial", "trial_of"]

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
