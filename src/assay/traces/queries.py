"""What the rest of assay asks of a store, typed.

Each function takes an open connection and leaves it as it was. Who names a run, an
experiment or a session may give its id, its name, or the start of one that is unambiguous.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from assay._util.names import unknown_name
from assay.errors import UsageError
from assay.types import TrialState

__all__ = [
    "EpisodeRow",
    "committed_sessions",
    "count_sessions",
    "episodes",
    "resolve_experiment",
    "resolve_run",
    "resolve_session",
    "stored_cost",
]

_ROWS_AT_ONCE = 1_000
_SHOWN = 12
"""How many candidates a message names at most."""


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
) -> list[EpisodeRow]:
    """Sessions in the order of runs, experiments and episodes; all of them by default."""
    where, values = _where(run_id, experiment_ids)
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


def _where(run_id: str | None, experiment_ids: Sequence[str] | None) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if run_id is not None:
        parts.append("s.run_id = ?")
        values.append(run_id)
    if experiment_ids is not None:
        parts.append("list_contains(?::VARCHAR[], s.experiment_id)")
        values.append(list(experiment_ids))
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


def resolve_run(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """The id of a run; `latest` is the one started last."""
    if name == "latest":
        return _latest(
            connection, "SELECT id FROM runs ORDER BY created_at DESC, id DESC LIMIT 1"
        )
    return _resolve(
        "run", name, connection.execute("SELECT id, id FROM runs ORDER BY created_at DESC")
    )


def resolve_experiment(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """The id of an experiment, from its id or its name."""
    found = connection.execute(
        "SELECT id, coalesce(name, id) FROM experiments ORDER BY created_at DESC, name"
    )
    return _resolve("experiment", name, found)


def resolve_session(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """The id of a session.

    `latest` is the one that ended last; `best` and `worst` are those of the latest run with
    the most and the fewest achievements, then reward, among the results.
    """
    run = "(SELECT id FROM runs ORDER BY created_at DESC, id DESC LIMIT 1)"
    ranked = (
        f"SELECT session_id FROM session_traces WHERE run_id = {run} AND state = 'result' "
        "ORDER BY num_achievements {0}, total_reward {0}, seed, session_id LIMIT 1"
    )
    words = {
        "latest": "SELECT session_id FROM session_traces "
        "ORDER BY ended_at DESC, session_id LIMIT 1",
        "best": ranked.format("DESC"),
        "worst": ranked.format("ASC"),
    }
    if name in words:
        return _latest(connection, words[name])
    # There may be a million sessions: only those that could be meant are fetched.
    exact = connection.execute(
        "SELECT session_id, session_id FROM session_traces WHERE starts_with(session_id, ?) "
        "ORDER BY session_id = ? DESC, session_id LIMIT ?",
        [name, name, _SHOWN + 1],
    )
    rows = exact.fetchall()
    if not rows:
        raise UsageError(
            f"unknown session {name!r}; give its id, the start of one, or one of the words "
            "latest, best, worst; see 'assay traces list'"
        )
    return _choose("session", name, rows)


def _latest(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    rows = connection.execute(sql).fetchall()
    if not rows:
        raise UsageError("nothing is stored yet that this could mean; start with 'assay run'")
    return str(rows[0][0])


def _resolve(kind: str, name: str, found: duckdb.DuckDBPyConnection) -> str:
    rows = found.fetchall()
    near = [row for row in rows if name and (row[0].startswith(name) or row[1] == name)]
    near = near or [row for row in rows if name and row[1].startswith(name)]
    if near:
        return _choose(kind, name, near)
    if not rows:
        raise UsageError(f"unknown {kind} {name!r}; the store is empty, start with 'assay run'")
    raise UsageError(unknown_name(kind, name, [row[1] for row in rows[:_SHOWN]]))


def _choose(kind: str, name: str, rows: Sequence[tuple[str, str]]) -> str:
    exact = [row for row in rows if name in row]
    if len(exact) == 1:
        return exact[0][0]
    if len(rows) == 1:
        return rows[0][0]
    shown = ", ".join(label if label == key else f"{label} ({key})" for key, label in rows[:5])
    more = ", …" if len(rows) > 5 else ""
    raise UsageError(f"{kind} {name!r} is ambiguous: {shown}{more}; give more of it")
