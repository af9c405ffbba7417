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
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from assay.core.canonical_json import canonical_encoder, parse_json
from assay.core.text import shown
from assay.core.values import Moment, Seconds
from assay.errors import UsageError
from assay.types import Encoded

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
    added: tuple[tuple[str, Any], ...]
    """Fields that are left out where they have their defaults, and these."""


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
    added = ((field.name, field.default) for field in fields(kind) if "added" in field.metadata)
    return _Plan(names, attrgetter(*names), tuple(times), tuple(inner), tuple(added))


def fields_of(record: Any) -> dict[str, Any]:
    """A record as an object; unlike `asdict` it copies nothing."""
    plan = _plan(record.__class__)
    values = dict(zip(plan.names, plan.values(record), strict=True))
    for name, default in plan.added:
        if values[name] == default:
            del values[name]
    return values


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


def read_rows(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """The record of a line, with rows in the place of the records inside it.

    Raises:
        UsageError: As `read_record` does.
        ValueError: A row is no list, or too long.
    """
    reader: Any = kind
    try:
        made: _T = _validator(reader, False)(_from_rows(kind, values, _arguments))
    except ValueError:
        # Rows are read more quickly without names, but problems are told with them.
        return read_record(kind, _from_rows(kind, values, from_row), bounded=False)
    return made


def _from_rows(
    kind: type, values: Mapping[str, Any], read: Callable[[Sequence[str], Any], Any]
) -> dict[str, Any]:
    objects = dict(values)
    for name, part, several in _plan(kind).inner:
        if value := values.get(name):
            names = _plan(part).names
            objects[name] = (
                [read(names, row) for row in value] if several else read(names, value)
            )
    return objects


def _arguments(names: Sequence[str], row: Any) -> Any:
    if row.__class__ is not list:
        raise ValueError
    return _args_kwargs()(tuple(row))


@cache
def _args_kwargs() -> Any:
    from pydantic_core import ArgsKwargs

    return ArgsKwargs


def from_row(names: Sequence[str], row: Any) -> dict[str, Any]:
    """A row as an object; fields that were added since it was written are left out."""
    if not isinstance(row, list) or len(row) > len(names):
        raise ValueError(f"{shown(row)} is no list of at most {len(names)} fields")
    return dict(zip(names, row, strict=False))


def read_record(
    kind: type[_T],
    value: Any,
    *,
    bounded: bool | Literal["numbers"] = True,
    place: Callable[[Sequence[str | int]], Iterable[str | int]] = tuple,
) -> _T:
    """The record that parsed JSON stands for.

    Args:
        kind: The class of the record.
        value: An object with its fields.
        bounded: Whether the bounds of columns hold, or only those of numbers, or only types.
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
        UsageError: A field has another type, no JSON form, or is a number that no column holds.
    """
    try:
        value = parse_json(encode(record))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{shown(record)} has no JSON form: {error}; "
            "use plain numbers, text, lists and objects, and no NaN"
        ) from None
    return read_record(record.__class__, value, bounded="numbers")


@cache
def _validator(kind: Any, bounded: bool | str) -> Callable[[Any], Any]:
    # Whoever only writes a journal does not wait for pydantic.
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    adapter: Any = TypeAdapter(kind)
    bounds = () if bounded is True else ("pattern",) if bounded else ("ge", "lt", "pattern")
    return SchemaValidator(_without(adapter.core_schema, bounds)).validate_python


def _without(schema: Any, bounds: Sequence[str]) -> Any:
    """A core schema that asks for all but some bounds."""
    if isinstance(schema, list):
        return [_without(part, bounds) for part in schema]
    if isinstance(schema, dict):
        kept = {
            name: _without(part, bounds) for name, part in schema.items() if name not in bounds
        }
        return kept | {"kw_only": False} if kept.get("type") == "dataclass-field" else kept
    return schema


def _problem(error: Any, place: Callable[[Sequence[str | int]], Iterable[str | int]]) -> str:
    first, *more = error.errors(include_url=False)
    where = ".".join(map(str, place(first["loc"])))
    reason = _REASONS.get(first["type"], first["msg"]).format(**first.get("ctx", {}))
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
    "less_than": "must be below {lt}",
    "greater_than_equal": "must be {ge} or more",
    "finite_number": "must be a finite number",
    "value_error": "has no place in JSON",
}
