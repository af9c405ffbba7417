"""Reads a training run from a file with a step and a value per metric in each row.

CSV, TSV and Parquet have a column `step` (or `_step`) and one per metric; JSONL has an object
per line; JSON has a list of such objects, an object with columns, or an object that tells of
the run and has its points under `points` or `history`. What a file says of the run itself
(id, seed, status, …) is taken from fields of that name. An empty cell is a metric that was not
logged at that step; NaN and infinity are left out and counted. It writes nothing.
"""

import csv
import io
import json
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from assay._util.canonical import content_hash
from assay.curves.described import described_run, reading
from assay.curves.fields import mapping_of, some_names, whole_number
from assay.curves.points import Points, check_size
from assay.errors import UsageError
from assay.experiments.training import TrainingRun

__all__ = ["SUFFIXES", "is_run_file", "read_run_file"]

_STEPS = ("step", "_step")
_FACTS = {
    "id": "id",
    "run_id": "id",
    "series": "series",
    "subject": "subject",
    "task": "task",
    "seed": "seed",
    "status": "status",
    "state": "status",
    "commit": "commit",
    "configuration": "configuration",
    "config": "configuration",
    "provenance": "provenance",
}
"""What a file may say of its run, and what we call it."""
_POINTS = ("points", "history")
_MOST_BYTES: Final = 1 << 30
"""Of a file, packed and unpacked."""

_Row = Mapping[str, Any]
"""One row as it was read: a step, metrics, and perhaps facts."""


def is_run_file(name: str) -> bool:
    """Whether a name is that of a file by its ending, whether or not the file is there."""
    return Path(name).suffix.lower() in SUFFIXES


def read_run_file(path: Path) -> TrainingRun:
    """The training run that a file tells of.

    Its id is the field `id`, else the name of the file; its seed the field `seed`, else the
    digits after `seed` in the name.

    Raises:
        UsageError: The file is missing, of a kind that is not read, or makes no sense.
    """
    with reading(path):
        read = SUFFIXES.get(path.suffix.lower())
        if read is None:
            raise UsageError(f"it is of a kind that is not read; give {', '.join(SUFFIXES)}")
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UsageError("it is not a regular file; name a file of points")
        if about.st_size > _MOST_BYTES:
            raise UsageError(
                f"it has {about.st_size:,} bytes, and at most {_MOST_BYTES:,} are read; leave "
                "out metrics, or log every tenth step"
            )
        content = path.read_bytes()
        # Rows are read as they are gathered, so that both may find something wrong.
        return _run(path, content, *read(content))


def _run(
    path: Path, content: bytes, facts: dict[str, Any], rows: Iterable[tuple[str, _Row]]
) -> TrainingRun:
    said, points = _gather(rows)
    facts = {**said, **facts}
    provenance = {**mapping_of("provenance", facts.get("provenance"))}
    facts["provenance"] = provenance | {"file_hash": content_hash(content)}
    return described_run(facts, points, source=path, names=[path.stem])


def _gather(rows: Iterable[tuple[str, _Row]]) -> tuple[dict[str, Any], Points]:
    """What rows say of the run, and the points they hold."""
    facts: dict[str, Any] = {}
    points, seen = Points(), False
    for where, row in rows:
        _add_facts(facts, where, row)
        key = next((name for name in _STEPS if row.get(name) is not None), None)
        if key is None:
            if set(row) <= _FACTS.keys():
                continue
            raise UsageError(f"{where} has no step; give a column 'step' (or '_step')")
        step, seen = whole_number("step", row[key], where), True
        for metric, value in row.items():
            if value is not None and metric not in _STEPS and metric not in _FACTS:
                points.add(metric, step, value)
    if not seen:
        raise UsageError("it has no rows; give one for each step")
    return facts, points


def _add_facts(facts: dict[str, Any], where: str, row: _Row) -> None:
    for name, meaning in _FACTS.items():
        value = row.get(name)
        if value is None:
            continue
        # A log may say its status in every line: the last word counts. All else is constant.
        if meaning not in ("status", "configuration", "provenance") and (
            facts.get(meaning, value) != value
        ):
            raise UsageError(
                f"{where} says {name} {value!r} after {facts[meaning]!r}; a file holds one run"
            )
        facts[meaning] = value


def _read_csv(content: bytes, delimiter: str = ",") -> tuple[dict[str, Any], Any]:
    reader = csv.reader(
        io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True
    )
    heads = [head.strip() for head in next(reader, [])]
    if not any(heads):
        raise UsageError("it is empty; the first line names the columns")
    check_size(len(heads) - 1, 0)
    if twice := [head for head, times in Counter(filter(None, heads)).items() if times > 1]:
        raise UsageError(f"column {twice[0]!r} is there twice; give each a name of its own")
    if not set(heads) & set(_STEPS):
        raise UsageError(f"no column 'step' (or '_step') among: {some_names(heads)}")

    def rows() -> Iterable[tuple[str, _Row]]:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            where = f"line {reader.line_num}"
            if len(cells) != len(heads):
                raise UsageError(f"{where} has {len(cells)} cells, the header {len(heads)}")
            stripped = (cell.strip() or None for cell in cells)
            yield where, {h: c for h, c in zip(heads, stripped, strict=True) if h}

    return {}, rows()


def _read_tsv(content: bytes) -> tuple[dict[str, Any], Any]:
    return _read_csv(content, "\t")


def _read_jsonl(content: bytes) -> tuple[dict[str, Any], Any]:
    def rows() -> Iterable[tuple[str, _Row]]:
        for at, line in enumerate(content.decode("utf-8-sig").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line, parse_int=_int)
            except json.JSONDecodeError as error:
                raise UsageError(f"line {at} is no JSON: {error.msg}") from error
            if not isinstance(value, dict):
                raise UsageError(f"line {at} is no JSON object")
            yield f"line {at}", _flat(value)

    return {}, rows()


def _read_json(content: bytes) -> tuple[dict[str, Any], Any]:
    value = json.loads(content.decode("utf-8-sig"), parse_int=_int)
    facts: dict[str, Any] = {}
    if isinstance(value, dict):
        facts = {
            meaning: value[name]
            for name, meaning in _FACTS.items()
            if value.get(name) is not None and not isinstance(value[name], list)
        }
        points = next((value[name] for name in _POINTS if name in value), None)
        if points is None and any(isinstance(value.get(name), list) for name in _STEPS):
            points = _across({k: v for k, v in value.items() if isinstance(v, list)})
        value = points
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UsageError(
            "points are a list of objects with a step, columns with a list 'step', or an "
            "object with such a list under 'points'"
        )
    return facts, ((f"point {at}", _flat(one)) for at, one in enumerate(value, start=1))


def _read_parquet(content: bytes) -> tuple[dict[str, Any], Any]:
    from assay.exchange.parquet import ParquetTable

    table = ParquetTable(content)
    check_size(len(table.columns) - 1, table.cells)
    if table.unpacked > _MOST_BYTES:
        raise UsageError(
            f"it unpacks to {table.unpacked:,} bytes, and at most {_MOST_BYTES:,} are read; "
            "leave out columns"
        )
    if not set(table.columns) & set(_STEPS):
        raise UsageError(f"no column 'step' (or '_step') among: {some_names(table.columns)}")
    return {}, ((f"row {at}", row) for at, row in enumerate(table.rows(), start=1))


SUFFIXES: Mapping[str, Callable[[bytes], tuple[dict[str, Any], Any]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
}
"""The kinds of files that are read, by the end of their names."""


def _across(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Columns as rows."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise UsageError("columns have different lengths; give each a value per step")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested objects as one, with the names joined by a slash."""
    found: dict[str, Any] = {}
    for name, one in value.items():
        if isinstance(one, Mapping) and not (not above and name in _FACTS):
            found |= _flat(one, f"{above}{name}/")
        else:
            found[f"{above}{name}"] = one
    return found


def _int(text: str) -> int | float:
    """A whole number of JSON; what no step, seed or value can be is read as a float."""
    return int(text) if len(text) <= 400 else float(text)
