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
from assay.training.readers.tables import UNENDED, Points, described_run, whole_number

_BLOCK = 32 * 1024
_MAGIC = b":W&B\xe1\xbe\x00"
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


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
                f"it begins with {content[:7]!r}, not as a file of W&B's offline mode does; "
                "name the .wandb file that wandb wrote, or its folder"
            )
        self._content = content
        self.torn: str | None = None
        """Message if the file ends within a record; set after iteration."""

    def __iter__(self) -> Iterator[bytes]:
        content, at, end = self._content, len(_MAGIC), len(self._content)
        parts: list[bytes] = []
        record = at
        while at < end:
            left = _BLOCK - at % _BLOCK
            if left < 7:
                at += left
                continue
            if at + 7 > end or _only_zeros(content, at, 7):
                break
            checksum, size, kind = struct.unpack_from("<IHB", content, at)
            stop = at + 7 + size
            if stop > end:
                break
            data = content[at + 7 : stop]
            fits = kind in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST))
            whole = checksum == zlib.crc32(data, zlib.crc32(bytes([kind])))
            if not (fits and whole and size + 7 <= left):
                if stop == end:
                    break
                raise _damaged(at)
            parts.append(data)
            at = stop
            if kind in (_WHOLE, _LAST):
                yield b"".join(parts)
                parts, record = [], at
        if at < end or parts:
            self.torn = _torn(record, end)


class EventFrames:
    """Records of a TensorBoard event file: TensorFlow's TFRecord format.

    A record is its length and its content, each with a masked CRC-32C (rotated, plus a
    constant).
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.torn: str | None = None
        """Message if the file ends within a record; set after iteration."""

    def __iter__(self) -> Iterator[bytes]:
        content, at, end = self._content, 0, len(self._content)
        while at < end:
            if at + 12 > end or _only_zeros(content, at, 12):
                break
            size, checksum = struct.unpack_from("<QI", content, at)
            if _masked_crc32c(content[at : at + 8]) != checksum:
                raise _damaged(at)
            stop = at + 16 + size
            if stop > end:
                break
            data = content[at + 12 : stop - 4]
            if _masked_crc32c(data) != struct.unpack_from("<I", content, stop - 4)[0]:
                if stop == end:
                    break
                raise _damaged(at)
            yield data
            at = stop
        if at < end:
            self.torn = _torn(at, end)


def _only_zeros(content: bytes, at: int, size: int) -> bool:
    """Return whether the rest of the file consists of zeros, as if never written."""
    return content[at : at + size] == bytes(size) and not content[at:].strip(b"\0")


def _torn(at: int, end: int) -> str:
    return f"its file ends within a record: the last {end - at:,} of {end:,} bytes are lost"


def _damaged(at: int) -> UsageError:
    return UsageError(
        f"the record at byte {at:,} is damaged: its checksum is that of other bytes; copy the "
        "file again from where it was written"
    )


def _table() -> tuple[int, ...]:
    """Compute the table of CRC-32C (Castagnoli), by byte."""
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE = _table()


def _masked_crc32c(data: bytes) -> int:
    value, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


_FIXED = {1: 8, 5: 4}
"""Sizes of fixed-length numbers, by wire type."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message, in order.

    A varint is an unsigned int; other values are bytes.

    Raises:
        ValueError: It is not a valid message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"field {number} is of kind {kind}, which is not known")
        if at + size > end:
            raise ValueError(f"field {number} is longer than its message")
        yield number, message[at : at + size]
        at += size


def signed(value: int) -> int:
    """Convert an unsigned 64-bit integer to a signed one."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(message: bytes, at: int) -> tuple[int, int]:
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
_NO_METRICS = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
_MEDIA = "_type"
"""Key that marks an object as media, such as an image or a histogram."""


@dataclass
class _Log:
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
    frames, log = WandbFrames(content), _Log()
    is_empty = True
    for record in frames:
        is_empty = False
        _read_record(log, record)
    if is_empty:
        raise UsageError(
            f"not one record can be read in its {len(content):,} bytes; copy the file again "
            "from where it was written, or leave it out"
        )
    notes = [frames.torn] if frames.torn else []
    status = TrainingStatus.FINISHED if log.exit_code == 0 else TrainingStatus.CRASHED
    if log.exit_code is None:
        notes.append(UNENDED)
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
    return described_run(facts, log.points, source=path, names=names, notes=notes)


def add_history(points: Points, row: dict[str, Any]) -> None:
    """Add one row of a run's history: the step, and values by name."""
    step = whole_number("step", row.get("_step"))
    media = {name.rpartition(".")[0] for name in row if name.endswith(f".{_MEDIA}")}
    for name, value in row.items():
        inside = media and any(name.startswith(f"{owner}.") for owner in media)
        if value is not None and name not in _NO_METRICS and not inside:
            points.add(name, step, value)


def _read_record(log: _Log, record: bytes) -> None:
    for number, value in fields(record):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            add_history(log.points, _history(value))
        elif number == _CONFIG:
            _configure(log.configuration, value)
        elif number == _RUN:
            _read_run(log, value)
        elif number == _EXIT:
            log.exit_code = _whole(value, 1)
        elif number == _ENVIRONMENT:
            _read_commit(log, value, 9)
        elif number == _HEADER and (version := _texts(value, 1)):
            # The version of the writer, without the commit after its plus sign.
            writer = _texts(version[0], 1)[:1]
            log.provenance["wandb"] = writer[0].decode().partition("+")[0] if writer else ""


def _history(message: bytes) -> dict[str, Any]:
    """Read a row; names in nested objects are joined with dots, as W&B shows them."""
    row: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 2 and isinstance(value, bytes):
            row.setdefault("_step", _whole(value, 1))
        elif number == 1 and isinstance(value, bytes):
            key, found = _item(value)
            row[".".join(key)] = found
    return row


def _item(message: bytes) -> tuple[list[str], Any]:
    """Return the path of names and the value of an item of a history or configuration."""
    key: list[str] = []
    found: Any = None
    for number, value in fields(message):
        if isinstance(value, int):
            # A boolean, or a zigzag-encoded integer.
            found = {4: bool(value), 5: (value >> 1) ^ -(value & 1)}.get(number, found)
        elif number in (1, 2):
            key.append(value.decode())
        elif number == 6:
            (found,) = struct.unpack("<d", value)
        elif number == 7:
            found = value.decode()
        elif number in (8, 16):
            # JSON, except that NaN and Infinity are allowed.
            found = json.loads(value)
    return key, found


def _configure(configuration: dict[str, Any], message: bytes) -> None:
    for number, value in fields(message):
        if not isinstance(value, bytes) or number not in (1, 2):
            continue
        key, found = _item(value)
        owner = configuration
        for name in key[:-1]:
            inner = owner.get(name)
            owner[name] = owner = inner if isinstance(inner, dict) else {}
        if number == 1:
            owner |= dict.fromkeys(key[-1:], found)
        else:
            owner.pop(key[-1] if key else "", None)


def _read_run(log: _Log, message: bytes) -> None:
    for number, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            log.facts["id"] = value.decode()
        elif number in (2, 3):
            log.provenance["entity" if number == 2 else "project"] = value.decode()
        elif number == 4:
            _configure(log.configuration, value)
        elif number == 6:
            log.facts["series"] = value.decode()
        elif number == 8:
            log.name = log.provenance["name"] = value.decode()
        elif number == 17:
            at = datetime.fromtimestamp(_whole(value, 1), UTC)
            log.facts["created_at"] = at.replace(tzinfo=None)
    _read_commit(log, message, 21)


def _read_commit(log: _Log, message: bytes, number: int) -> None:
    for found in _texts(message, number):
        for commit in _texts(found, 2):
            log.facts["commit"] = commit.decode()


def _texts(message: bytes, number: int) -> list[bytes]:
    return [v for n, v in fields(message) if n == number and isinstance(v, bytes)]


def _whole(message: bytes, number: int) -> int:
    found = [v for n, v in fields(message) if n == number and isinstance(v, int)]
    return signed(found[-1]) if found else 0


_NAME = re.compile(r"[^/\s]+/[^/\s]+")
_KEY = "WANDB_API_KEY"
_ROWS_AT_ONCE = 1_000
_SECONDS = 60
_NOT_FOUND = "could not find run"
"""Part of the package's error message for a run that does not exist."""


class WandbProject:
    """A project, `ENTITY/PROJECT`, at W&B or on the server in WANDB_BASE_URL."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--wandb {name!r} is no project; give ENTITY/PROJECT, such as me/crafter"
            )
        self._name = name
        self._api: Any = None

    def find(self, run_id: str) -> "TrainingRun | None":
        """Load a run with all its curves; None if the project has no run with that id.

        Raises:
            UsageError: The package or the key is missing, or the request failed.
        """
        wandb = _package(self._name)
        try:
            if self._api is None:
                self._api = wandb.Api(timeout=_SECONDS)
            run = self._api.run(f"{self._name}/{run_id}")
            rows = list(run.scan_history(page_size=_page_size(run), use_cache=False))
        except (wandb.errors.Error, ValueError) as error:
            if _NOT_FOUND in str(error).lower():
                return None
            raise UsageError(
                f"W&B does not give run {run_id!r} of {self._name}: {error}; check {_KEY} and"
                " WANDB_BASE_URL"
            ) from error
        return self._run(run, rows)

    def load(self, run_id: str) -> "TrainingRun":
        """Load a run with all its curves.

        Raises:
            UsageError: The project has no run with that id, or the request failed.
        """
        found = self.find(run_id)
        if found is None:
            raise UsageError(
                f"{run_id!r} is no file, and no run of {self._name} at W&B; give the id at the"
                " end of the run's address"
            )
        return found

    def _run(self, run: Any, rows: list[dict[str, Any]]) -> "TrainingRun":
        points = Points()
        for row in rows:
            add_history(points, row)
        counted = getattr(run, "historyLineCount", None)
        notes = []
        if isinstance(counted, int) and counted > len(rows):
            notes.append(f"W&B counts {counted:,} rows and gave {len(rows):,}")
        facts = {
            "id": run.id,
            "series": getattr(run, "group", None),
            "status": run.state,
            "commit": run.commit,
            "configuration": {k: v for k, v in run.config.items() if not k.startswith("_")},
            "provenance": {"project": self._name, "name": run.name},
            "created_at": _time(run.created_at),
        }
        source = f"W&B {self._name}/{run.id}"
        return described_run(
            facts, points, source=source, names=[run.id, run.name], notes=notes
        )


def _package(project: str) -> Any:
    """Import the package, which is slow to import and optional."""
    if not os.environ.get(_KEY):
        raise UsageError(
            f"--wandb {project} asks W&B, which takes a key: export {_KEY}=…; to read runs of"
            " the offline mode, name their folders instead"
        )
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            f"--wandb {project} asks W&B through its package, which is not there: pip install"
            " wandb"
        ) from error
    return wandb


def _page_size(run: Any) -> int:
    """Return the page size, which the package counts in steps, not in rows."""
    rows = getattr(run, "historyLineCount", None) or 1
    return max(_ROWS_AT_ONCE, _ROWS_AT_ONCE * (int(run.lastHistoryStep) + 1) // int(rows))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=None) if text else None
