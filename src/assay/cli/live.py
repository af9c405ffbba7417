"""What one sees of a run while it goes on: a line per model, or plain lines.

A display listens to the events of `assay.trials` and to notices of the writer. It writes to
standard error, shows names and messages as text, and costs little: counting is the work of
`LiveStandings`, drawing happens a few times a second whatever happens in between.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from assay._util.text import printable
from assay.cli.live_words import (
    big,
    cost,
    duration,
    end_line,
    middle,
    number,
    short,
    standing_line,
    turn_line,
    why,
)
from assay.cli.standings import LiveStanding, LiveStandings
from assay.rollouts.progress import TurnProgress
from assay.trials import (
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
_PLAIN_EVERY = 10.0
"""Seconds between two lines about a model where nobody watches."""
_BAR, _ROOM_FOR_BAR = 12, 92
_NARROWEST_NAME = 12
_DISPENSABLE = ("Tokens", "Reward", "Cost")
"""What a narrow terminal does without, the first of them first."""


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
    """Lines: one per model now and then and at its end, and more if they are wanted.

    `verbosity` 1 adds a line per episode that ended, 2 a line per turn.
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
        self._troubles: set[tuple[str, str]] = set()

    def __call__(self, event: Event) -> None:
        """Take in an event, and print what is due."""
        now = self._clock()
        standing = self._standings.take(event, now)
        for line in self._lines(event):
            self._print(line)
        if isinstance(event, GroupStarted):
            self._print(f"{short(event.group)}: {event.planned} episodes")
        if standing is not None:
            self._tell(standing, now, ended=isinstance(event, GroupEnded))

    def notice(self, message: str) -> None:
        """Print a line."""
        self._print(short(message))

    def _tell(self, standing: LiveStanding, now: float, *, ended: bool) -> None:
        due = self._told.setdefault(standing.group, now) + _PLAIN_EVERY
        if ended or now >= due:
            self._told[standing.group] = now
            self._print(standing_line(standing, now))

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
    """A table that stays in place, a line per model; other lines scroll by above it."""

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
            console=console, refresh_per_second=_REFRESHES, get_renderable=self.drawn
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
        groups = list(self._standings.groups.values())
        return _table(groups, self._clock(), size.width, max(1, size.height - 4))


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


def _table(groups: list[LiveStanding], now: float, width: int, height: int) -> Text:
    # One text, laid out by hand: a Rich table of the same size takes several times as long.
    shown, rest = _fitting(groups, height)
    columns = _columns(shown, now)
    for head in _DISPENSABLE:
        if _width(columns) + _NARROWEST_NAME > width:
            del columns[head]
    bar = 1 + _BAR if width >= _ROOM_FOR_BAR else 0
    longest = max([len("Model"), *(cell_len(printable(one.group)) for one in shown)])
    room = min(longest, max(_NARROWEST_NAME, width - _width(columns) - bar))
    table = Text(no_wrap=True, overflow="crop")
    table.append(f"{'Model':{room + bar}}{_line(columns, None)}", "dim")
    for at, standing in enumerate(shown):
        table.append(f"\n{set_cell_size(middle(standing.group, room), room)}")
        if bar:
            done = int(_BAR * standing.share)
            table.append(f" {'━' * done}", "green").append("─" * (_BAR - done), "dim")
        table.append(_line(columns, at))
    return table.append(f"\n{rest}", "dim") if rest else table


def _line(columns: dict[str, list[str]], at: int | None) -> str:
    """The heads, or one row, each at the right end of its column."""
    return "".join(
        f"{head if at is None else texts[at]:>{1 + _widest(head, texts)}}"
        for head, texts in columns.items()
    )


def _columns(shown: list[LiveStanding], now: float) -> dict[str, list[str]]:
    return {
        "Episodes": [f"{one.finished}/{one.planned}" for one in shown],
        "Ach.": [number(one.achievements, 1) for one in shown],
        "Reward": [number(one.reward, 1) for one in shown],
        "Invalid%": [number(one.invalid_rate, 1, 100) for one in shown],
        "Tokens": [big(one.tokens) for one in shown],
        "Cost": [cost(one.cost_usd) for one in shown],
        "Left": [_left(one, now) for one in shown],
    }


def _width(columns: dict[str, list[str]]) -> int:
    return sum(1 + _widest(head, texts) for head, texts in columns.items())


def _widest(head: str, texts: list[str]) -> int:
    return max(map(len, [head, *texts]))


def _fitting(groups: list[LiveStanding], height: int) -> tuple[list[LiveStanding], str]:
    """As many models as there are lines for: those at work, then those that ended last."""
    if len(groups) <= height:
        return groups, ""

    def urgency(standing: LiveStanding) -> tuple[int, float]:
        if standing.started_at is not None and standing.ended_at is None:
            return 0, standing.started_at
        return (2, 0.0) if standing.ended_at is None else (1, -standing.ended_at)

    kept = {id(standing) for standing in sorted(groups, key=urgency)[:height]}
    left = [standing for standing in groups if id(standing) not in kept]
    done = sum(standing.ended_at is not None for standing in left)
    rest = f"and {len(left)} more models, {done} of them done"
    return [standing for standing in groups if id(standing) in kept], rest


def _left(standing: LiveStanding, now: float) -> str:
    if standing.stopped is not None:
        return "stopped"
    if standing.ended_at is not None:
        return "done" if standing.finished == standing.planned else "stopped"
    if standing.started_at is None:
        return "waiting"
    left = standing.seconds_left(now)
    return "…" if left is None else duration(left)
