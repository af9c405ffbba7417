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
    LiveProgress,
    ModelProgress,
    RetryStatus,
    format_cost,
    format_count,
    format_duration,
    format_number,
    format_progress,
    format_reason,
    format_retries,
    format_trial_end,
    format_turn,
    shorten,
    shorten_middle,
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

_BAR_WIDTH, _MIN_WIDTH_FOR_BAR = 12, 92
_MIN_NAME_WIDTH = 12
_MAX_RETRY_ROWS = 3
"""Maximum number of models whose retries are shown below the table."""
_OPTIONAL_COLUMNS = ("Tokens", "Reward", "Cost")
"""Columns left out in a narrow terminal, in this order."""
_RESERVED_LINES = 4
"""Lines of the terminal reserved for other output."""


def render_live_table(
    groups: list[ModelProgress],
    retries: Mapping[str, RetryStatus],
    now: float,
    width: int,
    height: int,
) -> Text:
    """Return the table at a time, for a terminal of this size."""
    rows = _format_retry_rows(retries, now, width)
    table = _render_table(groups, now, width, max(1, height - _RESERVED_LINES - len(rows)))
    for row in rows:
        table.append(f"\n{row}", "yellow")
    return table


def _format_retry_rows(retries: Mapping[str, RetryStatus], now: float, width: int) -> list[str]:
    """Return lines about retries, for the models that failed last."""
    latest = sorted(retries, key=lambda name: retries[name].next_at)[-_MAX_RETRY_ROWS:]
    return [
        line
        for name in retries
        if name in latest
        for line in _wrap_to_two_lines(format_retries(name, retries[name], now), width)
    ]


def _wrap_to_two_lines(text: str, width: int) -> list[str]:
    first, *rest = wrap(text, max(20, width), subsequent_indent="  ") or [""]
    if not rest:
        return [first]
    return [first, rest[0] if len(rest) == 1 else f"{rest[0][: width - 1]}…"]


def _render_table(groups: list[ModelProgress], now: float, width: int, height: int) -> Text:
    shown, rest = _select_visible(groups, height)
    columns = _format_columns(shown, now)
    for head in _OPTIONAL_COLUMNS:
        if _compute_total_width(columns) + _MIN_NAME_WIDTH > width:
            columns.pop(head, None)
    bar = 1 + _BAR_WIDTH if width >= _MIN_WIDTH_FOR_BAR else 0
    longest = max([len("Model"), *(cell_len(printable(model.group)) for model in shown)])
    name_width = min(longest, max(_MIN_NAME_WIDTH, width - _compute_total_width(columns) - bar))
    table = Text(no_wrap=True, overflow="crop")
    table.append(f"{'Model':{name_width + bar}}{_format_row(columns, None)}", "dim")
    for index, progress in enumerate(shown):
        table.append(
            f"\n{set_cell_size(shorten_middle(progress.group, name_width), name_width)}"
        )
        if bar:
            done = int(_BAR_WIDTH * progress.share)
            table.append(f" {'━' * done}", "green").append("─" * (_BAR_WIDTH - done), "dim")
        table.append(_format_row(columns, index))
    return table.append(f"\n{rest}", "dim") if rest else table


def _format_row(columns: dict[str, list[str]], index: int | None) -> str:
    """Return the heads if `at` is None, or one row, right-aligned in columns."""
    return "".join(
        f"{head if index is None else texts[index]:>{1 + _compute_column_width(head, texts)}}"
        for head, texts in columns.items()
    )


def _format_columns(shown: list[ModelProgress], now: float) -> dict[str, list[str]]:
    spending = {
        "Tokens": [
            "" if is_scripted(model.group) else format_count(model.tokens) for model in shown
        ],
        "Cost": [
            "" if is_scripted(model.group) else format_cost(model.cost_usd) for model in shown
        ],
    }
    return {
        "Episodes": [f"{model.finished}/{model.planned}" for model in shown],
        "Ach.": [format_number(model.achievements, 1) for model in shown],
        "Reward": [format_number(model.reward, 1) for model in shown],
        "Invalid%": [format_number(model.invalid_rate, 1, 100) for model in shown],
        **{head: texts for head, texts in spending.items() if any(texts)},
        "Left": [_format_time_left(model, now) for model in shown],
    }


def _compute_total_width(columns: dict[str, list[str]]) -> int:
    return sum(1 + _compute_column_width(head, texts) for head, texts in columns.items())


def _compute_column_width(head: str, texts: list[str]) -> int:
    return max(map(len, [head, *texts]))


def _select_visible(
    groups: list[ModelProgress], height: int
) -> tuple[list[ModelProgress], str]:
    """Return the models that fit, and a line about the others.

    Running models come first, then the models that ended last.
    """
    if len(groups) <= height:
        return groups, ""

    def sort_key(progress: ModelProgress) -> tuple[int, float]:
        if progress.started_at is not None and progress.ended_at is None:
            return 0, progress.started_at
        return (2, 0.0) if progress.ended_at is None else (1, -progress.ended_at)

    visible = {id(progress) for progress in sorted(groups, key=sort_key)[:height]}
    hidden = [progress for progress in groups if id(progress) not in visible]
    done = sum(progress.ended_at is not None for progress in hidden)
    rest = f"and {len(hidden)} more models, {done} of them done"
    return [progress for progress in groups if id(progress) in visible], rest


def _format_time_left(progress: ModelProgress, now: float) -> str:
    if progress.stopped is not None:
        return "stopped"
    if progress.ended_at is not None:
        return "done" if progress.finished == progress.planned else "stopped"
    if progress.started_at is None:
        return "waiting"
    seconds = progress.estimate_seconds_left(now)
    return "…" if seconds is None else format_duration(seconds)


_REFRESHES_PER_SECOND = 4
"""Redraws per second."""
_PRINT_INTERVAL_S = 1 / 8
"""Seconds between writes of lines above a live display."""
_RETRY_INTERVAL_S = 10.0
"""Seconds between lines about retries of a model."""
_PROGRESS_INTERVAL_S = 60.0
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
        self._progress = LiveProgress()
        self._progress_printed_at: dict[str, float] = {}
        self._retries_printed_at: dict[str, float] = {}
        self._reported_problems: set[tuple[str, str]] = set()

    def on_event(self, event: Event) -> None:
        """Record an event, and print the lines that are due."""
        now = self._clock()
        progress = self._progress.record_event(event, now)
        for line in self._format_event(event):
            self._print(line)
        if isinstance(event, CallRetried):
            self._print_retries(event.model, now)
        if isinstance(event, GroupStarted) and self._verbosity:
            self._print(f"{shorten(event.group)}: {event.planned} episodes")
        if progress is not None:
            self._print_progress(
                progress, now, ended=isinstance(event, GroupEnded) and self._verbosity > 0
            )

    def on_message(self, message: str) -> None:
        """Print a line."""
        self._print(shorten(message))

    def _print_progress(self, progress: ModelProgress, now: float, *, ended: bool) -> None:
        due = self._progress_printed_at.setdefault(progress.group, now) + _PROGRESS_INTERVAL_S
        if ended or now >= due:
            self._progress_printed_at[progress.group] = now
            self._print(format_progress(progress, now))

    def _print_retries(self, model: str, now: float) -> None:
        if now >= self._retries_printed_at.get(model, float("-inf")) + _RETRY_INTERVAL_S:
            self._retries_printed_at[model] = now
            self._print(format_retries(model, self._progress.retries[model], now))

    def _format_event(self, event: Event) -> list[str]:
        """Return the lines to print for an event."""
        match event:
            case TrialProgress(trial=trial, payload=TurnProgress() as at) if (
                self._verbosity >= 2
            ):
                return [f"{_format_trial_name(trial)} {format_turn(at)}"]
            case TrialEnded(trial=trial, verdict=verdict) if self._should_print_end(
                trial.group, verdict
            ):
                return [f"{_format_trial_name(trial)}: {format_trial_end(verdict)}"]
            case TrialRetried() if self._verbosity:
                return [
                    f"{_format_trial_name(event.trial)}: attempt {event.attempt} failed,"
                    f" next in {format_duration(event.wait)}: {format_reason(event.verdict)}"
                ]
            case GroupStopped(group=group, stop=stop):
                return [f"{shorten(group)} stopped: {shorten(stop.reason)}"]
        return []

    def _should_print_end(self, group: str, verdict: TrialVerdict) -> bool:
        """Return whether to print the end of a trial: if verbose, or for a new problem."""
        if self._verbosity or verdict.state is TrialState.RESULT:
            return bool(self._verbosity)
        kind = group, verdict.reason
        known = kind in self._reported_problems
        self._reported_problems.add(kind)
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
        self._pending: list[str] = []
        self._last_print = float("-inf")
        self._live = Live(
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            get_renderable=self.render,
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
        self._print_pending()
        self._live.stop()

    def on_event(self, event: Event) -> None:
        """Record an event; the table is redrawn by a timer."""
        now = self._clock()
        self._progress.record_event(event, now)
        self._pending += self._format_event(event)
        if self._pending and now >= self._last_print + _PRINT_INTERVAL_S:
            # Each write redraws the table, so lines in quick succession share one.
            self._last_print = now
            self._print_pending()

    def _print_pending(self) -> None:
        lines, self._pending = self._pending, []
        if lines:
            self._print("\n".join(lines))

    def render(self) -> Text:
        """Return the current table for the current size of the terminal."""
        size = self._console.size
        progress = self._progress
        return render_live_table(
            list(progress.groups.values()), progress.retries, self._clock(), *size
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


def _format_trial_name(trial: Trial[Any]) -> str:
    return f"{shorten(trial.group)} episode {trial.index + 1}"
