"""What the rest of assay asks of a store, typed.

Each function takes an open connection and leaves it as it was. What names stand for is in
`names`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from assay.types import TrialState

from .schema import TABLES

__all__ = [
    "EpisodeRow",
    "committed_sessions",
    "count_sessions",
    "episodes",
    "read_everything",
    "stored_cost",
]

_ROWS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One session, as tables and reports read it."""

    session_id: str
    experiment_id: str
    experiment_name: str
    run_id: str
    model: str
    """Who played."""
    seed: int | None
    episode: int
    """Counted from 0 within the experiment."""
    difficulty: str | None
    state: TrialState
    stop_reason: str
    reward: float
    steps: int
    turns: int
    duration_s: float
    actions_asked: int
    unknown_actions: int
    no_effect_actions: int
    """Without those ignored while asleep."""
    asleep_actions: int
    malformed_replies: int
    achievements: Mapping[str, int]
    """Name to the step it was first reached in, in the order they were reached."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    error_type: str | None
    error_message: str | None
    baseline: bool
    """Whether it was played only to compare with."""
    task: str = ""
    """For episodes `crafter/<difficulty>`."""
    replicate: int = 0
    """0 unless a world is played again."""
    cached_tokens: int = 0
    """Part of `prompt_tokens`."""
    reasoning_tokens: int = 0
    """Part of `completion_tokens`."""
    source: str = "assay"
    """The format it was imported from, or assay."""

    @property
    def invalid_rate(self) -> float:
        """(unknown + without effect) / actions asked for; 0 if nothing was asked for."""
        wasted = self.unknown_actions + self.no_effect_actions
        return wasted / self.actions_asked if self.actions_asked else 0.0


_FROM_VIEW = tuple(
    name for name in EpisodeRow.__dataclass_fields__ if name not in ("achievements", "state")
)


def episodes(
    connection: duckdb.DuckDBPyConnection,
    *,
    run_id: str | None = None,
    experiment_ids: Sequence[str] | None = None,
    session_ids: Sequence[str] | None = None,
) -> list[EpisodeRow]:
    """Sessions in the order of runs, experiments and episodes; all of them by default."""
    where, values = _where(run_id, experiment_ids, session_ids)
    unlocked: dict[str, dict[str, int]] = {}
    for session, achievement, step in connection.execute(
        "SELECT a.session_id, a.achievement, a.step FROM achievements a "
        f"JOIN session_traces s USING (session_id) {where} ORDER BY a.session_id, a.step",
        values,
    ).fetchall():
        unlocked.setdefault(session, {}).setdefault(achievement, step)
    columns = ", ".join(f"v.{name}" for name in (*_FROM_VIEW, "state"))
    rows = connection.execute(
        f"SELECT {columns} FROM episodes v JOIN session_traces s USING (session_id) "
        "LEFT JOIN runs r ON r.id = s.run_id LEFT JOIN experiments e ON e.id = s.experiment_id "
        f"{where} ORDER BY r.created_at, s.run_id, e.position, s.experiment_id, s.episode, "
        "s.replicate, s.session_id",
        values,
    )
    found: list[EpisodeRow] = []
    # Names of runs, models and reasons stand in very many rows, and are kept once.
    kept: dict[Any, Any] = {}
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        for row in some:
            fields = [kept.setdefault(one, one) if type(one) is str else one for one in row]
            found.append(
                EpisodeRow(
                    **dict(zip(_FROM_VIEW, fields[:-1], strict=True)),
                    state=TrialState(fields[-1]),
                    achievements=unlocked.get(row[0], {}),
                )
            )
    return found


def _where(
    run_id: str | None, experiment_ids: Sequence[str] | None, session_ids: Sequence[str] | None
) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if run_id is not None:
        parts.append("s.run_id = ?")
        values.append(run_id)
    if experiment_ids is not None:
        parts.append("list_contains(?::VARCHAR[], s.experiment_id)")
        values.append(list(experiment_ids))
    if session_ids is not None:
        parts.append("s.session_id IN (SELECT unnest(?::VARCHAR[]))")
        values.append(list(session_ids))
    return (f"WHERE {' AND '.join(parts)}" if parts else ""), values


def committed_sessions(
    connection: duckdb.DuckDBPyConnection, run_id: str
) -> dict[str, TrialState]:
    """The sessions of a run that are stored, and how each ended."""
    rows = connection.execute(
        "SELECT session_id, state FROM session_traces WHERE run_id = ? ORDER BY session_id",
        [run_id],
    ).fetchall()
    return {session: TrialState(state) for session, state in rows}


def read_everything(connection: duckdb.DuckDBPyConnection) -> None:
    """Read every value of every table; DuckDB raises where a block of the file is damaged."""
    for table in TABLES:
        connection.execute(f"SELECT bit_xor(hash(t)) FROM {table.name} t").fetchall()


def count_sessions(connection: duckdb.DuckDBPyConnection) -> int:
    """How many sessions a store has."""
    row = connection.execute("SELECT count(*) FROM session_traces").fetchone()
    return int(row[0]) if row else 0


def stored_cost(
    connection: duckdb.DuckDBPyConnection, run_id: str, *, without: Sequence[str]
) -> float:
    """Dollars of the stored calls of a run, but for some of its sessions."""
    row = connection.execute(
        "SELECT coalesce(sum(v.cost), 0)"
        " FROM events v JOIN session_traces s USING (session_id)"
        " WHERE s.run_id = ? AND NOT list_contains(?::VARCHAR[], s.session_id)",
        [run_id, list(without)],
    ).fetchone()
    return float(row[0]) if row else 0.0
