"""Conversion of a session to rows, as one Arrow table per database table, and back to records.

Pure: the same session always has the same rows. Whole columns are built, never single rows.
The id of a row is a hash of the session and the kind of row, plus its position, so that ids
increase within a session and are unlikely to be shared by two sessions.

A column has the name of its field, except for those listed here; its type in `schema`
determines the format of its values. A field without a column raises a LookupError. NULL, as in
rows older than a column, is read as the default of the field.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from enum import Enum, StrEnum
from functools import cache, cached_property
from hashlib import blake2b
from math import fsum
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import pyarrow as pa

from assay.core.canonical_json import canonical_json, fix_surrogates
from assay.store.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    ExperimentRecord,
    HookRecord,
    LimitRecord,
    MessageRecord,
    PlayedRecord,
    RunRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
    StoredExperiment,
    StoredRun,
    imported_columns,
)
from assay.store.schema import (
    ASLEEP,
    ASSAY_SOURCE,
    EventType,
    StoredKind,
    Type,
    arrow_schema,
    table,
)
from assay.types import Encoded, Message, Usage

_T = TypeVar("_T")

_TABLES: Final[Mapping[type, tuple[str, ...]]] = {
    RunRecord: ("runs",),
    StoredRun: ("runs",),
    ExperimentRecord: ("experiments",),
    StoredExperiment: ("experiments",),
    SessionHeader: ("session_traces", "trials"),
    EndRecord: ("session_traces",),
    ErrorRecord: ("session_traces",),
    MessageRecord: ("message_rows",),
    CallRecord: ("events",),
    Usage: ("events",),
    PlayedRecord: ("events",),
    StepRecord: ("session_timesteps", "events"),
    HookRecord: ("hook_results",),
    LimitRecord: ("provider_limits",),
}
"""Tables of each record; a field is in the first of its tables that has the column."""

_OTHER_NAMES: Final[Mapping[type, Mapping[str, str]]] = {
    SessionHeader: {"tools": "tools_hash", "trial_kind": "kind"},
    EndRecord: {"at": "ended_at"},
    ErrorRecord: {name: f"error_{name}" for name in ("type", "message", "traceback")},
    MessageRecord: {"message": "hash", "at": "timestamp"},
    CallRecord: {
        "at": "event_time",
        "model": "model_name",
        "cost_usd": "cost",
        "latency_s": "latency_ms",
        "waited_s": "waited_ms",
        "parameters": "metadata",
    },
    Usage: {name: f"{name}_tokens" for name in ("prompt", "completion", "cached", "reasoning")},
    PlayedRecord: {"at": "event_time"},
    StepRecord: {"index": "step_index"},
    HookRecord: {"name": "hook_name"},
    LimitRecord: {"at": "changed_at"},
}
"""Fields whose columns have another name."""

_SEPARATE: Final = {"experiments", "usage", "error", "steps", "hooks", "outcomes"}
"""Fields with nested records or values that have separate columns or tables."""


class _StoredField(NamedTuple):
    field: str
    table: str
    column: str
    type: Type
    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None
    null: Any
    """Value that NULL is read as."""


@cache
def _stored_fields(kind: Any) -> tuple[_StoredField, ...]:
    hints, names = get_type_hints(kind), _OTHER_NAMES.get(kind, {})
    found = []
    for field in fields(kind):
        if field.name in _SEPARATE:
            continue
        name = names.get(field.name, field.name)
        places = [
            (place, column)
            for place in _TABLES[kind]
            for column in table(place).columns
            if column.name == name
        ]
        if not places:
            raise LookupError(f"{kind.__name__}.{field.name} has no column {name!r}")
        place, column = places[0]
        hint = hints[field.name]
        write, read = _WRITE.get(column.type), _READ.get(column.type)
        if isinstance(hint, type) and issubclass(hint, Enum):
            write, read = attrgetter("value"), hint
        elif name.endswith("_ms"):
            write, read = _to_milliseconds, _from_milliseconds
        elif column.type is Type.HASH:
            read = Message.stored if hint is Message else Encoded.stored
        default = field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        elif default is MISSING:
            default = "" if hint is str else None
        found.append(_StoredField(field.name, place, name, column.type, write, read, default))
    return tuple(found)


def build_columns(name: str, kind: type, records: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the columns of a table for records of one class."""
    columns = {}
    for stored in _stored_fields(kind):
        if stored.table != name:
            continue
        values = map(attrgetter(stored.field), records)
        write = stored.write
        columns[stored.column] = (
            [*values] if write is None else [None if v is None else write(v) for v in values]
        )
    return columns


def select_list(kind: type, *, body: str = "", **aliases: str) -> str:
    """Return the columns of a record for SELECT, with the names that `build_record` expects.

    Args:
        kind: The class of the record.
        body: SQL expression for the body of a message or of tools, which replaces its hash.
        aliases: Aliases of tables in the query; by default, table names are used.
    """
    columns = []
    for stored in _stored_fields(kind):
        value = f'{aliases.get(stored.table, stored.table)}."{stored.column}"'
        if stored.type is Type.TIME:
            value = f"epoch_us({value})"
        elif stored.type is Type.HASH:
            value = body
        columns.append(f'{value} AS "{stored.column}"')
    return ", ".join(columns)


def build_record(kind: type[_T], row: Mapping[str, Any], **apart: Any) -> _T:
    """Build a record from a row with the names of `select_list`; `apart` has further fields."""
    any_kind: Any = kind
    for field, _, column, _, _, read, null in _stored_fields(any_kind):
        value = row[column]
        apart[field] = null if value is None else value if read is None else read(value)
    return kind(**apart)


def to_microseconds(seconds: float) -> int:
    """Convert seconds since 1970 to the unit of time columns."""
    return round(seconds * 1_000_000)


def _from_microseconds(number: int) -> float:
    return number / 1_000_000


def _to_milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _from_milliseconds(number: float) -> float:
    return round(number / 1000, 6)


def _to_json(value: Mapping[str, Any]) -> str:
    return canonical_json(dict(value)).decode()


def parse_json_object(text: str | None) -> dict[str, Any]:
    """Parse a JSON column; anything but an object becomes an empty one."""
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}


def to_datetime(to_microseconds: int) -> datetime:
    """Convert the `epoch_us` of a time column to a datetime."""
    return datetime.fromtimestamp(to_microseconds / 1_000_000, UTC)


_WRITE: Final[Mapping[Type, Callable[[Any], Any]]] = {
    Type.TIME: to_microseconds,
    Type.JSON: _to_json,
    Type.HASH: attrgetter("hash"),
}
_READ: Final[Mapping[Type, Callable[[Any], Any]]] = {
    Type.TIME: _from_microseconds,
    Type.JSON: parse_json_object,
    Type.TEXTS: tuple,
    Type.INTEGERS: tuple,
}

Columns = Mapping[str, Sequence[Any]]


class Kind(StrEnum):
    """Kinds of rows of a session; each has its own range of ids."""

    STEP = "step"
    EVENT = "event"
    MESSAGE = "message"
    HOOK = "hook"


def row_id(session_id: str, kind: Kind, position: int = 0) -> int:
    """Compute the id of a row from its position among the rows of its kind in the session."""
    start = blake2b(f"{session_id}\0{kind}".encode(), digest_size=8).digest()
    # 62 bits, so that adding a position cannot overflow a signed 64-bit integer.
    return (int.from_bytes(start, "big") >> 2) + position


@dataclass(frozen=True, slots=True)
class SessionRows:
    """Rows of one session."""

    session_id: str
    tables: Mapping[str, pa.Table]
    """Rows by table name."""
    bodies: Mapping[str, str]
    """Bodies of its messages and tools, by hash."""


def session_rows(session: SessionRecord, *, source: str = ASSAY_SOURCE) -> SessionRows:
    """Build the rows of a session that has ended."""
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
    """Build an Arrow table with the columns of the schema; missing columns are NULL."""
    schema = arrow_schema(name)
    count = len(next(iter(columns.values())))
    if not count:
        return schema.empty_table()
    arrays = [
        _make_array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([*map(_repair_text, values)], kind)


def _repair_text(value: Any) -> Any:
    """Replace characters UTF-8 cannot encode; journaled and imported text has none."""
    if isinstance(value, str):
        return fix_surrogates(value)
    return (
        [fix_surrogates(text) for text in value] if isinstance(value, list | tuple) else value
    )


class _Builder:
    """Builder of the columns of one session, table by table."""

    def __init__(self, session: SessionRecord, end: EndRecord, source: str) -> None:
        self._session = session
        self.id = session.header.session_id
        self.end = end
        self.source = source
        pairs = [(played, step) for played in session.played for step in played.steps]
        self.steps_made: list[StepRecord] = [step for _, step in pairs]
        self.step_turns = [played.turn for played, _ in pairs]
        """Turn of each step."""
        self.step_times = [to_microseconds(played.at) for played, _ in pairs]
        """Time of each step's turn."""
        self.first_step: dict[int, int] = {}
        """Id of the first step of each turn that has one."""
        for turn, key in zip(self.step_turns, self._step_ids, strict=True):
            self.first_step.setdefault(turn, key)

    def session(self) -> Columns:
        header, end = self._session.header, self.end
        totals = {
            "num_timesteps": len(self.steps_made),
            "num_events": self._turn_counts.total() + len(self.steps_made),
            "num_messages": len(self._session.messages),
            "source": self.source,
            **self._played_totals(),
            **self._usage_totals(),
        }
        if self.source != ASSAY_SOURCE:
            totals |= imported_columns(header.metadata)
        errors = [] if end.error is None else [end.error]
        return {
            **build_columns("session_traces", SessionHeader, [header]),
            **build_columns("session_traces", EndRecord, [end]),
            **(build_columns("session_traces", ErrorRecord, errors) if errors else {}),
            **{name: [value] for name, value in totals.items()},
        }

    def trial(self) -> Columns:
        header, error = self._session.header, self.end.error
        message = "" if error is None or not error.message else f": {error.message}"
        columns = {
            **build_columns("trials", SessionHeader, [header]),
            "id": [self.id],
            "state": [self.end.state.value],
            "reason": [self.end.stop_reason],
            "error": [None if error is None else f"{error.type}{message}"],
            "started_at": [to_microseconds(header.created_at)],
            "ended_at": [to_microseconds(self.end.at)],
        }
        for name in ("run_id", "experiment_id", "subject", "task", "seed", "replicate"):
            columns[name] = [getattr(header, name)]
        if self.source != ASSAY_SOURCE:
            columns["kind"] = [StoredKind.IMPORTED.value]
        return columns

    def _played_totals(self) -> dict[str, Any]:
        played, steps = self._session.played, self.steps_made
        no_effects = [step.no_effect for step in steps if step.no_effect is not None]
        asleep = no_effects.count(ASLEEP)
        return {
            "num_turns": len(self._turn_counts),
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

    def _usage_totals(self) -> dict[str, Any]:
        calls = self._session.calls
        costs = [call.cost_usd for call in calls if call.cost_usd is not None]
        tokens = build_columns("events", Usage, [call.usage for call in calls])
        return {
            **{name: sum(numbers) for name, numbers in tokens.items()},
            "cost_usd": fsum(costs) if len(costs) == len(calls) else None,
        }

    def steps(self) -> Columns:
        ids = self._step_ids
        first = set(self.first_step.values())
        per_turn = self._turn_counts
        messages = Counter(self._message_steps)
        return {
            **build_columns("session_timesteps", StepRecord, self.steps_made),
            "id": ids,
            "session_id": [self.id] * len(ids),
            "step_id": [f"step-{step.index}" for step in self.steps_made],
            "timestamp": self.step_times,
            "num_events": [
                1 + (per_turn[turn] if key in first else 0)
                for key, turn in zip(ids, self.step_turns, strict=True)
            ],
            "num_messages": [messages[key] for key in ids],
            "turn": self.step_turns,
        }

    @cached_property
    def _turn_counts(self) -> Counter[int]:
        """Number of calls and played records of each turn."""
        turns = Counter(call.turn for call in self._session.calls)
        turns.update(played.turn for played in self._session.played)
        return turns

    @cached_property
    def _step_ids(self) -> list[int]:
        start = row_id(self.id, Kind.STEP)
        return [start + step.index for step in self.steps_made]

    def events(self) -> Sequence[Columns]:
        """Return the columns of calls, turns and steps; their ids are consecutive."""
        start = row_id(self.id, Kind.EVENT)
        calls, played, steps = self._session.calls, self._session.played, self.steps_made
        call_turns, turns = [call.turn for call in calls], [turn.turn for turn in played]
        models = [call.model for call in calls]
        return (
            {
                **self._event_columns(start, EventType.CALL, models, call_turns),
                **build_columns("events", CallRecord, calls),
                **build_columns("events", Usage, [call.usage for call in calls]),
                "total_tokens": [call.usage.total for call in calls],
            },
            {
                **self._event_columns(
                    start + len(calls),
                    EventType.TURN,
                    [self._session.header.subject] * len(turns),
                    turns,
                ),
                **build_columns("events", PlayedRecord, played),
            },
            {
                **self._event_columns(
                    start + len(calls) + len(played),
                    EventType.STEP,
                    [self._session.header.task] * len(steps),
                    self.step_turns,
                ),
                **build_columns("events", StepRecord, steps),
                "timestep_id": self._step_ids,
                "event_time": self.step_times,
            },
        )

    def _event_columns(
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
        messages = self._session.messages
        columns = build_columns("message_rows", MessageRecord, messages)
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
        """Id of the step that each message belongs to, or None."""
        replies = [call.reply for call in self._session.calls]
        answered = [call.turn for call in self._session.calls]
        steps: list[int | None] = []
        for record in self._session.messages:
            if record.message.role == "assistant":
                steps.append(self.first_step.get(record.turn))
                continue
            # A message after the last reply of a turn was written after the turn was played.
            done = bisect_left(replies, record.position)
            turn = answered[done - 1] if done else 0
            if done and answered[done : done + 1] == [turn]:
                turn -= 1
            made = bisect_left(self.step_turns, max(turn, record.turn - 1) + 1)
            steps.append(self._step_ids[made - 1] if made else None)
        return steps

    def hooks(self) -> Columns:
        hooks = [
            (played.turn, hook) for played in self._session.played for hook in played.hooks
        ]
        start, steps = row_id(self.id, Kind.HOOK), row_id(self.id, Kind.STEP)
        return {
            **build_columns("hook_results", HookRecord, [hook for _, hook in hooks]),
            "id": range(start, start + len(hooks)),
            "session_id": [self.id] * len(hooks),
            "timestep_id": [
                self.first_step.get(turn) if hook.step is None else steps + hook.step
                for turn, hook in hooks
            ],
            "turn": [turn for turn, _ in hooks],
        }

    def outcomes(self) -> Columns:
        header, outcomes = self._session.header, self.end.outcomes
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
