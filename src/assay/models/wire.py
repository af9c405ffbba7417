"""Requests and replies of the chat protocol, as bytes.

A request is put together from messages that are encoded already. A reply is repaired so that
it can stand in a history: ids, content and types are as every provider takes them, and fields
nobody asked for are gone. What the model said, nonsense too, stays as it is.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from assay.core.canonical_json import canonical_json, derived_id
from assay.types import ChatRequest, Message, Usage

if TYPE_CHECKING:
    from assay.models.registry import ModelEntry

_MAX_LEVELS: Final = 100
"""How deep arguments may be nested; how much recursion is allowed differs between Pythons."""


_BYTES_PER_TOKEN: Final = 4
"""Of models that count no tokens themselves."""


def token_count(size: int) -> int:
    """How many tokens so many bytes are, rounded up."""
    return -(-size // _BYTES_PER_TOKEN)


class Malformed(ValueError):
    """A reply that is not one of the chat protocol; never leaves this package."""


class RequestWriter:
    """Writes the requests for one model."""

    def __init__(self, entry: "ModelEntry") -> None:
        self._start = b'{"model":' + canonical_json(entry.remote_name) + b',"messages":['
        self._limit = canonical_json(entry.provider.limit_field)
        self._always = b"".join(
            b"," + canonical_json(name) + b":" + canonical_json(value)
            for name, value in sorted(entry.send.items())
        )
        left_out = {*entry.unsupported, *entry.send}
        self._temperature = "temperature" not in left_out
        self._seed = "seed" not in left_out
        self._tools = entry.tools and "tools" not in left_out

    @property
    def fixed(self) -> str:
        """What every request has in common."""
        flags = (self._temperature, self._seed, self._tools)
        return f"{(self._start + self._limit + self._always).decode()} {flags}"

    def write(self, request: ChatRequest) -> bytes:
        """The body of a request; the limit on the reply is always in it."""
        parts = [
            self._start,
            b",".join([message.encoded for message in request.messages]),
            b"],%b:%d" % (self._limit, request.max_tokens),
        ]
        if self._tools and request.tools.value:
            parts += (b',"tools":', request.tools.encoded)
        if self._temperature and request.temperature is not None:
            parts.append(b',"temperature":%b' % canonical_json(request.temperature))
        if self._seed and request.seed is not None:
            parts.append(b',"seed":%d' % request.seed)
        parts += (self._always, b"}")
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class WireReply:
    """What a provider answered."""

    message: Message
    finish_reason: str
    usage: Usage | None
    """None if the provider did not say."""
    refusal: str | None = None
    """Why there is no answer, in the words of who refused."""
    model: str | None = None
    """What the provider calls the model that answered."""


def read_reply(
    body: bytes, *, after: str = "", clean: Callable[[str], str] = lambda text: text
) -> WireReply:
    """Read and repair the body of a reply.

    Args:
        body: As it came.
        after: What was answered; ids that are missing are made from it.
        clean: Takes secrets out of a text.

    Raises:
        Malformed: It is no reply.
    """
    document = parse_object(body)
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Malformed("it has no choices")
    choice = choices[0]
    said = choice.get("message")
    if not isinstance(said, dict):
        raise Malformed("its first choice has no message")
    calls = _calls(said.get("tool_calls"), after, clean)
    content = _text(said.get("content"))
    message: dict[str, Any] = {"role": "assistant", "content": clean(content or "")}
    if calls:
        message["tool_calls"] = calls
        message["content"] = clean(content) if content else None
    finish = choice.get("finish_reason")
    if not isinstance(finish, str) or not finish:
        finish = "tool_calls" if calls else "stop"
    return WireReply(
        Message(message),
        clean(finish)[:40],
        read_usage(document.get("usage")),
        _refusal(said, finish),
        _model(document.get("model"), clean),
    )


def _model(said: object, clean: Callable[[str], str]) -> str | None:
    return clean(said)[:200] if isinstance(said, str) and said else None


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object, or Malformed."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None
    if not isinstance(document, dict):
        raise Malformed("it is not a JSON object")
    return document


def embedded_error(body: bytes) -> int | None:
    """The status of an error that was sent as a success; None if there is none.

    Providers that pass calls on find out too late that the other side failed.
    """
    try:
        document = parse_object(body)
    except Malformed:
        return None
    error = document.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 600 else None


def read_usage(usage: object) -> Usage | None:
    """The tokens of a reply; None unless both sides are counted in whole numbers."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None or completion is None:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    return Usage(prompt, completion, min(cached or 0, prompt), min(reasoning or 0, completion))


def _count(counts: object, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    # More than that is no count of tokens, and does not fit into a column either.
    return value if type(value) is int and 0 <= value < 2**40 else None


def _refusal(said: Mapping[str, Any], finish: str) -> str | None:
    refusal = said.get("refusal")
    if isinstance(refusal, str) and refusal:
        return refusal
    return "its content filter stopped the reply" if finish == "content_filter" else None


def _text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return None


def _calls(calls: object, after: str, clean: Callable[[str], str]) -> list[dict[str, Any]]:
    repaired: list[dict[str, Any]] = []
    taken: set[str] = set()
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        name, arguments = function.get("name"), function.get("arguments")
        name = clean(name) if isinstance(name, str) and name else "unknown"
        arguments = clean(_arguments(arguments))
        number = _id(call.get("id"), taken)
        if number is None:
            number = "call_" + derived_id(after, len(repaired), name, arguments)
        taken.add(number)
        said = {"name": name, "arguments": arguments}
        repaired.append({"id": clean(number), "type": "function", "function": said})
    return repaired


def _id(number: object, taken: set[str]) -> str | None:
    if isinstance(number, str) and 0 < len(number) <= 200 and number not in taken:
        return number
    return None


def _arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    # Some send the object itself instead of its text.
    return "{}" if arguments is None else canonical_json(_finite(arguments)).decode()


def _finite(value: object, levels: int = _MAX_LEVELS) -> object:
    """A value that JSON can write: Python's parser lets NaN and Infinity pass."""
    if levels < 0:
        raise Malformed("the arguments of a tool call are nested too deep")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {key: _finite(item, levels - 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item, levels - 1) for item in value]
    return value
