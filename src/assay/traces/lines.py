"""The lines of a journal as JSON, and back.

Messages go into a line as the bytes they were hashed by.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from assay._util.canonical import canonical_json
from assay.errors import JournalError, UsageError

from .codec import encode, from_row, read_record, read_rows, with_rows
from .records import (
    CallRecord,
    EndRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
)

__all__ = [
    "FORMAT",
    "Line",
    "call_line",
    "end_line",
    "gather",
    "header_line",
    "messages_line",
    "played_line",
    "session_lines",
]

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
