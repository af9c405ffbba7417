"""Files of a benchmark run: a manifest, and a result for every trial.

    data/rollouts/<name>/<stamp>/manifest.json      what was run, and how each trial ended
    data/rollouts/<name>/<stamp>/runs.txt           the folder of each trial, one per line
    data/rollouts/<name>/<stamp>/task_results/      a file for each trial that has ended
    data/rollouts/temp/rollout_<name>__<stamp>.json the list of runs, for scripts that use it
    data/runs/<stamp>-<index>/                      patch, notes, logs and grade of a trial

Files are written atomically as trials end. This module reads and writes, and runs nothing.
"""

import calendar
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from assay.core.files import atomic_write
from assay.errors import UsageError
from assay.types import TrialState

FORMAT: Final = "assay-bench/1"
LAUNCHED: Final = "launched"
LAUNCH_FAILED: Final = "launch_failed"
"""The two values of the field `status`; how a trial ended is in its `outcome`."""

_STAMP: Final = "%Y%m%d__%H-%M-%S"
_MAX_BYTES = 256 << 20
"""Size limit of a manifest, or of the result of a trial."""
_STAMP_PATTERN: Final = re.compile(r"\d{8}__\d\d-\d\d-\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEntry:
    """An arm of a benchmark: an agent with its model and settings."""

    label: str
    agent: str
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the defaults: overrides, variables, limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """A trial, with its result once it has ended."""

    run_id: str
    """`<stamp>-<index>`."""
    run_dir: str
    task_dir: str
    task_id: str
    arm: str
    agent: str
    model: str | None = None
    rollout: int = 0
    """Counted from 0, for its task and arm."""
    session_id: str = ""
    """Its session in the database."""
    task_checksum: str = ""
    status: str | None = None
    """`launched` or `launch_failed`; None for a trial that has not started."""
    launch_rc: int | None = None
    state: TrialState | None = None
    """None until it has ended."""
    outcome: str | None = None
    """A `CodingOutcome`, or the name of an error."""
    agent_stop: str | None = None
    """An `AgentStop`."""
    score: float | None = None
    """None without a grade; never a placeholder value."""
    tests_passed: int = 0
    tests_total: int = 0
    rubrics: Mapping[str, float | None] = field(default_factory=dict)
    standard_metrics: Mapping[str, float] = field(default_factory=dict)
    custom_metrics: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[tuple[str, str], ...] = ()
    """Name and detail of each finding."""
    error: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase: setup, agent, grading."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """By kind (prompt, completion, cached, reasoning), of the agent's model and the judge."""
    cost_usd: float | None = None
    model_calls: int = 0
    answered_as: str | None = None
    """Model name that the provider reported in its responses."""
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    disk_mb: float = 0.0
    enforcement: Mapping[str, str] = field(default_factory=dict)
    """How the sandbox enforced its limits."""
    grading: str | None = None
    """A `GradingMode`; None if no test was run, and in manifests from earlier versions."""
    ended_at: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it has the full score."""
        return self.score is not None and self.score >= 1.0

    def as_json(self) -> dict[str, Any]:
        """Convert the result to its form in files."""
        return {
            "task_dir": self.task_dir,
            "run_dir": self.run_dir,
            "run_id": self.run_id,
            "status": self.status,
            "launch_rc": self.launch_rc,
            **{key: value for key, value in asdict(self).items() if key not in _LEADING_KEYS},
        }


_LEADING_KEYS: Final = ("task_dir", "run_dir", "run_id", "status", "launch_rc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A benchmark run that is finished, running or interrupted."""

    config: str
    """Path of its configuration file, as given."""
    name: str
    created_at: str
    """Its stamp."""
    results: tuple[TrialResult, ...]
    """All planned trials, in the order of the file."""
    arms: tuple[ArmEntry, ...] = ()
    run: str = ""
    """Id of its run in the database."""
    database: str = ""
    parallel: int = 1
    tags: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False
    """Whether every trial has ended, other than by an infrastructure error."""
    format: str = FORMAT

    def as_json(self) -> dict[str, Any]:
        """Convert the manifest to its form in the file."""
        leading = {
            "config": self.config,
            "name": self.name,
            "created_at": self.created_at,
            "results": [result.as_json() for result in self.results],
        }
        rest = {
            key.name: getattr(self, key.name) for key in fields(self) if key.name not in leading
        }
        return leading | rest | {"arms": [asdict(arm) for arm in self.arms]}


class RolloutFolder:
    """Folder of one rollout of a benchmark, below a data folder."""

    def __init__(self, data_dir: Path, name: str, stamp: str) -> None:
        self.data_dir, self.name, self.stamp = data_dir, name, stamp
        self.path = data_dir / "rollouts" / name / stamp

    @classmethod
    def from_path(cls, path: Path) -> "RolloutFolder":
        """Return the folder at a path, which may be outside a data folder."""
        folder = cls(path.parent.parent.parent, path.parent.name, path.name)
        folder.path = path
        return folder

    def get_run_dir(self, run_id: str) -> Path:
        """Return the folder of a trial."""
        return self.data_dir / "runs" / run_id

    def write(self, manifest: Manifest) -> None:
        """Write the manifest and the two lists of runs."""
        _write_json(self.path / "manifest.json", manifest.as_json())
        runs = [result.run_dir for result in manifest.results]
        atomic_write(self.path / "runs.txt", "".join(f"{run}\n" for run in runs).encode())
        _write_json(
            self.data_dir / "rollouts" / "temp" / f"rollout_{self.name}__{self.stamp}.json",
            {
                "created_at": self.stamp,
                "rollout_dir": str(self.path),
                "runs": runs,
                "tasks": [result.task_dir for result in manifest.results],
            },
        )

    def write_result(self, result: TrialResult) -> None:
        """Write the result of one trial."""
        _write_json(self.path / "task_results" / f"{result.run_id}.json", result.as_json())

    def read_result(self, run_id: str) -> TrialResult | None:
        """Read the result of one trial; return None if it has not ended."""
        path = self.path / "task_results" / f"{run_id}.json"
        return _parse_result(_read_json(path), path) if path.is_file() else None

    def read_results(self) -> Iterator[TrialResult]:
        """Read the results of all trials that have ended."""
        for path in sorted((self.path / "task_results").glob("*.json")):
            yield _parse_result(_read_json(path), path)

    def refresh(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the current results from the trial files."""
        ended = {result.run_id: result for result in self.read_results()}
        results = tuple(ended.get(result.run_id, result) for result in manifest.results)
        return replace(manifest, results=results)


def claim_rollout(data_dir: Path, name: str, stamp: str | None = None) -> RolloutFolder:
    """Create a unique folder, even if two benchmarks start in the same second.

    Its stamp is the current time or the given one, or the next one that is free.
    """
    now = time.time() if stamp is None else calendar.timegm(time.strptime(stamp, _STAMP))
    while True:
        stamp = time.strftime(_STAMP, time.gmtime(now))
        folder = RolloutFolder(data_dir, name, stamp)
        # Trials of all benchmarks share a folder, so the stamp must be free there too.
        claim = data_dir / "runs" / f".{stamp}"
        claim.parent.mkdir(parents=True, exist_ok=True)
        try:
            if any(claim.parent.glob(f"{stamp}-*")):
                raise FileExistsError(stamp)
            claim.mkdir()
            folder.path.mkdir(parents=True)
        except FileExistsError:
            now += 1
            continue
        return folder


def list_stamps(data_dir: Path, name: str) -> list[str]:
    """Return the stamps of all rollouts of a benchmark, oldest first."""
    folder = data_dir / "rollouts" / name
    if not folder.is_dir():
        return []
    return sorted(
        path.name
        for path in folder.iterdir()
        if is_stamp(path.name) and (path / "manifest.json").is_file()
    )


def is_stamp(text: str) -> bool:
    """Return whether a text is a complete stamp of a rollout."""
    return _STAMP_PATTERN.fullmatch(text) is not None


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a rollout; `path` is the file or its folder.

    Raises:
        UsageError: It is missing or damaged; the message says where.
    """
    file = path / "manifest.json" if path.is_dir() else path
    content = _read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("results"), list):
        raise UsageError(f"{file} is not a benchmark manifest: it has no list 'results'")
    names = {key.name for key in fields(Manifest)}
    values = {key: value for key, value in content.items() if key in names}
    values["results"] = tuple(_parse_result(entry, file) for entry in content["results"])
    try:
        values["arms"] = tuple(ArmEntry(**arm) for arm in content.get("arms", ()))
        values["tags"] = tuple(map(str, content.get("tags", ())))
        manifest = Manifest(**values)
    except TypeError as error:
        raise UsageError(f"{file} is not a benchmark manifest: {error}") from error
    for key in ("config", "name", "created_at"):
        if not isinstance(getattr(manifest, key), str):
            raise UsageError(f"{file} is not a benchmark manifest: {key!r} is not a string")
    return manifest


def write_tags(path: Path, tags: tuple[str, ...]) -> None:
    """Set the tags of the rollout in a folder; the rest of its manifest is not changed."""
    file = path / "manifest.json"
    _write_json(file, _read_json(file) | {"tags": list(tags)})


def _parse_result(entry: Any, file: Path) -> TrialResult:
    names = {key.name for key in fields(TrialResult)}
    if not isinstance(entry, dict) or not {"run_id", "run_dir", "task_dir"} <= entry.keys():
        raise UsageError(f"{file}: a trial lacks 'run_id', 'run_dir' or 'task_dir'")
    for key, (is_valid, description) in _CHECKS.items():
        if key in entry and not is_valid(entry[key]):
            raise UsageError(
                f"{file}: {key!r} of trial {entry['run_id']!r} is {entry[key]!r}, "
                f"not {description}"
            )
    values = {key: value for key, value in entry.items() if key in names}
    # Manifests from other programs have neither arms nor tasks.
    values.setdefault("task_id", Path(entry["task_dir"]).name)
    values.setdefault("arm", "unknown")
    values.setdefault("agent", "unknown")
    if values.get("state") is not None:
        values["state"] = TrialState(values["state"])
    values["findings"] = tuple(tuple(finding) for finding in entry.get("findings", ()))
    return TrialResult(**values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_number_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_finding_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(part, str) for part in pair)
        for pair in value
    )


_Check = tuple[Callable[[Any], bool], str]
_TEXT: _Check = (lambda value: isinstance(value, str), "a string")
_TEXT_OR_NONE: _Check = (lambda value: value is None or isinstance(value, str), "a string")
_COUNT: _Check = (lambda value: type(value) is int and value >= 0, "a whole number")
_NUMBER_OR_NONE: _Check = (lambda value: value is None or _is_number(value), "a number")
_NUMBERS: _Check = (_is_number_mapping, "numbers by name")
_CHECKS: Final[Mapping[str, _Check]] = {
    **dict.fromkeys(("run_id", "run_dir", "task_dir", "task_id", "arm", "agent"), _TEXT),
    **dict.fromkeys(("session_id", "task_checksum"), _TEXT),
    **dict.fromkeys(
        ("model", "status", "outcome", "agent_stop", "error", "grading"), _TEXT_OR_NONE
    ),
    **dict.fromkeys(("rollout", "tests_passed", "tests_total", "model_calls"), _COUNT),
    **dict.fromkeys(("score", "cost_usd", "ended_at"), _NUMBER_OR_NONE),
    **dict.fromkeys(("standard_metrics", "custom_metrics", "seconds", "tokens"), _NUMBERS),
    "state": (
        lambda value: value is None or value in [*TrialState],
        f"one of {', '.join(TrialState)}",
    ),
    "findings": (_is_finding_list, "pairs of a name and a detail"),
}
"""Checks of values by key, because a manifest may come from another machine."""


def _write_json(path: Path, value: Any) -> None:
    atomic_write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _read_json(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size <= _MAX_BYTES:
            return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"file {str(path)!r} not found") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error
    raise UsageError(
        f"{path} is too large: {size:,} bytes, at most {_MAX_BYTES:,} are allowed; "
        "choose another rollout, or run the benchmark again"
    )
