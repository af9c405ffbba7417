"""What is printed while a launch runs: how far each run is, and a line where one ends."""

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from assay._util.redact import mask
from assay._util.text import printable
from assay.cli.live_words import duration
from assay.cli.output import note

if TYPE_CHECKING:
    from rich.status import Status

    from assay.trials import Event

__all__ = ["LaunchDisplay"]

_EVERY_S = 30.0
"""Seconds between two lines about progress, where nobody watches."""


class LaunchDisplay(AbstractContextManager["LaunchDisplay"]):
    """Hears the events of a launch."""

    def __init__(self, total: int, *, silent: bool) -> None:
        self._total, self._silent = total, silent
        self._done = 0
        self._open: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        self._told = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> "LaunchDisplay":
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal and not self._silent:
            self._status = console.status(self._how_far(), spinner="dots")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __call__(self, event: "Event") -> None:
        """Take in what happened."""
        from assay.trials import (
            TrialEnded,
            TrialInterrupted,
            TrialProgress,
            TrialRetried,
            TrialSkipped,
            TrialStarted,
        )

        match event:
            case TrialSkipped():
                self._done += 1
            case TrialStarted(trial=trial):
                self._open[trial.id] = "starting"
                self._begun[trial.id] = time.monotonic()
                self.notice(f"{trial.id} is started")
            case TrialProgress(trial=trial, payload=progress):
                self._open[trial.id] = _standing(progress)
            case TrialRetried(trial=trial, wait=wait, verdict=verdict):
                self._open.pop(trial.id, None)
                said = verdict.error.message if verdict.error else verdict.reason
                self.notice(f"{trial.id} is tried again in {wait:.0f} s: {said}")
            case TrialInterrupted(trial=trial):
                self._open.pop(trial.id, None)
                self.notice(f"{trial.id} is stopped")
            case TrialEnded(trial=trial, verdict=verdict):
                self._done += 1
                last = self._open.pop(trial.id, "")
                took = duration(time.monotonic() - self._begun.get(trial.id, time.monotonic()))
                error = verdict.error
                said = f"failed: {error.message}" if error else f"finished at {last}"
                self.notice(f"[{self._done}/{self._total}] {trial.id} {said} ({took})")
        self._update()

    def notice(self, words: str) -> None:
        """Print a line."""
        if self._silent:
            return
        if self._status is not None:
            self._status.console.print(
                mask(printable(words)), markup=False, highlight=False, soft_wrap=True
            )
        else:
            note(words)

    def _update(self) -> None:
        if self._status is not None:
            self._status.update(self._how_far())
        elif time.monotonic() - self._told > _EVERY_S:
            self._told = time.monotonic()
            self.notice(self._how_far())

    def _how_far(self) -> str:
        each = "; ".join(f"{name}: {how}" for name, how in self._open.items())
        return f"{self._done} of {self._total} runs ended{'; ' if each else ''}{each}"


def _standing(progress: Any) -> str:
    of = "" if progress.total is None else f" of {progress.total:,}"
    reward = "" if progress.reward is None else f", reward {progress.reward:.2f}"
    return f"step {progress.step:,}{of}{reward}"
