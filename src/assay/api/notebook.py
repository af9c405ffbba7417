"""Notebooks: the progress of a run in one line, and episodes and comparisons as output."""

import sys
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, TextIO

from assay.core.text import cut
from assay.errors import UsageError
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
from assay.store.opening import Where

if TYPE_CHECKING:
    from assay.judge.results import Comparison
    from assay.report.viewer.library import Library

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


class Shown:
    """A report that a notebook displays."""

    def __init__(self, title: str, html: str) -> None:
        self._title, self._html = title, html

    def __repr__(self) -> str:
        return f"<{self._title}>"

    def _repr_html_(self) -> str:
        # A frame without rights: the report has its own styles, and texts that are not ours.
        return (
            f'<iframe sandbox srcdoc="{escape(self._html)}" title="{escape(self._title)}" '
            'style="width:100%;height:40rem;border:0"></iframe>'
        )


def show(what: "str | Comparison" = "latest", *, step: int = 0, database: Where = None) -> Any:
    """Return an episode as a player, or a run or a comparison as a report, for a notebook.

    Requires the extra for players: pip install 'assay[notebook]'

    Args:
        what: An episode or a run, by name; `best` is an episode and `latest` a run. Or the
            result of `assay.compare`.
        step: Step at which the player starts.
        database: Database to read.
    """
    from assay.api.comparison import compare
    from assay.api.viewer import opened
    from assay.report.comparison.document import comparison_document
    from assay.report.html import render_html

    comparison: Comparison | None = None
    if not isinstance(what, str):
        comparison = what
    else:
        with opened([what], database) as (library, start):
            kind, _, key = (start or "").removeprefix("#/").partition("/")
            if kind == "episode":
                return _player(library, key, step)
        comparison = compare(key, database=database)
    document = comparison_document(comparison)
    return Shown(document.title, render_html(document))


def _player(library: "Library", key: str, step: int) -> Any:
    from assay.report.viewer.player import player_module, player_style, player_values

    try:
        import anywidget
        import traitlets
    except ImportError:
        raise UsageError(
            "a player in a notebook needs: pip install 'assay[notebook]'"
        ) from None
    values = player_values(library, key, step)
    kinds: dict[type, Any] = {
        dict: traitlets.Dict,
        list: traitlets.List,
        bytes: traitlets.Bytes,
    }
    traits: dict[str, Any] = {
        name: kinds.get(type(value), traitlets.Any)(value).tag(sync=True)
        for name, value in values.items()
    }
    names = {"_esm": player_module(), "_css": player_style(), **traits}
    return type("EpisodePlayer", (anywidget.AnyWidget,), names)()


def make_observer(
    listen: Callable[[Event], None] | None, notice: Callable[[str], None] | None
) -> RunObserver:
    """Return an observer with these callbacks; a notebook replaces missing ones by a line."""
    if is_notebook():
        progress = NotebookProgress()
        listen, notice = listen or progress.on_event, notice or progress.on_message
    return CallbackObserver(listen, notice)
