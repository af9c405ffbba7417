"""Typed queries: episodes, lists of sessions and runs, and selection of sessions.

Functions take an open connection and change nothing. User-supplied names are resolved by
`names`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from assay.core.options import takes_options
from assay.core.text import unknown_name
from assay.errors import JournalError, UsageError
from assay.store.journal import read_session
from assay.store.load import load_outcomes
from assay.store.names import (
    SESSION_WORDS,
    resolve,
    resolve_experiment,
    resolve_run,
    resolve_session,
)
from assay.store.options import WorldFilters
from assay.store.run_folder import RunFolder, unfinished_runs
from assay.store.schema import TABLES
from assay.types import TrialState

_ROWS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One session, as used by tables and reports."""

    session_id: str
    experiment_id: str
    experiment_name: str
    run_id: str
    model: str
    """Name of the model or agent."""
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
    """Without actions ignored while asleep."""
    asleep_actions: int
    malformed_replies: int
    achievements: Mapping[str, int]
    """Name and the step in which it was first unlocked, in order of unlocking."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    error_type: str | None
    error_message: str | None
    baseline: bool
    """Whether its entry is a baseline that was added automatically."""
    task: str = ""
    """`crafter/<difficulty>` for Crafter episodes."""
    replicate: int = 0
    """Number of the repetition in the same world, from 0."""
    cached_tokens: int = 0
    """Part of `prompt_tokens`."""
    reasoning_tokens: int = 0
    """Part of `completion_tokens`."""
    source: str = "assay"
    """Format it was imported from, or "assay"."""

    @property
    def invalid_rate(self) -> float:
        """Share of requested actions that are unknown or have no effect; 0 without actions."""
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
    """Load sessions (default: all), sorted by run, experiment and episode."""
    where, values = _build_where(run_id, experiment_ids, session_ids)
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
    # Names of runs, models and reasons repeat in many rows; equal strings share one object.
    shared: dict[Any, Any] = {}
    while batch := rows.fetchmany(_ROWS_AT_ONCE):
        for row in batch:
            fields = [shared.setdefault(v, v) if type(v) is str else v for v in row]
            found.append(
                EpisodeRow(
                    **dict(zip(_FROM_VIEW, fields[:-1], strict=True)),
                    state=TrialState(fields[-1]),
                    achievements=unlocked.get(row[0], {}),
                )
            )
    return found


def _build_where(
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
    """Return the state of each stored session of a run."""
    rows = connection.execute(
        "SELECT session_id, state FROM session_traces WHERE run_id = ? ORDER BY session_id",
        [run_id],
    ).fetchall()
    return {session: TrialState(state) for session, state in rows}


def read_everything(connection: duckdb.DuckDBPyConnection) -> None:
    """Read every value of every table, so that DuckDB raises if a block is damaged."""
    for table in TABLES:
        connection.execute(f"SELECT bit_xor(hash(t)) FROM {table.name} t").fetchall()


def count_sessions(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number of sessions in the database."""
    row = connection.execute("SELECT count(*) FROM session_traces").fetchone()
    return int(row[0]) if row else 0


def stored_cost(
    connection: duckdb.DuckDBPyConnection, run_id: str, *, without: Sequence[str]
) -> float:
    """Return the cost in dollars of the stored calls of a run, without some sessions."""
    row = connection.execute(
        "SELECT coalesce(sum(v.cost), 0)"
        " FROM events v JOIN session_traces s USING (session_id)"
        " WHERE s.run_id = ? AND NOT list_contains(?::VARCHAR[], s.session_id)",
        [run_id, list(without)],
    ).fetchone()
    return float(row[0]) if row else 0.0


_SORTED_BY = ("reward", "num_achievements", "steps", "turns", "cost_usd", "duration_s", "seed")
"""Columns of `episodes` that sessions can be sorted by, in addition to outcomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """An unfinished session, read from its journal."""

    session_id: str
    model: str
    seed: int | None
    turns: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """An unfinished run."""

    run_id: str
    resume: str
    """The command that resumes it."""
    process: int | None
    """Id of the process that executes it; None if it was interrupted."""
    sessions: tuple[OpenSession, ...]


def list_open(database: Path) -> list[OpenRun]:
    """Return the unfinished runs of a database, with their unfinished sessions."""
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
        # A damaged journal is reported when the run resumes; a missing one has been stored.
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
    """Summary of one session."""

    session_id: str
    experiment: str
    """Name of its experiment."""
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
    """Values by metric; empty for a world with achievements, unless requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run, with its requested sessions."""

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
    """Sort sessions by a metric, the highest first; sessions without it are dropped.

    Raises:
        UsageError: No session has the metric.
    """
    chosen = "IN (SELECT unnest(?::VARCHAR[]))"
    if metric in _SORTED_BY:
        query = f"SELECT session_id, {metric} FROM episodes WHERE session_id {chosen}"
        rows = connection.execute(query, [list(session_ids)]).fetchall()
    else:
        query = f"SELECT trial_id, value FROM outcomes WHERE metric = ? AND trial_id {chosen}"
        rows = connection.execute(query, [metric, list(session_ids)]).fetchall()
    if not rows and session_ids:
        names = connection.execute("SELECT DISTINCT metric FROM outcomes").fetchall()
        raise UsageError(unknown_name("metric", metric, [*_SORTED_BY, *(n for (n,) in names)]))
    values = {session_id: value for session_id, value in rows if value is not None}
    return sorted(values, key=lambda session_id: (-values[session_id], session_id))


def list_sorted(connection: DuckDBPyConnection, session_ids: Sequence[str]) -> list[ListedRun]:
    """Return sessions in the given order, each in a separate run and with all outcomes."""
    found = {
        session.session_id: replace(run, sessions=(session,))
        for run in list_sessions(connection, session_ids, outcomes=True)
        for session in run.sessions
    }
    return [found[session_id] for session_id in session_ids]


def list_sessions(
    connection: DuckDBPyConnection, session_ids: Sequence[str], *, outcomes: bool = False
) -> list[ListedRun]:
    """Group sessions by run, in the given order.

    Args:
        connection: The database.
        session_ids: The sessions.
        outcomes: Load outcomes for all sessions, not only for worlds without achievements.
    """
    rows = connection.execute(
        f"SELECT {', '.join(f'v.{name}' for name in _FIELDS)} FROM episodes v"
        " WHERE v.session_id IN (SELECT unnest(?::VARCHAR[]))",
        [list(session_ids)],
    ).fetchall()
    found = {row[0]: row for row in rows}
    others = [row[0] for row in rows if outcomes or (row[13] is None and not row[8])]
    values = load_outcomes(connection, others)
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
            outcomes=dict(sorted(values.get(session_id, {}).items())),
        )
        by_run.setdefault(row[12], []).append(session)
    return [
        _make_listed_run(connection, run_id, sessions) for run_id, sessions in by_run.items()
    ]


def _make_listed_run(
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


@takes_options
def select_sessions(
    connection: DuckDBPyConnection,
    names: Sequence[str] = (),
    *,
    only: WorldFilters,
    baselines: bool = True,
    forks: bool = True,
    fork_words: bool = True,
) -> list[str]:
    """Return the ids of sessions, sorted by run, experiment and episode.

    Each of `names` is a session, an experiment or a run: an id, a name, or the start of one;
    without names, all sessions are selected. `only` restricts the selection. If `baselines`
    is false, automatically added baselines are excluded; if `forks` is false, forked sessions
    are. Words such as `best` refer to the latest run; if `fork_words` is false, to the latest
    one that is not a run of forks.

    Raises:
        UsageError: A name is unknown or ambiguous.
    """
    parts: list[str] = []
    values: list[Any] = []
    if names:
        filters = [_resolve_filter(connection, name, forks=fork_words) for name in names]
        parts.append("(" + " OR ".join(f"s.{column} = ?" for column, _ in filters) + ")")
        values += [value for _, value in filters]
    if only.run is not None:
        parts.append("s.run_id = ?")
        values.append(resolve_run(connection, only.run))
    if only.experiment is not None:
        parts.append("s.experiment_id = ?")
        values.append(resolve_experiment(connection, only.experiment))
    if only.model is not None:
        parts.append("s.subject = ?")
        values.append(only.model)
    if not baselines:
        parts.append("coalesce(json_extract_string(e.tags, '$.baseline') != 'true', true)")
    if not forks:
        parts.append("s.session_id NOT IN (SELECT id FROM trials WHERE parent IS NOT NULL)")
    if only.difficulty is not None:
        parts.append("s.difficulty = ?")
        values.append(only.difficulty)
    if only.seeds is not None:
        parts.append("s.seed IN (SELECT unnest(?::BIGINT[]))")
        values.append(list(only.seeds))
    where = f"WHERE {' AND '.join(parts)}" if parts else ""
    rows = connection.execute(
        "SELECT s.session_id FROM session_traces s LEFT JOIN runs r ON r.id = s.run_id"
        f" LEFT JOIN experiments e ON e.id = s.experiment_id {where}"
        " ORDER BY r.created_at, s.run_id, e.position, s.experiment_id, s.episode,"
        " s.replicate, s.session_id",
        values,
    ).fetchall()
    return [session_id for (session_id,) in rows]


def _resolve_filter(
    connection: DuckDBPyConnection, name: str, *, forks: bool
) -> tuple[str, str]:
    if name == "latest":
        return "run_id", resolve_run(connection, name, forks=forks)
    if name in SESSION_WORDS:
        return "session_id", resolve_session(connection, name, forks=forks)
    meaning = resolve(connection, name, "session", "experiment", "run")
    if meaning is None:
        raise UsageError(
            f"no episode, experiment or run is named {name!r}; see 'assay traces list'"
        )
    return f"{meaning.kind}_id", meaning.id
