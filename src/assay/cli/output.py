"""Output of the commands: results to standard output, everything else to standard error.

Text is printed literally: markup is not interpreted, and control sequences do not reach the
terminal. Known secrets are removed; outside results, so is anything that looks like a secret.
Progress is drawn on standard error, and only in a terminal.
"""

import gc
import json
import logging
import os
import shlex
from abc import abstractmethod
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
    """Return how to call this program in this shell: `assay`, or its path if necessary."""
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
"""Command-line arguments of the program, for records."""

_PLAIN_WIDTH = 100
OUTPUT = Group("Output", sort_key=8)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class Show:
    """Output options of every command."""

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
    """Return the width of the terminal, or COLUMNS; None for a pipe or a file."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def say_report(report: "RenderableType") -> None:
    """Print tables; outside a terminal, as plain text of a fixed width."""
    from rich.console import Console

    from assay.report.terminal import render_text

    console = Console()
    if console.is_terminal:
        with console.capture() as printed:
            console.print(report)
        text = printed.get()
    else:
        width = width_there_is() or _PLAIN_WIDTH
        text = render_text(report, width, encoding=console.encoding)
    console.file.write(redact(text))


def say_json(result: Mapping[str, object]) -> None:
    """Print a result as JSON."""
    from rich.console import Console

    _print(Console(), redact(json.dumps(result)))


def complain(message: str) -> None:
    """Print an error in one line."""
    from rich.console import Console

    _print(Console(stderr=True), f"error: {mask(printable(message))}", style="red")


def note(line: str) -> None:
    """Print an informational line on standard error."""
    from rich.console import Console

    _print(Console(stderr=True), mask(printable(line)))


def warn(message: str) -> None:
    """Print a warning in one line."""
    from rich.console import Console

    _print(Console(stderr=True), f"warning: {mask(printable(message))}", style="yellow")


@contextmanager
def working(show: Show, what: str) -> Iterator[None]:
    """Show a spinner in a terminal while the block runs."""
    from rich.console import Console

    console = Console(stderr=True)
    watched = console.is_terminal and not show.quiet and not show.json
    collects = gc.isenabled()
    # Many long-lived objects are created here; the collector would scan them again and again.
    gc.disable()
    try:
        with console.status(what) if watched else nullcontext():
            yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def compiling_shown(show: Show) -> Iterator[None]:
    """Show a notice while the engine compiles, which takes long the first time."""
    logger = logging.getLogger("assay.crafter")
    notices = logging.NullHandler() if show.quiet else _Notices()
    logger.addHandler(notices)
    try:
        yield
    finally:
        logger.removeHandler(notices)
        notices.close()


class _Notices(logging.Handler):
    """Handler that prints messages of the engine; in a terminal, with the elapsed time."""

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
    """Create progress bars from named columns; other names are text templates."""
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
    """Status line in a terminal with messages above it; elsewhere only the messages."""

    def __init__(self, *, silent: bool, lines_only: bool = False) -> None:
        self._silent, self._lines_only = silent, lines_only
        self._status: Status | None = None

    @abstractmethod
    def status(self) -> str:
        """Return the status line."""

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
    """Progress bars of jobs in a terminal with messages above; elsewhere only the messages."""

    def __init__(self, show: Show, *columns: str) -> None:
        """Create bars with columns.

        Args:
            show: Output options of the command.
            columns: `bar`, `short bar`, `count`, `elapsed`, `left`, or text templates.
        """
        from rich.console import Console

        self._silent = show.quiet or show.json
        self._console = Console(stderr=True)
        self.drawn = self._console.is_terminal and not self._silent
        """Whether bars are drawn."""
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
        """Add a bar for a job."""
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
    """Show a progress bar while the block runs; yield the function that updates it."""
    with JobBars(show, "{task.description}", "bar", "count", "left") as bars:
        bars.begin(what, what)
        yield lambda done, total: bars.update(what, completed=done, total=total)
