"""Encoding of requests and parsing of replies of the chat protocol.

A request is assembled from messages that are encoded already. A reply is repaired so that it
can be part of a history: ids, content and types are in the form that every provider accepts,
and other fields are removed. The model's text and arguments are not changed, even if invalid.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from assay.core.canonical_json import canonical_json, derive_id
from assay.types import ChatRequest, Message, Usage

if TYPE_CHECKING:
    from assay.models.registry import ModelEntry

_MAX_LEVELS: Final = 100
"""Maximum nesting of arguments, fixed because Python versions have different limits."""


_BYTES_PER_TOKEN: Final = 4
"""For models that do not count tokens themselves."""


def token_count(size: int) -> int:
    """Convert bytes to tokens, rounded up."""
    return -(-size // _BYTES_PER_TOKEN)


class Malformed(ValueError):
    """A reply that does not follow the chat protocol; never leaves this package."""


class RequestWriter:
    """Encoder of the requests for one model."""

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
        """The part that all requests have in common."""
        flags = (self._temperature, self._seed, self._tools)
        return f"{(self._start + self._limit + self._always).decode()} {flags}"

    def write(self, request: ChatRequest) -> bytes:
        """Encode the body of a request; it always limits the length of the reply."""
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
    """A reply of a provider."""

    message: Message
    finish_reason: str
    usage: Usage | None
    """None if the provider did not report it."""
    refusal: str | None = None
    """The provider's or the model's reason for a refusal."""
    model: str | None = None
    """The provider's name of the model that replied."""


def read_reply(
    body: bytes, *, after: str = "", clean: Callable[[str], str] = lambda text: text
) -> WireReply:
    """Parse and repair the body of a reply.

    Args:
        body: The body.
        after: Hash of the last message; missing ids are computed from it.
        clean: Removes secrets from a text.

    Raises:
        Malformed: It is not a reply.
    """
    document = parse_object(body)
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Malformed("it has no choices")
    choice = choices[0]
    raw = choice.get("message")
    if not isinstance(raw, dict):
        raise Malformed("its first choice has no message")
    calls = _repair_calls(raw.get("tool_calls"), after, clean)
    content = _join_text(raw.get("content"))
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
        _get_refusal(raw, finish),
        _clean_model(document.get("model"), clean),
    )


def _clean_model(name: object, clean: Callable[[str], str]) -> str | None:
    return clean(name)[:200] if isinstance(name, str) and name else None


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; raise Malformed if it is not one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None
    if not isinstance(document, dict):
        raise Malformed("it is not a JSON object")
    return document


def embedded_error(body: bytes) -> int | None:
    """Return the status of an error that was sent with a success status; None if there is none.

    Proxies send the status before the provider behind them fails.
    """
    try:
        document = parse_object(body)
    except Malformed:
        return None
    error = document.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 600 else None


def read_usage(usage: object) -> Usage | None:
    """Parse the token counts of a reply; None unless both are integers."""
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
    # Larger numbers are not plausible and do not fit into a database column.
    return value if type(value) is int and 0 <= value < 2**40 else None


def _get_refusal(message: Mapping[str, Any], finish: str) -> str | None:
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        return refusal
    return "its content filter stopped the reply" if finish == "content_filter" else None


def _join_text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return None


def _repair_calls(
    calls: object, after: str, clean: Callable[[str], str]
) -> list[dict[str, Any]]:
    repaired: list[dict[str, Any]] = []
    taken: set[str] = set()
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        name, arguments = function.get("name"), function.get("arguments")
        name = clean(name) if isinstance(name, str) and name else "unknown"
        arguments = clean(_encode_arguments(arguments))
        number = _check_id(call.get("id"), taken)
        if number is None:
            number = "call_" + derive_id(after, len(repaired), name, arguments)
        taken.add(number)
        function = {"name": name, "arguments": arguments}
        repaired.append({"id": clean(number), "type": "function", "function": function})
    return repaired


def _check_id(number: object, taken: set[str]) -> str | None:
    if isinstance(number, str) and 0 < len(number) <= 200 and number not in taken:
        return number
    return None


def _encode_arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    # Some providers send an object instead of JSON text.
    return "{}" if arguments is None else canonical_json(_replace_nonfinite(arguments)).decode()


def _replace_nonfinite(value: object, levels: int = _MAX_LEVELS) -> object:
    """Replace NaN and Infinity, which Python's JSON parser accepts, with None."""
    if levels < 0:
        raise Malformed("the arguments of a tool call are nested too deep")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item, levels - 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_replace_nonfinite(item, levels - 1) for item in value]
    return value
