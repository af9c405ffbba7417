"""Trainers: the built-in PPO, or any command that logs metrics into a given folder.

A `Trainer` trains one seed of a launch. It works in a folder and resumes an earlier call there.
It blocks until training ends or `stop` returns True. It does not use queues, journals or the
database.

A `TrialTrainer` trains one trial of a sweep. It is any callable, or a command that writes
`metrics.jsonl` into its folder, one object with a `step` per line, as `assay train` does.
"""

import json
import os
import platform
import re
import shlex
import shutil
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from assay.core.provenance import collect_provenance
from assay.errors import TrainerFailed, UsageError, UserCodeError
from assay.store.training_runs import Curve, TrainingRun, TrainingStatus
from assay.training.readers.sources import read_source
from assay.training.readers.tables import SUFFIXES, read_run_file

if TYPE_CHECKING:
    from assay.training.training_loop import TrainingProgress

PLACEHOLDERS: Final = ("seed", "run_id", "folder", "architecture", "curriculum", "environment")
"""Names a command template may have in braces."""
_POLL_S: Final = 0.2
_GRACE_S: Final = 20.0
"""Seconds between the signal to exit and SIGKILL."""
_TAIL_BYTES: Final = 65_536
_DIGITS: Final = re.compile(r"(\d+)")
_END_WITH_PARENT: Final = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux':\n"
    "    ctypes.CDLL(None).prctl(1, 9)\n"
    "    os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


class TrainedSeed(NamedTuple):
    """One run of a launch; the payload of its trial."""

    run_id: str
    """Name of the training run."""
    seed: int
    position: int
    """Index of its seed, from 0."""
    launch: str
    """Id of the launch in the table `runs`."""


class RunProgress(NamedTuple):
    """Progress of a training run."""

    step: int
    total: int | None
    reward: float | None
    checkpoint: str | None
    """The latest checkpoint, relative to the folder."""


class Trainer(Protocol):
    """Trains one seed at a time; picklable."""

    def train(
        self,
        run: TrainedSeed,
        folder: Path,
        log: Path,
        watch: Callable[[RunProgress], None],
        stop: Callable[[], bool],
    ) -> int | None:
        """Train to the end; return the number of steps, or None if `stop` ended it.

        Raises:
            TrainerFailed: It ended early, and may be retried.
            UserCodeError: A retry would fail again, for example because a loss is NaN.
        """
        ...

    def load_run(self, run: TrainedSeed, folder: Path, *, ended: bool) -> TrainingRun:
        """Return the run for the database: curves, and everything needed to repeat it."""
        ...

    def make_command(self, run: TrainedSeed, folder: Path) -> list[str]:
        """Return the command line that would train this run separately."""
        ...


@dataclass(frozen=True, slots=True)
class PPOTrainer:
    """Runs `assay.training.training_loop.train` in this process."""

    settings: Mapping[str, Any]
    """Settings of a `TrainingConfig`, without the seed."""

    def train(
        self,
        run: TrainedSeed,
        folder: Path,
        log: Path,
        watch: Callable[[RunProgress], None],
        stop: Callable[[], bool],
    ) -> int | None:
        """See `Trainer`."""
        from assay.training.config import TrainingConfig, require_training_packages

        config = TrainingConfig(**self.settings, seed=run.seed)
        require_training_packages(config.wandb, config.environment)
        from assay.training.folder import TrainState
        from assay.training.training_loop import log_progress_to_wandb, train

        checkpoint: str | None = None

        def on_progress(progress: "TrainingProgress") -> None:
            nonlocal checkpoint
            log_to_wandb(progress)
            if progress.checkpoint is not None:
                checkpoint = str(progress.checkpoint.relative_to(folder))
            reward = progress.metrics.get("overview/reward")
            watch(RunProgress(progress.step, progress.total, reward, checkpoint))
            print(f"step {progress.step} of {progress.total}, reward {reward}", file=log_file)

        with (
            log.open("a", encoding="utf-8", buffering=1) as log_file,
            log_progress_to_wandb(config, folder) as log_to_wandb,
        ):
            print(f"process {os.getpid()} on {platform.node()}", file=log_file)
            end = train(config, folder, watch=on_progress, stop=stop)
            print(f"{end.state} at step {end.steps}: {end.reason or 'no error'}", file=log_file)
        if end.state is TrainState.DIVERGED:
            raise UserCodeError(f"{run.run_id} diverged: {end.reason}")
        return None if end.state is TrainState.STOPPED else end.steps

    def load_run(self, run: TrainedSeed, folder: Path, *, ended: bool) -> TrainingRun:
        """See `Trainer`."""
        from assay.training.folder import read_training_run

        try:
            loaded = read_training_run(folder, name=run.run_id)
        except UsageError:  # it ended before it could write anything
            loaded = TrainingRun(
                id=run.run_id,
                subject=self.settings["architecture"],
                task=f"{self.settings['environment']}/{self.settings['curriculum']}",
                seed=run.seed,
                status=TrainingStatus.CRASHED,
                configuration={**self.settings, "seed": run.seed},
                provenance=collect_provenance().record(),
            )
        crashed = loaded.status is TrainingStatus.RUNNING
        return replace(loaded, status=TrainingStatus.CRASHED) if crashed else loaded

    def make_command(self, run: TrainedSeed, folder: Path) -> list[str]:
        """See `Trainer`."""
        from assay.core.settings import list_settings
        from assay.training.config import TrainingConfig

        words = ["assay", "train"]
        for name, setting in list_settings(TrainingConfig).items():
            value = run.seed if name == "seed" else self.settings.get(name, setting.default)
            always = name in ("architecture", "curriculum", "environment", "seed")
            if value is False and setting.default is True:
                words.append(f"--no-{setting.option[2:]}")
            elif value is True and setting.default is False:
                words.append(setting.option)
            elif value is not None and (always or value != setting.default):
                words += [setting.option, str(value)]
        return [*words, "--folder", str(folder)]


@dataclass(frozen=True, slots=True)
class CommandTrainer:
    """Runs a program that writes `metrics.*`, with a step in each row, into its folder."""

    template: str
    architecture: str
    curriculum: str
    environment: str

    def train(
        self,
        run: TrainedSeed,
        folder: Path,
        log: Path,
        watch: Callable[[RunProgress], None],
        stop: Callable[[], bool],
    ) -> int | None:
        """See `Trainer`."""
        folder.mkdir(parents=True, exist_ok=True)
        words = self.make_command(run, folder)
        with log.open("ab") as log_file:
            log_file.write(f"$ {shlex.join(words)}\n".encode())
        last_progress = None

        def should_continue() -> bool:
            nonlocal last_progress
            if stop():
                return False
            if (progress := _read_progress(folder)) != last_progress:
                last_progress = progress
                watch(progress)
            return True

        status, stopped = _run_command(words, log, should_continue, signal.SIGINT)
        watch(_read_progress(folder))
        if stopped:
            return None
        if status:
            raise TrainerFailed(
                f"{run.run_id} {_describe_exit(status)}; its output is in {log}"
            )
        if _find_metrics_file(folder) is None:
            raise UserCodeError(
                f"{run.run_id} ended without metrics in {folder}; it must write metrics.jsonl "
                "there, with a 'step' in each line, or a file of another type: "
                f"{', '.join(SUFFIXES)}"
            )
        return _read_progress(folder).step

    def load_run(self, run: TrainedSeed, folder: Path, *, ended: bool) -> TrainingRun:
        """See `Trainer`."""
        file = _find_metrics_file(folder)
        loaded = TrainingRun(id=run.run_id)
        with suppress(UsageError):  # a crash may leave an incomplete file
            loaded = loaded if file is None else read_run_file(file)
        now = datetime.now(UTC).replace(tzinfo=None)
        return replace(
            loaded,
            id=run.run_id,
            subject=self.architecture,
            task=f"{self.environment}/{self.curriculum}",
            seed=run.seed,
            status=TrainingStatus.FINISHED if ended else TrainingStatus.CRASHED,
            configuration={
                **loaded.configuration,
                "command": self.template,
                "architecture": self.architecture,
                "curriculum": self.curriculum,
                "environment": self.environment,
            },
            provenance={**collect_provenance().record(), **loaded.provenance},
            created_at=loaded.created_at or now,
            finished_at=now if ended else None,
            source="assay",
        )

    def make_command(self, run: TrainedSeed, folder: Path) -> list[str]:
        """See `Trainer`."""
        return fill_command(
            self.template,
            {
                "seed": str(run.seed),
                "run_id": run.run_id,
                "folder": str(folder),
                "architecture": self.architecture,
                "curriculum": self.curriculum,
                "environment": self.environment,
            },
        )


def fill_command(template: str, values: Mapping[str, str]) -> list[str]:
    """Return the words of a command, with the placeholders of its template filled in.

    Raises:
        UsageError: It cannot be parsed, has an unknown placeholder, or lacks seed or folder.
    """
    try:
        placeholders = {
            name for _, name, _, _ in string.Formatter().parse(template) if name is not None
        }
        words = [word.format_map(_Placeholders(values)) for word in shlex.split(template)]
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise UsageError(
            f"--command {template!r} is not a valid template: {error}; allowed are {allowed}; "
            "write other braces twice"
        ) from error
    for name, consequence in (
        ("seed", "every run would be the same"),
        ("folder", "runs have no folder to write to"),
    ):
        if name not in placeholders:
            raise UsageError(
                f"--command {template!r} must contain {{{name}}}; without it {consequence}"
            )
    return words


class _Placeholders(dict[str, str]):
    def __missing__(self, name: str) -> str:
        raise KeyError(f"unknown placeholder {{{name}}}")


def _run_command(
    words: list[str], log: Path, should_continue: Callable[[], bool], end_signal: signal.Signals
) -> tuple[int, bool]:
    """Run a command until it ends or `should_continue` returns False.

    To end the command, the signal `end_signal` is sent, and all its processes are killed after
    `_GRACE_S` seconds. On Linux the command is also killed if this process dies, so that no
    process is left training in its folder.

    Returns:
        The exit status, and whether `should_continue` returned False.
    """
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-c", _END_WITH_PARENT, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    continuing = True
    try:
        while process.poll() is None and (continuing := should_continue()):
            time.sleep(_POLL_S)
    finally:
        if process.poll() is None:
            process.send_signal(end_signal)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    return status, not continuing


def _describe_exit(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _find_metrics_file(folder: Path) -> Path | None:
    files = (folder / f"metrics{suffix}" for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _read_progress(folder: Path) -> RunProgress:
    """Return the progress of the run in a folder, according to its files."""
    step, reward = 0, None
    file = folder / "metrics.jsonl"
    if file.is_file():
        with file.open("rb") as lines:
            lines.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            for line in reversed(lines.read().splitlines()):
                with suppress(ValueError, TypeError, KeyError):
                    row = json.loads(line)
                    step, reward = int(row["step"]), row.get("overview/reward")
                    break
    checkpoints = sorted(
        (folder / "checkpoints").glob("*"), key=lambda path: _make_sort_key(path.name)
    )
    return RunProgress(
        step, None, reward, f"checkpoints/{checkpoints[-1].name}" if checkpoints else None
    )


def _make_sort_key(name: str) -> tuple[int, str]:
    numbers = _DIGITS.findall(name)
    return (int(numbers[-1]) if numbers else -1, name)


_METRICS_FILE = "metrics.jsonl"


class Trained(NamedTuple):
    """Result of a training run."""

    curves: Mapping[str, Curve]
    failure: str | None = None
    """Reason for the failure, if any."""


class TrialTrainer(Protocol):
    """Trains one trial of a sweep."""

    def __call__(
        self,
        options: Mapping[str, Any],
        *,
        seed: int,
        folder: Path,
        keep: Callable[[int, float], bool],
    ) -> Trained:
        """Train with options and a seed, in a folder that may contain the start of this run.

        `keep` is called with each new step and value of the metric. If it returns False,
        the run ends and the curves so far are returned.
        """
        ...


class TrialCommand:
    """Trains with a command, in a separate process.

    The placeholders `{seed}`, `{total_steps}` and `{folder}` of the command are filled in, and
    each option as `{name}`. `{options}` becomes all options as `--name value`.
    """

    def __init__(self, command: str, metric: str, total_steps: int) -> None:
        self._words = shlex.split(command)
        self._metric, self._steps = metric, total_steps
        if "{folder}" not in command:
            raise UsageError(
                f"--command {command!r} must contain {{folder}}, where the command writes "
                f"{_METRICS_FILE}"
            )

    def make_arguments(self, options: Mapping[str, Any], seed: int, folder: Path) -> list[str]:
        """Return the command of a run.

        Raises:
            UsageError: It has an unknown placeholder.
        """
        values = {**options, "seed": seed, "total_steps": self._steps, "folder": folder}
        words: list[str] = []
        for word in self._words:
            if word == "{options}":
                words += [part for pair in options.items() for part in _format_option(*pair)]
                continue
            try:
                words.append(word.format_map(values))
            except (KeyError, ValueError, IndexError) as error:
                names = ", ".join(f"{{{name}}}" for name in (*values, "options"))
                raise UsageError(
                    f"--command: {word!r} has an unknown placeholder ({error}); choose from: "
                    f"{names}"
                ) from error
        # Run this installation of assay, not the one on the PATH.
        return [sys.executable, "-m", "assay", *words[1:]] if words[0] == "assay" else words

    def __call__(
        self,
        options: Mapping[str, Any],
        *,
        seed: int,
        folder: Path,
        keep: Callable[[int, float], bool],
    ) -> Trained:
        """Run the command, and follow its metrics file."""
        metrics = folder / _METRICS_FILE
        # Next to the folder, because only the trainer writes into the folder.
        output = folder.with_name(f"{folder.name}.log")
        arguments = self.make_arguments(options, seed, folder)
        if shutil.which(arguments[0]) is None:
            raise UsageError(f"--command: {arguments[0]!r} cannot be started: no such program")
        tail = _MetricsTail(metrics, self._metric)

        def should_continue() -> bool:
            return all(keep(step, value) for step, value in tail.read_new_points())

        status, pruned = _run_command(arguments, output, should_continue, signal.SIGTERM)
        failure = None
        if not pruned and should_continue() and status:
            failure = f"exit code {status}: {_read_last_line(output)}"
        if not metrics.is_file():
            return Trained({}, failure or f"it did not write {_METRICS_FILE} into its folder")
        return Trained(read_source(str(metrics)).curves, failure)


class _MetricsTail:
    """Reads the new points of a growing file; after a truncation, from the new end."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._offset = 0
        self._last_step = -1

    def read_new_points(self) -> Iterator[tuple[int, float]]:
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            self._offset = min(self._offset, size)
            file.seek(self._offset)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            self._offset += len(line)
            try:
                point = json.loads(line)
            except ValueError as error:
                raise UsageError(
                    f"{str(self._path)!r}: {line[:60]!r} is not valid JSON"
                ) from error
            value = point.get(self._metric)
            if type(value) in (int, float) and point.get("step", -1) > self._last_step:
                self._last_step = point["step"]
                yield self._last_step, float(value)


def _format_option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, str(value)]


def _read_last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it printed nothing")
