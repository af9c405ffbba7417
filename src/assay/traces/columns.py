"""Which columns of the store hold the fields of a record, and in which form.

A column has the name of its field, but for those listed here; its type in `schema` says how
a value is held. A field that has a column nowhere is a mistake, which is raised. What NULL
stands for, in rows that are older than a column, is the default of the field.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from assay._util.canonical import canonical_json
from assay.types import Encoded, Message, Usage

from .records import (
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
    StepRecord,
)
from .schema import Type, table
from .trace import StoredExperiment, StoredRun

__all__ = ["columns_of", "json_object", "microseconds", "moment", "record_of", "select_list"]

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
"""Where records are stored; a field is in the first of its tables that has it."""

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
"""The fields whose columns have another name."""

_APART: Final = {"experiments", "usage", "error", "steps", "hooks", "outcomes"}
"""The fields that hold records or numbers with columns of their own."""


class _Stored(NamedTuple):
    field: str
    table: str
    column: str
    type: Type
    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None
    null: Any
    """What NULL stands for."""


@cache
def _stored(kind: Any) -> tuple[_Stored, ...]:
    hints, names = get_type_hints(kind), _OTHER_NAMES.get(kind, {})
    found = []
    for field in fields(kind):
        if field.name in _APART:
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
            write, read = _milliseconds, _of_milliseconds
        elif column.type is Type.HASH:
            read = Message.stored if hint is Message else Encoded.stored
        default = field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        elif default is MISSING:
            default = "" if hint is str else None
        found.append(_Stored(field.name, place, name, column.type, write, read, default))
    return tuple(found)


def columns_of(name: str, kind: type, records: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of a table that hold the fields of records of one class."""
    columns = {}
    for stored in _stored(kind):
        if stored.table != name:
            continue
        values = map(attrgetter(stored.field), records)
        write = stored.write
        columns[stored.column] = (
            [*values] if write is None else [None if v is None else write(v) for v in values]
        )
    return columns


def select_list(kind: type, *, body: str = "", **aliases: str) -> str:
    """The columns of a record, for SELECT; `record_of` knows them by their names.

    Args:
        kind: The class of the record.
        body: What gives the body of a message or of tools, in the place of its hash.
        aliases: By table, what it is called in the query; the tables themselves if not given.
    """
    columns = []
    for stored in _stored(kind):
        value = f'{aliases.get(stored.table, stored.table)}."{stored.column}"'
        if stored.type is Type.TIME:
            value = f"epoch_us({value})"
        elif stored.type is Type.HASH:
            value = body
        columns.append(f'{value} AS "{stored.column}"')
    return ", ".join(columns)


def record_of(kind: type[_T], row: Mapping[str, Any], **apart: Any) -> _T:
    """The record of a row, whose values stand under the names of `select_list`."""
    known: Any = kind
    for field, _, column, _, _, read, null in _stored(known):
        value = row[column]
        apart[field] = null if value is None else value if read is None else read(value)
    return kind(**apart)


def microseconds(seconds: float) -> int:
    """Seconds since 1970 as a column of times holds them."""
    return round(seconds * 1_000_000)


def _of_microseconds(number: int) -> float:
    return number / 1_000_000


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _of_milliseconds(number: float) -> float:
    return round(number / 1000, 6)


def _json_text(value: Mapping[str, Any]) -> str:
    return canonical_json(dict(value)).decode()


def json_object(text: str | None) -> dict[str, Any]:
    """What a column of JSON holds, as an object; an empty one for NULL and anything else."""
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {}


def moment(microseconds: int) -> datetime:
    """What a column of times holds, as `epoch_us` gives it."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


_WRITE: Final[Mapping[Type, Callable[[Any], Any]]] = {
    Type.TIME: microseconds,
    Type.JSON: _json_text,
    Type.HASH: attrgetter("hash"),
}
_READ: Final[Mapping[Type, Callable[[Any], Any]]] = {
    Type.TIME: _of_microseconds,
    Type.JSON: json_object,
    Type.TEXTS: tuple,
    Type.INTEGERS: tuple,
}
