"""The program `assay`: its commands, and how it ends."""

import os
import sys
import traceback
from collections.abc import Sequence
from inspect import cleandoc
from io import TextIOWrapper

from cyclopts import App, CycloptsError, Group

from assay._util.redact import mask
from assay._util.user_threads import user_threads_left
from assay._version import __version__
from assay.cli.analysis import analysis
from assay.cli.analyze import analyze
from assay.cli.bench import bench
from assay.cli.compare import compare
from assay.cli.curves import curves
from assay.cli.doctor import doctor
from assay.cli.experiments import experiments
from assay.cli.finetune import finetune
from assay.cli.fork import fork
from assay.cli.help import HelpFormatter
from assay.cli.init import init
from assay.cli.launch import launch
from assay.cli.loop import loop
from assay.cli.models import models
from assay.cli.output import command_line, complain
from assay.cli.play import play
from assay.cli.run import run
from assay.cli.serve import serve
from assay.cli.serve_finetune import serve_finetune
from assay.cli.serve_models import serve_models
from assay.cli.sft import sft
from assay.cli.sweep import sweep
from assay.cli.traces import traces
from assay.cli.train import train
from assay.cli.variance import variance
from assay.cli.warmup import warmup
from assay.errors import AssayError, UsageError

__all__ = ["app", "main"]

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130

RUN = Group("Run", sort_key=1)
JUDGE = Group("Judge", sort_key=2)
LOOK = Group("Look", sort_key=4)
SERVE = Group("Serve", sort_key=5)
OPTIONS = Group("Options", sort_key=9)

app = App(
    name="assay",
    help=(
        "Evaluate language models and agents: play, record, compare, replay.\n\n"
        "Try this first; it needs no key and no network:\n\n    assay run --episodes 3"
    ),
    version=f"assay {__version__}",
    help_format="plaintext",
    help_formatter=HelpFormatter(),
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
# By its name: what its options are made of is loaded when it is called.
app.command(
    "assay.cli.run:run", group=RUN, help=cleandoc(run.__doc__ or "").split("\nArgs:")[0]
)
app.command(
    "assay.cli.fork:fork", group=RUN, help=cleandoc(fork.__doc__ or "").split("\nArgs:")[0]
)
app.command(
    "assay.cli.loop:loop", group=RUN, help=cleandoc(loop.__doc__ or "").split("\nArgs:")[0]
)
app.command(
    "assay.cli.train:train", group=RUN, help=cleandoc(train.__doc__ or "").split("\nArgs:")[0]
)
app.command(
    "assay.cli.launch:launch",
    group=RUN,
    help=cleandoc(launch.__doc__ or "").split("\nArgs:")[0],
)
app.command(bench)
app.command(sweep, group=RUN)
app.command(init, group=RUN)
app.command(play, group=RUN)
app.command(warmup, group=RUN)
app.command(compare, group=JUDGE)
app.command(experiments)
app.command(variance, group=JUDGE)
app.command(analysis, group=JUDGE)
app.command(curves)
app.command(analyze)
app.command(sft)
app.command(finetune)
app.command(doctor, group=LOOK)
app.command(traces)
app.command(serve, group=SERVE)
app.command(serve_models, name="serve-models", group=SERVE)
app.command(serve_finetune, name="serve-finetune", group=SERVE)
app.command(models)
app.register_install_completion_command(group=OPTIONS)
for _flag in ("--help", "--version"):
    app[_flag].group = OPTIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done; 1 the work failed; 2 bad usage, nothing started; 130 interrupted. The
    whole of an error is one line on standard error, unless `--debug` is given.
    """
    if arguments is not None:
        return _done(list(arguments))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # never an error for a letter
    try:
        code = _done(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has enough, as `head` does; nothing is to be said, here or at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    if user_threads_left():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # an end in the usual way would wait for them
    return code


def _done(tokens: list[str]) -> int:
    command_line.set(tuple(tokens))
    try:
        return app(tokens) or DONE
    except CycloptsError as error:
        command = " ".join(["assay", *(error.command_chain or ())])
        return _failed(f"{error} See '{command} --help'.", BAD_USAGE, tokens)
    except UsageError as error:
        return _failed(_noted(error), BAD_USAGE, tokens)
    except AssayError as error:
        return _failed(_noted(error), FAILED, tokens)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        # Whoever pressed the key knows; what a run has to say of it, it has said.
        if "--debug" in tokens:
            traceback.print_exc()
        return INTERRUPTED
    except MemoryError:
        short = "the memory of this machine was not enough; what was stored before is kept"
        return _failed(f"{short}: ask for less at once, or free some memory", FAILED, tokens)
    except Exception as error:
        # The boundary of the program: a bug is told in one line like any other failure.
        bug = f"{type(error).__name__}: {error}; '--debug' shows where"
        return _failed(bug, FAILED, tokens)


def _noted(error: AssayError) -> str:
    """What an error says, with what was noted on its way here."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def _failed(message: str, code: int, tokens: Sequence[str]) -> int:
    if "--debug" in tokens:
        sys.stderr.write(mask(traceback.format_exc()))
    complain(message)
    return code
