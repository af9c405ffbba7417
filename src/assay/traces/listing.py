"""What a store holds, run by run, for a list to look at."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from duckdb import DuckDBPyConnection

from assay._util.names import unknown_name
from assay.errors import JournalError, UsageError
from assay.types import TrialState

from .folder import RunFolder, unfinished_runs
from .journal import read_session
from .load import load_outcomes

__all__ = [
    "ListedRun",
    "ListedSession",
    "OpenRun",
    "OpenSession",
    "list_open",
    "list_sessions",
    "list_sorted",
    "sorted_sessions",
]

_SORTED_BY = ("reward", "num_achievements", "steps", "turns", "cost_usd", "duration_s", "seed")
"""Columns of `episodes` that sessions can be sorted by, beside any outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """A session that has no end yet, as its journal tells."""

    session_id: str
    model: str
    seed: int | None
    turns: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run that is not finished."""

    run_id: str
    resume: str
    """The command that resumes it."""
    process: int | None
    """Who plays it; None if nobody does."""
    sessions: tuple[OpenSession, ...]


def list_open(database: Path) -> list[OpenRun]:
    """The unfinished runs beside a database, and what is begun of them; writes nothing."""
    return [
        OpenRun(
            run_id=folder.record.id,
            resume=folder.resume_command,
            process=folder.holder(),
            sessions=tuple(_open_sessions(folder)),
        )
        for folder in unfinished_runs(database)
    ]


def _open_sessions(folder: RunFolder) -> Iterator[OpenSession]:
    for path in folder.journals():
        # One that cannot be read is told by whoever resumes; one that is gone is stored.
        with suppress(JournalError):
            session = read_session(path, folder.record.id)
            turns = [call.turn for call in session.calls]
            turns += [played.turn for played in session.played]
            yield OpenSession(
                session_id=session.header.session_id,
                model=session.header.subject,
                seed=session.header.seed,
                turns=max(turns, default=0),
                steps=sum(len(played.steps) for played in session.played),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """One session, in brief."""

    session_id: str
    experiment: str
    """The name of its experiment."""
    model: str
    task: str
    seed: int | None
    episode: int
    state: TrialState
    stop_reason: str
    achievements: int
    reward: float
    steps: int
    turns: int
    outcomes: Mapping[str, float] = field(default_factory=dict)
    """What it earned; left out where it played a world with achievements, unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run, with those of its sessions that were asked for."""

    run_id: str
    command: str
    status: str
    created_at: str
    """In UTC, to the minute."""
    sessions: tuple[ListedSession, ...]


_FIELDS = (
    *("session_id", "experiment_name", "model", "task", "seed", "episode", "state"),
    *("stop_reason", "num_achievements", "reward", "steps", "turns", "run_id", "difficulty"),
)


def sorted_sessions(
    connection: DuckDBPyConnection, session_ids: Sequence[str], metric: str
) -> list[str]:
    """Sessions by a number, the highest first; those that lack it are left out.

    Raises:
        UsageError: No session has such a number.
    """
    chosen = "IN (SELECT unnest(?::VARCHAR[]))"
    if metric in _SORTED_BY:
        asked = f"SELECT session_id, {metric} FROM episodes WHERE session_id {chosen}"
        rows = connection.execute(asked, [list(session_ids)]).fetchall()
    else:
        asked = f"SELECT trial_id, value FROM outcomes WHERE metric = ? AND trial_id {chosen}"
        rows = connection.execute(asked, [metric, list(session_ids)]).fetchall()
    if not rows and session_ids:
        names = connection.execute("SELECT DISTINCT metric FROM outcomes").fetchall()
        raise UsageError(unknown_name("metric", metric, [*_SORTED_BY, *(n for (n,) in names)]))
    values = {session_id: value for session_id, value in rows if value is not None}
    return sorted(values, key=lambda session_id: (-values[session_id], session_id))


def list_sorted(connection: DuckDBPyConnection, session_ids: Sequence[str]) -> list[ListedRun]:
    """Sessions one by one in the order they are given in, each with all its outcomes."""
    found = {
        session.session_id: replace(run, sessions=(session,))
        for run in list_sessions(connection, session_ids, outcomes=True)
        for session in run.sessions
    }
    return [found[session_id] for session_id in session_ids]


def list_sessions(
    connection: DuckDBPyConnection, session_ids: Sequence[str], *, outcomes: bool = False
) -> list[ListedRun]:
    """Sessions by run, in the order they are given in.

    Args:
        connection: The store.
        session_ids: The sessions.
        outcomes: Whether to load those of all, and not only of worlds without achievements.
    """
    rows = connection.execute(
        f"SELECT {', '.join(f'v.{name}' for name in _FIELDS)} FROM episodes v"
        " WHERE v.session_id IN (SELECT unnest(?::VARCHAR[]))",
        [list(session_ids)],
    ).fetchall()
    found = {row[0]: row for row in rows}
    others = [row[0] for row in rows if outcomes or (row[13] is None and not row[8])]
    earned = load_outcomes(connection, others)
    by_run: dict[str, list[ListedSession]] = {}
    for session_id in session_ids:
        row = found[session_id]
        session = ListedSession(
            session_id=row[0],
            experiment=row[1] or "",
            model=row[2],
            task=row[3],
            seed=row[4],
            episode=row[5],
            state=TrialState(row[6]),
            stop_reason=row[7],
            achievements=row[8],
            reward=row[9],
            steps=row[10],
            turns=row[11],
            outcomes=dict(sorted(earned.get(session_id, {}).items())),
        )
        by_run.setdefault(row[12], []).append(session)
    return [_run(connection, run_id, sessions) for run_id, sessions in by_run.items()]


def _run(
    connection: DuckDBPyConnection, run_id: str, sessions: Sequence[ListedSession]
) -> ListedRun:
    row = connection.execute(
        "SELECT command, status, strftime(created_at, '%Y-%m-%d %H:%M') FROM runs WHERE id = ?",
        [run_id],
    ).fetchone()
    command, status, created_at = row or ("", "unknown", "")
    return ListedRun(
        run_id=run_id,
        command=command or "",
        status=status,
        created_at=created_at,
        sessions=tuple(sessions),
    )
