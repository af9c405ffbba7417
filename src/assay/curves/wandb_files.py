"""Reads the runs that `wandb` keeps in its offline mode, without that package.

Such a run is a folder `offline-run-<time>-<id>` with one file `run-<id>.wandb`, whose records
are messages of https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto; the
few that matter are read by the numbers of their fields.
"""

import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay._util.canonical import content_hash
from assay.curves.described import UNENDED, described_run
from assay.curves.fields import whole_number
from assay.curves.frames import WandbFrames
from assay.curves.points import Points
from assay.curves.wire import fields, signed
from assay.errors import UsageError
from assay.experiments.training import TrainingRun, TrainingStatus

__all__ = ["add_history", "read_wandb_file"]

_HISTORY, _CONFIG, _RUN, _EXIT, _HEADER, _ENVIRONMENT = 2, 5, 17, 18, 21, 26
_NO_METRICS = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
_MEDIA = "_type"
"""What an object has that is a picture, a histogram or the like."""


@dataclass
class _Log:
    """What was read so far."""

    points: Points = field(default_factory=Points)
    configuration: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    exit_code: int | None = None


def read_wandb_file(path: Path) -> TrainingRun:
    """The run in a `.wandb` file.

    Raises:
        UsageError: It is no such file, is damaged, or holds no whole record.
        ValueError: A record is no message.
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
    """One row of a run's history: the step, and the values by their names."""
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
    """A row; objects in it have become names with dots, as W&B shows them."""
    row: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 2 and isinstance(value, bytes):
            row.setdefault("_step", _whole(value, 1))
        elif number == 1 and isinstance(value, bytes):
            key, found = _item(value)
            row[".".join(key)] = found
    return row


def _item(message: bytes) -> tuple[list[str], Any]:
    """The path of names and the value of an item of a history or a configuration."""
    key: list[str] = []
    found: Any = None
    for number, value in fields(message):
        if isinstance(value, int):
            # A boolean, or a whole number whose last bit is its sign.
            found = {4: bool(value), 5: (value >> 1) ^ -(value & 1)}.get(number, found)
        elif number in (1, 2):
            key.append(value.decode())
        elif number == 6:
            (found,) = struct.unpack("<d", value)
        elif number == 7:
            found = value.decode()
        elif number in (8, 16):
            # JSON, but for NaN and Infinity.
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
