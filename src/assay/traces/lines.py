"""The lines of a journal as JSON, and back.

Messages go into a line as the bytes they were hashed by.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from assay._util.canonical import canonical_json
from assay.errors import JournalError, UsageError
from assay.types import Encoded, Message, TrialState, Usage

from .records import (
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

__all__ = [
    "FORMAT",
    "Line",
    "call_line",
    "end_line",
    "gather",
    "header_line",
    "messages_line",
    "played_line",
]

FORMAT = "assay-journal/1"
"""What a header says it is the header of."""

Line: TypeAlias = dict[str, Any]
"""A line of a journal that was read, by its `kind`."""


def _time(seconds: float) -> float:
    return round(seconds, 6)


def _encode(line: Line) -> bytes:
    try:
        return canonical_json(line)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"a record of kind {line['kind']!r} has no JSON form: {error}; "
            "use plain numbers, text, lists and objects, and no NaN"
        ) from None


def header_line(header: SessionHeader) -> bytes:
    """The first line of a journal."""
    return _encode(
        {
            "kind": "header",
            "format": FORMAT,
            "session_id": header.session_id,
            "run_id": header.run_id,
            "experiment_id": header.experiment_id,
            "subject": header.subject,
            "task": header.task,
            "seed": header.seed,
            "episode": header.episode,
            "replicate": header.replicate,
            "created_at": _time(header.created_at),
            "difficulty": header.difficulty,
            "tools": None if header.tools is None else header.tools.value,
            "metadata": dict(header.metadata),
        }
    )


def _header(line: Line) -> SessionHeader:
    if line["kind"] != "header" or line["format"] != FORMAT:
        raise ValueError(f"not the header of a journal in the format {FORMAT}")
    values = {name: value for name, value in line.items() if name not in ("kind", "format")}
    tools = values.pop("tools")
    return SessionHeader(**values, tools=None if tools is None else Encoded(tools))


def call_line(call: CallRecord, messages: Sequence[MessageRecord]) -> bytes:
    """A call, with the messages that were made since the last one."""
    usage = call.usage
    return _with_messages(
        {
            "kind": "call",
            "turn": call.turn,
            "at": _time(call.at),
            "request": call.request,
            "reply": call.reply,
            "model": call.model,
            "provider": call.provider,
            "finish_reason": call.finish_reason,
            "usage": (usage.prompt, usage.completion, usage.cached, usage.reasoning),
            "cost_usd": call.cost_usd,
            "latency_s": _time(call.latency_s),
            "waited_s": _time(call.waited_s),
            "retries": call.retries,
            "parameters": dict(call.parameters),
        },
        messages,
    )


def _call(line: Line) -> CallRecord:
    values = {name: value for name, value in line.items() if name not in ("kind", "messages")}
    values["request"] = tuple(values["request"])
    values["usage"] = Usage(*values["usage"])
    return CallRecord(**values)


def messages_line(messages: Sequence[MessageRecord]) -> bytes:
    """Messages that belong to no call."""
    return _with_messages({"kind": "messages"}, messages)


def _with_messages(line: Line, messages: Sequence[MessageRecord]) -> bytes:
    parts = [
        b"[%s,%s]"
        % (
            canonical_json((each.position, each.turn, each.message_type, _time(each.at)))[1:-1],
            each.message.encoded,
        )
        for each in messages
    ]
    return b'%s,"messages":[%s]}' % (_encode(line)[:-1], b",".join(parts))


def _messages(line: Line) -> Iterable[MessageRecord]:
    for position, turn, message_type, at, value in line["messages"]:
        yield MessageRecord(position, turn, Message(value), message_type, at)


def played_line(played: PlayedRecord) -> bytes:
    """What was played of an answer."""
    return _encode(
        {
            "kind": "played",
            "turn": played.turn,
            "at": _time(played.at),
            "asked": played.asked,
            "unknown": played.unknown,
            "malformed": played.malformed,
            "skipped": played.skipped,
            "steps": [
                (
                    *(step.index, step.action, step.reward, step.digest),
                    *(step.unlocked, step.no_effect, step.terminated, step.truncated),
                )
                for step in played.steps
            ],
            "hooks": [
                (
                    *(hook.name, hook.code, hook.priority, hook.step),
                    *(hook.description, dict(hook.data)),
                )
                for hook in played.hooks
            ],
        }
    )


def _played(line: Line) -> PlayedRecord:
    return PlayedRecord(
        turn=line["turn"],
        at=line["at"],
        asked=tuple(line["asked"]),
        unknown=tuple(line["unknown"]),
        malformed=line["malformed"],
        skipped=line["skipped"],
        steps=tuple(_step(*step) for step in line["steps"]),
        hooks=tuple(_hook(*hook) for hook in line["hooks"]),
    )


def _step(
    index: int,
    action: str,
    reward: float,
    digest: str | None,
    unlocked: Sequence[str],
    no_effect: str | None,
    terminated: bool,
    truncated: bool,
) -> StepRecord:
    return StepRecord(
        index=index,
        action=action,
        reward=reward,
        digest=digest,
        unlocked=tuple(unlocked),
        no_effect=no_effect,
        terminated=terminated,
        truncated=truncated,
    )


def _hook(
    name: str,
    code: str,
    priority: int,
    step: int | None,
    description: str,
    data: dict[str, Any],
) -> HookRecord:
    return HookRecord(
        name=name,
        code=code,
        priority=priority,
        step=step,
        description=description,
        data=data,
    )


def end_line(end: EndRecord) -> bytes:
    """How a session ended."""
    error = end.error
    return _encode(
        {
            "kind": "end",
            "at": _time(end.at),
            "state": end.state,
            "stop_reason": end.stop_reason,
            "duration_s": _time(end.duration_s),
            "outcomes": dict(end.outcomes),
            "error": error and (error.type, error.message, error.traceback),
            "attempts": end.attempts,
        }
    )


def _end(line: Line) -> EndRecord:
    values = {name: value for name, value in line.items() if name != "kind"}
    values["state"] = TrialState(values["state"])
    if error := values["error"]:
        values["error"] = ErrorRecord(type=error[0], message=error[1], traceback=error[2])
    return EndRecord(**values)


def gather(path: Path, lines: Sequence[Line]) -> SessionRecord:
    """Put the lines of a journal together; `path` is for messages only."""
    if not lines:
        raise JournalError(f"{path} has no header")
    messages: list[MessageRecord] = []
    calls: list[CallRecord] = []
    played: list[PlayedRecord] = []
    end: EndRecord | None = None
    done = 0
    try:
        header = _header(lines[0])
        for done, line in enumerate(lines[1:], start=1):  # noqa: B007 (for the message)
            kind = line["kind"]
            if kind in ("call", "messages"):
                messages += _messages(line)
            if kind == "call":
                calls.append(_call(line))
            elif kind == "played":
                played.append(_played(line))
            elif kind not in ("messages", "end"):
                raise ValueError(f"unknown kind {kind!r}")
            # Whatever follows an end takes it back: the session was resumed.
            end = _end(line) if kind == "end" else None
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise JournalError(f"{path} is damaged in line {done + 1}: {error}") from None
    return SessionRecord(header, messages, calls, played, end)
