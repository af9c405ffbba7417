"""Progress of a run in a notebook: one line on stderr that is overwritten."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from assay.core.text import cut
from assay.runs.events import (
    CallbackObserver,
    CallRetried,
    Event,
    RunEnded,
    RunObserver,
    RunStarted,
    TrialEnded,
    TrialProgress,
    TrialSkipped,
    TrialStarted,
)

_FIRST_UPDATE_S, _UPDATE_INTERVAL_S = 1.0, 0.5
_MAX_LINE = 100


def is_notebook() -> bool:
    """Return whether IPython runs this code, as a notebook or a shell."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell, "get_ipython", lambda: None)() is not None


class NotebookProgress(RunObserver):
    """Writes the progress of one run to a line."""

    def __init__(
        self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self._planned: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._now_playing, self._retry_text = "", ""
        self._turns = self._width = 0
        self._started = self._next = clock()

    def on_event(self, event: Event) -> None:
        """Update the counts, and rewrite the line if it is due."""
        now = self._clock()
        match event:
            case RunStarted(planned=planned):
                self._planned = dict(planned)
                self._started, self._next = now, now + _FIRST_UPDATE_S
            case TrialStarted(trial=trial):
                self._now_playing = trial.group
            case TrialProgress():
                self._turns += 1
                self._retry_text = ""
            case TrialEnded(trial=trial) | TrialSkipped(trial=trial):
                self._ended[trial.group] = self._ended.get(trial.group, 0) + 1
            case CallRetried(reason=reason, wait=wait):
                self._retry_text = f"; retrying in {wait:.0f} s: {reason}"
        if isinstance(event, RunEnded) and self._width:
            self._write_line(now)
            self._stream.write("\n")
            self._width = 0
        elif now >= self._next and self._now_playing:
            self._next = now + _UPDATE_INTERVAL_S
            self._write_line(now)

    def on_message(self, message: str) -> None:
        """Write a message on its own line."""
        start = "\n" if self._width else ""
        self._width = 0
        self._stream.write(f"{start}{cut(message, 2 * _MAX_LINE)}\n")

    def _write_line(self, now: float) -> None:
        name = self._now_playing
        line = cut(
            f"{name}: {self._ended.get(name, 0)} of {self._planned.get(name, 0)} episodes, "
            f"{self._turns:,} turns in total, {now - self._started:.0f} s{self._retry_text}",
            _MAX_LINE,
        )
        # Padding overwrites the rest of a longer line.
        self._stream.write(f"\r{line.ljust(self._width)}")
        self._stream.flush()
        self._width = len(line)


def make_observer(
    listen: Callable[[Event], None] | None, notice: Callable[[str], None] | None
) -> RunObserver:
    """Return an observer with these callbacks; a notebook replaces missing ones by a line."""
    if is_notebook():
        progress = NotebookProgress()
        listen, notice = listen or progress.on_event, notice or progress.on_message
    return CallbackObserver(listen, notice)
