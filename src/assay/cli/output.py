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


def find_program() -> str:
    """Return how to call this program in this shell: `assay`, or its path if necessary."""
    import shutil
    import sys

    path = sys.argv[0]
    if os.path.basename(path) != "assay" or not os.path.exists(path):
        return "assay"
    on_path = shutil.which("assay")
    if on_path is not None and os.path.samefile(on_path, path):
        return "assay"
    relative = os.path.relpath(path)
    return shlex.quote(path if relative.startswith("..") else relative)


command_line: ContextVar[tuple[str, ...]] = ContextVar("command_line", default=())
"""Command-line arguments of the program, for records."""

_FILE_WIDTH = 100
OUTPUT = Group("Output", sort_key=8)


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output options of every command."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print the result as one JSON object and nothing else."""
    quiet: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print only the result and errors."""
    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Print the traceback of an error."""


def print_line(line: str) -> None:
    """Print one line of a result."""
    from rich.console import Console

    _print(Console(), redact(printable(line)))


def find_output_width() -> int | None:
    """Return the width of the terminal, or COLUMNS; None for a pipe or a file."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def print_report(report: "RenderableType") -> None:
    """Print tables; outside a terminal, as plain text of a fixed width."""
    from rich.console import Console

    from assay.report.terminal import render_text

    console = Console()
    if console.is_terminal:
        with console.capture() as printed:
            console.print(report)
        text = printed.get()
    else:
        width = find_output_width() or _FILE_WIDTH
        text = render_text(report, width, encoding=console.encoding)
    console.file.write(redact(text))


def print_json(result: Mapping[str, object]) -> None:
    """Print a result as JSON."""
    from rich.console import Console

    _print(Console(), redact(json.dumps(result)))


def print_error(message: str) -> None:
    """Print an error in one line."""
    from rich.console import Console

    _print(Console(stderr=True), f"error: {mask(printable(message))}", style="red")


def print_note(line: str) -> None:
    """Print an informational line on standard error."""
    from rich.console import Console

    _print(Console(stderr=True), mask(printable(line)))


def print_warning(message: str) -> None:
    """Print a warning in one line."""
    from rich.console import Console

    _print(Console(stderr=True), f"warning: {mask(printable(message))}", style="yellow")


@contextmanager
def show_spinner(show: OutputOptions, label: str) -> Iterator[None]:
    """Show a spinner in a terminal while the block runs."""
    from rich.console import Console

    console = Console(stderr=True)
    is_shown = console.is_terminal and not show.quiet and not show.json
    was_enabled = gc.isenabled()
    # Many long-lived objects are created here; the collector would scan them again and again.
    gc.disable()
    try:
        with console.status(label) if is_shown else nullcontext():
            yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def show_compilation(show: OutputOptions) -> Iterator[None]:
    """Show a notice while the engine compiles, which takes long the first time."""
    logger = logging.getLogger("assay.crafter")
    handler = logging.NullHandler() if show.quiet else _CompilationNotices()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


class _CompilationNotices(logging.Handler):
    """Handler that prints messages of the engine; in a terminal, with the elapsed time."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__(logging.WARNING)
        self._console = Console(stderr=True)
        self._clock: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        message = printable(record.getMessage())
        if self._console.is_terminal and self._clock is None:
            self._clock = _create_progress(
                self._console, "spinner", "{task.description}", "elapsed"
            )
            self._clock.add_task(message, total=None)
            self._clock.start()
        else:
            _print(self._console, message)

    def close(self) -> None:
        if self._clock is not None:
            self._clock.stop()
        super().close()


def _create_progress(console: "Console", *columns: str) -> "Progress":
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
    def format_status(self) -> str:
        """Return the status line."""

    def update(self) -> None:
        """Draw the status line again."""
        if self._status is not None:
            self._status.update(self.format_status())

    def print_message(self, message: str) -> None:
        """Print a line."""
        if self._silent:
            return
        if self._status is not None:
            _print(self._status.console, mask(printable(message)))
        else:
            print_note(message)

    def __enter__(self) -> Self:
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal and not self._silent and not self._lines_only:
            self._status = console.status(self.format_status(), spinner="dots")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class JobBars(AbstractContextManager["JobBars"]):
    """Progress bars of jobs in a terminal with messages above; elsewhere only the messages."""

    def __init__(self, show: OutputOptions, *columns: str) -> None:
        """Create bars with columns.

        Args:
            show: Output options of the command.
            columns: `bar`, `short bar`, `count`, `elapsed`, `left`, or text templates.
        """
        from rich.console import Console

        self._silent = show.quiet or show.json
        self._console = Console(stderr=True)
        self.are_drawn = self._console.is_terminal and not self._silent
        """Whether bars are drawn."""
        self._bars = _create_progress(self._console, *columns) if self.are_drawn else None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def add(self, name: str, text: str, **columns: Any) -> None:
        """Add a bar for a job."""
        if self._bars is not None:
            self._tasks[name] = self._bars.add_task(text, **{"total": None, **columns})

    def update(self, name: str, **columns: Any) -> None:
        """Change the bar of a job."""
        if self._bars is not None:
            self._bars.update(self._tasks[name], **columns)

    def print_message(self, line: str) -> None:
        """Print a line."""
        if not self._silent:
            _print(self._console, mask(printable(line)))


@contextmanager
def show_progress_bar(show: OutputOptions, label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the block runs; yield the function that updates it."""
    with JobBars(show, "{task.description}", "bar", "count", "left") as bars:
        bars.add(label, label)
        yield lambda done, total: bars.update(label, completed=done, total=total)
