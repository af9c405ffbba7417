"""`assay traces list`: what is in a store."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay._util.text import cut
from assay.cli.database import Database, open_store
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.traces.listing import ListedRun, ListedSession

__all__ = ["list_"]

_HEADS = (
    *("session", "experiment", "seed", "ended by", "achievements", "reward"),
    *("steps", "turns"),
)
_LEFT = ("session", "experiment", "ended by")
_WIDEST = 40
_SHORT_ID = 10


def list_(
    *,
    run: str | None = None,
    experiment: str | None = None,
    model: str | None = None,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 20,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """List sessions run by run, the newest last.

    For example:

        assay traces list --model builtin/expert --limit 50

    Args:
        run: Only those of this run: an id or the start of one, or latest.
        experiment: Only those of this experiment: an id, a name, or the start of one.
        model: Only those that this model played.
        limit: How many sessions to list at most.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    total, runs = api.list_sessions(
        run=run,
        experiment=experiment,
        model=model,
        limit=limit,
        database=open_store(database, show),
    )
    if show.json:
        say_json({"total": total, "runs": [asdict(listed) for listed in runs]})
        return 0
    for listed in runs:
        _say_run(listed, show)
    if not total:
        say("no sessions")
    elif total > limit and not show.quiet:
        say(f"{limit} of {total} sessions; --limit shows more")
    return 0


def _say_run(run: "ListedRun", show: Show) -> None:
    if show.quiet:
        for session in run.sessions:
            say(session.session_id)
        return
    say(f"run {run.run_id}, {run.status}, started {run.created_at} UTC: {run.command}")
    for line in _table([_cells(session) for session in run.sessions]):
        say(line)
    say("")


def _cells(session: "ListedSession") -> tuple[str, ...]:
    ended = session.stop_reason
    if session.state != "result":
        ended = f"{session.state}: {ended}"
    return (
        session.session_id[:_SHORT_ID],
        cut(session.experiment, _WIDEST),
        "" if session.seed is None else str(session.seed),
        cut(ended, _WIDEST),
        str(session.achievements),
        f"{session.reward:.1f}",
        str(session.steps),
        str(session.turns),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [
        max(len(head), *(len(row[column]) for row in rows))
        for column, head in enumerate(_HEADS)
    ]
    return [
        "  ".join(
            cell.ljust(width) if head in _LEFT else cell.rjust(width)
            for cell, width, head in zip(row, widths, _HEADS, strict=True)
        ).rstrip()
        for row in (_HEADS, *rows)
    ]
