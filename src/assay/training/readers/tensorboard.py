"""Scalars of TensorBoard event files, read without that package.

A run is a folder with files `events.out.tfevents.*`: one, or more after a restart, read in the
order of their names. Their records are `Event` messages of
https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto. A scalar is a
plain number, or a tensor with one number. Hyperparameters are read from the plugin hparams.
"""

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.canonical_json import content_hash
from assay.core.text import natural_key
from assay.store.training_runs import TrainingRun, TrainingStatus
from assay.training.readers.tables import UNKNOWN_END, Points, make_described_run
from assay.training.readers.wandb import EventFrames, read_fields, to_signed

EVENT_FILES = "events.out.tfevents.*"
_WALL_TIME, _STEP, _SUMMARY, _SESSION = 1, 2, 5, 7
_SESSION_START = 1
_STATUS_BY_CODE = {
    1: TrainingStatus.FINISHED,
    2: TrainingStatus.CRASHED,
    3: TrainingStatus.RUNNING,
}
"""Training status by session status of the plugin hparams."""
_DTYPES: Mapping[int, str] = {
    **{1: "<f4", 2: "<f8", 3: "<i4", 4: "<u1", 5: "<i2", 6: "<i1", 9: "<i8"},
    **{10: "?", 17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8"},
}
"""NumPy types by tensor data type."""
_FLOAT_FIELDS: Mapping[int, str] = {5: "<f4", 6: "<f8"}
"""Tensor fields with fixed-length numbers."""
_INTEGER_FIELDS = (7, 10, 11, 16, 17)
"""Tensor fields with integers and booleans."""


class _EventReader:
    """Data of a run read so far."""

    def __init__(self) -> None:
        self.points = Points()
        self.configuration: dict[str, Any] = {}
        self.status: TrainingStatus | None = None
        self.started: float | None = None
        self.notes: list[str] = []

    def read(self, event: bytes) -> None:
        step, summaries, session, time = 0, [], None, None
        for number, value in read_fields(event):
            if number == _STEP and isinstance(value, int):
                step = to_signed(value)
            elif number == _SUMMARY and isinstance(value, bytes):
                summaries.append(value)
            elif number == _SESSION and isinstance(value, bytes):
                session = value
            elif number == _WALL_TIME and isinstance(value, bytes):
                (time,) = struct.unpack("<d", value)
        self.started = time if self.started is None else self.started
        if session is not None and (1, _SESSION_START) in read_fields(session):
            self._restart(step)
        for summary in summaries:
            for number, value in read_fields(summary):
                if number == 1 and isinstance(value, bytes):
                    self._read_summary(step, value)

    def _restart(self, step: int) -> None:
        if dropped := self.points.drop_from(step):
            self.notes.append(
                f"it restarted at step {step:,}: {dropped} points logged before "
                "the restart, from that step on, are left out"
            )

    def _read_summary(self, step: int, message: bytes) -> None:
        tag, number = "", None
        for field, value in read_fields(message):
            if not isinstance(value, bytes):
                continue
            if field == 1:
                tag = value.decode()
            elif field == 2:
                (number,) = struct.unpack("<f", value)
            elif field == 8:
                number = _read_tensor(value)
            elif field == 9:
                self._read_hyperparameters(value)
        if number is not None:
            self.points.add(tag, step, number)

    def _read_hyperparameters(self, metadata: bytes) -> None:
        plugin = _find_last_field(metadata, 1)
        if _find_last_field(plugin, 1) != b"hparams":
            return
        content = _find_last_field(plugin, 2)
        for number, entry in read_fields(_find_last_field(content, 3)):
            if number == 1 and isinstance(entry, bytes):
                name = _find_last_field(entry, 1).decode()
                self.configuration[name] = _read_value(_find_last_field(entry, 2))
        for number, word in read_fields(_find_last_field(content, 4)):
            if number == 1 and isinstance(word, int):
                self.status = _STATUS_BY_CODE.get(word)


def read_event_folder(folder: Path) -> TrainingRun:
    """Read the run whose event files are in a folder, without those in subfolders.

    Raises:
        UsageError: A file is damaged, or there is no scalar.
        ValueError: A record is not a valid event.
    """
    events = _EventReader()
    contents = []
    incomplete: str | None = None
    for path in sorted(folder.glob(EVENT_FILES), key=lambda path: natural_key(path.name)):
        contents.append(path.read_bytes())
        frames = EventFrames(contents[-1])
        for event in frames:
            events.read(event)
        incomplete = frames.incomplete
        if incomplete:
            events.notes.append(f"{path.name}: {incomplete}")
    status = events.status or (
        TrainingStatus.CRASHED if incomplete else TrainingStatus.FINISHED
    )
    facts: dict[str, Any] = {
        "status": status,
        "configuration": events.configuration,
        "provenance": {"file_hash": content_hash(b"".join(contents))},
    }
    if events.started is not None:
        facts["created_at"] = datetime.fromtimestamp(events.started, UTC).replace(tzinfo=None)
    notes = [*events.notes, *([UNKNOWN_END] if incomplete else [])]
    names = [folder.resolve().name]
    return make_described_run(facts, events.points, source=folder, names=names, notes=notes)


def _read_tensor(message: bytes) -> float | None:
    """Return the number in a tensor that has exactly one; None for others."""
    dtype: str | None = None
    numbers: list[float] = []
    for field, value in read_fields(message):
        if field == 1 and isinstance(value, int):
            dtype = _DTYPES.get(value)
        elif field == 4 and isinstance(value, bytes) and dtype is not None:
            numbers += np.frombuffer(value, dtype).astype(np.float64).tolist()
        elif field in _FLOAT_FIELDS and isinstance(value, bytes):
            numbers += np.frombuffer(value, _FLOAT_FIELDS[field]).astype(np.float64).tolist()
        elif field in _INTEGER_FIELDS:
            numbers += [float(to_signed(number)) for number in _read_varints(value)]
        elif field == 13:
            # Half-precision numbers, stored as integers with the same bits.
            bits = np.array([*_read_varints(value)], np.uint16)
            numbers += bits.view(np.float16).astype(np.float64).tolist()
    return numbers[0] if len(numbers) == 1 and dtype is not None else None


def _read_varints(value: int | bytes) -> list[int]:
    """Return integers, given as one or as packed varints."""
    if isinstance(value, int):
        return [value]
    numbers, number, shift = [], 0, 0
    for byte in value:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    return numbers


def _read_value(message: bytes) -> Any:
    """Convert a google.protobuf.Value: a number, a text or a boolean."""
    for field, value in read_fields(message):
        if field == 2 and isinstance(value, bytes):
            (number,) = struct.unpack("<d", value)
            return int(number) if number.is_integer() else number
        if field == 3 and isinstance(value, bytes):
            return value.decode()
        if field == 4:
            return bool(value)
    return None


def _find_last_field(message: bytes, number: int) -> bytes:
    """Return the last field with this number; empty if there is none."""
    values = [v for n, v in read_fields(message) if n == number and isinstance(v, bytes)]
    return values[-1] if values else b""
