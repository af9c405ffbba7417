"""`assay-trace/1`: one session as JSON, complete and exact.

`parse_trace(dump_trace(trace))` is `trace`. A file has one line for each message, call
and turn, so that it can be searched and compared; in JSON Lines a session is one line.
Its fields are those of the records, but for the few that are named here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from assay.core.canonical_json import canonical_json, parse_json
from assay.core.text import cut, shown
from assay.core.values import Name
from assay.errors import UsageError
from assay.store.codec import encode, fields_of, read_record
from assay.store.records import (
    CallRecord,
    EndRecord,
    MessageRecord,
    PlayedRecord,
    Record,
    SessionHeader,
    SessionRecord,
    StoredExperiment,
    StoredRun,
    Trace,
)

FORMAT: Final = "assay-trace/1"
"""What the field `format` of every file says."""
_MOST_PARTS: Final = 5_000_000
"""Lists and objects of a file; each takes up to 232 bytes."""

_OTHER_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "session": ("session_id", "id"),
    "messages": ("message_type", "type"),
}
"""By part of the file: a field of the record, and its name in the file."""
_BESIDE: Final = {"run_id": "run", "experiment_id": "experiment"}
"""Fields of the session that the file says elsewhere: they are the ids of these parts."""


@dataclass(frozen=True, slots=True)
class _File(Record):
    format: Literal["assay-trace/1"]
    run: StoredRun
    experiment: StoredExperiment
    session: SessionHeader
    messages: list[MessageRecord]
    calls: list[CallRecord]
    played: list[PlayedRecord]
    end: EndRecord
    source: Name = "assay"


def dump_trace(trace: Trace) -> bytes:
    """A session as a file of its own."""
    fields = (
        canonical_json(name) + b": " + (value if isinstance(value, bytes) else _lines(value))
        for name, value in _parts(trace).items()
    )
    return b"{\n" + b",\n".join(fields) + b"\n}\n"


def dump_line(trace: Trace) -> bytes:
    """A session as one line of JSON Lines."""
    fields = (
        canonical_json(name)
        + b":"
        + (value if isinstance(value, bytes) else b"[" + b",".join(value) + b"]")
        for name, value in _parts(trace).items()
    )
    return b"{" + b",".join(fields) + b"}\n"


def _lines(items: Iterable[bytes]) -> bytes:
    inside = b",\n ".join(items)
    return b"[\n " + inside + b"\n]" if inside else b"[]"


def _parts(trace: Trace) -> dict[str, bytes | list[bytes]]:
    session = trace.session
    about = fields_of(session.header)
    for name in _BESIDE:
        del about[name]
    return {
        "format": canonical_json(FORMAT),
        "source": canonical_json(trace.source),
        "run": encode(trace.run),
        "experiment": encode(trace.experiment),
        "session": encode(_renamed("session", about)),
        "messages": [_message(record) for record in session.messages],
        "calls": [encode(call) for call in session.calls],
        "played": [encode(played) for played in session.played],
        "end": encode(session.end),
    }


def _message(record: MessageRecord) -> bytes:
    # The message has its bytes already, and they are what its hash is of.
    about = fields_of(record)
    del about["message"]
    start = encode(_renamed("messages", about))[:-1]
    return start + b',"message":' + record.message.encoded + b"}"


def _renamed(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Exchange the two names of a part; doing it twice changes nothing."""
    ours, theirs = _OTHER_NAMES[part]
    names = {ours: theirs, theirs: ours}
    return {names.get(name, name): value for name, value in values.items()}


def check_parts(content: bytes) -> None:
    """Refuse JSON that would take a hundred times its own size of memory.

    Raises:
        UsageError: It has too many lists and objects.
    """
    # Brackets in texts count too: it is an upper bound, and quick.
    parts = content.count(b"[") + content.count(b"{")
    if parts > _MOST_PARTS:
        raise UsageError(
            f"holds {parts:,} lists and objects, and at most {_MOST_PARTS:,} are read; split it"
        )


def parse_trace(content: bytes) -> Trace:
    """Read a session from JSON.

    Raises:
        UsageError: It is not JSON, not of this format, or contradicts itself; says where.
    """
    check_parts(content)
    try:
        value = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not whole, valid JSON: {cut(str(error), 200)}") from error
    if not isinstance(value, dict):
        raise UsageError(f"must be an object, got {shown(value, 60)}")
    if value.get("format") != FORMAT:
        raise UsageError(_other_format(value.get("format", value.get("schema_version"))))
    try:
        file = read_record(_File, _as_records(value), place=_place)
    except RecursionError as error:
        raise UsageError("is nested too deeply to be JSON of ours") from error
    session = SessionRecord(file.session, file.messages, file.calls, file.played, file.end)
    trace = Trace(file.run, file.experiment, session, file.source)
    _check(trace)
    return trace


def _other_format(found: object) -> str:
    if isinstance(found, str):
        return f"has the format {shown(found, 60)}, which cannot be imported"
    return f"is not a trace: its field 'format' must be {FORMAT!r}"


def _as_records(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file with the names of the records; what has another shape stays as it is."""
    value = dict(file)
    if isinstance(session := value.get("session"), dict):
        parts = {name: value.get(part) for name, part in _BESIDE.items()}
        ids = {name: part.get("id") for name, part in parts.items() if isinstance(part, dict)}
        value["session"] = {**ids, **_renamed("session", session)}
    if isinstance(messages := value.get("messages"), list):
        value["messages"] = [
            _renamed("messages", message) if isinstance(message, dict) else message
            for message in messages
        ]
    return value


def _place(parts: Sequence[str | int]) -> Iterator[str | int]:
    """Where something is wrong, in the names of the file."""
    names = _OTHER_NAMES.get(str(parts[0])) if parts else None
    for part in parts:
        yield names[1 - names.index(str(part))] if names and part in names else part


def _check(trace: Trace) -> None:
    """Complain about fields that are fine alone and wrong together."""
    session, header = trace.session, trace.session.header
    for name, theirs, ours in (
        ("run_id", header.run_id, trace.run.id),
        ("experiment_id", header.experiment_id, trace.experiment.id),
    ):
        if theirs != ours:
            _wrong(f"session.{name}", theirs, f"expected {ours!r}, which stands beside it")
    count = len(session.messages)
    for index, record in enumerate(session.messages):
        if record.position != index:
            _wrong(f"messages.{index}.position", record.position, f"expected {index}")
        if not isinstance(record.message.value.get("role"), str):
            _wrong(f"messages.{index}.message", record.message.value, "it has no role")
    for index, (before, call) in enumerate(pairwise(session.calls), 1):
        if call.turn < before.turn:
            _wrong(f"calls.{index}.turn", call.turn, "turns must not go down")
    for index, (last, played) in enumerate(pairwise(session.played), 1):
        if played.turn <= last.turn:
            _wrong(f"played.{index}.turn", played.turn, "turns must go up")
    for index, call in enumerate(session.calls):
        for position in (*call.request, call.reply):
            if position >= count:
                _wrong(f"calls.{index}", position, f"there are {count} messages")
    steps = [step.index for played in session.played for step in played.steps]
    if steps != list(range(1, len(steps) + 1)):
        _wrong("played", "the steps", "their indexes must count 1, 2, 3 and so on")
    if session.end and session.end.outcomes and session.end.state != "result":
        _wrong("end.outcomes", session.end.state.value, "only a result has outcomes")


def _wrong(field: str, value: object, reason: str) -> None:
    raise UsageError(f"{field}: {shown(value, 60)} is not allowed; {reason}")
