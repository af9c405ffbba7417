"""How a sweep trains: any callable, or a program that logs metrics into a folder.

A program writes `metrics.jsonl` into its folder, an object per line with a `step`, as
`assay train` does. A trial that is not worth its steps is ended by SIGTERM.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from assay.curves.sources import read_source
from assay.errors import UsageError
from assay.experiments.training import Curve

__all__ = ["Trained", "TrialCommand", "TrialTrainer"]

_METRICS = "metrics.jsonl"
_POLL = 0.2
_PATIENCE = 30.0
"""Seconds that a program has to end after it was asked to."""


class Trained(NamedTuple):
    """What came of a training run."""

    curves: Mapping[str, Curve]
    failure: str | None = None
    """Why it failed; None if it did not."""


class TrialTrainer(Protocol):
    """Trains once."""

    def __call__(
        self,
        options: Mapping[str, Any],
        *,
        seed: int,
        folder: Path,
        keep: Callable[[int, float], bool],
    ) -> Trained:
        """Train with options and a seed, in a folder that may hold the start of the same run.

        `keep` is told the steps and values of the metric as they come; where it says False the
        run ends, and what there is by then is returned.
        """
        ...


class TrialCommand:
    """Trains by a command, in a process of its own.

    In the command `{seed}`, `{total_steps}` and `{folder}` are filled in, each option as
    `{name}`, and all options as `--name value` for `{options}`.
    """

    def __init__(self, command: str, metric: str, total_steps: int) -> None:
        self._words = shlex.split(command)
        self._metric, self._steps = metric, total_steps
        if "{folder}" not in command:
            raise UsageError(
                f"--command {command!r} does not say where to log; it needs {{folder}}, into "
                f"which it writes {_METRICS}"
            )

    def arguments(self, options: Mapping[str, Any], seed: int, folder: Path) -> list[str]:
        """The command of a run.

        Raises:
            UsageError: It has a place for something that there is not.
        """
        known = {**options, "seed": seed, "total_steps": self._steps, "folder": folder}
        words: list[str] = []
        for word in self._words:
            if word == "{options}":
                words += [part for pair in options.items() for part in _option(*pair)]
                continue
            try:
                words.append(word.format_map(known))
            except (KeyError, ValueError, IndexError) as error:
                names = ", ".join(f"{{{name}}}" for name in (*known, "options"))
                raise UsageError(
                    f"--command: {word!r} is not known ({error}); choose from: {names}"
                ) from error
        # The program that runs, whatever is on the path.
        return [sys.executable, "-m", "assay", *words[1:]] if words[0] == "assay" else words

    def __call__(
        self,
        options: Mapping[str, Any],
        *,
        seed: int,
        folder: Path,
        keep: Callable[[int, float], bool],
    ) -> Trained:
        """Run the command, and follow what it logs."""
        metrics = folder / _METRICS
        # Beside the folder, which is the trainer's own.
        output = folder.with_name(f"{folder.name}.log")
        values = _Tail(metrics, self._metric)
        kept = True
        with output.open("ab") as log:
            process = self._start(self.arguments(options, seed, folder), log)
            try:
                while kept and process.poll() is None:
                    time.sleep(_POLL)
                    kept = all(keep(step, value) for step, value in values.new())
                if kept:
                    kept = all(keep(step, value) for step, value in values.new())
            finally:
                _end(process)
        failure = None
        if kept and process.returncode:
            failure = f"exit code {process.returncode}: {_last_line(output)}"
        if not metrics.is_file():
            return Trained({}, failure or f"it wrote no {_METRICS} into its folder")
        return Trained(read_source(str(metrics)).curves, failure)

    def _start(self, arguments: list[str], log: Any) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        except OSError as error:
            raise UsageError(
                f"--command: {arguments[0]!r} cannot be started: {error.strerror}"
            ) from error


class _Tail:
    """The new points of a file that grows; one that was cut is read on from its new end."""

    def __init__(self, path: Path, metric: str) -> None:
        self._path, self._metric = path, metric
        self._at = 0
        self._step = -1

    def new(self) -> Iterator[tuple[int, float]]:
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            self._at = min(self._at, size)
            file.seek(self._at)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            self._at += len(line)
            try:
                point = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{str(self._path)!r}: {line[:60]!r} is no JSON") from error
            value = point.get(self._metric)
            if type(value) in (int, float) and point.get("step", -1) > self._step:
                self._step = point["step"]
                yield self._step, float(value)


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, str(value)]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it printed nothing")
