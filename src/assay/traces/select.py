"""Which sessions a command is about, from the names a user gave."""

from collections.abc import Sequence
from typing import Any

from duckdb import DuckDBPyConnection

from assay.errors import UsageError

from .names import (
    SESSION_WORDS,
    resolve,
    resolve_experiment,
    resolve_run,
    resolve_session,
)

__all__ = ["select_sessions"]


def select_sessions(
    connection: DuckDBPyConnection,
    names: Sequence[str] = (),
    *,
    run: str | None = None,
    experiment: str | None = None,
    model: str | None = None,
    baselines: bool = True,
    difficulty: str | None = None,
    seeds: Sequence[int] | None = None,
    forks: bool = True,
    fork_words: bool = True,
) -> list[str]:
    """The ids of sessions, in the order of runs, experiments and episodes.

    Each of `names` is a session, an experiment or a run: an id, a name, or the start of one;
    with no names, all sessions are meant. `run`, `experiment`, `model`, `difficulty` and
    `seeds` narrow them down; without `baselines`, those that nobody named are left out, and
    without `forks` those that were played on from a state of another. Words such as `best`
    speak of the latest run, and without `fork_words` of the latest of whole episodes.

    Raises:
        UsageError: A name means nothing, or several things.
    """
    parts: list[str] = []
    values: list[Any] = []
    if names:
        meant = [_meant(connection, name, forks=fork_words) for name in names]
        parts.append("(" + " OR ".join(f"s.{column} = ?" for column, _ in meant) + ")")
        values += [value for _, value in meant]
    if run is not None:
        parts.append("s.run_id = ?")
        values.append(resolve_run(connection, run))
    if experiment is not None:
        parts.append("s.experiment_id = ?")
        values.append(resolve_experiment(connection, experiment))
    if model is not None:
        parts.append("s.subject = ?")
        values.append(model)
    if not baselines:
        parts.append("coalesce(json_extract_string(e.tags, '$.baseline') != 'true', true)")
    if not forks:
        parts.append("s.session_id NOT IN (SELECT id FROM trials WHERE parent IS NOT NULL)")
    if difficulty is not None:
        parts.append("s.difficulty = ?")
        values.append(difficulty)
    if seeds is not None:
        parts.append("s.seed IN (SELECT unnest(?::BIGINT[]))")
        values.append(list(seeds))
    where = f"WHERE {' AND '.join(parts)}" if parts else ""
    rows = connection.execute(
        "SELECT s.session_id FROM session_traces s LEFT JOIN runs r ON r.id = s.run_id"
        f" LEFT JOIN experiments e ON e.id = s.experiment_id {where}"
        " ORDER BY r.created_at, s.run_id, e.position, s.experiment_id, s.episode,"
        " s.replicate, s.session_id",
        values,
    ).fetchall()
    return [session_id for (session_id,) in rows]


def _meant(connection: DuckDBPyConnection, name: str, *, forks: bool) -> tuple[str, str]:
    """The column and the value that a name stands for."""
    if name == "latest":
        return "run_id", resolve_run(connection, name, forks=forks)
    if name in SESSION_WORDS:
        return "session_id", resolve_session(connection, name, forks=forks)
    meaning = resolve(connection, name, "session", "experiment", "run")
    if meaning is None:
        raise UsageError(
            f"no episode, experiment or run is called {name!r}; 'assay traces list' shows them"
        )
    return f"{meaning.kind}_id", meaning.id
