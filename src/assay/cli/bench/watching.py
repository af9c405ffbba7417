"""What is printed while a benchmark runs: a line a trial, and how far it is."""

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.redact import mask
from assay._util.text import counted, printable
from assay.cli.output import note

if TYPE_CHECKING:
    from rich.status import Status

    from assay.api import PreparedBench
    from assay.trials import Event

__all__ = ["BenchDisplay"]


class BenchDisplay(AbstractContextManager["BenchDisplay"]):
    """Hears the events of a run; silent, brief, with lines (1) or with whole logs (2)."""

    def __init__(self, prepared: "PreparedBench", *, silent: bool, verbosity: int) -> None:
        self._silent, self._verbosity = silent, verbosity
        self._stamp, self._folder = prepared.config.stamp, prepared.folder
        self._total = prepared.trials
        self._done = self._here = 0
        self._scores: list[float] = []
        self._cost = 0.0
        self._begun = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> "BenchDisplay":
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal and not self._silent and self._verbosity == 0:
            self._status = console.status(self._how_far(), spinner="dots")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __call__(self, event: "Event") -> None:
        """Take in what happened."""
        from assay.trials import TrialEnded, TrialRetried, TrialSkipped, TrialStarted

        if isinstance(event, TrialSkipped):
            self._done += 1
        elif isinstance(event, TrialStarted) and self._verbosity:
            spec = event.trial.payload
            self.notice(f"Task {self._run_id(spec)} started: {spec.arm}")
        elif isinstance(event, TrialRetried):
            why = event.verdict.error
            said = why.message if why else event.verdict.reason
            run_id = self._run_id(event.trial.payload)
            self.notice(f"Task {run_id} is tried again in {event.wait:.0f} s: {said}")
        elif isinstance(event, TrialEnded):
            self._ended(event)
        if self._status is not None:
            self._status.update(self._how_far())

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

    def _ended(self, event: Any) -> None:
        self._done += 1
        self._here += 1
        run_id = self._run_id(event.trial.payload)
        result = getattr(event.verdict.value, "result", None)
        if result is None:
            why = event.verdict.error
            mark = "" if self._verbosity else "✗ "
            self.notice(f"{mark}Task {run_id} ended: {why.message if why else ''}")
        else:
            mark = "" if self._verbosity else "✓ "
            how = f": {result.arm}, {result.outcome}, score {result.score:.2f}"
            self.notice(f"{mark}Task {run_id} completed ({result.status}){how}")
            self._scores.append(result.score)
            self._cost += result.cost_usd or 0.0
        if self._verbosity > 1:
            for name in ("agent.log", "eval.log"):
                self._print_log(self._folder.run_dir(run_id) / "logs" / name)

    def _print_log(self, path: Path) -> None:
        if path.is_file():
            self.notice(f"== {path}")
            for line in path.read_text("utf-8", errors="replace").splitlines():
                self.notice(line)

    def _run_id(self, spec: Any) -> str:
        return f"{self._stamp}-{spec.index}"

    def _how_far(self) -> str:
        parts = [f"Running tasks... {self._done}/{self._total} completed"]
        if self._here and self._done < self._total:
            each = (time.monotonic() - self._begun) / self._here
            minutes = each * (self._total - self._done) / 60
            parts.append(f"about {counted(max(1, round(minutes)), 'minute')} left")
        if self._scores:
            parts.append(f"mean score {sum(self._scores) / len(self._scores):.2f}")
        if self._cost:
            parts.append(f"${self._cost:.4f}")
        return ", ".join(parts)
