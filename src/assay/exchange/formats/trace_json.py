"""`assay-trace/1`: one session as JSON, complete and exact.

`parse_trace(dump_trace(trace))` is `trace`. A file has one line for each message, call
and turn, so that it can be searched and compared; in JSON Lines a session is one line.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from assay._util.canonical import canonical_json
from assay._util.text import printable
from assay.errors import UsageError
from assay.exchange.formats.wire import FORMAT, WireCall, WireEnd, WirePlayed, WireTrace
from assay.traces.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
    StepRecord,
)
from assay.traces.trace import StoredExperiment, StoredRun, Trace
from assay.types import Encoded, Message, Usage

__all__ = ["dump_line", "dump_trace", "parse_trace"]


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
        canonical_json(name) + b":" + (value if isinstance(value, bytes) else _list(value))
        for name, value in _parts(trace).items()
    )
    return b"{" + b",".join(fields) + b"}\n"


def parse_trace(content: bytes) -> Trace:
    """Read a session from JSON.

    Raises:
        UsageError: It is not JSON, not of this format, or contradicts itself; says where.
    """
    try:
        wire = WireTrace.model_validate_json(content)
        trace = _trace(wire)
    except ValidationError as error:
        raise UsageError(_problem(error, content)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"holds a value that has no place in JSON: {error}") from error
    _check(trace.session)
    return trace


def _parts(trace: Trace) -> dict[str, bytes | list[bytes]]:
    session = trace.session
    end = session.end
    return {
        "format": canonical_json(FORMAT),
        "source": canonical_json(trace.source),
        "run": canonical_json(_fields(trace.run)),
        "experiment": canonical_json(_fields(trace.experiment)),
        "session": _session(session.header),
        "messages": [_message(record) for record in session.messages],
        "calls": [
            canonical_json({**_fields(call), "usage": _fields(call.usage)})
            for call in session.calls
        ],
        "played": [
            canonical_json(
                {
                    **_fields(played),
                    "steps": [_fields(step) for step in played.steps],
                    "hooks": [_fields(hook) for hook in played.hooks],
                }
            )
            for played in session.played
        ],
        "end": canonical_json(
            end and {**_fields(end), "error": end.error and _fields(end.error)}
        ),
    }


def _fields(record: Any) -> dict[str, Any]:
    """A record with slots as an object; unlike `asdict` it copies nothing."""
    return {name: getattr(record, name) for name in record.__slots__}


def _session(header: SessionHeader) -> bytes:
    # Run and experiment stand beside the session, so nothing is said twice.
    return canonical_json(
        {
            "id": header.session_id,
            "subject": header.subject,
            "task": header.task,
            "seed": header.seed,
            "episode": header.episode,
            "replicate": header.replicate,
            "difficulty": header.difficulty,
            "created_at": header.created_at,
            "tools": None if header.tools is None else header.tools.value,
            "metadata": header.metadata,
        }
    )


def _message(record: MessageRecord) -> bytes:
    # The message has its bytes already, and they are what its hash is of.
    about = {
        "at": record.at,
        "position": record.position,
        "turn": record.turn,
        "type": record.message_type,
    }
    return canonical_json(about)[:-1] + b',"message":' + record.message.encoded + b"}"


def _lines(items: Iterable[bytes]) -> bytes:
    inside = b",\n ".join(items)
    return b"[\n " + inside + b"\n]" if inside else b"[]"


def _list(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def _trace(wire: WireTrace) -> Trace:
    session = wire.session
    header = SessionHeader(
        session_id=session.id,
        run_id=wire.run.id,
        experiment_id=wire.experiment.id,
        subject=session.subject,
        task=session.task,
        seed=session.seed,
        episode=session.episode,
        replicate=session.replicate,
        created_at=session.created_at,
        difficulty=session.difficulty,
        tools=None if session.tools is None else Encoded(session.tools),
        metadata=_plain(session.metadata),
    )
    return Trace(
        run=StoredRun(**_plain(wire.run.model_dump())),
        experiment=StoredExperiment(**_plain(wire.experiment.model_dump())),
        session=SessionRecord(
            header=header,
            messages=[
                MessageRecord(
                    item.position, item.turn, Message(item.message), item.type, item.at
                )
                for item in wire.messages
            ],
            calls=[_call(item) for item in wire.calls],
            played=[_played(item) for item in wire.played],
            end=_end(wire.end),
        ),
        source=wire.source,
    )


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping, once it is sure that JSON can hold it."""
    canonical_json(value)
    return dict(value)


def _call(wire: WireCall) -> CallRecord:
    fields = wire.model_dump()
    return CallRecord(**{**_plain(fields), "usage": Usage(**fields["usage"])})


def _played(wire: WirePlayed) -> PlayedRecord:
    fields = wire.model_dump()
    steps = tuple(StepRecord(**step) for step in fields["steps"])
    hooks = tuple(HookRecord(**_plain(hook)) for hook in fields["hooks"])
    return PlayedRecord(**{**fields, "steps": steps, "hooks": hooks})


def _end(wire: WireEnd) -> EndRecord:
    fields = wire.model_dump()
    error = fields["error"] and ErrorRecord(**fields["error"])
    return EndRecord(**{**fields, "error": error})


def _check(session: SessionRecord) -> None:
    """Complain about fields that are fine alone and wrong together."""
    count = len(session.messages)
    for index, record in enumerate(session.messages):
        if record.position != index:
            _wrong(f"messages.{index}.position", record.position, f"expected {index}")
        if not isinstance(record.message.value.get("role"), str):
            _wrong(f"messages.{index}.message", record.message.value, "it has no role")
    for name, turns in (("calls", session.calls), ("played", session.played)):
        for index in range(1, len(turns)):
            if turns[index].turn <= turns[index - 1].turn:
                _wrong(f"{name}.{index}.turn", turns[index].turn, "turns must go up")
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
    raise UsageError(f"{field}: {_shown(value)} is not allowed; {reason}")


def _problem(error: ValidationError, content: bytes) -> str:
    first, *more = error.errors(include_url=False)
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        return f"is not whole, valid JSON: {first['ctx']['error']}"
    if field == "format" or (first["type"] == "missing" and _format(content) != FORMAT):
        return _other_format(_format(content))
    reason = _REASONS.get(first["type"], first["msg"])
    said = f"{field}: {reason}" if field else reason
    if first["type"] not in ("missing", "extra_forbidden"):
        said += f", got {_shown(first['input'])}"
    return said + (f" (and {len(more)} more)" if more else "")


_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field of this format",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "string_pattern_mismatch": "must be one line of 1 to 200 characters",
    "finite_number": "must be a finite number",
}


def _format(content: bytes) -> object:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value.get("format", value.get("schema_version"))


def _other_format(found: object) -> str:
    if isinstance(found, str):
        return f"has the format {_shown(found)}, which cannot be imported"
    return f"is not a trace: its field 'format' must be {FORMAT!r}"


def _shown(value: object) -> str:
    text = printable(repr(value)[:200])
    return text if len(text) <= 60 else f"{text[:57]}..."
