"""What the readers of other programs' logs share.

Logs come from anywhere. Values are taken one by one, each only if it has the type and the
size that our columns allow; what is missing stays unknown. The session that comes of it is
checked once more, as if it had been read from a file of our own format.

The entries of a zip archive from anywhere, read with bounds.

Knows the compression that Inspect uses (Zstandard), which the standard library of most
versions of Python cannot read. An archive cannot make a reader unpack more than a thousand
times its own size, or an entry that is larger than the limit.
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

from assay.core.canonical_json import canonical_json, content_hash, derived_id
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
_MODEL_IS_TO_BLAME: Final = re.compile(
    r"context.{0,12}(length|window)|output.?length|too many tokens"
    r"|content.?(filter|policy)|refus",
    re.IGNORECASE,
)


def load_object(content: bytes) -> dict[str, Any]:
    """A JSON object; numbers that are not finite are missing.

    Raises:
        UsageError: It is none, or too large to be read.
    """
    check_parts(content)
    try:
        value = json.loads(content, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not whole, valid JSON: {printable(str(error))[:200]}") from error
    if not isinstance(value, dict):
        raise UsageError("is not a trace: it must be a JSON object")
    return value


def as_mapping(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one in its place."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, or an empty one in its place."""
    return value if isinstance(value, list) else []


def as_number(value: Any) -> float | None:
    """A number that is not too large for anything it could mean."""
    if isinstance(value, int | float) and -_LARGE < value < _LARGE:
        return float(value)
    return None


def as_cost(value: Any) -> float | None:
    """Dollars.

    Raises:
        UsageError: They are below 0.
    """
    cost = as_number(value)
    if cost is not None and cost < 0:
        raise UsageError(f"has a cost of {cost:g} dollars; correct it to 0 or more")
    return cost


def as_count(value: Any) -> int:
    """A count that fits a column of 32 bits; 0 in the place of anything else."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**31 else 0


def as_text(value: Any, longest: int = _LONGEST_TEXT) -> str:
    """A text, cut where it gets too long; empty in the place of anything else."""
    return value[:longest] if isinstance(value, str) else ""


def as_name(value: Any, otherwise: str) -> str:
    """A text for a column of names: one line of 1 to 200 characters."""
    text = str(value) if isinstance(value, str | int | float) else ""
    return printable(text[:200])[:200].strip() or otherwise


def as_seconds(value: Any) -> float | None:
    """A time in ISO 8601 as seconds since 1970; without a zone it is UTC."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at < _LAST else None


def flat_text(content: Any) -> str:
    """What a content says: itself, or the texts of its parts."""
    if isinstance(content, str):
        return content
    texts = (as_mapping(part).get("text") for part in as_list(content))
    return "\n".join(text for text in texts if isinstance(text, str))


def tool_call(name: Any, function: Any, arguments: Any, place: int) -> dict[str, Any]:
    """A call of a tool in the shape of the chat protocol."""
    said = arguments if isinstance(arguments, str) else canonical_json(arguments).decode()
    return {
        "id": name if isinstance(name, str) and name else f"call_{place}",
        "type": "function",
        "function": {"name": as_text(function, 200), "arguments": said},
    }


def blame(*said: str) -> TrialState:
    """Who is to blame for an error that ended a session, by what was said about it."""
    guilty = any(_MODEL_IS_TO_BLAME.search(text[:2000]) for text in said)
    return TrialState.FAILURE if guilty else TrialState.INFRASTRUCTURE


class Conversation:
    """The messages of a session, as they are found."""

    def __init__(self, at: float) -> None:
        self.records: list[MessageRecord] = []
        self.at = at
        """When the last thing happened."""

    def say(self, turn: int, value: dict[str, Any], kind: str, at: float | None = None) -> int:
        """Add a message; returns its position."""
        self.at = self.at if at is None else at
        position = len(self.records)
        self.records.append(MessageRecord(position, turn, Message(value), kind, self.at))
        return position


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """A run of another program: one subject, some sessions."""

    source: str
    """The format it is told in."""
    key: Sequence[str | int]
    """What tells it from others; its id follows from that."""
    model: str
    created_at: float
    configuration: Mapping[str, Any]
    provenance: Mapping[str, Any]
    status: Literal["finished", "incomplete"] = "finished"
    series: str = ""
    """What one follows over time; source and model unless given."""

    @property
    def id(self) -> str:
        """Its id here."""
        return derived_id(self.source, *self.key)

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
        """One session of the run, checked.

        Raises:
            ValueError: It holds what no session may hold.
        """
        offered = list(tools)
        header = SessionHeader(
            session_id=session_id,
            run_id=self.id,
            experiment_id=derived_id(self.id, self.model),
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
        trace = Trace(self._run(), self._experiment(), session, self.source)
        return parse_trace(dump_line(trace))

    def _run(self) -> StoredRun:
        return StoredRun(
            id=self.id,
            command=f"imported from {self.provenance.get('program', self.source)}",
            configuration=self.configuration,
            provenance=self.provenance,
            status=self.status,
            created_at=self.created_at,
            finished_at=None,
        )

    def _experiment(self) -> StoredExperiment:
        series = (self.series or f"{self.source} {self.model}")[:180]
        return StoredExperiment(
            id=derived_id(self.id, self.model),
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
    """An open archive."""

    def __init__(self, zipped: zipfile.ZipFile, path: Path, limit: int) -> None:
        self._zip, self._path, self._limit = zipped, path, limit
        self._left = max(path.stat().st_size * _MAX_RATIO, _SMALL)
        self.names = list(dict.fromkeys(zipped.namelist()))
        """The names of its entries, in their order."""

    def read(self, name: str) -> bytes:
        """The content of an entry.

        Raises:
            UsageError: It is damaged, too large, or not there.
        """
        limit = min(self._limit, self._left)
        try:
            info = self._zip.getinfo(name)
            if info.compress_type == _ZSTD:
                content = self._zstd(info, limit)
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

    def _zstd(self, info: zipfile.ZipInfo, limit: int) -> bytes:
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
    """Open a zip archive; `limit` is the most bytes an entry may unpack to.

    Raises:
        UsageError: It is none.
    """
    try:
        zipped = zipfile.ZipFile(path)
    except _UNREADABLE as error:
        raise UsageError(f"is not a whole zip archive: {error}") from error
    with zipped:
        if len(zipped.filelist) > _MAX_ENTRIES:
            raise UsageError(f"has more than {_MAX_ENTRIES} entries")
        yield Archive(zipped, path, limit)
