"""`assay traces list`: what is in a store."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay._util.text import counted, cut
from assay.cli.database import Database, open_store
from assay.cli.lists import say_prose, say_table
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.traces.listing import ListedRun, ListedSession, OpenRun

__all__ = ["list_"]

_COUNTS = ("reward", "steps", "turns")
_LEFT = ("episode", "experiment", "task", "ended by")
_MOST_OUTCOMES = 4
_WIDEST = 40
_SHORT_ID = 10
_MOST_OPEN = 20


def list_(
    *,
    run: str | None = None,
    experiment: str | None = None,
    model: str | None = None,
    sort: str | None = None,
    top: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 20,
    baselines: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """List recorded episodes: run by run, the newest last, or sorted by a number.

    For example:

        assay traces list --model builtin/expert --sort reward --top 5

    Args:
        run: Only episodes of this run: its id, the start of it, or 'latest'.
        experiment: Only episodes of this experiment: its id, its name, or the start of one.
        model: Only episodes that this model played.
        sort: Sort by this number, the highest first: achievements, reward, steps, turns,
            cost_usd, duration_s, seed, or any metric.
        top: List only the best ones: this many, by --sort, else by achievements.
        limit: List at most this many episodes.
        baselines: Also list episodes of the baselines that were added to runs; --json always
            does.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    if top is not None:
        sort, limit = sort or "achievements", top
    total, runs, unfinished, beside = api.list_sessions(
        run=run,
        experiment=experiment,
        model=model,
        limit=limit,
        sort=sort,
        baselines=baselines or show.json,
        database=open_store(database, show),
    )
    if show.json:
        say_json(
            {
                "total": total,
                "runs": [asdict(listed) for listed in runs],
                "unfinished": [asdict(left) for left in unfinished],
            }
        )
        return 0
    if sort is None or show.quiet:
        for listed in runs:
            _say_run(listed, show)
    elif runs:
        _say_table([session for listed in runs for session in listed.sessions], sort)
    for left in () if show.quiet or sort is not None else unfinished:
        _say_open(left)
    if not total:
        say("no episodes")
    elif total > limit and not show.quiet:
        say_prose(
            f"{limit} of {total} episodes; {'--limit' if top is None else '--top'} shows more"
        )
    if beside and not show.quiet:
        say_prose(
            f"{counted(beside, 'episode')} of baselines not listed; --baselines shows them"
        )
    return 0


def _say_run(run: "ListedRun", show: Show) -> None:
    if show.quiet:
        for session in run.sessions:
            say(session.session_id)
        return
    say_prose(f"run {run.run_id}, {run.status}, started {run.created_at} UTC: {run.command}")
    _say_table(run.sessions)
    say("")


def _say_open(run: "OpenRun") -> None:
    how = f"'{run.resume}' resumes it"
    if run.process is not None:
        how = f"process {run.process} is playing it"
    say_prose(f"run {run.run_id} is unfinished; {how}. Open episodes: {len(run.sessions)}")
    for session in run.sessions[:_MOST_OPEN]:
        seed = "" if session.seed is None else f", seed {session.seed}"
        say_prose(
            f"  {session.session_id[:_SHORT_ID]}  {cut(session.model, _WIDEST)}{seed}: "
            f"{session.turns} turns, {session.steps} steps"
        )
    if len(run.sessions) > _MOST_OPEN:
        say(f"  and {len(run.sessions) - _MOST_OPEN} more")
    say("")


def _earned(sessions: Sequence["ListedSession"], sort: str | None) -> list[str]:
    """What the sessions of a run earned: achievements, or the outcomes they declare."""
    from assay.judge.outcomes import OUTCOMES

    if any(session.achievements or session.task.startswith("crafter/") for session in sessions):
        own = ["achievements"]
    else:
        names = dict.fromkeys(name for session in sessions for name in session.outcomes)
        own = [name for name in names if name not in _COUNTS and "/" not in name]
        # What only these sessions have comes before what every episode has.
        own = sorted(own, key=lambda name: name in OUTCOMES)[:_MOST_OUTCOMES]
    return own if sort is None or sort in (*own, *_COUNTS) else [sort, *own]


def _cells(session: "ListedSession", earned: Sequence[str], *, task: bool) -> tuple[str, ...]:
    ended = session.stop_reason
    if session.state != "result":
        ended = f"{session.state}: {ended}"
    return (
        session.session_id[:_SHORT_ID],
        cut(session.experiment, _WIDEST),
        *([cut(session.task, _WIDEST)] if task else []),
        "" if session.seed is None else str(session.seed),
        cut(ended, _WIDEST),
        *(_number(session, name) for name in earned),
        f"{session.reward:.1f}",
        str(session.steps),
        str(session.turns),
    )


def _number(session: "ListedSession", name: str) -> str:
    if name == "achievements":
        return str(session.achievements)
    value = session.outcomes.get(name)
    return "-" if value is None else f"{value:.6g}"


def _say_table(sessions: Sequence["ListedSession"], sort: str | None = None) -> None:
    earned = _earned(sessions, sort)
    shown = [cut(name, _WIDEST) for name in earned]
    task = len({session.task for session in sessions}) > 1
    heads = (
        *("episode", "experiment", *(["task"] if task else [])),
        *("seed", "ended by", *shown, *_COUNTS),
    )
    say_table(heads, [_cells(session, earned, task=task) for session in sessions], _LEFT)
