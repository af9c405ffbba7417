"""A session as rows: one Arrow table per table of the store.

Pure: the same session always gives the same rows. Columns are built whole, never row by row.
The id of a row is a number that follows from the session and the kind of row, plus its
position, so that ids grow within a session and no two sessions are likely to share any.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from math import fsum
from typing import Any

import pyarrow as pa

from assay._util.canonical import well_formed
from assay.types import Usage

from .columns import columns_of, microseconds
from .records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
)
from .schema import ASLEEP, ASSAY_SOURCE, EventType, StoredKind, arrow_schema
from .totals import imported_columns

__all__ = ["Kind", "SessionRows", "row_id", "session_rows", "to_table"]

Columns = Mapping[str, Sequence[Any]]


class Kind(StrEnum):
    """The kinds of rows below a session; ids of different kinds do not depend on each other."""

    STEP = "step"
    EVENT = "event"
    MESSAGE = "message"
    HOOK = "hook"


def row_id(session_id: str, kind: Kind, position: int = 0) -> int:
    """The id of a row, from its place among the rows of its kind in the session."""
    start = blake2b(f"{session_id}\0{kind}".encode(), digest_size=8).digest()
    # 62 bits leave room to count up without leaving the positive numbers.
    return (int.from_bytes(start, "big") >> 2) + position


@dataclass(frozen=True, slots=True)
class SessionRows:
    """All rows of one session."""

    session_id: str
    tables: Mapping[str, pa.Table]
    """By the name of the table: the session itself, what is below it, and its outcomes."""
    bodies: Mapping[str, str]
    """By hash: the bodies of its messages and of its tools."""


def session_rows(session: SessionRecord, *, source: str = ASSAY_SOURCE) -> SessionRows:
    """Make the rows of a session that has ended."""
    if session.end is None:
        raise ValueError(f"session {session.header.session_id} has not ended")
    builder = _Builder(session, session.end, source)
    tables = {
        "trials": to_table("trials", builder.trial()),
        "session_traces": to_table("session_traces", builder.session()),
        "session_timesteps": to_table("session_timesteps", builder.steps()),
        "events": pa.concat_tables(to_table("events", part) for part in builder.events()),
        "message_rows": to_table("message_rows", builder.messages()),
        "hook_results": to_table("hook_results", builder.hooks()),
        "outcomes": to_table("outcomes", builder.outcomes()),
    }
    bodies = {
        record.message.hash: record.message.encoded.decode() for record in session.messages
    }
    if (tools := session.header.tools) is not None:
        bodies[tools.hash] = tools.encoded.decode()
    return SessionRows(session.header.session_id, tables, bodies)


def to_table(name: str, columns: Columns) -> pa.Table:
    """Columns as an Arrow table in the order of the schema; those not given are NULL."""
    schema = arrow_schema(name)
    count = len(next(iter(columns.values())))
    if not count:
        return schema.empty_table()
    arrays = [
        _array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([*map(_mended, values)], kind)


def _mended(value: Any) -> Any:
    """Text that UTF-8 can hold; what was journaled or imported is so already."""
    if isinstance(value, str):
        return well_formed(value)
    return [well_formed(text) for text in value] if isinstance(value, list | tuple) else value


class _Builder:
    """The columns of one session's rows, table by table."""

    def __init__(self, session: SessionRecord, end: EndRecord, source: str) -> None:
        self.it = session
        self.id = session.header.session_id
        self.end = end
        self.source = source
        turned = [(played, step) for played in session.played for step in played.steps]
        self.steps_made: list[StepRecord] = [step for _, step in turned]
        self.step_turns = [played.turn for played, _ in turned]
        """For each step its turn."""
        self.step_times = [microseconds(played.at) for played, _ in turned]
        """For each step the time of its turn."""
        self.first_step: dict[int, int] = {}
        """The id of the first step of each turn that made one."""
        for turn, key in zip(self.step_turns, self._step_ids, strict=True):
            self.first_step.setdefault(turn, key)

    def session(self) -> Columns:
        header, end = self.it.header, self.end
        totals = {
            "num_timesteps": len(self.steps_made),
            "num_events": len(self.it.calls) + len(self.it.played) + len(self.steps_made),
            "num_messages": len(self.it.messages),
            "source": self.source,
            **self._played(),
            **self._spent(),
        }
        if self.source != ASSAY_SOURCE:
            totals |= imported_columns(header.metadata)
        errors = [] if end.error is None else [end.error]
        return {
            **columns_of("session_traces", SessionHeader, [header]),
            **columns_of("session_traces", EndRecord, [end]),
            **(columns_of("session_traces", ErrorRecord, errors) if errors else {}),
            **{name: [value] for name, value in totals.items()},
        }

    def trial(self) -> Columns:
        header, error = self.it.header, self.end.error
        said = "" if error is None or not error.message else f": {error.message}"
        columns = {
            **columns_of("trials", SessionHeader, [header]),
            "id": [self.id],
            "state": [self.end.state.value],
            "reason": [self.end.stop_reason],
            "error": [None if error is None else f"{error.type}{said}"],
            "started_at": [microseconds(header.created_at)],
            "ended_at": [microseconds(self.end.at)],
        }
        for name in ("run_id", "experiment_id", "subject", "task", "seed", "replicate"):
            columns[name] = [getattr(header, name)]
        if self.source != ASSAY_SOURCE:
            columns["kind"] = [StoredKind.IMPORTED.value]
        return columns

    def _played(self) -> dict[str, Any]:
        played, steps = self.it.played, self.steps_made
        no_effects = [step.no_effect for step in steps if step.no_effect is not None]
        asleep = no_effects.count(ASLEEP)
        return {
            "num_turns": len(self._records_of_turns),
            "total_reward": fsum(step.reward for step in steps),
            "num_achievements": len({name for step in steps for name in step.unlocked}),
            "actions_asked": sum(len(turn.asked) for turn in played),
            "unknown_actions": sum(len(turn.unknown) for turn in played),
            "no_effect_actions": len(no_effects) - asleep,
            "asleep_actions": asleep,
            "malformed_replies": sum(turn.malformed is not None for turn in played),
            "skipped_actions": sum(turn.skipped for turn in played),
            "verifiable": all(step.digest is not None for step in steps),
        }

    def _spent(self) -> dict[str, Any]:
        calls = self.it.calls
        costs = [call.cost_usd for call in calls if call.cost_usd is not None]
        tokens = columns_of("events", Usage, [call.usage for call in calls])
        return {
            **{name: sum(numbers) for name, numbers in tokens.items()},
            "cost_usd": fsum(costs) if len(costs) == len(calls) else None,
        }

    def steps(self) -> Columns:
        ids = self._step_ids
        first = set(self.first_step.values())
        per_turn = self._records_of_turns
        heard = Counter(self._message_steps)
        return {
            **columns_of("session_timesteps", StepRecord, self.steps_made),
            "id": ids,
            "session_id": [self.id] * len(ids),
            "step_id": [f"step-{step.index}" for step in self.steps_made],
            "timestamp": self.step_times,
            "num_events": [
                1 + (per_turn[turn] if key in first else 0)
                for key, turn in zip(ids, self.step_turns, strict=True)
            ],
            "num_messages": [heard[key] for key in ids],
            "turn": self.step_turns,
        }

    @cached_property
    def _records_of_turns(self) -> Counter[int]:
        """For each turn how many calls and plays it has."""
        turns = Counter(call.turn for call in self.it.calls)
        turns.update(played.turn for played in self.it.played)
        return turns

    @cached_property
    def _step_ids(self) -> list[int]:
        start = row_id(self.id, Kind.STEP)
        return [start + step.index for step in self.steps_made]

    def events(self) -> Sequence[Columns]:
        """Calls, then turns, then steps; ids run on over the three."""
        start = row_id(self.id, Kind.EVENT)
        calls, played, steps = self.it.calls, self.it.played, self.steps_made
        call_turns, turns = [call.turn for call in calls], [turn.turn for turn in played]
        models = [call.model for call in calls]
        return (
            {
                **self._event(start, EventType.CALL, models, call_turns),
                **columns_of("events", CallRecord, calls),
                **columns_of("events", Usage, [call.usage for call in calls]),
                "total_tokens": [call.usage.total for call in calls],
            },
            {
                **self._event(
                    start + len(calls),
                    EventType.TURN,
                    [self.it.header.subject] * len(turns),
                    turns,
                ),
                **columns_of("events", PlayedRecord, played),
            },
            {
                **self._event(
                    start + len(calls) + len(played),
                    EventType.STEP,
                    [self.it.header.task] * len(steps),
                    self.step_turns,
                ),
                **columns_of("events", StepRecord, steps),
                "timestep_id": self._step_ids,
                "event_time": self.step_times,
            },
        )

    def _event(
        self, start: int, kind: EventType, systems: list[str], turns: list[int]
    ) -> Columns:
        count = len(turns)
        return {
            "id": range(start, start + count),
            "session_id": [self.id] * count,
            "event_type": [kind.value] * count,
            "system_instance_id": systems,
            "timestep_id": [self.first_step.get(turn) for turn in turns],
            "turn": turns,
            "message_time": turns,
        }

    def messages(self) -> Columns:
        messages = self.it.messages
        columns = columns_of("message_rows", MessageRecord, messages)
        start = row_id(self.id, Kind.MESSAGE)
        return {
            **columns,
            "id": [start + position for position in columns["position"]],
            "session_id": [self.id] * len(messages),
            "timestep_id": self._message_steps,
            "role": [record.message.role for record in messages],
            "event_time": columns["timestamp"],
            "message_time": columns["turn"],
        }

    @cached_property
    def _message_steps(self) -> list[int | None]:
        """For each message the step it belongs to."""
        replies = [call.reply for call in self.it.calls]
        answered = [call.turn for call in self.it.calls]
        steps: list[int | None] = []
        for record in self.it.messages:
            if record.message.role == "assistant":
                steps.append(self.first_step.get(record.turn))
                continue
            # What stands after the last answer of a turn was written when that had been played.
            done = bisect_left(replies, record.position)
            turn = answered[done - 1] if done else 0
            if done and answered[done : done + 1] == [turn]:
                turn -= 1
            made = bisect_left(self.step_turns, max(turn, record.turn - 1) + 1)
            steps.append(self._step_ids[made - 1] if made else None)
        return steps

    def hooks(self) -> Columns:
        hooks = [(played.turn, hook) for played in self.it.played for hook in played.hooks]
        start, steps = row_id(self.id, Kind.HOOK), row_id(self.id, Kind.STEP)
        return {
            **columns_of("hook_results", HookRecord, [hook for _, hook in hooks]),
            "id": range(start, start + len(hooks)),
            "session_id": [self.id] * len(hooks),
            "timestep_id": [
                self.first_step.get(turn) if hook.step is None else steps + hook.step
                for turn, hook in hooks
            ],
            "turn": [turn for turn, _ in hooks],
        }

    def outcomes(self) -> Columns:
        header, outcomes = self.it.header, self.end.outcomes
        count = len(outcomes)
        return {
            "trial_id": [self.id] * count,
            "experiment_id": [header.experiment_id] * count,
            "subject": [header.subject] * count,
            "task": [header.task] * count,
            "seed": [header.seed] * count,
            "replicate": [header.replicate] * count,
            "metric": list(outcomes),
            "value": [float(value) for value in outcomes.values()],
        }
