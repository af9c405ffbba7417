"""The program `assay`: its commands, the layout of their help, and its exit codes."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError, Group
from cyclopts.help import DefaultFormatter

from assay._version import __version__
from assay.cli.analysis import analysis, variance
from assay.cli.analyze import analyze
from assay.cli.bench_run import bench
from assay.cli.compare import compare
from assay.cli.curves import curves
from assay.cli.doctor import doctor, warmup
from assay.cli.experiments import experiments
from assay.cli.finetune import finetune
from assay.cli.launch import launch
from assay.cli.loop import loop
from assay.cli.models import models
from assay.cli.options import add_commands
from assay.cli.output import command_line, print_error
from assay.cli.play import play
from assay.cli.run import fork, init, run
from assay.cli.serve import serve, serve_finetune, serve_models
from assay.cli.sft_filter import sft
from assay.cli.sweep import sweep
from assay.cli.traces import traces
from assay.cli.train import train
from assay.cli.view import verify, view
from assay.core.secrets import mask
from assay.core.user_code import has_user_threads
from assay.errors import AssayError, UsageError

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions


class HelpFormatter(DefaultFormatter):
    """Help formatter of Cyclopts that joins the lines of a paragraph."""

    def __call__(
        self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel"
    ) -> None:
        """Print one panel of options or commands."""
        entries = [_format_entry(entry) for entry in panel.entries]
        title = "Options" if str(panel.title) == "Parameters" else panel.title
        super().__call__(console, options, panel.copy(entries=entries, title=title))

    def render_description(
        self, console: "Console", options: "ConsoleOptions", description: Any
    ) -> None:
        """Print the description of a command."""
        _join_lines(description, r"(?<=\S)\n(?=\S)")  # keeps indented lines, such as examples
        super().render_description(console, options, description)


def _format_entry(entry: "HelpEntry") -> "HelpEntry":
    _join_lines(entry.description, r"\s*\n\s*")
    default = {"True": "on", "False": None, '""': None}.get(str(entry.default), entry.default)
    if default is not None:
        default = default.removesuffix(".0")
    return entry.copy(default=default)


def _join_lines(description: Any, line_end: str) -> None:
    """Join the lines of each paragraph."""
    text = getattr(description, "primary_renderable", None)
    plain = getattr(text, "plain", None)
    if plain is not None:
        from rich.text import Text

        description.primary_renderable = Text(re.sub(line_end, " ", plain))


DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130

GROUPS: Mapping[str, Sequence[App | Callable[..., int]]] = {
    "Run": (run, fork, loop, train, launch, bench, sweep, init, play, warmup),
    "Compare": (compare, experiments, variance, analysis, curves),
    "Improve": (sft, finetune),
    "Inspect": (view, analyze, doctor, traces, verify, models),
    "Serve": (serve, serve_models, serve_finetune),
}
OPTIONS = Group("Options", sort_key=9)

app = App(
    name="assay",
    help=(
        "Evaluate language models and agents: run, record, compare, replay.\n\n"
        "Try this first; it needs no key and no network:\n\n    assay run --episodes 8"
    ),
    version=f"assay {__version__}",
    help_format="plaintext",
    help_formatter=HelpFormatter(),
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
for _place, (_name, _commands) in enumerate(GROUPS.items(), 1):
    _group = Group(_name, sort_key=_place)
    for _command in _commands:
        if isinstance(_command, App):
            _command.group = _group
            app.command(_command)
        else:
            add_commands(app, _command, group=_group)
app.register_install_completion_command(group=OPTIONS)
for _flag in ("--help", "--version"):
    app[_flag].group = OPTIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    The exit code is 0 for success, 1 for a failure, 2 for invalid usage (nothing was started)
    and 130 for an interruption. Errors are one line on standard error, unless `--debug` is
    given.
    """
    if arguments is not None:
        return _run_command(list(arguments))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no errors for characters
    try:
        code = _run_command(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe: exit without a message, also at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    if has_user_threads():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a normal exit would wait for these threads
    return code


def _run_command(tokens: list[str]) -> int:
    command_line.set(tuple(tokens))
    try:
        return app(tokens) or DONE
    except CycloptsError as error:
        command = " ".join(["assay", *(error.command_chain or ())])
        return _report_failure(f"{error} See '{command} --help'.", BAD_USAGE, tokens)
    except UsageError as error:
        return _report_failure(_format_error(error), BAD_USAGE, tokens)
    except AssayError as error:
        return _report_failure(_format_error(error), FAILED, tokens)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        # No message: the user pressed the key, and a run has already printed its own.
        if "--debug" in tokens:
            traceback.print_exc()
        return INTERRUPTED
    except MemoryError:
        message = "out of memory; stored data is kept. Request less at once, or free memory"
        return _report_failure(message, FAILED, tokens)
    except Exception as error:
        # The boundary of the program: a bug is reported in one line, like other failures.
        bug = f"{type(error).__name__}: {error}; --debug prints the traceback"
        return _report_failure(bug, FAILED, tokens)


def _format_error(error: AssayError) -> str:
    """Return the message of an error with its notes."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def _report_failure(message: str, code: int, tokens: Sequence[str]) -> int:
    if "--debug" in tokens:
        sys.stderr.write(mask(traceback.format_exc()))
    print_error(message)
    return code
