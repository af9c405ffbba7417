"""What one sees of a run while it goes on: a line per model, or plain lines.

A display listens to the events of `assay.trials` and to notices of the writer. It writes to
standard error, shows names and messages as text, and costs little: counting is the work of
`LiveStandings`, drawing happens a few times a second whatever happens in between.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from assay.cli.live_table import live_table
from assay.cli.live_words import (
    duration,
    end_line,
    short,
    standing_line,
    trouble_line,
    turn_line,
    why,
)
from assay.cli.standings import LiveStanding, LiveStandings
from assay.rollouts.progress import TurnProgress
from assay.trials import (
    CallRetried,
    Event,
    GroupEnded,
    GroupStarted,
    GroupStopped,
    Trial,
    TrialEnded,
    TrialProgress,
    TrialRetried,
    TrialVerdict,
)
from assay.types import TrialState

__all__ = ["LiveDisplay", "PlainDisplay", "RunDisplay", "choose_display"]

_REFRESHES = 4
"""Drawings a second."""
_LINES_EVERY = 1 / 8
"""Seconds between two writings of lines above a live display."""
_TROUBLE_EVERY = 10.0
"""Seconds between two lines about a model that is retried."""
_PLAIN_EVERY = 60.0
"""Seconds between two lines about a model that plays where nobody watches."""


class RunDisplay:
    """Shows nothing; the others show how a run goes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Take in an event of the run."""

    def notice(self, message: str) -> None:
        """Show a line about something else, such as a database that is held by another."""


class PlainDisplay(RunDisplay):
    """Lines: troubles, one per model every minute, and more if they are wanted.

    `verbosity` 1 adds the start and the end of each model and of each episode, 2 turns.
    """

    def __init__(
        self,
        console: Console,
        verbosity: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._verbosity = verbosity
        self._clock = clock
        self._standings = LiveStandings()
        self._told: dict[str, float] = {}
        self._complained: dict[str, float] = {}
        self._troubles: set[tuple[str, str]] = set()

    def __call__(self, event: Event) -> None:
        """Take in an event, and print what is due."""
        now = self._clock()
        standing = self._standings.take(event, now)
        for line in self._lines(event):
            self._print(line)
        if isinstance(event, CallRetried):
            self._tell_trouble(event.model, now)
        if isinstance(event, GroupStarted) and self._verbosity:
            self._print(f"{short(event.group)}: {event.planned} episodes")
        if standing is not None:
            self._tell(
                standing, now, ended=isinstance(event, GroupEnded) and self._verbosity > 0
            )

    def notice(self, message: str) -> None:
        """Print a line."""
        self._print(short(message))

    def _tell(self, standing: LiveStanding, now: float, *, ended: bool) -> None:
        due = self._told.setdefault(standing.group, now) + _PLAIN_EVERY
        if ended or now >= due:
            self._told[standing.group] = now
            self._print(standing_line(standing, now))

    def _tell_trouble(self, model: str, now: float) -> None:
        if now >= self._complained.get(model, float("-inf")) + _TROUBLE_EVERY:
            self._complained[model] = now
            self._print(trouble_line(model, self._standings.troubles[model], now))

    def _lines(self, event: Event) -> list[str]:
        """What an event is worth saying at once."""
        match event:
            case TrialProgress(trial=trial, payload=TurnProgress() as at) if (
                self._verbosity >= 2
            ):
                return [f"{_who(trial)} {turn_line(at)}"]
            case TrialEnded(trial=trial, verdict=verdict) if self._worth_saying(
                trial.group, verdict
            ):
                return [f"{_who(trial)}: {end_line(verdict)}"]
            case TrialRetried() if self._verbosity:
                return [
                    f"{_who(event.trial)}: attempt {event.attempt} ended,"
                    f" the next in {duration(event.wait)}: {why(event.verdict)}"
                ]
            case GroupStopped(group=group, stop=stop):
                return [f"{short(group)} stopped: {short(stop.reason)}"]
        return []

    def _worth_saying(self, group: str, verdict: TrialVerdict) -> bool:
        """Every end if asked for, else the first of each kind of trouble."""
        if self._verbosity or verdict.state is TrialState.RESULT:
            return bool(self._verbosity)
        kind = group, verdict.reason
        known = kind in self._troubles
        self._troubles.add(kind)
        return not known

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class LiveDisplay(PlainDisplay):
    """A table with a line per model while it runs; other lines scroll by above it."""

    def __init__(
        self,
        console: Console,
        verbosity: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, verbosity, clock=clock)
        self._waiting: list[str] = []
        self._wrote_at = float("-inf")
        self._live = Live(
            console=console,
            refresh_per_second=_REFRESHES,
            get_renderable=self.drawn,
            transient=True,  # the tables of the report say the same, and more
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write()
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take in an event; the table follows by itself."""
        now = self._clock()
        self._standings.take(event, now)
        self._waiting += self._lines(event)
        if self._waiting and now >= self._wrote_at + _LINES_EVERY:
            # Each writing draws the table anew, so lines that come fast share one.
            self._wrote_at = now
            self._write()

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            self._print("\n".join(lines))

    def drawn(self) -> Text:
        """The table as it is at this moment, for the terminal as large as it is."""
        size = self._console.size
        standings = self._standings
        return live_table(
            list(standings.groups.values()), standings.troubles, self._clock(), *size
        )


def choose_display(
    *, silent: bool, verbosity: int = 0, console: Console | None = None
) -> RunDisplay:
    """The live table where the terminal can show it, else plain lines, or nothing."""
    if silent:
        return RunDisplay()
    console = console or Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console, verbosity)
    return PlainDisplay(console, verbosity)


def _who(trial: Trial[Any]) -> str:
    return f"{short(trial.group)} episode {trial.index + 1}"
