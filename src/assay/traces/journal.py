"""Append-only journal of one session. One writer per file. Knows nothing of DuckDB.

A line is a checksum of 8 hexadecimal digits, a space, and compact JSON. It is a header, a call
with the messages made for it, messages that belong to no call, what was played of an answer,
or an end; an end that something follows was taken back. Each is written by one system call
on a descriptor opened for it alone, so that a thousand open sessions hold no descriptors,
and a process that dies leaves at most its last line torn.
Times are kept in whole microseconds, as the database keeps them.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from assay._util.canonical import parse_json
from assay.errors import JournalError

from .lines import (
    Line,
    call_line,
    end_line,
    gather,
    header_line,
    messages_line,
    played_line,
)
from .records import (
    CallRecord,
    EndRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
)

__all__ = ["Journal", "is_blank", "put_aside", "read_journal", "set_aside"]


_APPEND = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class Journal:
    """Writes the journal of one session; nothing is held open between two lines."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, header: SessionHeader) -> Self:
        """Start a journal; one that has at least its header is not touched."""
        if not is_blank(path):
            raise JournalError(f"{path} is already there; resume its run, or move it away")
        journal = cls(path)
        journal.append(header_line(header), os.O_CREAT | os.O_TRUNC)
        return journal

    @classmethod
    def reopen(cls, path: Path) -> tuple[Self, SessionRecord]:
        """Go on with a journal, without its torn last line if it has one."""
        content = _content(path)
        lines, good = _lines(path, content)
        record = gather(path, lines)
        if good < len(content):
            os.truncate(path, good)
        return cls(path), record

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
        """Return once every line is on disk; here each is, as soon as it was appended."""

    def append(self, body: bytes, flags: int = 0) -> None:
        """Write a line."""
        data = b"%08x %s\n" % (crc32(body), body)
        try:
            descriptor = os.open(self.path, _APPEND | flags, 0o666)
            try:
                _write(descriptor, data)
            finally:
                os.close(descriptor)
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
    """Rename a damaged journal, so that nothing takes it for a whole one."""
    target = path.with_name(f"{path.name}.damaged")
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
    for number, line in enumerate(raw, start=1):
        parsed = _parse(line)
        if parsed is None:
            if number == len(raw):
                # A machine that lost power may keep the length of a line and not its bytes.
                break
            raise JournalError(f"{path} is damaged in line {number} of {len(raw)}")
        lines.append(parsed)
        good += len(line) + 1
    return lines, good


def _parse(line: bytes) -> Any:
    try:
        if line[8:9] != b" " or int(line[:8], 16) != crc32(line[9:]):
            return None
        parsed = parse_json(line[9:])
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
