"""Where the commands print: results on standard output, all else on standard error.

Whatever is printed here is shown as it is: nothing in it is read as markup, and
nothing in it reaches the terminal as a command. No known secret is in it, and beside results
nothing that looks like one. Progress is drawn on standard error, in a terminal only.
"""

import gc
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import Group, Parameter

from assay.core.secrets import mask, redact
from assay.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID
    from rich.status import Status


def program() -> str:
    """How this program is called in this shell: by its name, or by its path if it must be."""
    import shutil
    import sys

    called = sys.argv[0]
    if os.path.basename(called) != "assay" or not os.path.exists(called):
        return "assay"
    found = shutil.which("assay")
    if found is not None and os.path.samefile(found, called):
        return "assay"
    near = os.path.relpath(called)
    return shlex.quote(called if near.startswith("..") else near)


command_line: ContextVar[tuple[str, ...]] = ContextVar("command_line", default=())
"""What the program was called with, for records."""

_PLAIN_WIDTH = 100
OUTPUT = Group("Output", sort_key=8)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class Show:
    """What every command lets the user choose about its output."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print the result as one JSON object and nothing else."""
    quiet: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print only the result and errors."""
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print the traceback of an error."""


def say(line: str) -> None:
    """Print one line of a result."""
    from rich.console import Console

    _print(Console(), redact(printable(line)))


def width_there_is() -> int | None:
    """Letters in a line of the terminal, or as COLUMNS says; None for a pipe or a file."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def say_report(report: "RenderableType") -> None:
    """Print tables; where nobody watches, as plain text of a fixed width."""
    from rich.console import Console

    from assay.report.terminal import as_text

    console = Console()
    if console.is_terminal:
        with console.capture() as printed:
            console.print(report)
        text = printed.get()
    else:
        width = width_there_is() or _PLAIN_WIDTH
        text = as_text(report, width, encoding=console.encoding)
    console.file.write(redact(text))


def say_json(result: Mapping[str, object]) -> None:
    """Print a result for a program to read."""
    from rich.console import Console

    _print(Console(), redact(json.dumps(result)))


def complain(message: str) -> None:
    """Print one line about what went wrong."""
    from rich.console import Console

    _print(Console(stderr=True), f"error: {mask(printable(message))}", style="red")


def note(line: str) -> None:
    """Print one line that is no result and no trouble."""
    from rich.console import Console

    _print(Console(stderr=True), mask(printable(line)))


def warn(message: str) -> None:
    """Print one line about something that is allowed, and perhaps not meant."""
    from rich.console import Console

    _print(Console(stderr=True), f"warning: {mask(printable(message))}", style="yellow")


@contextmanager
def working(show: Show, what: str) -> Iterator[None]:
    """Let the user see that something goes on, where somebody watches."""
    from rich.console import Console

    console = Console(stderr=True)
    watched = console.is_terminal and not show.quiet and not show.json
    collects = gc.isenabled()
    # Much is made here that stays: the collector would look through all of it again and again.
    gc.disable()
    try:
        with console.status(what) if watched else nullcontext():
            yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def compiling_shown(show: Show) -> Iterator[None]:
    """Let the user know while the engine compiles, which takes long the first time."""
    logger = logging.getLogger("assay.crafter")
    notices = logging.NullHandler() if show.quiet else _Notices()
    logger.addHandler(notices)
    try:
        yield
    finally:
        logger.removeHandler(notices)
        notices.close()


class _Notices(logging.Handler):
    """Prints what the engine says; where somebody watches, as a clock that runs along."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__(logging.WARNING)
        self._console = Console(stderr=True)
        self._clock: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        message = printable(record.getMessage())
        if self._console.is_terminal and self._clock is None:
            self._clock = _bars(self._console, "spinner", "{task.description}", "elapsed")
            self._clock.add_task(message, total=None)
            self._clock.start()
        else:
            _print(self._console, message)

    def close(self) -> None:
        if self._clock is not None:
            self._clock.stop()
        super().close()


def _bars(console: "Console", *columns: str) -> "Progress":
    """Make bars of named columns; other names are templates of text."""
    from rich import progress

    kinds: dict[str, Callable[[], Any]] = {
        "bar": progress.BarColumn,
        "count": progress.MofNCompleteColumn,
        "elapsed": progress.TimeElapsedColumn,
        "left": progress.TimeRemainingColumn,
        "short bar": lambda: progress.BarColumn(bar_width=24),
        "spinner": progress.SpinnerColumn,
    }
    return progress.Progress(
        *(kinds[c]() if c in kinds else progress.TextColumn(c, markup=False) for c in columns),
        console=console,
        transient=True,
    )


def _print(console: "Console", line: str, style: str | None = None) -> None:
    console.print(line, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


class StatusDisplay(AbstractContextManager["StatusDisplay"]):
    """A status line in a terminal, with other lines above it; elsewhere only those."""

    def __init__(self, *, silent: bool, lines_only: bool = False) -> None:
        self._silent, self._lines_only = silent, lines_only
        self._status: Status | None = None

    def status(self) -> str:
        """Return the status line."""
        raise NotImplementedError

    def update(self) -> None:
        """Draw the status line again."""
        if self._status is not None:
            self._status.update(self.status())

    def notice(self, words: str) -> None:
        """Print a line."""
        if self._silent:
            return
        if self._status is not None:
            _print(self._status.console, mask(printable(words)))
        else:
            note(words)

    def __enter__(self) -> Self:
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal and not self._silent and not self._lines_only:
            self._status = console.status(self.status(), spinner="dots")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class JobBars(AbstractContextManager["JobBars"]):
    """Bars of named jobs in a terminal, with other lines above them; elsewhere only those."""

    def __init__(self, show: Show, *columns: str) -> None:
        """Columns are `bar`, `short bar`, `count`, `elapsed`, `left`, or templates of text."""
        from rich.console import Console

        self._silent = show.quiet or show.json
        self._console = Console(stderr=True)
        self.drawn = self._console.is_terminal and not self._silent
        """Whether there are bars."""
        self._bars = _bars(self._console, *columns) if self.drawn else None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, name: str, text: str, **columns: Any) -> None:
        """Add the bar of a job."""
        if self._bars is not None:
            self._tasks[name] = self._bars.add_task(text, **{"total": None, **columns})

    def update(self, name: str, **columns: Any) -> None:
        """Change the bar of a job."""
        if self._bars is not None:
            self._bars.update(self._tasks[name], **columns)

    def notice(self, line: str) -> None:
        """Print a line."""
        if not self._silent:
            _print(self._console, mask(printable(line)))


@contextmanager
def counting(show: Show, what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many are done while the block runs; gives the function to tell it."""
    with JobBars(show, "{task.description}", "bar", "count", "left") as bars:
        bars.begin(what, what)
        yield lambda done, total: bars.update(what, completed=done, total=total)
