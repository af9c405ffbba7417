"""Conversion of records to JSON and back, derived from their fields.

An exported file has each record as an object. In a journal, the record of a line is an object
with times in whole microseconds, and a record inside it is a row: a list of its fields, in
order. Parsed values are checked: text is not accepted as a number, true is not accepted as 1,
and NaN is rejected. Records from other sources than a journal must also satisfy the bounds of
the database columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from assay.core.canonical_json import make_canonical_encoder, parse_json
from assay.core.text import shown
from assay.core.values import Moment, Seconds
from assay.errors import UsageError
from assay.types import Encoded

_T = TypeVar("_T")


class _NestedField(NamedTuple):
    """A field that contains one record or several."""

    name: str
    kind: Any
    several: bool


class _Layout(NamedTuple):
    """Fields of a record class, as the functions below need them."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    times: tuple[str, ...]
    inner: tuple[_NestedField, ...]
    added: tuple[tuple[str, Any], ...]
    """Fields added to the format later, with their defaults; a default is not written."""


@cache
def _layout(kind: Any) -> _Layout:
    names = tuple(field.name for field in fields(kind))
    hints = get_type_hints(kind, include_extras=True)
    inner = (
        _NestedField(name, part, several=get_origin(hint) is tuple)
        for name, hint in hints.items()
        for part in (hint, *get_args(hint))
        if isinstance(part, type) and is_dataclass(part)
    )
    times = (name for name, hint in hints.items() if hint in (Moment, Seconds))
    added = ((field.name, field.default) for field in fields(kind) if "added" in field.metadata)
    return _Layout(names, attrgetter(*names), tuple(times), tuple(inner), tuple(added))


def get_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record as a dictionary, without copying them as `asdict` does."""
    layout = _layout(record.__class__)
    values = dict(zip(layout.names, layout.values(record), strict=True))
    for name, default in layout.added:
        if values[name] == default:
            del values[name]
    return values


def _to_plain(value: Any) -> Any:
    """Convert a value that the JSON encoder does not know."""
    if is_dataclass(value):
        return get_fields(value)
    if isinstance(value, Encoded):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{shown(value)} cannot be written as JSON")


encode = make_canonical_encoder(_to_plain)
"""Encode a value as canonical JSON; records become objects."""


def get_fields_with_rows(record: Any) -> dict[str, Any]:
    """Return the fields of a record, with each nested record as a row."""
    layout, values = _layout(record.__class__), get_fields(record)
    for name in layout.times:
        values[name] = round(values[name], 6)
    for inner in layout.inner:
        row = _layout(inner.kind).values
        value = values[inner.name]
        values[inner.name] = [*map(row, value)] if inner.several else value and row(value)
    return values


def read_rows(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """Read the record of a line in which nested records are rows.

    Raises:
        UsageError: As `read_record` does.
        ValueError: A row is not a list, or is too long.
    """
    reader: Any = kind
    try:
        made: _T = _validator(reader, False)(_from_rows(kind, values, _to_arguments))
    except ValueError:
        # Reading rows without names is faster, but error messages need the names.
        return read_record(kind, _from_rows(kind, values, from_row), bounded=False)
    return made


def _from_rows(
    kind: type, values: Mapping[str, Any], read: Callable[[Sequence[str], Any], Any]
) -> dict[str, Any]:
    objects = dict(values)
    for name, part, several in _layout(kind).inner:
        if value := values.get(name):
            names = _layout(part).names
            objects[name] = (
                [read(names, row) for row in value] if several else read(names, value)
            )
    return objects


def _to_arguments(names: Sequence[str], row: Any) -> Any:
    if row.__class__ is not list:
        raise ValueError
    return _args_kwargs()(tuple(row))


@cache
def _args_kwargs() -> Any:
    from pydantic_core import ArgsKwargs

    return ArgsKwargs


def from_row(names: Sequence[str], row: Any) -> dict[str, Any]:
    """Convert a row to an object; a row from an older version may lack the last fields."""
    if not isinstance(row, list) or len(row) > len(names):
        raise ValueError(f"{shown(row)} is not a list of at most {len(names)} fields")
    return dict(zip(names, row, strict=False))


def read_record(
    kind: type[_T],
    value: Any,
    *,
    bounded: bool | Literal["numbers"] = True,
    place: Callable[[Sequence[str | int]], Iterable[str | int]] = tuple,
) -> _T:
    """Build a record from parsed JSON.

    Args:
        kind: The class of the record.
        value: An object with its fields.
        bounded: True checks all column bounds, "numbers" those of numbers, False only types.
        place: Maps the path of an invalid field to the path shown in the error message.

    Raises:
        UsageError: A field is missing, unknown or of the wrong type; the message has its path.
    """
    validated: Any = kind
    try:
        made: _T = _validator(validated, bounded)(value)
    except ValueError as error:
        raise UsageError(_format_error(error, place)) from None
    return made


def check_record(record: _T) -> _T:
    """Return the record as it will be read back from a journal; call before writing it.

    Raises:
        UsageError: A field has the wrong type, cannot be serialised to JSON, or is a number
            outside the range of its column.
    """
    try:
        value = parse_json(encode(record))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{shown(record)} cannot be serialised to JSON: {error}; "
            "use plain numbers, text, lists and objects, and no NaN"
        ) from None
    return read_record(record.__class__, value, bounded="numbers")


@cache
def _validator(kind: Any, bounded: bool | str) -> Callable[[Any], Any]:
    # Imported here because writing a journal does not need pydantic, which loads slowly.
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    adapter: Any = TypeAdapter(kind)
    bounds = () if bounded is True else ("pattern",) if bounded else ("ge", "lt", "pattern")
    return SchemaValidator(_drop_bounds(adapter.core_schema, bounds)).validate_python


def _drop_bounds(schema: Any, bounds: Sequence[str]) -> Any:
    if isinstance(schema, list):
        return [_drop_bounds(part, bounds) for part in schema]
    if isinstance(schema, dict):
        kept = {
            key: _drop_bounds(part, bounds) for key, part in schema.items() if key not in bounds
        }
        return kept | {"kw_only": False} if kept.get("type") == "dataclass-field" else kept
    return schema


def _format_error(
    error: Any, place: Callable[[Sequence[str | int]], Iterable[str | int]]
) -> str:
    first, *more = error.errors(include_url=False)
    where = ".".join(map(str, place(first["loc"])))
    reason = _REASONS.get(first["type"], first["msg"]).format(**first.get("ctx", {}))
    message = f"{where}: {reason}" if where else reason
    if first["type"] not in ("missing", "unexpected_keyword_argument"):
        message += f", got {shown(first['input'], 60)}"
    return message + (f" (and {len(more)} more)" if more else "")


_REASONS = {
    "missing": "is missing",
    "unexpected_keyword_argument": "is not a field of this format",
    "string_type": "must be text",
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
    "value_error": "cannot be represented in JSON",
}
