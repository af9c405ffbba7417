"""Weights & Biases runs, from the files of its offline mode or from a project on its server.

An offline run is a folder `offline-run-<time>-<id>` with one file `run-<id>.wandb`. It is read
without the `wandb` package: its records are Protocol Buffers messages of
https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto. The few fields needed
are read by their numbers, without schemas: see
https://protobuf.dev/programming-guides/encoding. Runs on a server are requested by id through
the package.

Records have checksums. A file may end within a record, if its writer was killed or is still
writing: the records before are read, and `torn` describes the rest. A record that is damaged
elsewhere is an error.
"""

import json
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.core.canonical_json import content_hash
from assay.errors import UsageError
from assay.store.training_runs import TrainingRun, TrainingStatus
from assay.training.readers.tables import UNKNOWN_END, Points, make_described_run, parse_integer

_BLOCK = 32 * 1024
_MAGIC = b":W&B\xe1\xbe\x00"
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class WandbFrames:
    """Records of a `.wandb` file: the log format of LevelDB after a header of seven bytes.

    A file consists of blocks of 32 KiB. A record that does not fit into the rest of a block is
    split, and fewer than seven bytes at the end of a block are left empty. The checksum is a
    CRC-32 of the type and the content. See
    https://github.com/google/leveldb/blob/main/doc/log_format.md.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(_MAGIC[: len(content)]):
            raise UsageError(
                f"it begins with {content[:7]!r}, so it is not a file of W&B's offline mode; "
                "name the .wandb file that wandb wrote, or its folder"
            )
        self._content = content
        self.incomplete: str | None = None
        """Message if the file ends within a record; set after iteration."""

    def __iter__(self) -> Iterator[bytes]:
        content, position, end = self._content, len(_MAGIC), len(self._content)
        parts: list[bytes] = []
        record = position
        while position < end:
            remaining = _BLOCK - position % _BLOCK
            if remaining < 7:
                position += remaining
                continue
            if position + 7 > end or _is_only_zeros(content, position, 7):
                break
            checksum, size, kind = struct.unpack_from("<IHB", content, position)
            record_end = position + 7 + size
            if record_end > end:
                break
            data = content[position + 7 : record_end]
            fits = kind in ((_MIDDLE, _LAST) if parts else (_FULL, _FIRST))
            intact = checksum == zlib.crc32(data, zlib.crc32(bytes([kind])))
            if not (fits and intact and size + 7 <= remaining):
                if record_end == end:
                    break
                raise _make_damage_error(position)
            parts.append(data)
            position = record_end
            if kind in (_FULL, _LAST):
                yield b"".join(parts)
                parts, record = [], position
        if position < end or parts:
            self.incomplete = _describe_incomplete(record, end)


class EventFrames:
    """Records of a TensorBoard event file: TensorFlow's TFRecord format.

    A record is its length and its content, each with a masked CRC-32C (rotated, plus a
    constant).
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.incomplete: str | None = None
        """Message if the file ends within a record; set after iteration."""

    def __iter__(self) -> Iterator[bytes]:
        content, position, end = self._content, 0, len(self._content)
        while position < end:
            if position + 12 > end or _is_only_zeros(content, position, 12):
                break
            size, checksum = struct.unpack_from("<QI", content, position)
            if _compute_masked_crc32c(content[position : position + 8]) != checksum:
                raise _make_damage_error(position)
            record_end = position + 16 + size
            if record_end > end:
                break
            data = content[position + 12 : record_end - 4]
            if (
                _compute_masked_crc32c(data)
                != struct.unpack_from("<I", content, record_end - 4)[0]
            ):
                if record_end == end:
                    break
                raise _make_damage_error(position)
            yield data
            position = record_end
        if position < end:
            self.incomplete = _describe_incomplete(position, end)


def _is_only_zeros(content: bytes, at: int, size: int) -> bool:
    """Return whether the rest of the file consists of zeros, as if never written."""
    return content[at : at + size] == bytes(size) and not content[at:].strip(b"\0")


def _describe_incomplete(at: int, end: int) -> str:
    return f"its file ends within a record: the last {end - at:,} of {end:,} bytes are lost"


def _make_damage_error(at: int) -> UsageError:
    return UsageError(
        f"the record at byte {at:,} is damaged: its checksum does not match; copy the file "
        "again from the original machine"
    )


def _make_crc_table() -> tuple[int, ...]:
    """Compute the table of CRC-32C (Castagnoli), by byte."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC_TABLE = _make_crc_table()


def _compute_masked_crc32c(data: bytes) -> int:
    value, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


_FIXED_SIZES = {1: 8, 5: 4}
"""Sizes of fixed-length numbers, by wire type."""


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message, in order.

    A varint is an unsigned int; other values are bytes.

    Raises:
        ValueError: It is not a valid message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _read_varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _read_varint(message, at)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise ValueError(f"field {number} has unknown wire type {kind}")
        if at + size > end:
            raise ValueError(f"field {number} is longer than its message")
        yield number, message[at : at + size]
        at += size


def to_signed(value: int) -> int:
    """Convert an unsigned 64-bit integer to a signed one."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Parse a varint; return its value and the position after it."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut off")


_HISTORY, _CONFIG, _RUN, _EXIT, _HEADER, _ENVIRONMENT = 2, 5, 17, 18, 21, 26
_RESERVED_NAMES = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
_MEDIA_KEY = "_type"
"""Key that marks an object as media, such as an image or a histogram."""


@dataclass
class _WandbLog:
    """Data read so far."""

    points: Points = field(default_factory=Points)
    configuration: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    exit_code: int | None = None


def read_wandb_file(path: Path) -> TrainingRun:
    """Read the run in a `.wandb` file.

    Raises:
        UsageError: It is another kind of file, is damaged, or has no complete record.
        ValueError: A record is not a valid message.
    """
    content = path.read_bytes()
    frames, log = WandbFrames(content), _WandbLog()
    is_empty = True
    for record in frames:
        is_empty = False
        _read_record(log, record)
    if is_empty:
        raise UsageError(
            f"none of its {len(content):,} bytes is a readable record; copy the file again "
            "from the original machine, or leave it out"
        )
    notes = [frames.incomplete] if frames.incomplete else []
    status = TrainingStatus.FINISHED if log.exit_code == 0 else TrainingStatus.CRASHED
    if log.exit_code is None:
        notes.append(UNKNOWN_END)
    elif log.exit_code:
        notes.append(f"it ended with exit code {log.exit_code}")
    log.configuration.pop("_wandb", None)
    facts = {
        "status": status,
        **log.facts,
        "configuration": log.configuration,
        "provenance": {**log.provenance, "file_hash": content_hash(content)},
    }
    names = [path.stem.removeprefix("run-"), log.name, path.parent.name]
    return make_described_run(facts, log.points, source=path, names=names, notes=notes)


def add_history(points: Points, row: dict[str, Any]) -> None:
    """Add one row of a run's history: the step, and values by name."""
    step = parse_integer("step", row.get("_step"))
    media = {name.rpartition(".")[0] for name in row if name.endswith(f".{_MEDIA_KEY}")}
    for name, value in row.items():
        inside = media and any(name.startswith(f"{owner}.") for owner in media)
        if value is not None and name not in _RESERVED_NAMES and not inside:
            points.add(name, step, value)


def _read_record(log: _WandbLog, record: bytes) -> None:
    for number, value in read_fields(record):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            add_history(log.points, _read_history(value))
        elif number == _CONFIG:
            _read_configuration(log.configuration, value)
        elif number == _RUN:
            _read_run(log, value)
        elif number == _EXIT:
            log.exit_code = _find_integer(value, 1)
        elif number == _ENVIRONMENT:
            _read_commit(log, value, 9)
        elif number == _HEADER and (version := _find_bytes(value, 1)):
            # The version of the writer, without the commit after its plus sign.
            writer = _find_bytes(version[0], 1)[:1]
            log.provenance["wandb"] = writer[0].decode().partition("+")[0] if writer else ""


def _read_history(message: bytes) -> dict[str, Any]:
    """Read a row; names in nested objects are joined with dots, as W&B shows them."""
    row: dict[str, Any] = {}
    for number, value in read_fields(message):
        if number == 2 and isinstance(value, bytes):
            row.setdefault("_step", _find_integer(value, 1))
        elif number == 1 and isinstance(value, bytes):
            key, item_value = _read_item(value)
            row[".".join(key)] = item_value
    return row


def _read_item(message: bytes) -> tuple[list[str], Any]:
    """Return the path of names and the value of an item of a history or configuration."""
    path: list[str] = []
    item_value: Any = None
    for number, value in read_fields(message):
        if isinstance(value, int):
            # A boolean, or a zigzag-encoded integer.
            item_value = {4: bool(value), 5: (value >> 1) ^ -(value & 1)}.get(
                number, item_value
            )
        elif number in (1, 2):
            path.append(value.decode())
        elif number == 6:
            (item_value,) = struct.unpack("<d", value)
        elif number == 7:
            item_value = value.decode()
        elif number in (8, 16):
            # JSON, except that NaN and Infinity are allowed.
            item_value = json.loads(value)
    return path, item_value


def _read_configuration(configuration: dict[str, Any], message: bytes) -> None:
    for number, value in read_fields(message):
        if not isinstance(value, bytes) or number not in (1, 2):
            continue
        path, item_value = _read_item(value)
        owner = configuration
        for name in path[:-1]:
            inner = owner.get(name)
            owner[name] = owner = inner if isinstance(inner, dict) else {}
        if number == 1:
            owner |= dict.fromkeys(path[-1:], item_value)
        else:
            owner.pop(path[-1] if path else "", None)


def _read_run(log: _WandbLog, message: bytes) -> None:
    for number, value in read_fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            log.facts["id"] = value.decode()
        elif number in (2, 3):
            log.provenance["entity" if number == 2 else "project"] = value.decode()
        elif number == 4:
            _read_configuration(log.configuration, value)
        elif number == 6:
            log.facts["series"] = value.decode()
        elif number == 8:
            log.name = log.provenance["name"] = value.decode()
        elif number == 17:
            at = datetime.fromtimestamp(_find_integer(value, 1), UTC)
            log.facts["created_at"] = at.replace(tzinfo=None)
    _read_commit(log, message, 21)


def _read_commit(log: _WandbLog, message: bytes, number: int) -> None:
    for repository in _find_bytes(message, number):
        for commit in _find_bytes(repository, 2):
            log.facts["commit"] = commit.decode()


def _find_bytes(message: bytes, number: int) -> list[bytes]:
    return [v for n, v in read_fields(message) if n == number and isinstance(v, bytes)]


def _find_integer(message: bytes, number: int) -> int:
    numbers = [v for n, v in read_fields(message) if n == number and isinstance(v, int)]
    return to_signed(numbers[-1]) if numbers else 0


_PROJECT_NAME = re.compile(r"[^/\s]+/[^/\s]+")
_KEY_VARIABLE = "WANDB_API_KEY"
_ROWS_PER_PAGE = 1_000
_TIMEOUT_S = 60
_NOT_FOUND_TEXT = "could not find run"
"""Part of the package's error message for a run that does not exist."""


class WandbProject:
    """A project, `ENTITY/PROJECT`, at W&B or on the server in WANDB_BASE_URL."""

    def __init__(self, name: str) -> None:
        if not _PROJECT_NAME.fullmatch(name):
            raise UsageError(
                f"--wandb {name!r} is not a project; give ENTITY/PROJECT, such as me/crafter"
            )
        self._name = name
        self._api: Any = None

    def find(self, run_id: str) -> "TrainingRun | None":
        """Load a run with all its curves; None if the project has no run with that id.

        Raises:
            UsageError: The package or the key is missing, or the request failed.
        """
        wandb = _import_wandb(self._name)
        try:
            if self._api is None:
                self._api = wandb.Api(timeout=_TIMEOUT_S)
            run = self._api.run(f"{self._name}/{run_id}")
            rows = list(run.scan_history(page_size=_compute_page_size(run), use_cache=False))
        except (wandb.errors.Error, ValueError) as error:
            if _NOT_FOUND_TEXT in str(error).lower():
                return None
            raise UsageError(
                f"cannot load run {run_id!r} of {self._name} from W&B: {error}; check "
                f"{_KEY_VARIABLE} and WANDB_BASE_URL"
            ) from error
        return self._make_run(run, rows)

    def load(self, run_id: str) -> "TrainingRun":
        """Load a run with all its curves.

        Raises:
            UsageError: The project has no run with that id, or the request failed.
        """
        run = self.find(run_id)
        if run is None:
            raise UsageError(
                f"{run_id!r} is neither a file nor a run of {self._name} at W&B; give the id "
                "at the end of the run's address"
            )
        return run

    def _make_run(self, run: Any, rows: list[dict[str, Any]]) -> "TrainingRun":
        points = Points()
        for row in rows:
            add_history(points, row)
        row_count = getattr(run, "historyLineCount", None)
        notes = []
        if isinstance(row_count, int) and row_count > len(rows):
            notes.append(f"W&B reports {row_count:,} rows but returned {len(rows):,}")
        facts = {
            "id": run.id,
            "series": getattr(run, "group", None),
            "status": run.state,
            "commit": run.commit,
            "configuration": {k: v for k, v in run.config.items() if not k.startswith("_")},
            "provenance": {"project": self._name, "name": run.name},
            "created_at": _parse_time(run.created_at),
        }
        source = f"W&B {self._name}/{run.id}"
        return make_described_run(
            facts, points, source=source, names=[run.id, run.name], notes=notes
        )


def _import_wandb(project: str) -> Any:
    """Import the package, which is slow to import and optional."""
    if not os.environ.get(_KEY_VARIABLE):
        raise UsageError(
            f"--wandb {project} needs an API key for W&B: export {_KEY_VARIABLE}=…; to read"
            " runs of the offline mode, name their folders instead"
        )
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            f"--wandb {project} needs the package wandb, which is not installed: pip install"
            " wandb"
        ) from error
    return wandb


def _compute_page_size(run: Any) -> int:
    """Return the page size, which the package counts in steps, not in rows."""
    rows = getattr(run, "historyLineCount", None) or 1
    return max(_ROWS_PER_PAGE, _ROWS_PER_PAGE * (int(run.lastHistoryStep) + 1) // int(rows))


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=None) if text else None
