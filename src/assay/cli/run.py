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
from assay.cli.dry_run import describe_run, print_dry_run
from assay.cli.options import Given, option_groups
from assay.cli.output import (
    OutputOptions,
    command_line,
    find_program,
    print_error,
    print_json,
    print_line,
    print_note,
    print_report,
    print_warning,
    show_compilation,
    show_spinner,
)
from assay.cli.run_options import (
    RUN_GROUP,
    DetailOptions,
    RepeatableOption,
    RunFile,
    RunFlag,
    RunName,
)
from assay.core.text import counted
from assay.errors import OutputError, UsageError

if TYPE_CHECKING:
    from assay.runs.control import Stop
    from assay.runs.kind import PreparedRun
    from assay.runs.run import RunResult

FAILED, BAD_USAGE, INFRASTRUCTURE, INTERRUPTED = 1, 2, 3, 130
_COMMON_FILE = "multi_model_config.toml"
_OPEN_CALLS_S = 2.5
"""Seconds that open calls may take to complete after the first Ctrl-C."""
_SHUTDOWN_S = 2.0
"""Seconds that a run may take to shut down cleanly after the second Ctrl-C; user code, a large
transaction or many files can delay it."""
_WITH_RUN_SELECTION = option_groups({"which": RUN_GROUP}, which="assay.runs.options:WhichRun")


@_WITH_RUN_SELECTION
def run(
    *,
    options: "run_options.RunOptions | None" = None,
    config: RunFile = None,
    which: Given,
    model_map: RepeatableOption = None,
    provider: RunName = None,
    dry_run: RunFlag = False,
    detail_options: DetailOptions = DetailOptions(),
    show: OutputOptions = OutputOptions(),
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
        detail_options: Amount of detail to print.
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
        and Path(_COMMON_FILE).is_file()
    ):
        print_warning(
            f"{_COMMON_FILE} exists but is not used; use --config {_COMMON_FILE} to read it"
        )
    return execute_and_print(prepared, detail_options, show, dry_run=dry_run)


def execute_and_print(
    prepared: "PreparedRun[Any]",
    detail_options: DetailOptions,
    show: OutputOptions,
    *,
    dry_run: bool,
) -> int:
    """Execute a prepared run, print its progress and results, and return the exit code."""
    from assay.api.runs import estimate

    for warning in () if show.quiet else prepared.warnings:
        print_warning(warning)
    if dry_run:
        _compile_world(prepared, show)
        with show_spinner(show, "estimating"):
            estimated = estimate(prepared)
        print_dry_run(prepared, estimated, show)
        return 0
    if not (show.quiet or show.json):
        for line in describe_run(prepared):
            print_note(line)
    _compile_world(prepared, show)
    result = run_with_display(prepared, show, detail_options.verbose)
    _print_result(prepared, result, show, detail=detail_options.detail)
    for reason in _list_problems(result):
        print_error(reason)
    return _choose_exit_code(result)


def _compile_world(prepared: "PreparedRun[Any]", show: OutputOptions) -> None:
    """Compile the world before anything is timed, with a notice if that takes long."""
    if prepared.config.environment is None:
        with show_compilation(show):
            from assay.crafter.world import warmup

            warmup()


def run_with_display(
    prepared: "PreparedRun[Any]", show: OutputOptions, verbose: int
) -> "RunResult":
    """Execute a prepared run with a live display, and stop it on signals."""
    from assay.api.runs import run_prepared
    from assay.cli.display import choose_display
    from assay.runs.control import Stop

    stop = Stop()
    display = choose_display(silent=show.json or show.quiet, verbosity=verbose)
    if prepared.resumed is not None:
        display.on_message(
            f"resuming unfinished run {prepared.record.id}; use --fresh to start a new run"
        )
    resume_command = f"assay run --resume {prepared.record.id}"
    with stop_on_signals(stop, display.on_message, resume_command), display:
        return run_prepared(prepared, observer=display, stop=stop)


@contextmanager
def stop_on_signals(stop: "Stop", on_message: Any, resume_command: str) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into stop requests; `again` is the command that resumes."""
    hurry_timer = threading.Timer(_OPEN_CALLS_S, stop.cancel_trials)
    exit_timer = threading.Timer(_SHUTDOWN_S, _exit_immediately, [resume_command])
    hurry_timer.daemon = exit_timer.daemon = True

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop.request()
        if not stop.is_forced:
            on_message(
                "finishing the current turns (a few seconds); press Ctrl-C again to quit now"
            )
            hurry_timer.start()
        elif exit_timer.ident is None:
            exit_timer.start()

    old_handlers = {
        name: signal.signal(name, request_stop) for name in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        hurry_timer.cancel()
        exit_timer.cancel()
        for name, handler in old_handlers.items():
            signal.signal(name, handler)


def _exit_immediately(resume_command: str) -> None:
    """Exit the process immediately; journals keep all replies received so far."""
    os.write(2, f"quit immediately. Resume:   {resume_command}\n".encode())
    os._exit(INTERRUPTED)


def _print_result(
    prepared: "PreparedRun[Any]", result: "RunResult", show: OutputOptions, *, detail: bool
) -> None:
    from assay.api.runs import run_report

    document = run_report(result)
    if show.json:
        print_json(
            {
                "run": result.run_id,
                "status": result.status,
                "interrupted": result.interrupted,
                "resumed": result.resumed,
                "database": str(result.database),
                "results": None if result.results_file is None else str(result.results_file),
                **_decisions_to_json(result),
                **document.values(),
            }
        )
        return
    if show.quiet:
        print_line(result.run_id)
        return
    from assay.report.terminal import TerminalReport

    if document.sections:
        print_report(TerminalReport(document, title=False, detail=detail))
    if result.decisions:
        print_line("")
    for decision in result.decisions:
        print_line(f"{decision.sentence}.")
    for line in _format_next_steps(prepared, result):
        print_line(line)


def _decisions_to_json(result: "RunResult") -> dict[str, Any]:
    if not result.decisions:
        return {}
    return {"decisions": [decision.as_json() for decision in result.decisions]}


def _format_next_steps(prepared: "PreparedRun[Any]", result: "RunResult") -> Iterator[str]:
    database = shlex.quote(str(result.database))
    database_option = (
        "" if "database" not in _list_changed_settings(prepared) else f" --database {database}"
    )
    program = find_program()
    yield ""
    if result.open_spending:
        unfinished = sum(spent.trials for spent in result.open_spending.values())
        yield f"Totals include {counted(unfinished, 'unfinished episode')} so far."
    if result.lost_usd:
        yield f"Calls with lost replies cost at most ${result.lost_usd:.4f} more."
    if result.results_file is not None:
        yield f"Traces:  {result.database}"
        yield f"Results: {result.results_file}"
    if result.status != "finished":
        budget_option = ""
        if prepared.config.budget is not None:
            # With an unchanged budget it would stop again immediately.
            budget_option = (
                f" --budget {(2 if result.stopped_by else 1) * prepared.config.budget:g}"
            )
        resume = f"{program} run --resume {result.run_id}"
        yield f"Unfinished. Resume:  {resume}{budget_option}{database_option}"
    if not result.episodes:
        return
    if prepared.config.forks:
        yield "Forks: copied turns count in every result, but not in the cost."
        yield (
            f"Preference pairs:    {program} sft filter --format preference"
            f" --output pairs.jsonl{database_option}"
        )
    if len(result.tallies) > 1:
        yield f"Compare in detail:   {program} compare {result.run_id}{database_option}"
    if prepared.config.environment is None:
        yield f"Watch the best:      {program} traces replay best{database_option}"
    yield f"Read the best:       {program} traces show best{database_option}"
    yield f"Check every episode: {program} traces verify {result.run_id}{database_option}"


def _list_problems(result: "RunResult") -> Iterator[str]:
    """Yield the reasons why a run has fewer results than planned, to print last."""
    for name, tally in result.tallies.items():
        if tally.stop is not None:
            yield f"{name} was stopped: {tally.stop.reason}"
    if result.stopped_by is not None:
        yield f"the run was stopped: {result.stopped_by}"
    if result.status != "finished" and result.last_trouble is not None:
        yield f"last failed call: {result.last_trouble}"


def _list_changed_settings(prepared: "PreparedRun[Any]") -> set[str]:
    return {name for name, source in prepared.sources.items() if source != "default"}


def _choose_exit_code(result: "RunResult") -> int:
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


_STATES_GROUP = Group("Which states", sort_key=0)


@_WITH_RUN_SELECTION
def fork(
    *sessions: Annotated[str, Parameter(group=_STATES_GROUP, name="SESSION")],
    at: Annotated[str | None, Parameter(group=_STATES_GROUP, show_default=False)] = None,
    futures: Annotated[int, Parameter(group=_STATES_GROUP)] = 4,
    options: "run_options.ForkOptions | None" = None,
    which: Given,
    dry_run: RunFlag = False,
    detail_options: DetailOptions = DetailOptions(),
    show: OutputOptions = OutputOptions(),
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
        detail_options: Amount of detail to print.
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
    return execute_and_print(prepared, detail_options, show, dry_run=dry_run)


def init(
    path: Path = Path("assay.toml"),
    /,
    *,
    force: Annotated[bool, Parameter(negative="")] = False,
    show: OutputOptions = OutputOptions(),
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

    _write_file(path, config_template(), replace=force)
    if show.json:
        print_json({"file": str(path)})
    elif show.quiet:
        print_line(str(path))
    else:
        print_line(f"wrote {path}: every setting with its default, commented out")
        print_line(f"next: edit it, then assay run --config {shlex.quote(str(path))}")
    return 0


def _write_file(path: Path, text: str, *, replace: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a directory; give a file in it")
    # O_EXCL also protects a file that another process creates in the meantime.
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    try:
        with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{str(path)!r} already exists; use --force to replace it, or choose another file"
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: the directory {str(path.parent)!r} does not exist; "
            "create it, or choose another file"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error
