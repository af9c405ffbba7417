"""The data of a report for programs: JSON in which nothing is NaN, CSV without formulas."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from assay.report.document import Document

__all__ = ["as_csv", "as_json", "csv_cell", "interval_columns", "jsonable"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_json(document: Document) -> Iterator[str]:
    """Everything in a report, in pieces: as one text it takes five times the memory."""
    return json.JSONEncoder(indent=1, allow_nan=False).iterencode(document.values())


def as_csv(document: Document) -> str:
    """The rows of a report below a head, each saying what made it."""
    rows = document.rows()
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([csv_cell(value) for value in row.values()] for row in rows)
    return stream.getvalue()


def csv_cell(value: Any) -> str:
    """A value as a cell that no spreadsheet reads as a formula; the unknown is empty."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    # A quote in front makes it text for every spreadsheet.
    return f"'{text}" if text.startswith(_FORMULA) else text


def interval_columns(
    name: str, interval: tuple[float | None, float | None, float | None] | None
) -> dict[str, float | None]:
    """A number and its bounds as three columns."""
    point, low, high = interval or (None, None, None)
    return {name: point, f"{name}_low": low, f"{name}_high": high}


def jsonable(value: Any) -> Any:
    """A value of ours as JSON has it: fields by name, what is not finite as null."""
    if value is None or type(value) in (str, int, bool):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)
