"""`assay run`, `fork` and `init`: let models and agents play, and record everything."""

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from assay.cli import run_options
from assay.cli.dry_run import describe, opening
from assay.cli.options import Given, option_groups
from assay.cli.output import (
    Show,
    command_line,
    compiling_shown,
    complain,
    note,
    program,
    say,
    say_json,
    say_report,
    warn,
    working,
)
from assay.cli.run_options import WHICH, MayDiffer, Printed, RunFile, RunFlag, RunName
from assay.core.text import counted
from assay.errors import OutputError, UsageError

if TYPE_CHECKING:
    from assay.runs.control import Stop
    from assay.runs.kind import PreparedRun
    from assay.runs.run import RunResult

FAILED, BAD_USAGE, INFRASTRUCTURE, INTERRUPTED = 1, 2, 3, 130
_USUAL_FILE = "multi_model_config.toml"
_IN_HAND_S = 2.5
"""Seconds after the first Ctrl-C in which calls that are open may still be answered."""
_LEAVE_S = 2.0
"""Seconds after the second Ctrl-C in which a run may leave in order; code of users, a large
transaction or many files may hold it up."""
_OF_RUNS = option_groups({"which": WHICH}, which="assay.runs.options:WhichRun")


@_OF_RUNS
def run(
    *,
    options: "run_options.RunOptions | None" = None,
    config: RunFile = None,
    which: Given,
    model_map: MayDiffer = None,
    provider: RunName = None,
    dry_run: RunFlag = False,
    printed: Printed = Printed(),
    show: Show = Show(),
) -> int:
    """Let models and agents play, record every turn, and compare them.

    With no options the built-in models play; they need no key and no network. Ctrl-C
    finishes the current turns and loses nothing; the same command resumes the run.

    For example:

        assay run --models builtin/forager builtin/expert --episodes 20
        assay run --agents mine.py:act --models builtin/random

    Args:
        options: The settings of the run.
        config: A TOML file with settings ('assay init' writes one). Options given here win.
        which: A new run, or an unfinished one.
        model_map: Replace a model by another, as OLD=NEW. May be repeated.
        provider: Who answers for fine-tuned models (ft:…) whose names do not tell.
        dry_run: Print the plan and its estimated cost; start nothing.
        printed: How much is printed of it.
        show: What to print.
    """
    from assay.api.run_preparation import prepare
    from assay.runs.options import read_model_map

    prepared = prepare(
        options or {},
        config,
        command=shlex.join(["assay", *command_line.get()]),
        model_map=read_model_map(model_map or ()),
        provider=provider,
        dry=dry_run,
        **which,
    )
    if (
        not show.quiet
        and config is None
        and "resume" not in which
        and Path(_USUAL_FILE).is_file()
    ):
        warn(f"{_USUAL_FILE} is here and not used; --config {_USUAL_FILE} uses it")
    return run_shown(prepared, printed, show, dry_run=dry_run)


def run_shown(
    prepared: "PreparedRun[Any]", printed: Printed, show: Show, *, dry_run: bool
) -> int:
    """Do what was prepared, show how it goes and what came of it, and return the exit code."""
    from assay.api.runs import estimate

    for warning in () if show.quiet else prepared.warnings:
        warn(warning)
    if dry_run:
        _warm_up(prepared, show)
        with working(show, "estimating"):
            estimated = estimate(prepared)
        describe(prepared, estimated, show)
        return 0
    if not (show.quiet or show.json):
        for line in opening(prepared):
            note(line)
    _warm_up(prepared, show)
    result = watched_run(prepared, show, printed.verbose)
    _report(prepared, result, show, detail=printed.detail)
    for reason in _reasons(result):
        complain(reason)
    return _exit_code(result)


def _warm_up(prepared: "PreparedRun[Any]", show: Show) -> None:
    """Have the world compiled before anything is timed, and say so where that takes long."""
    if prepared.config.environment is None:
        with compiling_shown(show):
            from assay.crafter.world import warmup

            warmup()


def watched_run(prepared: "PreparedRun[Any]", show: Show, verbose: int) -> "RunResult":
    """Run what was prepared, with a live display and signals that stop it."""
    from assay.api.runs import run_prepared
    from assay.cli.display import choose_display
    from assay.runs.control import Stop

    stop = Stop()
    display = choose_display(silent=show.json or show.quiet, verbosity=verbose)
    if prepared.resumed is not None:
        display.on_message(
            f"resuming run {prepared.record.id}, which is unfinished; --fresh starts anew"
        )
    again = f"assay run --resume {prepared.record.id}"
    with stopped_by_signals(stop, display.on_message, again), display:
        return run_prepared(prepared, observer=display, stop=stop)


@contextmanager
def stopped_by_signals(stop: "Stop", notice: Any, again: str) -> Iterator[None]:
    """While inside, Ctrl-C and SIGTERM ask to stop; `again` is the command that resumes."""
    enough = threading.Timer(_IN_HAND_S, stop.hurry)
    last_resort = threading.Timer(_LEAVE_S, _leave, [again])
    enough.daemon = last_resort.daemon = True

    def ask(number: int, frame: FrameType | None) -> None:
        stop.ask()
        if not stop.forced:
            notice("ending the turns in hand (a few seconds); once more to leave at once")
            enough.start()
        elif last_resort.ident is None:
            last_resort.start()

    before = {name: signal.signal(name, ask) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        enough.cancel()
        last_resort.cancel()
        for name, handler in before.items():
            signal.signal(name, handler)


def _leave(again: str) -> None:
    """End the process as it is: what was answered is in journals, as after a kill."""
    os.write(2, f"left at once. Resume:   {again}\n".encode())
    os._exit(INTERRUPTED)


def _report(
    prepared: "PreparedRun[Any]", result: "RunResult", show: Show, *, detail: bool
) -> None:
    from assay.api.runs import run_report

    document = run_report(result)
    if show.json:
        say_json(
            {
                "run": result.run_id,
                "status": result.status,
                "interrupted": result.interrupted,
                "resumed": result.resumed,
                "database": str(result.database),
                "results": None if result.results_file is None else str(result.results_file),
                **_decisions(result),
                **document.values(),
            }
        )
        return
    if show.quiet:
        say(result.run_id)
        return
    from assay.report.terminal import TerminalReport

    if document.sections:
        say_report(TerminalReport(document, title=False, detail=detail))
    if result.decisions:
        say("")
    for decision in result.decisions:
        say(f"{decision.sentence}.")
    for line in _next_steps(prepared, result):
        say(line)


def _decisions(result: "RunResult") -> dict[str, Any]:
    if not result.decisions:
        return {}
    return {"decisions": [decision.as_json() for decision in result.decisions]}


def _next_steps(prepared: "PreparedRun[Any]", result: "RunResult") -> Iterator[str]:
    database = shlex.quote(str(result.database))
    in_database = "" if "database" not in _chosen(prepared) else f" --database {database}"
    assay = program()
    yield ""
    if result.open_spending:
        open_ones = sum(spent.trials for spent in result.open_spending.values())
        yield f"Totals count {counted(open_ones, 'unfinished episode')} as far as played."
    if result.lost_usd:
        yield f"Calls whose answers were lost cost at most ${result.lost_usd:.4f} more."
    if result.results_file is not None:
        yield f"Traces:  {result.database}"
        yield f"Results: {result.results_file}"
    if result.status != "finished":
        more = ""
        if prepared.config.budget is not None:
            # The same budget would stop it at once.
            more = f" --budget {(2 if result.stopped_by else 1) * prepared.config.budget:g}"
        yield f"Unfinished. Resume:  {assay} run --resume {result.run_id}{more}{in_database}"
    if not result.episodes:
        return
    if prepared.config.forks:
        yield "Forks: what turns in common earned is in every number; what they cost is not."
        yield (
            f"Make pairs of them:  {assay} sft filter --format preference --output pairs.jsonl"
            f"{in_database}"
        )
    if len(result.tallies) > 1:
        yield f"Compare in detail:   {assay} compare {result.run_id}{in_database}"
    if prepared.config.environment is None:
        yield f"Watch the best:      {assay} traces replay best{in_database}"
    yield f"Read it:             {assay} traces show best{in_database}"
    yield f"Check every episode: {assay} traces verify {result.run_id}{in_database}"


def _reasons(result: "RunResult") -> Iterator[str]:
    """Why a run has less than was planned, for the last lines of the screen."""
    for name, tally in result.tallies.items():
        if tally.stop is not None:
            yield f"{name} was stopped: {tally.stop.reason}"
    if result.stopped_by is not None:
        yield f"the run was stopped: {result.stopped_by}"
    if result.status != "finished" and result.last_trouble is not None:
        yield f"the last call that failed: {result.last_trouble}"


def _chosen(prepared: "PreparedRun[Any]") -> set[str]:
    return {name for name, source in prepared.sources.items() if source != "default"}


def _exit_code(result: "RunResult") -> int:
    if result.interrupted:
        return INTERRUPTED
    tallies = result.tallies.values()
    if any(tally.infrastructure for tally in tallies):
        return INFRASTRUCTURE
    if any(tally.stop is not None for tally in tallies):
        return FAILED if result.episodes else BAD_USAGE
    if result.status != "finished":
        return INFRASTRUCTURE
    useless = any(tally.failures and not tally.results for tally in tallies)
    return FAILED if useless and not any(tally.skipped for tally in tallies) else 0


_WHICH = Group("Which states", sort_key=0)


@_OF_RUNS
def fork(
    *sessions: Annotated[str, Parameter(group=_WHICH, name="SESSION")],
    at: Annotated[str | None, Parameter(group=_WHICH, show_default=False)] = None,
    futures: Annotated[int, Parameter(group=_WHICH)] = 4,
    options: "run_options.ForkOptions | None" = None,
    which: Given,
    dry_run: RunFlag = False,
    printed: Printed = Printed(),
    show: Show = Show(),
) -> int:
    """Play stored episodes on from some of their states, several futures each.

    The world and the conversation are as they were after a turn, checked against the trace;
    then a model plays on, up to the limits of the whole episode. Turns in common are not paid
    again. It is a run of its own: Ctrl-C loses nothing, and the same command resumes it.

    For example:

        assay fork best --model builtin/random --at 10,25 --futures 8
        assay sft filter --models builtin/random --format preference --output pairs.jsonl

    Args:
        sessions: Episodes, experiments or runs; 'best', 'worst' and 'latest' are those of the
            latest run that is no fork.
        at: After which turns: 10,25 or 50% of the turns of an episode; +1 is a turn after the
            one at which an episode was itself forked.
        futures: How many times each model plays on from each state.
        options: The settings of the run; all others are those of the forked episodes.
        which: A new run, or an unfinished one.
        dry_run: Print the plan and its estimated cost; start nothing.
        printed: How much is printed of it.
        show: What to print.
    """
    from assay.api.runs import prepare_fork

    prepared = prepare_fork(
        sessions,
        at,
        futures,
        options or {},
        command=shlex.join(["assay", *command_line.get()]),
        dry=dry_run,
        **which,
    )
    return run_shown(prepared, printed, show, dry_run=dry_run)


def init(
    path: Path = Path("assay.toml"),
    /,
    *,
    force: Annotated[bool, Parameter(negative="")] = False,
    show: Show = Show(),
) -> int:
    """Write a configuration file with every setting, its default and allowed values.

    Every line is commented out: remove the '#' in front of a setting to change it.

    For example:

        assay init assay.toml

    Args:
        path: The file to write.
        force: Replace the file if there is one.
        show: What to print.
    """
    from assay.api.runs import config_template

    _write(path, config_template(), replace=force)
    if show.json:
        say_json({"file": str(path)})
    elif show.quiet:
        say(str(path))
    else:
        say(f"wrote {path}: every setting with its default, commented out")
        say(f"next: edit it, then assay run --config {shlex.quote(str(path))}")
    return 0


def _write(path: Path, text: str, *, replace: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a directory; name a file in it")
    # Opened so that a file that appears in between is not lost either.
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    try:
        with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{str(path)!r} exists; --force replaces it, or name another file"
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: there is no directory {str(path.parent)!r}; "
            "make it, or name another file"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error
