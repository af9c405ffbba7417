"""Rows back into records: a stored session as it was journaled.

Sessions are read in batches, because a table is searched once for a whole batch. What comes
back equals what was written, with times to the microsecond.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from duckdb import DuckDBPyConnection

from assay._util.text import printable
from assay.errors import UsageError
from assay.traces.trace import StoredExperiment, StoredRun, Trace
from assay.types import Encoded, Message, TrialState, Usage

from .records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    ExperimentRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    RunRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
)

__all__ = [
    "load_experiment",
    "load_outcomes",
    "load_run",
    "load_session",
    "load_sessions",
    "load_stored_run",
    "load_traces",
]

_BATCH = 64
_TRIALS_AT_ONCE = 500
_COMMON = {0.0: 0.0, 1.0: 1.0}
"""Numbers that are kept once."""
_Rows = dict[str, list[tuple[Any, ...]]]


def load_session(connection: DuckDBPyConnection, session_id: str) -> SessionRecord:
    """Read one session.

    Raises:
        UsageError: There is no such session.
    """
    return next(load_sessions(connection, [session_id]))


def load_sessions(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> Iterator[SessionRecord]:
    """Read sessions in the order of their ids, a few at a time in memory.

    Raises:
        UsageError: There is no such session.
    """
    for start in range(0, len(session_ids), _BATCH):
        ids = list(session_ids[start : start + _BATCH])
        batch = _Batch(connection, ids)
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
        UsageError: There is no such run.
    """
    row = connection.execute(
        "SELECT id, command, configuration, provenance, status, epoch_us(created_at),"
        " epoch_us(finished_at) FROM runs WHERE id = ?",
        [run_id],
    ).fetchone()
    if row is None:
        raise _missing("run", run_id)
    return StoredRun(
        id=row[0],
        command=row[1] or "",
        configuration=_object(row[2]),
        provenance=_object(row[3]),
        status=row[4],
        created_at=_time(row[5]),
        finished_at=None if row[6] is None else _time(row[6]),
    )


def load_experiment(connection: DuckDBPyConnection, experiment_id: str) -> StoredExperiment:
    """Read the row of an experiment.

    Raises:
        UsageError: There is no such experiment.
    """
    row = connection.execute(f"{_EXPERIMENT} WHERE id = ?", [experiment_id]).fetchone()
    if row is None:
        raise _missing("experiment", experiment_id)
    return _experiment(row)


def load_run(connection: DuckDBPyConnection, run_id: str) -> RunRecord:
    """Read a run as it was asked for, its experiments in their order.

    Raises:
        UsageError: There is no such run.
    """
    run = load_stored_run(connection, run_id)
    rows = connection.execute(
        f"{_EXPERIMENT} WHERE run_id = ? ORDER BY position, id", [run_id]
    ).fetchall()
    return RunRecord(
        id=run.id,
        command=run.command,
        configuration=run.configuration,
        provenance=run.provenance,
        created_at=run.created_at,
        experiments=tuple(
            ExperimentRecord(
                id=stored.id,
                series=stored.series,
                model=stored.model,
                fingerprint=stored.fingerprint,
                tags=stored.tags,
            )
            for stored in map(_experiment, rows)
        ),
    )


def load_outcomes(
    connection: DuckDBPyConnection, trial_ids: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Read the outcomes of trials: for each that has some, the numbers by metric."""
    outcomes: dict[str, dict[str, float]] = {}
    # An answer is held as a whole, so a few trials are asked for at a time.
    for start in range(0, len(trial_ids), _TRIALS_AT_ONCE):
        rows = connection.execute(
            "SELECT trial_id, metric, value FROM outcomes"
            " WHERE trial_id IN (SELECT unnest(?::VARCHAR[]))",
            [list(trial_ids[start : start + _TRIALS_AT_ONCE])],
        ).fetchall()
        for trial_id, metric, value in rows:
            # Few names and, for most of them, two numbers stand in very many rows.
            earned = outcomes.setdefault(trial_id, {})
            earned[sys.intern(metric)] = _COMMON.get(value, value)
    return outcomes


_EXPERIMENT = (
    "SELECT id, name, series, version, position, model, fingerprint, description,"
    " epoch_us(created_at), epoch_us(updated_at), tags, note FROM experiments"
)


def _experiment(row: tuple[Any, ...]) -> StoredExperiment:
    return StoredExperiment(
        id=row[0],
        name=row[1],
        series=row[2],
        version=row[3],
        position=row[4],
        model=row[5],
        fingerprint=row[6],
        description=row[7],
        created_at=_time(row[8]),
        updated_at=_time(row[9]),
        tags=_object(row[10]),
        note=row[11],
    )


class _Batch:
    """The rows of some sessions, by session."""

    def __init__(self, connection: DuckDBPyConnection, ids: list[str]) -> None:
        self._connection = connection
        self._ids = ids
        self._sessions = self._read(_SESSION)
        self._messages = self._read(_MESSAGES)
        self._calls = self._read(_CALLS)
        self._turns = self._read(_TURNS)
        self._steps = self._read(_STEPS)
        self._hooks = self._read(_HOOKS)
        self._outcomes = load_outcomes(connection, ids)

    def _read(self, sql: str) -> _Rows:
        found: _Rows = defaultdict(list)
        for row in self._connection.execute(sql, [self._ids]).fetchall():
            found[row[0]].append(row[1:])
        return found

    def session(self, session_id: str) -> SessionRecord:
        """Put one session together."""
        rows = self._sessions.get(session_id)
        if not rows:
            raise _missing("session", session_id)
        row = rows[0]
        return SessionRecord(
            header=_header(session_id, row),
            messages=[_message(each) for each in self._messages.get(session_id, ())],
            calls=[_call(each) for each in self._calls.get(session_id, ())],
            played=self._played(session_id),
            end=_end(row[12:], self._outcomes.get(session_id, {})),
        )

    def _played(self, session_id: str) -> list[PlayedRecord]:
        steps: dict[int, list[StepRecord]] = defaultdict(list)
        for turn, *fields in self._steps.get(session_id, ()):
            steps[turn].append(_step(fields))
        hooks: dict[int, list[HookRecord]] = defaultdict(list)
        for turn, *fields in self._hooks.get(session_id, ()):
            hooks[turn].append(_hook(fields))
        return [
            PlayedRecord(
                turn=turn,
                at=_time(at),
                asked=tuple(asked or ()),
                unknown=tuple(unknown or ()),
                malformed=malformed,
                skipped=skipped,
                steps=tuple(steps[turn]),
                hooks=tuple(hooks[turn]),
            )
            for turn, at, asked, unknown, malformed, skipped in self._turns.get(session_id, ())
        ]


_CHOSEN = "session_id IN (SELECT unnest(?::VARCHAR[]))"
_SESSION = f"""
    SELECT session_id, run_id, experiment_id, subject, task, seed, episode, replicate,
           epoch_us(created_at), difficulty, tools_hash IS NOT NULL,
           (SELECT any_value(body) FROM message_bodies WHERE hash = tools_hash), metadata,
           epoch_us(ended_at), state, stop_reason, duration_s, attempts, error_type,
           error_message, error_traceback
    FROM session_traces WHERE {_CHOSEN}
"""
_MESSAGES = f"""
    SELECT r.session_id, r.position, r.turn, b.body, r.message_type, epoch_us(r.timestamp)
    FROM (SELECT * FROM message_rows WHERE {_CHOSEN}) r JOIN message_bodies b USING (hash)
    ORDER BY r.session_id, r.position
"""
_CALLS = f"""
    SELECT session_id, turn, epoch_us(event_time), request, reply, model_name, provider,
           finish_reason, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens,
           cost, latency_ms, waited_ms, retries, metadata
    FROM events WHERE event_type = 'cais' AND {_CHOSEN} ORDER BY session_id, turn
"""
_TURNS = f"""
    SELECT session_id, turn, epoch_us(event_time), asked, "unknown", malformed, skipped
    FROM events WHERE event_type = 'runtime' AND {_CHOSEN} ORDER BY session_id, turn
"""
_STEPS = f"""
    SELECT t.session_id, t.turn, t.step_index, t.action, e.reward, t.digest, t.unlocked,
           t.no_effect, e.terminated, e.truncated
    FROM (SELECT * FROM session_timesteps WHERE {_CHOSEN}) t
    JOIN events e ON e.session_id = t.session_id AND e.timestep_id = t.id
    WHERE e.event_type = 'environment' ORDER BY t.session_id, t.step_index
"""
_HOOKS = f"""
    SELECT session_id, turn, step, hook_name, code, priority, description, data
    FROM hook_results WHERE {_CHOSEN} ORDER BY session_id, id
"""


def _header(session_id: str, row: Sequence[Any]) -> SessionHeader:
    return SessionHeader(
        session_id=session_id,
        run_id=row[0],
        experiment_id=row[1],
        subject=row[2],
        task=row[3],
        seed=row[4],
        episode=row[5],
        replicate=row[6],
        created_at=_time(row[7]),
        difficulty=row[8],
        tools=Encoded(json.loads(row[10])) if row[9] else None,
        metadata=_object(row[11]),
    )


def _message(row: Sequence[Any]) -> MessageRecord:
    position, turn, body, message_type, at = row
    return MessageRecord(position, turn, Message(json.loads(body)), message_type, _time(at))


def _call(row: Sequence[Any]) -> CallRecord:
    return CallRecord(
        turn=row[0],
        at=_time(row[1]),
        request=tuple(row[2] or ()),
        reply=row[3],
        model=row[4],
        provider=row[5],
        finish_reason=row[6],
        usage=Usage(*row[7:11]),
        cost_usd=row[11],
        latency_s=round(row[12] / 1000, 6),
        waited_s=round(row[13] / 1000, 6),
        retries=row[14],
        parameters=_object(row[15]),
    )


def _step(row: Sequence[Any]) -> StepRecord:
    index, action, reward, digest, unlocked, no_effect, terminated, truncated = row
    return StepRecord(
        index=index,
        action=action,
        reward=reward,
        digest=digest,
        unlocked=tuple(unlocked or ()),
        no_effect=no_effect,
        terminated=terminated,
        truncated=truncated,
    )


def _hook(row: Sequence[Any]) -> HookRecord:
    step, name, code, priority, description, data = row
    return HookRecord(
        name=name,
        code=code,
        priority=priority,
        step=step,
        description=description or "",
        data=_object(data),
    )


def _end(row: Sequence[Any], outcomes: dict[str, float]) -> EndRecord:
    at, state, stop_reason, duration_s, attempts, error_type, message, traceback = row
    error = None
    if error_type is not None:
        error = ErrorRecord(type=error_type, message=message, traceback=traceback or "")
    return EndRecord(
        at=_time(at),
        state=TrialState(state),
        stop_reason=stop_reason,
        duration_s=duration_s,
        outcomes=outcomes,
        error=error,
        attempts=attempts,
    )


def _time(microseconds: int) -> float:
    return microseconds / 1_000_000


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}


def _missing(kind: str, name: str) -> UsageError:
    return UsageError(
        f"there is no {kind} {printable(name)!r} in this database; see 'assay traces list'"
    )
