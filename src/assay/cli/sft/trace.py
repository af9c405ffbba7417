"""`assay sft trace`: from a row of a data set back to its episode."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay.cli.database import open_store
from assay.cli.numbers import Whole
from assay.cli.output import Show, compiling_shown, program, say, say_json

if TYPE_CHECKING:
    from assay.api.row_tracing import TracedRow

__all__ = ["trace"]


def trace(
    file: Path,
    row: Whole,
    /,
    *,
    database: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: Show = Show(),
) -> int:
    """Go from a row back to its episode, and play that again up to there.

    The world is made again from its seed and compared with the trace after every
    step. The store is the one that the manifest names, unless another is given.

    For example:

        assay sft trace data.jsonl 17

    Args:
        file: A data file that 'assay sft filter' wrote.
        row: The row, counted from 1, as the lines of the file.
        database: Another store to look for the episode in.
        show: What to print.
    """
    from assay import api

    store = None if database is None else open_store(database, show)
    with compiling_shown(show):
        traced = api.sft_trace(file, row, database=store)
    if show.json:
        header = traced.trace.session.header
        say_json(
            {
                "row": row,
                **traced.origin._asdict(),
                "model": header.subject,
                "task": header.task,
                "seed": header.seed,
                "steps_before": traced.steps_before,
                "actions": traced.actions,
                "replayed": traced.replayed,
                "why_not": traced.why_not,
                "inventory": traced.inventory,
                "unlocked": traced.unlocked,
            }
        )
        return 0 if traced.replayed is not False else 1
    _say(traced)
    return 0 if traced.replayed is not False else 1


def _say(traced: "TracedRow") -> None:
    origin, header = traced.origin, traced.trace.session.header
    one = origin.first_turn == origin.last_turn
    turns = f"turn {origin.first_turn}"
    turns += "" if one else f" to {origin.last_turn}"
    say(f"row {traced.row} is {turns} of session {origin.session_id}")
    say(
        f"played by {header.subject} in {header.task}, seed {header.seed}; "
        f"its experiment is {traced.trace.experiment.name}"
    )
    say(f"played: {', '.join(traced.actions) or 'nothing'}; reward {origin.reward:g}")
    if traced.replayed:
        had = ", ".join(f"{name} {count}" for name, count in traced.inventory.items())
        say(f"played again up to there: step {traced.steps_before}, the same as recorded")
        say(f"  the player had {had}")
        if traced.unlocked:
            say(f"  and had reached {', '.join(traced.unlocked)}")
    else:
        say(f"it cannot be played again up to there: {traced.why_not}")
    if traced.database is not None:
        where = f"--database {shlex.quote(str(traced.database))}"
        called = f"{program()} traces"
        say(f"look: {called} show {origin.session_id[:10]} --turns {origin.first_turn} {where}")
        if traced.replayed:
            step = f"--from-step {traced.steps_before}"
            say(f"watch: {called} replay {origin.session_id[:10]} {step} {where}")
