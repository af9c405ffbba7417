"""`assay run`, `fork` and `init`: run episodes with models and agents, and record them."""

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
"""Seconds that open calls may take to complete after the first Ctrl-C."""
_LEAVE_S = 2.0
"""Seconds that a run may take to shut down cleanly after the second Ctrl-C; user code, a large
transaction or many files can delay it."""
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
    """Run models and agents, record every turn, and compare the results.

    Without options the built-in models are run; they need no key and no network. Ctrl-C
    finishes the current turns and saves everything; the same command resumes the run.

    For example:

        assay run --models builtin/forager builtin/expert --episodes 20
        assay run --agents mine.py:act --models builtin/random

    Args:
        options: Settings of the run.
        config: TOML file with settings ('assay init' writes one). Options override the file.
        which: A new run, or an unfinished one to resume.
        model_map: Replace a model with another, as OLD=NEW. May be repeated.
        provider: Provider of fine-tuned models (ft:…) whose names are ambiguous.
        dry_run: Print the plan and its estimated cost without starting anything.
        printed: Amount of detail to print.
        show: Output options.
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
    """Execute a prepared run, print its progress and results, and return the exit code."""
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
    """Compile the world before anything is timed, with a notice if that takes long."""
    if prepared.config.environment is None:
        with compiling_shown(show):
            from assay.crafter.world import warmup

            warmup()


def watched_run(prepared: "PreparedRun[Any]", show: Show, verbose: int) -> "RunResult":
    """Execute a prepared run with a live display, and stop it on signals."""
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
    """Turn Ctrl-C and SIGTERM into stop requests; `again` is the command that resumes."""
    enough = threading.Timer(_IN_HAND_S, stop.cancel_trials)
    last_resort = threading.Timer(_LEAVE_S, _leave, [again])
    enough.daemon = last_resort.daemon = True

    def ask(number: int, frame: FrameType | None) -> None:
        stop.request()
        if not stop.is_forced:
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
    """Exit the process immediately; journals keep all replies received so far."""
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
            # With an unchanged budget it would stop again immediately.
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
    """Yield the reasons why a run has fewer results than planned, to print last."""
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
    """Continue stored episodes from chosen turns, several times each.

    World and conversation are restored to their state after a turn and checked against the
    trace. Then a model continues, up to the limits of the whole episode. Copied turns are not
    charged again. A fork is a new run: Ctrl-C saves everything, and the same command resumes
    it.

    For example:

        assay fork best --model builtin/random --at 10,25 --futures 8
        assay sft filter --models builtin/random --format preference --output pairs.jsonl

    Args:
        sessions: Episodes, experiments or runs; 'best', 'worst' and 'latest' refer to the
            latest run that is not a fork.
        at: Turns after which to fork: 10,25 or 50% of the turns of an episode. If the episode
            is itself a fork, +1 is one turn after its fork point.
        futures: Number of continuations per model and state.
        options: Settings of the run; all others are copied from the forked episodes.
        which: A new run, or an unfinished one to resume.
        dry_run: Print the plan and its estimated cost without starting anything.
        printed: Amount of detail to print.
        show: Output options.
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
    """Write a configuration file with every setting and its default.

    Allowed values are listed, too. Every line is commented out: remove the '#' in front of a
    setting to change it.

    For example:

        assay init assay.toml

    Args:
        path: File to write.
        force: Replace the file if it exists.
        show: Output options.
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
    # O_EXCL also protects a file that another process creates in the meantime.
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
