"""Training runs from files with a step and metric values in each row.

CSV, TSV and Parquet have a column `step` (or `_step`) and one per metric. JSONL has an object
per line. JSON has a list of such objects, an object of columns, or an object that describes the
run and has its points under `points` or `history`. Facts about the run (id, seed, status, …)
are read from fields of that name. An empty cell is a metric that was not logged at that step;
NaN and infinity are left out and counted. Nothing is written.

`Points` and `described_run` are shared with the readers of other formats.
"""

import csv
import io
import json
import math
import re
import stat
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from assay.core.canonical_json import content_hash
from assay.core.text import check_unicode, printable, shown
from assay.errors import UsageError
from assay.store.training_runs import Curve, TrainingRun, TrainingStatus, make_curve

_MAX_NUMBERS = {"step": 2**53, "seed": 2**63 - 1}
"""Limits: steps must be exact as floats; seeds are only compared."""


def parse_number(value: Any) -> float | None:
    """Convert a cell to a number; None if it is not one."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if not isinstance(value, str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def parse_integer(name: str, value: Any, where: str = "") -> int:
    """Parse a step or a seed: an integer in any notation."""
    number = None
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,19}", value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif (
        (real := parse_number(value)) is not None
        and math.isfinite(real)
        and real == round(real)
    ):
        number = int(real)
    limit = _MAX_NUMBERS[name]
    if number is None or abs(number) > limit:
        prefix = f"{where}: " if where else ""
        raise UsageError(
            f"{prefix}{name} {shown(value, 60)} is not a whole number up to {limit:,}; "
            "write it with digits only"
        )
    return number


def parse_mapping(what: str, value: Any) -> Mapping[str, Any]:
    """Return an object, parsed if it is JSON text; other text becomes `{what: text}`."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return {what: value}
    if value is None or isinstance(value, Mapping):
        return {} if value is None else _replace_nonfinite(value)
    raise UsageError(f"{what} must be an object, not {type(value).__name__}")


def _replace_nonfinite(value: Any) -> Any:
    """Convert NaN and infinity, which JSON does not have, to text."""
    if isinstance(value, Mapping):
        return {str(name): _replace_nonfinite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def parse_text(what: str, value: Any) -> str | None:
    """Convert a value to text; None if it is missing or empty."""
    if isinstance(value, Mapping | list):
        raise UsageError(f"{what} {shown(value, 60)} is not text; give a name in quotes")
    return None if value is None or value == "" else str(value)


def format_names(names: Sequence[str]) -> str:
    """Format the first dozen names for a message."""
    listed = ", ".join(repr(name) for name in names[:12])
    return listed + (", …" if len(names) > 12 else "")


_MAX_METRICS: Final = 10_000
_MAX_POINTS: Final = 20_000_000
"""Limit for one run; a point takes 16 bytes in memory."""


def check_size(metrics: int, points: int) -> None:
    """Raise UsageError if a run is too large; call before reading it, if possible."""
    for unit, count, limit in (
        ("metrics", metrics, _MAX_METRICS),
        ("points", points, _MAX_POINTS),
    ):
        if count > limit:
            raise UsageError(
                f"it has {count:,} {unit}; the limit is {limit:,}; leave out metrics, or log "
                "every tenth step"
            )


class Points:
    """Values by metric and step, in the order they were logged."""

    def __init__(self) -> None:
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self._with_text: set[str] = set()
        self._count = 0

    def add(self, metric: str, step: int, value: Any) -> None:
        """Add a logged value; a metric with values that are not numbers gets no curve."""
        number = parse_number(value)
        if number is None:
            self._with_text.add(metric)
            return
        if metric not in self._steps:
            check_size(len(self._steps) + 1, 0)
            self._steps[metric], self._values[metric] = array("q"), array("d")
        self._count += 1
        if self._count > _MAX_POINTS:
            check_size(0, self._count)
        self._steps[metric].append(step)
        self._values[metric].append(number)

    def drop_from(self, step: int) -> int:
        """Remove the points at a step and after it, and return their number."""
        dropped = 0
        for metric, steps in self._steps.items():
            keep = [index for index, logged_step in enumerate(steps) if logged_step < step]
            dropped += len(steps) - len(keep)
            self._steps[metric] = array("q", (steps[index] for index in keep))
            values = self._values[metric]
            self._values[metric] = array("d", (values[index] for index in keep))
        self._count -= dropped
        return dropped

    def make_curves(self) -> dict[str, Curve]:
        """Return the curve of each metric, without metrics that also have text values."""
        return {
            metric: make_curve(self._steps[metric], values)
            for metric, values in self._values.items()
            if metric not in self._with_text
        }

    def make_notes(self) -> list[str]:
        """Return sentences on the metrics that were left out."""
        with_text = [metric for metric in self._values if metric in self._with_text]
        if not with_text:
            return []
        return [
            f"{format_names(with_text)} has text values in addition to numbers, so it is not "
            "used as a metric"
        ]


UNKNOWN_END = "it is unknown how it ended: it was killed, or is still running"
"""Note on a run whose file does not record how it ended."""
_SEED_IN_NAME = re.compile(r"seed[-_=]?(\d+)", re.IGNORECASE)


@contextmanager
def convert_read_errors(path: Path) -> Iterator[None]:
    """Convert errors while reading a file to UsageErrors that name it."""
    name = repr(printable(str(path)))
    try:
        yield
    except UsageError as error:
        raise type(error)(f"{name}: {error}") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text; save it as UTF-8") from error
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply; give a list of points") from error
    except (csv.Error, ValueError, OverflowError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from error


def make_described_run(
    facts: Mapping[str, Any],
    points: Points,
    *,
    source: Path | str,
    names: Sequence[str],
    notes: Sequence[str] = (),
) -> TrainingRun:
    """Build a training run from facts and points.

    Args:
        facts: Fields of a run by name, as they were read, and `commit`.
        points: Logged values.
        source: Where the run was read from.
        names: Names of the run. The first is its id if the facts have none. The seed is the
            fact `seed`, or the one in the configuration, or the digits after `seed` in a name.
        notes: Notes of the reader.

    Raises:
        UsageError: The run finished without metrics, or a fact is invalid.
    """
    curves = points.make_curves()
    status = TrainingStatus.named(str(facts.get("status") or "finished"))
    if not curves and status is TrainingStatus.FINISHED:
        raise UsageError("it has no numeric metric; log numbers with their steps")
    configuration = parse_mapping("configuration", facts.get("configuration"))
    provenance = dict(parse_mapping("provenance", facts.get("provenance")))
    if facts.get("commit") is not None:
        provenance["commit"] = str(facts["commit"])
    seed = facts.get("seed")
    run = TrainingRun(
        id=parse_text("id", facts.get("id")) or names[0].encode("utf-8", "replace").decode(),
        series=parse_text("series", facts.get("series")),
        subject=parse_text("subject", facts.get("subject")),
        task=parse_text("task", facts.get("task")),
        seed=_find_seed(configuration, names) if seed is None else parse_integer("seed", seed),
        status=status,
        configuration=configuration,
        provenance=provenance,
        created_at=facts.get("created_at"),
        finished_at=facts.get("finished_at"),
        source=str(source).encode("utf-8", "replace").decode(),
        curves=curves,
        notes=(*notes, *points.make_notes()),
    )
    _check_texts(run)
    return run


def _find_seed(configuration: Mapping[str, Any], names: Sequence[str]) -> int | None:
    configured = configuration.get("seed")
    if isinstance(configured, int) and not isinstance(configured, bool):
        return parse_integer("seed", configured)
    match = next(filter(None, map(_SEED_IN_NAME.search, names)), None)
    return parse_integer("seed", match.group(1)) if match else None


def _check_texts(run: TrainingRun) -> None:
    for what in ("id", "series", "subject", "task"):
        check_unicode(what, getattr(run, what) or "")
    for what in ("configuration", "provenance"):
        check_unicode(what, json.dumps(getattr(run, what), ensure_ascii=False))
    for metric in run.curves:
        check_unicode("metric", metric)


_STEP_COLUMNS = ("step", "_step")
_FACT_NAMES = {
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
"""Names of facts in a file, mapped to ours."""
_POINT_KEYS = ("points", "history")
_MAX_BYTES: Final = 1 << 30
"""Size limit of a file, compressed and decompressed."""

_Row = Mapping[str, Any]
"""One row as it was read: a step, metrics, and possibly facts."""


def is_run_file(name: str) -> bool:
    """Return whether a name has the suffix of a run file; the file need not exist."""
    return Path(name).suffix.lower() in SUFFIXES


def read_run_file(path: Path) -> TrainingRun:
    """Read the training run in a file.

    Its id is the field `id`, or the file name. Its seed is the field `seed`, or the one in the
    configuration, or the digits after `seed` in the file name.

    Raises:
        UsageError: The file is missing, invalid, or has an unsupported suffix.
    """
    with convert_read_errors(path):
        read = SUFFIXES.get(path.suffix.lower())
        if read is None:
            raise UsageError(f"unsupported file type; give {', '.join(SUFFIXES)}")
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UsageError("it is not a regular file; name a file of points")
        if about.st_size > _MAX_BYTES:
            raise UsageError(
                f"it has {about.st_size:,} bytes; the limit is {_MAX_BYTES:,}; leave out "
                "metrics, or log every tenth step"
            )
        content = path.read_bytes()
        # Rows are parsed lazily, so this call is inside the error handler, too.
        return _make_run(path, content, *read(content))


def _make_run(
    path: Path, content: bytes, facts: dict[str, Any], rows: Iterable[tuple[str, _Row]]
) -> TrainingRun:
    row_facts, points = _collect_rows(rows)
    facts = {**row_facts, **facts}
    provenance = {**parse_mapping("provenance", facts.get("provenance"))}
    facts["provenance"] = provenance | {"file_hash": content_hash(content)}
    return make_described_run(facts, points, source=path, names=[path.stem])


def _collect_rows(rows: Iterable[tuple[str, _Row]]) -> tuple[dict[str, Any], Points]:
    """Collect facts about the run and points from rows."""
    facts: dict[str, Any] = {}
    points, seen = Points(), False
    for where, row in rows:
        _add_facts(facts, where, row)
        key = next((name for name in _STEP_COLUMNS if row.get(name) is not None), None)
        if key is None:
            if set(row) <= _FACT_NAMES.keys():
                continue
            raise UsageError(f"{where} has no step; give a column 'step' (or '_step')")
        step, seen = parse_integer("step", row[key], where), True
        for metric, value in row.items():
            if value is not None and metric not in _STEP_COLUMNS and metric not in _FACT_NAMES:
                points.add(metric, step, value)
    if not seen:
        raise UsageError("it has no rows; give one for each step")
    return facts, points


def _add_facts(facts: dict[str, Any], where: str, row: _Row) -> None:
    for name, meaning in _FACT_NAMES.items():
        value = row.get(name)
        if value is None:
            continue
        # These three may change from line to line: the last one counts. Others are constant.
        if meaning not in ("status", "configuration", "provenance") and (
            facts.get(meaning, value) != value
        ):
            raise UsageError(
                f"{where} has {name} {value!r} after {facts[meaning]!r}; a file must contain "
                "one run"
            )
        facts[meaning] = value


def _read_csv(content: bytes, delimiter: str = ",") -> tuple[dict[str, Any], Any]:
    reader = csv.reader(
        io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter, strict=True
    )
    columns = [column.strip() for column in next(reader, [])]
    if not any(columns):
        raise UsageError("it is empty; the first line must name the columns")
    check_size(len(columns) - 1, 0)
    if repeated := [
        column for column, times in Counter(filter(None, columns)).items() if times > 1
    ]:
        raise UsageError(
            f"column {repeated[0]!r} appears twice; give each column a different name"
        )
    if not set(columns) & set(_STEP_COLUMNS):
        raise UsageError(f"no column 'step' (or '_step') among: {format_names(columns)}")

    def iterate_rows() -> Iterable[tuple[str, _Row]]:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            where = f"line {reader.line_num}"
            if len(cells) != len(columns):
                raise UsageError(
                    f"{where} has {len(cells)} cells, but the header has {len(columns)}"
                )
            stripped = (cell.strip() or None for cell in cells)
            yield where, {h: c for h, c in zip(columns, stripped, strict=True) if h}

    return {}, iterate_rows()


def _read_tsv(content: bytes) -> tuple[dict[str, Any], Any]:
    return _read_csv(content, "\t")


def _read_jsonl(content: bytes) -> tuple[dict[str, Any], Any]:
    def iterate_rows() -> Iterable[tuple[str, _Row]]:
        for number, line in enumerate(content.decode("utf-8-sig").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line, parse_int=_parse_json_int)
            except json.JSONDecodeError as error:
                raise UsageError(f"line {number} is not valid JSON: {error.msg}") from error
            if not isinstance(value, dict):
                raise UsageError(f"line {number} is not a JSON object")
            yield f"line {number}", _flatten(value)

    return {}, iterate_rows()


def _read_json(content: bytes) -> tuple[dict[str, Any], Any]:
    value = json.loads(content.decode("utf-8-sig"), parse_int=_parse_json_int)
    facts: dict[str, Any] = {}
    if isinstance(value, dict):
        facts = {
            meaning: value[name]
            for name, meaning in _FACT_NAMES.items()
            if value.get(name) is not None and not isinstance(value[name], list)
        }
        points = next((value[name] for name in _POINT_KEYS if name in value), None)
        if points is None and any(isinstance(value.get(name), list) for name in _STEP_COLUMNS):
            points = _convert_columns_to_rows(
                {k: v for k, v in value.items() if isinstance(v, list)}
            )
        value = points
    if not isinstance(value, list) or not all(isinstance(point, dict) for point in value):
        raise UsageError(
            "points must be a list of objects with a step, columns with a list 'step', or an "
            "object with such a list under 'points'"
        )
    return facts, ((f"point {at}", _flatten(point)) for at, point in enumerate(value, start=1))


def _read_parquet(content: bytes) -> tuple[dict[str, Any], Any]:
    from assay.store.parquet import ParquetTable

    table = ParquetTable(content)
    check_size(len(table.columns) - 1, table.cells)
    if table.unpacked > _MAX_BYTES:
        raise UsageError(
            f"it unpacks to {table.unpacked:,} bytes; the limit is {_MAX_BYTES:,}; leave out "
            "columns"
        )
    if not set(table.columns) & set(_STEP_COLUMNS):
        raise UsageError(f"no column 'step' (or '_step') among: {format_names(table.columns)}")
    return {}, ((f"row {at}", row) for at, row in enumerate(table.rows(), start=1))


SUFFIXES: Mapping[str, Callable[[bytes], tuple[dict[str, Any], Any]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
}
"""Reader functions by file suffix."""


def _convert_columns_to_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Convert columns to rows."""
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise UsageError("columns have different lengths; give each column one value per step")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested objects; names are joined with a slash."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping) and not (not prefix and name in _FACT_NAMES):
            flat |= _flatten(item, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = item
    return flat


def _parse_json_int(text: str) -> int | float:
    """Parse a JSON integer; one too long for any step, seed or value becomes a float."""
    return int(text) if len(text) <= 400 else float(text)
