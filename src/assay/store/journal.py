"""Append-only journal of one session. One writer per file. Does not use DuckDB.

A line is a checksum of 8 hexadecimal digits, a space, a hash of the previous line, a space, and
compact JSON; the checksum covers everything after it. The first line has no hash, nor have
lines written by earlier versions of assay. A missing, repeated or foreign line is detected by
the hash in the next one.
The JSON is a header, a call with the messages made for it, messages that belong to no call,
the actions played from a reply, or an end; an end followed by another line is void. Each line
is written by one system call on a descriptor opened for it alone, so that a thousand sessions
hold no descriptors open, and a process that dies leaves at most its last line incomplete. After
a power failure, the lines that were synced to disk are still there.
Times are whole microseconds, as in the database. Messages are written as the bytes from which
their hashes were computed.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar
from zlib import crc32

from assay.core.canonical_json import canonical_json, content_hash, parse_json
from assay.core.files import find_free_path, sync_now, sync_soon
from assay.errors import JournalError, UsageError
from assay.store.codec import encode, from_row, get_fields_with_rows, read_record, read_rows
from assay.store.records import (
    CallRecord,
    EndRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
)

FORMAT: Final = "assay-journal/1"
"""Format name, in the header of a journal."""

Line: TypeAlias = dict[str, Any]
"""A parsed line of a journal; `kind` says what it contains."""

_T = TypeVar("_T")
_MESSAGE: Final = ("position", "turn", "message_type", "at", "message")
"""Fields of a message in a line, in order."""


def _encode(kind: str, record: object = None, **more: Any) -> bytes:
    values = {} if record is None else get_fields_with_rows(record)
    try:
        return encode({"kind": kind, **values, **more})
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a record of kind {kind!r} cannot be serialised to JSON: {error}; "
            "use plain numbers, text, lists and objects, and no NaN"
        ) from None


def header_line(header: SessionHeader) -> bytes:
    """Encode the first line of a journal."""
    return _encode("header", header, format=FORMAT)


def call_line(call: CallRecord, messages: Sequence[MessageRecord]) -> bytes:
    """Encode a call, with the messages created since the previous call."""
    return _add_messages(_encode("call", call), messages)


def messages_line(messages: Sequence[MessageRecord]) -> bytes:
    """Encode messages that belong to no call."""
    return _add_messages(_encode("messages"), messages)


def played_line(played: PlayedRecord) -> bytes:
    """Encode the actions played from a reply."""
    return _encode("played", played)


def end_line(end: EndRecord) -> bytes:
    """Encode the end of a session."""
    return _encode("end", end)


def session_lines(session: SessionRecord) -> Iterator[bytes]:
    """Yield all lines after the header of an unfinished session, in their original order."""
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


def _add_messages(line: bytes, messages: Sequence[MessageRecord]) -> bytes:
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


def _read_messages(rows: Sequence[Any]) -> list[MessageRecord]:
    return [read_record(MessageRecord, from_row(_MESSAGE, row), bounded=False) for row in rows]


def _read_header(line: Mapping[str, Any]) -> SessionHeader:
    if line.get("kind") != "header":
        raise ValueError("not the header of a journal")
    values = {name: value for name, value in line.items() if name not in ("kind", "format")}
    return read_rows(SessionHeader, values)


def build_session(path: Path, lines: Sequence[Line]) -> SessionRecord:
    """Build the session of a journal from its lines, which are modified.

    `path` is used only in error messages.
    """
    if not lines:
        raise JournalError(f"{path} has no header")
    if lines[0].get("kind") == "header" and (form := lines[0].get("format")) != FORMAT:
        raise JournalError(f"{path} has format {form!r}, but this assay reads {FORMAT!r}")
    messages: list[MessageRecord] = []
    calls: list[CallRecord] = []
    played: list[PlayedRecord] = []
    end: EndRecord | None = None
    number = 1
    try:
        header = _read_header(lines[0])
        for number, line in enumerate(lines[1:], start=2):  # noqa: B007 (for the message)
            kind = line.pop("kind")
            # A line after an end voids it: the session was resumed.
            end = None
            match kind:
                case "messages":
                    messages += _read_messages(line["messages"])
                case "call":
                    messages += _read_messages(line.pop("messages"))
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
"""End of the hash of the previous line."""
_APPEND = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class Journal:
    """Writer of the journal of one session; the file is closed between lines."""

    __slots__ = ("_last", "path")

    def __init__(self, path: Path, last: bytes = b"") -> None:
        """Set the file; `last` is its last line, if any."""
        self.path = path
        self._last = last

    @classmethod
    def create(cls, path: Path, begun: SessionHeader | SessionRecord) -> Self:
        """Start a journal; raise JournalError if one with a header exists.

        If `begun` is a session, as in a fork, its lines are written all or not at all.
        """
        if not is_blank(path):
            raise JournalError(f"{path} exists already; resume its run, or move it away")
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
        """Open a journal to continue it; an incomplete last line is removed."""
        content = _read_content(path)
        lines, good = _parse_lines(path, content)
        record = build_session(path, lines)
        if good < len(content):
            os.truncate(path, good)
        return cls(path, content[content.rfind(b"\n", 0, good - 1) + 1 : good - 1]), record

    def append_call(self, call: CallRecord, messages: Sequence[MessageRecord]) -> None:
        """Record a call and the messages created since the previous call."""
        self.append(call_line(call, messages))

    def append_played(self, played: PlayedRecord) -> None:
        """Record the actions played from a reply."""
        self.append(played_line(played))

    def append_messages(self, messages: Sequence[MessageRecord]) -> None:
        """Record messages that belong to no call."""
        self.append(messages_line(messages))

    def append_end(self, end: EndRecord) -> None:
        """Record how the session ended."""
        self.append(end_line(end))

    async def wait_until_written(self) -> None:
        """Wait until every line is in the file; here, `append` has written it already."""

    def append(self, body: bytes, flags: int = 0) -> None:
        """Write a line; it is synced to disk soon after."""
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
        # The disk is full: remove the partial line, so that no other line follows it.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_journal(path: Path) -> SessionRecord:
    """Read a journal without changing the file; an incomplete last line is ignored."""
    lines, _ = _parse_lines(path, _read_content(path))
    return build_session(path, lines)


def read_session(path: Path, run_id: str) -> SessionRecord:
    """Read the journal of a session, and check that it belongs to the file name and the run.

    Raises:
        JournalError: The file cannot be read, or contains another session.
    """
    session = read_journal(path)
    named = path.name.rpartition(".jsonl")[0]
    for what, found, right in (
        ("session", session.header.session_id, named),
        ("run", session.header.run_id, run_id),
    ):
        if found != right:
            raise JournalError(
                f"{path} does not match its name: it contains {what} {found!r}, not {right!r}"
            )
    return session


def is_blank(path: Path) -> bool:
    """Return whether the journal is missing or has no complete first line."""
    try:
        with path.open("rb") as file:
            return not file.readline().endswith(b"\n")
    except FileNotFoundError:
        return True
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error


def set_aside_damaged(path: Path) -> Path:
    """Move a damaged journal out of its run folder, which is about to be deleted."""
    folder = path.parent
    target = find_free_path(folder.with_name(f"{folder.name}.{path.name}.damaged"))
    path.rename(target)
    return target


def set_aside_restarted(path: Path) -> Path:
    """Rename the journal of a trial that is restarted; it is kept for the cost it records."""
    number = 1
    while (target := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    path.rename(target)
    return target


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error


def _parse_lines(path: Path, content: bytes) -> tuple[list[Line], int]:
    """Return the complete lines of a journal, and their size in bytes."""
    raw = content.split(b"\n")[:-1]
    lines: list[Line] = []
    good = 0
    linked = False
    before = b""
    for number, line in enumerate(raw, start=1):
        parsed = _parse_line(line)
        if parsed is None:
            if number == len(raw):
                # After a power failure, a file may have the length of a line but not its bytes.
                break
            raise JournalError(f"{path} is damaged in line {number} of {len(raw)}")
        link, values = parsed
        linked = linked or bool(link)
        if linked and link != content_hash(before).encode():
            fault = "is repeated" if line == before else "does not follow the previous line"
            raise JournalError(
                f"{path} is damaged: line {number} of {len(raw)} {fault}; lines were removed, "
                "added or moved"
            )
        lines.append(values)
        good += len(line) + 1
        before = line
    return lines, good


def _parse_line(line: bytes) -> tuple[bytes, Line] | None:
    """Return the hash of the previous line (empty if absent) and the content of a line."""
    try:
        if line[8:9] != b" " or int(line[:8], 16) != crc32(line[9:]):
            return None
        link = line[9:_LINKED] if line[9:10] != b"{" else b""
        parsed = parse_json(line[_LINKED + 1 if link else 9 :])
    except ValueError:
        return None
    return (link, parsed) if isinstance(parsed, dict) else None
