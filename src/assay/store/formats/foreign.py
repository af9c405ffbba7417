"""Helpers shared by the importers of other programs' logs.

Logs may be untrusted. Each value is used only if it has the type and the size that the database
columns allow; otherwise it is unknown. The resulting session is checked again, like one read
from a file of assay's own format.

Zip archives are read with limits: at most a thousand times the size of the archive is unpacked,
and no entry may exceed a given size. Zstandard, which Inspect uses, is supported, although the
standard library of most Python versions cannot read it.
"""

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from assay.core.canonical_json import canonical_json, content_hash, derive_id
from assay.core.text import printable
from assay.errors import UsageError
from assay.store.formats.trace_json import check_parts, dump_line, parse_trace
from assay.store.records import (
    EndRecord,
    Imported,
    MessageRecord,
    SessionHeader,
    SessionRecord,
    StoredExperiment,
    StoredRun,
    Trace,
)
from assay.store.schema import StoredKind
from assay.types import Encoded, Message, TrialState

_LARGE: Final = 1e15
_LAST: Final = 253_402_300_800.0
_LONGEST_TEXT: Final = 20_000
_MODEL_ERRORS: Final = re.compile(
    r"context.{0,12}(length|window)|output.?length|too many tokens"
    r"|content.?(filter|policy)|refus",
    re.IGNORECASE,
)


def load_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; numbers that are not finite become None.

    Raises:
        UsageError: It is not a JSON object, or is too large.
    """
    check_parts(content)
    try:
        value = json.loads(content, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        reason = printable(str(error))[:200]
        raise UsageError(f"is not complete, valid JSON: {reason}") from error
    if not isinstance(value, dict):
        raise UsageError("is not a trace: it must be a JSON object")
    return value


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def as_number(value: Any) -> float | None:
    """Return the value as a float if it is a number of plausible size; else None."""
    if isinstance(value, int | float) and -_LARGE < value < _LARGE:
        return float(value)
    return None


def as_cost(value: Any) -> float | None:
    """Return the value as a cost in dollars; raise UsageError if it is negative."""
    cost = as_number(value)
    if cost is not None and cost < 0:
        raise UsageError(f"has a cost of {cost:g} dollars; correct it to 0 or more")
    return cost


def as_count(value: Any) -> int:
    """Return the value if it is a count that fits into 32 bits; else 0."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**31 else 0


def as_text(value: Any, longest: int = _LONGEST_TEXT) -> str:
    """Return the value, truncated, if it is text; else an empty text."""
    return value[:longest] if isinstance(value, str) else ""


def as_name(value: Any, otherwise: str) -> str:
    """Return the value as one line of at most 200 characters, or `otherwise` if empty."""
    text = str(value) if isinstance(value, str | int | float) else ""
    return printable(text[:200])[:200].strip() or otherwise


def as_seconds(value: Any) -> float | None:
    """Convert an ISO 8601 time (default zone: UTC) to seconds since 1970; None if invalid."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at < _LAST else None


def join_text(content: Any) -> str:
    """Return the text of a message content, which is text or a list of parts."""
    if isinstance(content, str):
        return content
    texts = (as_mapping(part).get("text") for part in as_list(content))
    return "\n".join(text for text in texts if isinstance(text, str))


def tool_call(name: Any, function: Any, arguments: Any, place: int) -> dict[str, Any]:
    """Build a tool call in the format of the chat protocol."""
    text = arguments if isinstance(arguments, str) else canonical_json(arguments).decode()
    return {
        "id": name if isinstance(name, str) and name else f"call_{place}",
        "type": "function",
        "function": {"name": as_text(function, 200), "arguments": text},
    }


def classify_error(*texts: str) -> TrialState:
    """Classify an error that ended a session, from its texts: a failure of the model or not."""
    is_failure = any(_MODEL_ERRORS.search(text[:2000]) for text in texts)
    return TrialState.FAILURE if is_failure else TrialState.INFRASTRUCTURE


class Conversation:
    """Messages of a session, collected one by one."""

    def __init__(self, at: float) -> None:
        self.records: list[MessageRecord] = []
        self.at = at
        """Time of the last message."""

    def say(self, turn: int, value: dict[str, Any], kind: str, at: float | None = None) -> int:
        """Add a message and return its position."""
        self.at = self.at if at is None else at
        position = len(self.records)
        self.records.append(MessageRecord(position, turn, Message(value), kind, self.at))
        return position


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """A run of another program with one model or agent."""

    source: str
    """Format of the log."""
    key: Sequence[str | int]
    """Values that identify the run; its id is computed from them."""
    model: str
    created_at: float
    configuration: Mapping[str, Any]
    provenance: Mapping[str, Any]
    status: Literal["finished", "incomplete"] = "finished"
    series: str = ""
    """Name common to all versions of the experiment (default: source and model)."""

    @property
    def id(self) -> str:
        """Id of the run in the database."""
        return derive_id(self.source, *self.key)

    def trace(
        self,
        *,
        session_id: str,
        task: str,
        imported: Imported,
        conversation: Conversation,
        end: EndRecord,
        seed: int | None = None,
        episode: int = 0,
        replicate: int = 0,
        difficulty: str | None = None,
        tools: Iterable[Any] = (),
        created_at: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        calls: Sequence[Any] = (),
        played: Sequence[Any] = (),
    ) -> Trace:
        """Build and check one session of the run.

        Raises:
            ValueError: It contains an invalid value.
        """
        offered = list(tools)
        header = SessionHeader(
            session_id=session_id,
            run_id=self.id,
            experiment_id=derive_id(self.id, self.model),
            subject=self.model,
            task=as_name(task, self.source),
            seed=seed if seed is not None and -(2**63) <= seed < 2**63 else None,
            episode=episode,
            replicate=replicate,
            created_at=self.created_at if created_at is None else created_at,
            difficulty=difficulty,
            tools=Encoded(offered) if offered else None,
            metadata={**(metadata or {}), **imported.metadata},
            trial_kind=StoredKind.IMPORTED.value,
        )
        session = SessionRecord(header, conversation.records, calls, played, end)
        trace = Trace(self._make_run(), self._make_experiment(), session, self.source)
        return parse_trace(dump_line(trace))

    def _make_run(self) -> StoredRun:
        return StoredRun(
            id=self.id,
            command=f"imported from {self.provenance.get('program', self.source)}",
            configuration=self.configuration,
            provenance=self.provenance,
            status=self.status,
            created_at=self.created_at,
            finished_at=None,
        )

    def _make_experiment(self) -> StoredExperiment:
        series = (self.series or f"{self.source} {self.model}")[:180]
        return StoredExperiment(
            id=derive_id(self.id, self.model),
            name=f"{series} v1.0",
            series=series,
            version="v1.0",
            position=0,
            model=self.model,
            fingerprint=content_hash(canonical_json([self.model, self.configuration])),
            description=None,
            created_at=self.created_at,
            updated_at=self.created_at,
            tags={},
        )


_ZSTD: Final = 93
_MAX_ENTRIES: Final = 200_000
_MAX_RATIO: Final = 1000
_SMALL: Final = 64 << 20
_LOCAL: Final = struct.Struct("<4s22xHH")
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, pa.ArrowException, OSError, struct.error)
_UNREADABLE: Final = (*_BROKEN, EOFError, NotImplementedError, RuntimeError, ValueError)


class Archive:
    """An open zip archive."""

    def __init__(self, zipped: zipfile.ZipFile, path: Path, limit: int) -> None:
        self._zip, self._path, self._limit = zipped, path, limit
        self._left = max(path.stat().st_size * _MAX_RATIO, _SMALL)
        self.names = list(dict.fromkeys(zipped.namelist()))
        """Names of its entries, in order."""

    def read(self, name: str) -> bytes:
        """Read an entry.

        Raises:
            UsageError: It is damaged, too large or missing.
        """
        limit = min(self._limit, self._left)
        try:
            info = self._zip.getinfo(name)
            if info.compress_type == _ZSTD:
                content = self._read_zstd(info, limit)
            else:
                with self._zip.open(info) as stream:
                    content = stream.read(limit + 1)
        except KeyError as error:
            raise UsageError(f"has no entry {name!r}") from error
        except _UNREADABLE as error:
            raise UsageError(f"entry {name!r} is damaged: {error}") from error
        self._left -= len(content)
        if len(content) > limit:
            raise UsageError(f"entry {name!r} unpacks to more than {limit >> 20} MB")
        return content

    def _read_zstd(self, info: zipfile.ZipInfo, limit: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            mark, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
            if mark != b"PK\3\4" or info.flag_bits & 1:
                raise zipfile.BadZipFile("its header is damaged, or it is encrypted")
            file.seek(name + extra, 1)
            packed = file.read(info.compress_size)
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            content: bytes = stream.read(limit + 1)
        if len(content) <= limit and zlib.crc32(content) != info.CRC:
            raise zipfile.BadZipFile("its checksum is wrong")
        return content


@contextmanager
def open_archive(path: Path, limit: int) -> Iterator[Archive]:
    """Open a zip archive; `limit` is the maximum size in bytes of an unpacked entry.

    Raises:
        UsageError: It is not a valid zip archive.
    """
    try:
        zipped = zipfile.ZipFile(path)
    except _UNREADABLE as error:
        raise UsageError(f"is not a complete zip archive: {error}") from error
    with zipped:
        if len(zipped.filelist) > _MAX_ENTRIES:
            raise UsageError(f"has more than {_MAX_ENTRIES} entries")
        yield Archive(zipped, path, limit)
