"""Loading of sessions from the database.

`load_sessions` returns records equal to the journaled ones, with times to the microsecond.
Sessions are read in batches, because each query scans a table once for a whole batch.

`load_steps`, `load_calls`, `load_hooks` and `load_lost_turns` are for analyses of thousands of
sessions: a session is a few tuples and arrays, without messages, and repeated strings share
one object.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from assay.core.text import printable
from assay.errors import UsageError
from assay.store.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
    StoredExperiment,
    StoredRun,
    Trace,
)
from assay.store.rows import build_record, select_list
from assay.store.views import COPIED_CALL
from assay.types import Usage

_BATCH = 64
_TRIALS_AT_ONCE = 500
_COMMON = {0.0: 0.0, 1.0: 1.0}
"""Frequent numbers, which share one object."""
_Row = Mapping[str, Any]


def load_session(connection: DuckDBPyConnection, session_id: str) -> SessionRecord:
    """Read one session.

    Raises:
        UsageError: The session is unknown.
    """
    return next(load_sessions(connection, [session_id]))


def load_sessions(
    connection: DuckDBPyConnection, session_ids: Sequence[str], *, messages: bool = True
) -> Iterator[SessionRecord]:
    """Read sessions in the order of their ids, a few at a time in memory.

    Without `messages`, which are most of its size, a session can still be replayed.

    Raises:
        UsageError: The session is unknown.
    """
    for start in range(0, len(session_ids), _BATCH):
        ids = list(session_ids[start : start + _BATCH])
        batch = _Batch(connection, ids, messages=messages)
        yield from (batch.session(session_id) for session_id in ids)


def load_traces(connection: DuckDBPyConnection, session_ids: Sequence[str]) -> Iterator[Trace]:
    """Read sessions together with their runs and experiments."""
    runs: dict[str, StoredRun] = {}
    experiments: dict[str, StoredExperiment] = {}
    sources = dict(
        connection.execute(
            "SELECT session_id, source FROM session_traces"
            " WHERE session_id IN (SELECT unnest(?::VARCHAR[]))",
            [list(session_ids)],
        ).fetchall()
    )
    for session in load_sessions(connection, session_ids):
        header = session.header
        if header.run_id not in runs:
            runs[header.run_id] = load_stored_run(connection, header.run_id)
        if header.experiment_id not in experiments:
            experiment = load_experiment(connection, header.experiment_id)
            experiments[header.experiment_id] = experiment
        yield Trace(
            runs[header.run_id],
            experiments[header.experiment_id],
            session,
            sources[header.session_id] or "assay",
        )


def load_stored_run(connection: DuckDBPyConnection, run_id: str) -> StoredRun:
    """Read the row of a run.

    Raises:
        UsageError: The run is unknown.
    """
    rows = _select(connection, f"SELECT {_RUN} FROM runs WHERE id = ?", [run_id])
    if not rows:
        raise _not_found("run", run_id)
    return build_record(StoredRun, rows[0])


def load_experiment(connection: DuckDBPyConnection, experiment_id: str) -> StoredExperiment:
    """Read the row of an experiment.

    Raises:
        UsageError: The experiment is unknown.
    """
    sql = f"SELECT {_EXPERIMENT} FROM experiments WHERE id = ?"
    rows = _select(connection, sql, [experiment_id])
    if not rows:
        raise _not_found("experiment", experiment_id)
    return build_record(StoredExperiment, rows[0])


def load_outcomes(
    connection: DuckDBPyConnection, trial_ids: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Read the outcomes of trials by trial and metric; trials without any are absent."""
    outcomes: dict[str, dict[str, float]] = {}
    # DuckDB keeps a whole result in memory, so a limited number of trials is queried at a time.
    for start in range(0, len(trial_ids), _TRIALS_AT_ONCE):
        rows = connection.execute(
            "SELECT trial_id, metric, value FROM outcomes"
            " WHERE trial_id IN (SELECT unnest(?::VARCHAR[]))",
            [list(trial_ids[start : start + _TRIALS_AT_ONCE])],
        ).fetchall()
        for trial_id, metric, value in rows:
            # Most rows have one of a few names and the value 0 or 1.
            values = outcomes.setdefault(trial_id, {})
            values[sys.intern(metric)] = _COMMON.get(value, value)
    return outcomes


class _Batch:
    """Rows of several sessions, by session."""

    def __init__(
        self, connection: DuckDBPyConnection, ids: list[str], *, messages: bool
    ) -> None:
        self._connection = connection
        self._ids = ids
        self._sessions = self._read(_SESSIONS)
        self._messages = self._read(_MESSAGES) if messages else {}
        self._calls = self._read(_CALLS)
        self._turns = self._read(_TURNS)
        self._steps = self._read(_STEPS)
        self._hooks = self._read(_HOOKS)
        self._outcomes = load_outcomes(connection, ids)

    def _read(self, sql: str) -> Mapping[str, list[_Row]]:
        by_session: dict[str, list[_Row]] = defaultdict(list)
        for row in _select(self._connection, sql, [self._ids]):
            by_session[row["session_id"]].append(row)
        return by_session

    def session(self, session_id: str) -> SessionRecord:
        """Build the record of one session from its rows."""
        rows = self._sessions.get(session_id)
        if not rows:
            raise _not_found("episode", session_id)
        (row,) = rows
        end = build_record(
            EndRecord,
            row,
            outcomes=self._outcomes.get(session_id, {}),
            error=None if row["error_type"] is None else build_record(ErrorRecord, row),
        )
        return SessionRecord(
            build_record(SessionHeader, row),
            [build_record(MessageRecord, row) for row in self._messages.get(session_id, ())],
            [
                build_record(CallRecord, row, usage=build_record(Usage, row))
                for row in self._calls.get(session_id, ())
            ],
            self._build_played(session_id),
            end,
        )

    def _build_played(self, session_id: str) -> list[PlayedRecord]:
        steps: dict[int, list[StepRecord]] = defaultdict(list)
        for row in self._steps.get(session_id, ()):
            steps[row["turn"]].append(build_record(StepRecord, row))
        hooks: dict[int, list[HookRecord]] = defaultdict(list)
        for row in self._hooks.get(session_id, ()):
            hooks[row["turn"]].append(build_record(HookRecord, row))
        return [
            build_record(
                PlayedRecord,
                row,
                steps=tuple(steps[row["turn"]]),
                hooks=tuple(hooks[row["turn"]]),
            )
            for row in self._turns.get(session_id, ())
        ]


_CHOSEN = "session_id IN (SELECT unnest(?::VARCHAR[]))"
_TOOLS = "(SELECT any_value(body) FROM message_bodies WHERE hash = tools_hash)"
_HEADER = select_list(SessionHeader, body=_TOOLS)
_RUN, _EXPERIMENT = select_list(StoredRun), select_list(StoredExperiment)
_SESSIONS = f"""
    SELECT {_HEADER}, {select_list(EndRecord)}, {select_list(ErrorRecord)}
    FROM session_traces LEFT JOIN trials ON trials.id = session_id WHERE {_CHOSEN}
"""
_MESSAGES = f"""
    SELECT r.session_id, {select_list(MessageRecord, body="b.body", message_rows="r")}
    FROM (SELECT * FROM message_rows WHERE {_CHOSEN}) r JOIN message_bodies b USING (hash)
    ORDER BY r.session_id, r.position
"""
_CALLS = f"""
    SELECT session_id, {select_list(CallRecord)}, {select_list(Usage)}
    FROM events WHERE event_type = 'cais' AND {_CHOSEN} ORDER BY session_id, turn, id
"""
_TURNS = f"""
    SELECT session_id, {select_list(PlayedRecord)}
    FROM events WHERE event_type = 'runtime' AND {_CHOSEN} ORDER BY session_id, turn
"""
_STEPS = f"""
    SELECT t.session_id, t.turn, {select_list(StepRecord, session_timesteps="t", events="e")}
    FROM (SELECT * FROM session_timesteps WHERE {_CHOSEN}) t
    JOIN events e ON e.session_id = t.session_id AND e.timestep_id = t.id
    WHERE e.event_type = 'environment' ORDER BY t.session_id, t.step_index
"""
_HOOKS = f"""
    SELECT session_id, turn, {select_list(HookRecord)}
    FROM hook_results WHERE {_CHOSEN} ORDER BY session_id, id
"""


def _select(connection: DuckDBPyConnection, sql: str, values: list[Any]) -> list[_Row]:
    result = connection.execute(sql, values)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _not_found(kind: str, name: str) -> UsageError:
    return UsageError(
        f"{kind} {printable(name)!r} not found in this database; see 'assay traces list'"
    )


_ROWS_AT_ONCE = 500


class SessionSteps(NamedTuple):
    """Steps of one session, in order."""

    actions: tuple[str, ...] = ()
    no_effect: tuple[str | None, ...] = ()
    """Why each action had no effect; None if it had one."""


class SessionCalls(NamedTuple):
    """Model calls of one session, in order; all arrays have the shape (calls,)."""

    turns: NDArray[np.int64]
    """Counted from 1."""
    prompt_tokens: NDArray[np.int64]
    completion_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    """Part of the prompt tokens."""
    reasoning_tokens: NDArray[np.int64]
    """Part of the completion tokens."""
    costs: NDArray[np.float64]
    """In dollars; NaN if the price is unknown."""


class HookFiring(NamedTuple):
    """Result of a hook at one turn or step."""

    name: str
    turn: int
    step: int | None
    """None if the result is about the whole turn."""


class LostTurn(NamedTuple):
    """A turn whose reply was unusable, in whole or in part."""

    turn: int
    unknown: int
    """Actions that do not exist."""
    malformed: bool
    """Whether the reply could not be parsed."""
    cut: bool
    """Whether the reply was cut at the token limit."""


def load_steps(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, SessionSteps]:
    """Load steps by session; sessions without steps are absent."""
    rows = connection.execute(
        "SELECT session_id, list(action ORDER BY step_index),"
        " list(no_effect ORDER BY step_index)"
        f" FROM session_timesteps WHERE {_CHOSEN} GROUP BY session_id",
        [list(session_ids)],
    )
    kept: dict[Any, Any] = {}
    found: dict[str, SessionSteps] = {}
    while batch := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, actions, no_effect in batch:
            found[session_id] = SessionSteps(
                *(
                    tuple([kept.setdefault(word, word) for word in words])
                    for words in (actions, no_effect)
                )
            )
    return found


def load_calls(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, SessionCalls]:
    """Load model calls by session, without calls copied from a parent session.

    Sessions without calls are absent.
    """
    columns = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
    lists = ", ".join(f"list(coalesce({name}, 0) ORDER BY turn, id)" for name in columns)
    rows = connection.execute(
        f"SELECT session_id, list(turn ORDER BY turn, id), {lists},"
        " list(coalesce(cost, 'NaN'::DOUBLE) ORDER BY turn, id)"
        f" FROM events WHERE event_type = 'cais' AND NOT {COPIED_CALL} AND {_CHOSEN}"
        " GROUP BY session_id",
        [list(session_ids)],
    )
    found: dict[str, SessionCalls] = {}
    while batch := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, *counts, costs in batch:
            turns, prompt, completion, cached, reasoning = (
                np.array(column, np.int64) for column in counts
            )
            found[session_id] = SessionCalls(
                turns, prompt, completion, cached, reasoning, np.array(costs, np.float64)
            )
    return found


def load_hooks(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, tuple[HookFiring, ...]]:
    """Load hook results by session, in order; sessions without any are absent."""
    rows = connection.execute(
        "SELECT session_id, hook_name, coalesce(turn, 0), step"
        f" FROM hook_results WHERE {_CHOSEN} ORDER BY session_id, id",
        [list(session_ids)],
    )
    kept: dict[str, str] = {}
    found: dict[str, list[HookFiring]] = defaultdict(list)
    while batch := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, name, turn, step in batch:
            found[session_id].append(HookFiring(kept.setdefault(name, name), turn, step))
    return {session_id: tuple(firings) for session_id, firings in found.items()}


def load_lost_turns(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, tuple[LostTurn, ...]]:
    """Load turns with an unusable reply by session, in order; other sessions are absent."""
    rows = connection.execute(
        'SELECT session_id, turn, coalesce(max(len("unknown")), 0),'
        " bool_or(malformed IS NOT NULL), bool_or(coalesce(finish_reason = 'length', false))"
        f" FROM events WHERE event_type IN ('cais', 'runtime') AND {_CHOSEN}"
        " GROUP BY session_id, turn"
        ' HAVING max(len("unknown")) > 0 OR bool_or(malformed IS NOT NULL)'
        " OR bool_or(coalesce(finish_reason = 'length', false)) ORDER BY session_id, turn",
        [list(session_ids)],
    )
    found: dict[str, list[LostTurn]] = defaultdict(list)
    while batch := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, *lost in batch:
            found[session_id].append(LostTurn(*lost))
    return {session_id: tuple(turns) for session_id, turns in found.items()}
