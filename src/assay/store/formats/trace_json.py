"""`assay-trace/1`: one session as JSON, complete and exact.

`parse_trace(dump_trace(trace))` equals `trace`. A file has one line for each message, call
and turn, so that it can be searched and compared; in JSON Lines a session is one line.
Its fields are those of the records, except for a few listed here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from assay.core.canonical_json import canonical_json, parse_json
from assay.core.text import cut, shown
from assay.core.values import Name
from assay.errors import UsageError
from assay.store.codec import encode, get_fields, read_record
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
"""Value of the field `format` in every file."""
_MOST_PARTS: Final = 5_000_000
"""Maximum number of lists and objects in a file; each needs up to 232 bytes of memory."""

_OTHER_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "session": ("session_id", "id"),
    "messages": ("message_type", "type"),
}
"""Field of the record and its name in the file, by part of the file."""
_IDS: Final = {"run_id": "run", "experiment_id": "experiment"}
"""Fields of the session that are not written, because they are the ids of these parts."""


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
    """Convert a session to the content of a JSON file."""
    fields = (
        canonical_json(name)
        + b": "
        + (value if isinstance(value, bytes) else _join_lines(value))
        for name, value in _encode_parts(trace).items()
    )
    return b"{\n" + b",\n".join(fields) + b"\n}\n"


def dump_line(trace: Trace) -> bytes:
    """Convert a session to one line of JSON Lines."""
    fields = (
        canonical_json(name)
        + b":"
        + (value if isinstance(value, bytes) else b"[" + b",".join(value) + b"]")
        for name, value in _encode_parts(trace).items()
    )
    return b"{" + b",".join(fields) + b"}\n"


def _join_lines(items: Iterable[bytes]) -> bytes:
    inside = b",\n ".join(items)
    return b"[\n " + inside + b"\n]" if inside else b"[]"


def _encode_parts(trace: Trace) -> dict[str, bytes | list[bytes]]:
    session = trace.session
    about = get_fields(session.header)
    for name in _IDS:
        del about[name]
    return {
        "format": canonical_json(FORMAT),
        "source": canonical_json(trace.source),
        "run": encode(trace.run),
        "experiment": encode(trace.experiment),
        "session": encode(_rename("session", about)),
        "messages": [_encode_message(record) for record in session.messages],
        "calls": [encode(call) for call in session.calls],
        "played": [encode(played) for played in session.played],
        "end": encode(session.end),
    }


def _encode_message(record: MessageRecord) -> bytes:
    # The bytes of the message are kept, because its hash is computed from them.
    about = get_fields(record)
    del about["message"]
    start = encode(_rename("messages", about))[:-1]
    return start + b',"message":' + record.message.encoded + b"}"


def _rename(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Exchange the two names of a part's field; applying it twice restores the fields."""
    ours, theirs = _OTHER_NAMES[part]
    names = {ours: theirs, theirs: ours}
    return {names.get(name, name): value for name, value in values.items()}


def check_parts(content: bytes) -> None:
    """Raise UsageError for JSON with so many lists and objects that memory could run out."""
    # An upper bound that is quick to compute: it also counts brackets in texts.
    parts = content.count(b"[") + content.count(b"{")
    if parts > _MOST_PARTS:
        raise UsageError(
            f"has {parts:,} lists and objects, but at most {_MOST_PARTS:,} are read; split it"
        )


def parse_trace(content: bytes) -> Trace:
    """Read a session from JSON.

    Raises:
        UsageError: It is not JSON, has another format, or is inconsistent.
    """
    check_parts(content)
    try:
        value = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not complete, valid JSON: {cut(str(error), 200)}") from error
    if not isinstance(value, dict):
        raise UsageError(f"must be an object, got {shown(value, 60)}")
    if value.get("format") != FORMAT:
        raise UsageError(_describe_format(value.get("format", value.get("schema_version"))))
    try:
        file = read_record(_File, _to_record_names(value), place=_translate_path)
    except RecursionError as error:
        raise UsageError("is nested too deeply for a trace") from error
    session = SessionRecord(file.session, file.messages, file.calls, file.played, file.end)
    trace = Trace(file.run, file.experiment, session, file.source)
    _check_consistency(trace)
    return trace


def _describe_format(found: object) -> str:
    if isinstance(found, str):
        return f"has the format {shown(found, 60)}, which cannot be imported"
    return f"is not a trace: its field 'format' must be {FORMAT!r}"


def _to_record_names(file: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the fields of a file to those of the records; invalid parts are left unchanged."""
    value = dict(file)
    if isinstance(session := value.get("session"), dict):
        parts = {name: value.get(part) for name, part in _IDS.items()}
        ids = {name: part.get("id") for name, part in parts.items() if isinstance(part, dict)}
        value["session"] = {**ids, **_rename("session", session)}
    if isinstance(messages := value.get("messages"), list):
        value["messages"] = [
            _rename("messages", message) if isinstance(message, dict) else message
            for message in messages
        ]
    return value


def _translate_path(parts: Sequence[str | int]) -> Iterator[str | int]:
    """Yield the path of a field with the names used in the file."""
    names = _OTHER_NAMES.get(str(parts[0])) if parts else None
    for part in parts:
        yield names[1 - names.index(str(part))] if names and part in names else part


def _check_consistency(trace: Trace) -> None:
    session, header = trace.session, trace.session.header
    for name, theirs, ours in (
        ("run_id", header.run_id, trace.run.id),
        ("experiment_id", header.experiment_id, trace.experiment.id),
    ):
        if theirs != ours:
            _reject(f"session.{name}", theirs, f"expected {ours!r}, as in the same file")
    count = len(session.messages)
    for index, record in enumerate(session.messages):
        if record.position != index:
            _reject(f"messages.{index}.position", record.position, f"expected {index}")
        if not isinstance(record.message.value.get("role"), str):
            _reject(f"messages.{index}.message", record.message.value, "it has no role")
    for index, (before, call) in enumerate(pairwise(session.calls), 1):
        if call.turn < before.turn:
            _reject(f"calls.{index}.turn", call.turn, "turns must not decrease")
    for index, (last, played) in enumerate(pairwise(session.played), 1):
        if played.turn <= last.turn:
            _reject(f"played.{index}.turn", played.turn, "turns must increase")
    for index, call in enumerate(session.calls):
        for position in (*call.request, call.reply):
            if position >= count:
                _reject(f"calls.{index}", position, f"there are {count} messages")
    steps = [step.index for played in session.played for step in played.steps]
    if steps != list(range(1, len(steps) + 1)):
        _reject("played", "the steps", "their indexes must be 1, 2, 3 and so on")
    if session.end and session.end.outcomes and session.end.state != "result":
        _reject("end.outcomes", session.end.state.value, "only a result has outcomes")


def _reject(field: str, value: object, reason: str) -> None:
    raise UsageError(f"{field}: {shown(value, 60)} is not allowed; {reason}")
