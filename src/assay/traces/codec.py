"""Records as JSON and back, derived from their fields.

A file that leaves the store writes a record as an object. A journal does so for that of a
line, with times in whole microseconds; a record inside it is a row, a list of its fields in
their order. What comes back is checked: a text is no number, true is not 1, and no number is
NaN. A journal is read as it was written; what comes from elsewhere must also keep to the
bounds of the columns that will hold it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import (
    Any,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from assay._util.bounds import Moment, Seconds
from assay._util.canonical import canonical_encoder, parse_json
from assay._util.text import shown
from assay.errors import UsageError
from assay.types import Encoded

__all__ = [
    "checked",
    "encode",
    "fields_of",
    "from_row",
    "from_rows",
    "read_record",
    "with_rows",
]

_T = TypeVar("_T")


class _Inner(NamedTuple):
    """A field that holds a record, or several."""

    name: str
    kind: Any
    several: bool


class _Plan(NamedTuple):
    """What is to know of a class of records."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    times: tuple[str, ...]
    inner: tuple[_Inner, ...]


@cache
def _plan(kind: Any) -> _Plan:
    names = tuple(field.name for field in fields(kind))
    hints = get_type_hints(kind, include_extras=True)
    inner = (
        _Inner(name, part, several=get_origin(hint) is tuple)
        for name, hint in hints.items()
        for part in (hint, *get_args(hint))
        if isinstance(part, type) and is_dataclass(part)
    )
    times = (name for name, hint in hints.items() if hint in (Moment, Seconds))
    return _Plan(names, attrgetter(*names), tuple(times), tuple(inner))


def fields_of(record: Any) -> dict[str, Any]:
    """A record as an object; unlike `asdict` it copies nothing."""
    plan = _plan(record.__class__)
    return dict(zip(plan.names, plan.values(record), strict=True))


def _object(value: Any) -> Any:
    """The JSON form of what is no plain value."""
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, Encoded):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{shown(value)} is no plain value")


encode = canonical_encoder(_object)
"""Canonical JSON in which a record is an object."""


def with_rows(record: Any) -> dict[str, Any]:
    """The fields of a record, with rows in the place of the records inside it."""
    plan, values = _plan(record.__class__), fields_of(record)
    for name in plan.times:
        values[name] = round(values[name], 6)
    for inner in plan.inner:
        row = _plan(inner.kind).values
        value = values[inner.name]
        values[inner.name] = [*map(row, value)] if inner.several else value and row(value)
    return values


def from_rows(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, with objects in the place of the rows inside it."""
    objects = dict(values)
    for inner in _plan(kind).inner:
        names = _plan(inner.kind).names
        if value := values.get(inner.name):
            objects[inner.name] = (
                [from_row(names, row) for row in value]
                if inner.several
                else from_row(names, value)
            )
    return objects


def from_row(names: Sequence[str], row: Any) -> dict[str, Any]:
    """A row as an object; fields that were added since it was written are left out."""
    if not isinstance(row, list) or len(row) > len(names):
        raise ValueError(f"{shown(row)} is no list of at most {len(names)} fields")
    return dict(zip(names, row, strict=False))


def read_record(
    kind: type[_T],
    value: Any,
    *,
    bounded: bool = True,
    place: Callable[[Sequence[str | int]], Iterable[str | int]] = tuple,
) -> _T:
    """The record that parsed JSON stands for.

    Args:
        kind: The class of the record.
        value: An object with its fields.
        bounded: Whether the bounds of columns hold, and not only types.
        place: How a message names the place of a problem.

    Raises:
        UsageError: A field is missing, unknown or has another type; says where.
    """
    validated: Any = kind
    try:
        made: _T = _validator(validated, bounded)(value)
    except ValueError as error:
        raise UsageError(_problem(error, place)) from None
    return made


def checked(record: _T) -> _T:
    """The record as a journal will give it back, before it is written to one.

    Raises:
        UsageError: A field has another type, or no JSON form.
    """
    try:
        value = parse_json(encode(record))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{shown(record)} has no JSON form: {error}; "
            "use plain numbers, text, lists and objects, and no NaN"
        ) from None
    return read_record(record.__class__, value, bounded=False)


@cache
def _validator(kind: Any, bounded: bool) -> Callable[[Any], Any]:
    # Whoever only writes a journal does not wait for pydantic.
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    adapter: Any = TypeAdapter(kind)
    if bounded:
        return SchemaValidator(adapter.core_schema).validate_python
    return SchemaValidator(_unbounded(adapter.core_schema)).validate_python


def _unbounded(schema: Any) -> Any:
    """A core schema that asks for types alone."""
    if isinstance(schema, list):
        return [_unbounded(part) for part in schema]
    if isinstance(schema, dict):
        bounds = ("ge", "lt", "pattern")
        return {name: _unbounded(part) for name, part in schema.items() if name not in bounds}
    return schema


def _problem(error: Any, place: Callable[[Sequence[str | int]], Iterable[str | int]]) -> str:
    first, *more = error.errors(include_url=False)
    where = ".".join(map(str, place(first["loc"])))
    reason = _REASONS.get(first["type"], first["msg"])
    said = f"{where}: {reason}" if where else reason
    if first["type"] not in ("missing", "unexpected_keyword_argument"):
        said += f", got {shown(first['input'], 60)}"
    return said + (f" (and {len(more)} more)" if more else "")


_REASONS = {
    "missing": "is missing",
    "unexpected_keyword_argument": "is not a field of this format",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dataclass_type": "must be an object",
    "string_pattern_mismatch": "must be one line of 1 to 200 characters",
    "finite_number": "must be a finite number",
    "value_error": "has no place in JSON",
}
