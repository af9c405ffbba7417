"""`assay fork`: play stored episodes on from some of their states."""

import shlex
from typing import Annotated

from cyclopts import Group, Parameter

from assay.cli import run_options
from assay.cli.output import Show, command_line
from assay.cli.run import run_shown
from assay.cli.run_options import Detail, MayDiffer, RunFlag, RunName, Verbosity

__all__ = ["fork"]

_WHICH = Group("Which states", sort_key=0)


def fork(
    *sessions: Annotated[str, Parameter(group=_WHICH, name="SESSION")],
    at: Annotated[str | None, Parameter(group=_WHICH, show_default=False)] = None,
    futures: Annotated[int, Parameter(group=_WHICH)] = 4,
    options: "run_options.ForkOptions | None" = None,
    resume: RunName = None,
    fresh: RunFlag = False,
    run_id: RunName = None,
    allow_different: MayDiffer = None,
    dry_run: RunFlag = False,
    detail: Detail = False,
    verbose: Verbosity = 0,
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
        resume: Resume an unfinished run: its id, or the start of it.
        fresh: Start a new run, even if the same command left an unfinished one.
        run_id: The id of the run, for tests and schedulers.
        allow_different: What may differ from before in a resumed run: address (the server
            that answers its models) or ledger (the record of its spending is lost).
            [choices: address, ledger]
        dry_run: Print the plan and its estimated cost; start nothing.
        detail: Also print all tables, and how to read them.
        verbose: Print a line per episode; given twice, a line per turn.
        show: What to print.
    """
    from assay import api

    prepared = api.prepare_fork(
        sessions,
        at,
        futures,
        options or {},
        command=shlex.join(["assay", *command_line.get()]),
        run_id=run_id,
        resume=resume,
        fresh=fresh,
        allow_different=allow_different or (),
        dry=dry_run,
    )
    return run_shown(prepared, show, dry_run=dry_run, detail=detail, verbose=verbose)
