"""Progress displays of a run: a live table with a line per model, or plain lines.

A display receives the events of `assay.runs` and messages of the writer. It writes to standard
error and prints names and messages literally. It is cheap: `LiveStandings` does the counting,
and the table is drawn a few times per second, regardless of the number of events. The table is
a text that is laid out here, because a Rich table of the same size is several times slower.
"""

import time
from collections.abc import Callable, Mapping
from textwrap import wrap
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from assay.agents.builtin import is_scripted
from assay.cli.progress_text import (
    LiveStanding,
    LiveStandings,
    LiveTrouble,
    big,
    cost,
    duration,
    end_line,
    middle,
    number,
    short,
    standing_line,
    trouble_line,
    turn_line,
    why,
)
from assay.core.text import printable
from assay.episodes.progress import TurnProgress
from assay.runs.control import TrialVerdict
from assay.runs.events import (
    CallRetried,
    Event,
    GroupEnded,
    GroupStarted,
    GroupStopped,
    RunObserver,
    TrialEnded,
    TrialProgress,
    TrialRetried,
)
from assay.runs.plan import Trial
from assay.types import TrialState

_BAR, _ROOM_FOR_BAR = 12, 92
_NARROWEST_NAME = 12
_MOST_TROUBLES = 3
"""Maximum number of models whose retries are shown below the table."""
_DISPENSABLE = ("Tokens", "Reward", "Cost")
"""Columns left out in a narrow terminal, in this order."""
_LINES_LEFT = 4
"""Lines of the terminal reserved for other output."""


def live_table(
    groups: list[LiveStanding],
    troubles: Mapping[str, LiveTrouble],
    now: float,
    width: int,
    height: int,
) -> Text:
    """Return the table at a time, for a terminal of this size."""
    rows = _trouble_rows(troubles, now, width)
    table = _table(groups, now, width, max(1, height - _LINES_LEFT - len(rows)))
    for row in rows:
        table.append(f"\n{row}", "yellow")
    return table


def _trouble_rows(troubles: Mapping[str, LiveTrouble], now: float, width: int) -> list[str]:
    """Return lines about retries, for the models that failed last."""
    latest = sorted(troubles, key=lambda name: troubles[name].again_at)[-_MOST_TROUBLES:]
    return [
        line
        for name in troubles
        if name in latest
        for line in _folded(trouble_line(name, troubles[name], now), width)
    ]


def _folded(text: str, width: int) -> list[str]:
    first, *rest = wrap(text, max(20, width), subsequent_indent="  ") or [""]
    if not rest:
        return [first]
    return [first, rest[0] if len(rest) == 1 else f"{rest[0][: width - 1]}…"]


def _table(groups: list[LiveStanding], now: float, width: int, height: int) -> Text:
    shown, rest = _fitting(groups, height)
    columns = _columns(shown, now)
    for head in _DISPENSABLE:
        if _width(columns) + _NARROWEST_NAME > width:
            columns.pop(head, None)
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
    """Return the heads if `at` is None, or one row, right-aligned in columns."""
    return "".join(
        f"{head if at is None else texts[at]:>{1 + _widest(head, texts)}}"
        for head, texts in columns.items()
    )


def _columns(shown: list[LiveStanding], now: float) -> dict[str, list[str]]:
    paid = {
        "Tokens": ["" if is_scripted(one.group) else big(one.tokens) for one in shown],
        "Cost": ["" if is_scripted(one.group) else cost(one.cost_usd) for one in shown],
    }
    return {
        "Episodes": [f"{one.finished}/{one.planned}" for one in shown],
        "Ach.": [number(one.achievements, 1) for one in shown],
        "Reward": [number(one.reward, 1) for one in shown],
        "Invalid%": [number(one.invalid_rate, 1, 100) for one in shown],
        **{head: texts for head, texts in paid.items() if any(texts)},
        "Left": [_left(one, now) for one in shown],
    }


def _width(columns: dict[str, list[str]]) -> int:
    return sum(1 + _widest(head, texts) for head, texts in columns.items())


def _widest(head: str, texts: list[str]) -> int:
    return max(map(len, [head, *texts]))


def _fitting(groups: list[LiveStanding], height: int) -> tuple[list[LiveStanding], str]:
    """Return the models that fit, and a line about the others.

    Running models come first, then the models that ended last.
    """
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


_REFRESHES = 4
"""Redraws per second."""
_LINES_EVERY = 1 / 8
"""Seconds between writes of lines above a live display."""
_TROUBLE_EVERY = 10.0
"""Seconds between lines about retries of a model."""
_PLAIN_EVERY = 60.0
"""Seconds between progress lines about a model outside a terminal."""


class RunDisplay(RunObserver):
    """Display that shows nothing; base class of the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class PlainDisplay(RunDisplay):
    """Display that prints lines: problems, and one line per model every minute.

    `verbosity` 1 adds the start and end of each model and the end of each episode; 2 adds
    turns.
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

    def on_event(self, event: Event) -> None:
        """Record an event, and print the lines that are due."""
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

    def on_message(self, message: str) -> None:
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
        """Return the lines to print for an event."""
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
        """Return whether to print the end of a trial: if verbose, or for a new problem."""
        if self._verbosity or verdict.state is TrialState.RESULT:
            return bool(self._verbosity)
        kind = group, verdict.reason
        known = kind in self._troubles
        self._troubles.add(kind)
        return not known

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class LiveDisplay(PlainDisplay):
    """Display with a live table, a line per model; other lines scroll above it."""

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
            transient=True,  # the report has the same numbers and more
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

    def on_event(self, event: Event) -> None:
        """Record an event; the table is redrawn by a timer."""
        now = self._clock()
        self._standings.take(event, now)
        self._waiting += self._lines(event)
        if self._waiting and now >= self._wrote_at + _LINES_EVERY:
            # Each write redraws the table, so lines in quick succession share one.
            self._wrote_at = now
            self._write()

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            self._print("\n".join(lines))

    def drawn(self) -> Text:
        """Return the current table for the current size of the terminal."""
        size = self._console.size
        standings = self._standings
        return live_table(
            list(standings.groups.values()), standings.troubles, self._clock(), *size
        )


def choose_display(
    *, silent: bool, verbosity: int = 0, console: Console | None = None
) -> RunDisplay:
    """Return the live table if the terminal supports it, plain lines if not.

    Return a display that shows nothing if `silent` is true.
    """
    if silent:
        return RunDisplay()
    console = console or Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveDisplay(console, verbosity)
    return PlainDisplay(console, verbosity)


def _who(trial: Trial[Any]) -> str:
    return f"{short(trial.group)} episode {trial.index + 1}"
