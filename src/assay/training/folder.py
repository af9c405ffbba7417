"""The folder of a training run, a format that other programs may read.

    config.json      settings, size of the network, provenance
    metrics.jsonl    a line for each update: `step`, and metrics by name; only finite numbers
    status.json      state of the run, last step and checkpoint
    evaluation.json  the held-out episodes of the last evaluation, and of random actions
    checkpoints/     see `checkpoints`

Metrics whose names begin with `time/` depend on the machine and its load; all others are
determined by the configuration. Reading a folder does not need torch.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from assay.core.canonical_json import canonical_json
from assay.core.files import atomic_write, is_draft
from assay.core.provenance import collect_provenance
from assay.errors import UsageError
from assay.runs.configuration import list_differences
from assay.store.training_runs import TrainingRun, TrainingStatus, make_curve
from assay.training.config import TrainingConfig, parse_stored_config

_FORMAT: Final = "assay-training/1"


class TrainState(StrEnum):
    """State of a training run."""

    RUNNING = "running"
    """Started and not ended. If no process holds it, it was killed and can be resumed."""
    STOPPED = "stopped"
    """Stopped on request; it can be resumed."""
    FINISHED = "finished"
    """All steps are done."""
    DIVERGED = "diverged"
    """A loss was not finite; the reason names it."""


@dataclass(frozen=True, slots=True)
class TrainingFolder:
    """The files of one run."""

    path: Path

    @property
    def metrics(self) -> Path:
        """Path of the metrics file."""
        return self.path / "metrics.jsonl"

    def prepare(self, config: TrainingConfig, versions: Mapping[str, str]) -> None:
        """Write the configuration, or check that it equals the one already there.

        Raises:
            UsageError: The folder contains another run, or other files.
        """
        if (self.path / "config.json").exists():
            changed = list_differences(
                TrainingConfig, self.read_config().stored(), config.stored()
            )
            if changed:
                raise UsageError(
                    f"{str(self.path)!r} contains a run with different settings "
                    f"({'; '.join(changed)}); name another folder, or use the settings of that "
                    "run"
                )
            return
        # A killed process may have left a draft of its first file.
        if any(path.name != ".lock" and not is_draft(path) for path in self.path.iterdir()):
            raise UsageError(
                f"{str(self.path)!r} is not empty and does not contain a training run; "
                "name another folder"
            )
        capacity = config.capacity
        content = {
            "format": _FORMAT,
            "config": config.stored(),
            "parameters": capacity.parameters,
            "flops_per_step": capacity.flops,
            "training_flops_per_step": capacity.training_flops(config.epochs),
            "provenance": {**collect_provenance().record(), **versions},
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        atomic_write(self.path / "config.json", json.dumps(content, indent=1).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other training processes; the lock ends with the process.

        Raises:
            UsageError: Another process holds the lock.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another process is training in {str(self.path)!r}; wait for it, or name "
                    "another folder"
                ) from None
            yield

    def read_config_file(self) -> dict[str, Any]:
        """Return the content of `config.json`.

        Raises:
            UsageError: It is missing or damaged.
        """
        path = self.path / "config.json"
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
        except FileNotFoundError:
            raise UsageError(
                f"{str(self.path)!r} does not contain a training run; start one with "
                "'assay train'"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{str(path)!r} is not a valid file of a training run: {error}"
            ) from error
        return content

    def read_config(self) -> TrainingConfig:
        """Return the configuration that the run was started with."""
        return parse_stored_config(
            self.read_config_file()["config"], str(self.path / "config.json")
        )

    def write_status(
        self,
        state: TrainState,
        step: int,
        checkpoint: Path | None,
        reason: str | None = None,
    ) -> None:
        """Write the state of the run to `status.json`."""
        content = {
            "state": state,
            "step": step,
            "checkpoint": None
            if checkpoint is None
            else str(checkpoint.relative_to(self.path)),
            "reason": reason,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        atomic_write(self.path / "status.json", json.dumps(content, indent=1).encode())

    def read_status(self) -> dict[str, Any]:
        """Return the content of `status.json`; a run without one is running, at step 0."""
        try:
            content: dict[str, Any] = json.loads((self.path / "status.json").read_bytes())
        except FileNotFoundError:
            return {
                "state": TrainState.RUNNING,
                "step": 0,
                "checkpoint": None,
                "reason": None,
            }
        return content

    def append_row(self, row: Mapping[str, float]) -> None:
        """Append a line of metrics."""
        with self.metrics.open("ab") as file:
            file.write(canonical_json(dict(row)) + b"\n")

    def truncate(self, step: int) -> None:
        """Remove the metrics logged after a step, and an incomplete last line."""
        if not self.metrics.exists():
            return
        keep = 0
        with self.metrics.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                    break
                keep += len(line)
        os.truncate(self.metrics, keep)

    def read_rows(self) -> Iterator[dict[str, float]]:
        """Yield all lines of metrics, without an incomplete last line."""
        if self.metrics.exists():
            for line in self.metrics.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def read_last_values(self) -> dict[str, float]:
        """Return the last value of each metric."""
        last: dict[str, float] = {}
        for row in self.read_rows():
            last |= row
        return last


_STATUS_BY_STATE: Final = {
    TrainState.FINISHED: TrainingStatus.FINISHED,
    TrainState.DIVERGED: TrainingStatus.CRASHED,
}


def read_training_run(
    folder: Path, *, name: str | None = None, series: str | None = None
) -> TrainingRun:
    """Read a folder as a training run: curves, configuration, capacity and provenance."""
    run = TrainingFolder(folder)
    content, config = run.read_config_file(), run.read_config()
    steps: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for row in run.read_rows():
        for metric, value in row.items():
            if metric != "step":
                steps.setdefault(metric, []).append(int(row["step"]))
                values.setdefault(metric, []).append(value)
    status = run.read_status()
    state = TrainState(status["state"])
    ended = state in (TrainState.FINISHED, TrainState.DIVERGED)
    capacity = {
        key: content[key] for key in ("parameters", "flops_per_step", "training_flops_per_step")
    }
    return TrainingRun(
        id=name or folder.name,
        series=series,
        subject=config.architecture,
        task=f"{config.environment}/{config.curriculum}",
        seed=config.seed,
        status=_STATUS_BY_STATE.get(state, TrainingStatus.RUNNING),
        configuration={**config.stored(), **capacity},
        provenance=content["provenance"],
        created_at=_parse_time(content["created_at"]),
        finished_at=_parse_time(status["at"]) if ended else None,
        source="assay",
        curves={metric: make_curve(steps[metric], values[metric]) for metric in steps},
    )


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
