"""Append-only journal of one session. One writer per file. Knows nothing of DuckDB.

A line is a checksum of 8 hexadecimal digits, a space, a hash of the line before, a space, and
compact JSON; the checksum is of all that follows it. The first line has no such hash, nor have
lines that an earlier assay wrote. A line that is missing, doubled or from elsewhere is noticed
by the hash of the next.
The JSON is a header, a call with the messages made for it, messages that belong to no call,
what was played of an answer, or an end; an end that something follows was taken back. Each is
written by one system call on a descriptor opened for it alone, so that a thousand open
sessions hold no descriptors, and a process that dies leaves at most its last line torn. A
machine that loses power keeps what `syncing` has brought to disk.
Times are kept in whole microseconds, as the database keeps them.

The lines of a journal as JSON, and back.

Messages go into a line as the bytes they were hashed by.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar
from zlib import crc32

from assay.core.canonical_json import canonical_json, content_hash, parse_json
from assay.core.files import free_path, sync_now, sync_soon
from assay.errors import JournalError, UsageError
from assay.store.codec import encode, from_row, read_record, read_rows, with_rows
from assay.store.records import (
    CallRecord,
    EndRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
)

FORMAT: Final = "assay-journal/1"
"""What a header says it is the header of."""

Line: TypeAlias = dict[str, Any]
"""A line of a journal that was read, by its `kind`."""

_T = TypeVar("_T")
_MESSAGE: Final = ("position", "turn", "message_type", "at", "message")
"""The fields of a message in a line: its bytes come last."""


def _encode(kind: str, record: object = None, **more: Any) -> bytes:
    values = {} if record is None else with_rows(record)
    try:
        return encode({"kind": kind, **values, **more})
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a record of kind {kind!r} has no JSON form: {error}; "
            "use plain numbers, text, lists and objects, and no NaN"
        ) from None


def header_line(header: SessionHeader) -> bytes:
    """The first line of a journal."""
    return _encode("header", header, format=FORMAT)


def call_line(call: CallRecord, messages: Sequence[MessageRecord]) -> bytes:
    """A call, with the messages that were made since the last one."""
    return _with_messages(_encode("call", call), messages)


def messages_line(messages: Sequence[MessageRecord]) -> bytes:
    """Messages that belong to no call."""
    return _with_messages(_encode("messages"), messages)


def played_line(played: PlayedRecord) -> bytes:
    """What was played of an answer."""
    return _encode("played", played)


def end_line(end: EndRecord) -> bytes:
    """How a session ended."""
    return _encode("end", end)


def session_lines(session: SessionRecord) -> Iterator[bytes]:
    """All lines after the header of a session that has no end, in the order they came about."""
    messages = deque(session.messages)
    calls = deque(session.calls)
    for played in session.played:
        while calls and calls[0].turn <= played.turn:
            call = calls.popleft()
            made = []
            while messages and messages[0].position <= call.reply:
                made.append(messages.popleft())
            yield call_line(call, made)
        yield played_line(played)


def _with_messages(line: bytes, messages: Sequence[MessageRecord]) -> bytes:
    parts = [
        b"[%s,%s]"
        % (
            canonical_json(
                (record.position, record.turn, record.message_type, round(record.at, 6))
            )[1:-1],
            record.message.encoded,
        )
        for record in messages
    ]
    return b'%s,"messages":[%s]}' % (line[:-1], b",".join(parts))


def _messages(rows: Sequence[Any]) -> list[MessageRecord]:
    return [read_record(MessageRecord, from_row(_MESSAGE, row), bounded=False) for row in rows]


def _header(line: Mapping[str, Any]) -> SessionHeader:
    if line.get("kind") != "header":
        raise ValueError("not the header of a journal")
    values = {name: value for name, value in line.items() if name not in ("kind", "format")}
    return read_rows(SessionHeader, values)


def gather(path: Path, lines: Sequence[Line]) -> SessionRecord:
    """Put the lines of a journal together, which uses them up; `path` is for messages only."""
    if not lines:
        raise JournalError(f"{path} has no header")
    if lines[0].get("kind") == "header" and (said := lines[0].get("format")) != FORMAT:
        raise JournalError(f"{path} is in the format {said!r}, and this assay reads {FORMAT!r}")
    messages: list[MessageRecord] = []
    calls: list[CallRecord] = []
    played: list[PlayedRecord] = []
    end: EndRecord | None = None
    number = 1
    try:
        header = _header(lines[0])
        for number, line in enumerate(lines[1:], start=2):  # noqa: B007 (for the message)
            kind = line.pop("kind")
            # Whatever follows an end takes it back: the session was resumed.
            end = None
            match kind:
                case "messages":
                    messages += _messages(line["messages"])
                case "call":
                    messages += _messages(line.pop("messages"))
                    calls.append(read_rows(CallRecord, line))
                case "played":
                    played.append(read_rows(PlayedRecord, line))
                case "end":
                    end = read_rows(EndRecord, line)
                case _:
                    raise ValueError(f"unknown kind {kind!r}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise JournalError(f"{path} is damaged in line {number}: {error}") from None
    return SessionRecord(header, messages, calls, played, end)


_LINKED = 9 + 32
"""Where the hash of the line before ends."""
_APPEND = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class Journal:
    """Writes the journal of one session; nothing is held open between two lines."""

    __slots__ = ("_last", "path")

    def __init__(self, path: Path, last: bytes = b"") -> None:
        """Name a file; `last` is its last line, if it has one."""
        self.path = path
        self._last = last

    @classmethod
    def create(cls, path: Path, begun: SessionHeader | SessionRecord) -> Self:
        """Start a journal; one that has at least its header is not touched.

        A session that is begun elsewhere is there as a whole, or not at all.
        """
        if not is_blank(path):
            raise JournalError(f"{path} is already there; resume its run, or move it away")
        if isinstance(begun, SessionHeader):
            journal = cls(path)
            journal.append(header_line(begun), os.O_CREAT | os.O_TRUNC)
            return journal
        journal = cls(path.with_name(f"{path.name}.part"))
        journal.append(header_line(begun.header), os.O_CREAT | os.O_TRUNC)
        for line in session_lines(begun):
            journal.append(line)
        try:
            sync_now(journal.path)
            journal.path = journal.path.rename(path)
        except OSError as error:
            raise JournalError(f"cannot write to {path}: {error.strerror}") from error
        sync_soon(path, path.parent)
        return journal

    @classmethod
    def reopen(cls, path: Path) -> tuple[Self, SessionRecord]:
        """Go on with a journal, without its torn last line if it has one."""
        content = _content(path)
        lines, good = _lines(path, content)
        record = gather(path, lines)
        if good < len(content):
            os.truncate(path, good)
        return cls(path, content[content.rfind(b"\n", 0, good - 1) + 1 : good - 1]), record

    def append_call(self, call: CallRecord, messages: Sequence[MessageRecord]) -> None:
        """Record a call and the messages that were made since the last one."""
        self.append(call_line(call, messages))

    def append_played(self, played: PlayedRecord) -> None:
        """Record what was played of an answer."""
        self.append(played_line(played))

    def append_messages(self, messages: Sequence[MessageRecord]) -> None:
        """Record messages that belong to no call."""
        self.append(messages_line(messages))

    def append_end(self, end: EndRecord) -> None:
        """Record how the session ended."""
        self.append(end_line(end))

    async def kept(self) -> None:
        """Return once every line is in the file; here each is, as soon as it was appended."""

    def append(self, body: bytes, flags: int = 0) -> None:
        """Write a line, which is brought to disk within a moment."""
        if self._last:
            body = b"%s %s" % (content_hash(self._last).encode(), body)
        line = b"%08x %s" % (crc32(body), body)
        try:
            descriptor = os.open(self.path, _APPEND | flags, 0o666)
            try:
                _write(descriptor, line + b"\n")
            finally:
                os.close(descriptor)
            self._last = line
            sync_soon(self.path, *([self.path.parent] if flags else ()))
        except OSError as error:
            raise JournalError(
                f"cannot write to {self.path}: {error.strerror}; free space or make the folder "
                "writable, then resume the run"
            ) from error


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    if written < len(data):
        # A full disk takes a part of a line; the next one must not follow it.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_journal(path: Path) -> SessionRecord:
    """Read a journal, leaving the file as it is; a torn last line is not part of it."""
    lines, _ = _lines(path, _content(path))
    return gather(path, lines)


def read_session(path: Path, run_id: str) -> SessionRecord:
    """Read the journal of a session of a run, which must be the one that its name says.

    Raises:
        JournalError: It cannot be read, or is that of another session.
    """
    session = read_journal(path)
    named = path.name.rpartition(".jsonl")[0]
    for what, found, right in (
        ("session", session.header.session_id, named),
        ("run", session.header.run_id, run_id),
    ):
        if found != right:
            raise JournalError(
                f"{path} is not what its name says: it holds {what} {found!r}, not {right!r}"
            )
    return session


def is_blank(path: Path) -> bool:
    """Whether there is no journal, or one whose process died before the first line."""
    try:
        with path.open("rb") as file:
            return not file.readline().endswith(b"\n")
    except FileNotFoundError:
        return True
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error


def set_aside(path: Path) -> Path:
    """Move a damaged journal out of the folder of its run, which is about to go."""
    folder = path.parent
    target = free_path(folder.with_name(f"{folder.name}.{path.name}.damaged"))
    path.rename(target)
    return target


def put_aside(path: Path) -> Path:
    """Rename the journal of a trial that is tried anew; it still tells what that cost."""
    number = 1
    while (target := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(target)
    return target


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error


def _lines(path: Path, content: bytes) -> tuple[list[Line], int]:
    """The whole lines of a journal, and how many bytes they fill."""
    raw = content.split(b"\n")[:-1]
    lines: list[Line] = []
    good = 0
    linked = False
    before = b""
    for number, line in enumerate(raw, start=1):
        parsed = _parse(line)
        if parsed is None:
            if number == len(raw):
                # A machine that lost power may keep the length of a line and not its bytes.
                break
            raise JournalError(f"{path} is damaged in line {number} of {len(raw)}")
        link, values = parsed
        linked = linked or bool(link)
        if linked and link != content_hash(before).encode():
            twice = "is there twice" if line == before else "does not follow the one before"
            raise JournalError(
                f"{path} is damaged: line {number} of {len(raw)} {twice}; lines were removed, "
                "added or moved"
            )
        lines.append(values)
        good += len(line) + 1
        before = line
    return lines, good


def _parse(line: bytes) -> tuple[bytes, Line] | None:
    """The hash of the line before, if it has one, and what the line says."""
    try:
        if line[8:9] != b" " or int(line[:8], 16) != crc32(line[9:]):
            return None
        link = line[9:_LINKED] if line[9:10] != b"{" else b""
        parsed = parse_json(line[_LINKED + 1 if link else 9 :])
    except ValueError:
        return None
    return (link, parsed) if isinstance(parsed, dict) else None
