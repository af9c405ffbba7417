"""What a store holds, run by run, for a list to look at."""

from collections.abc import Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from assay.types import TrialState

__all__ = ["ListedRun", "ListedSession", "list_sessions"]


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
    *("stop_reason", "num_achievements", "reward", "steps", "turns", "run_id"),
)


def list_sessions(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> list[ListedRun]:
    """Sessions by run, in the order of their ids."""
    rows = connection.execute(
        f"SELECT {', '.join(f'v.{name}' for name in _FIELDS)} FROM episodes v"
        " WHERE v.session_id IN (SELECT unnest(?::VARCHAR[]))",
        [list(session_ids)],
    ).fetchall()
    found = {row[0]: row for row in rows}
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
