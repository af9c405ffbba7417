"""What went wrong with a call, sorted: what is worth another attempt, and what is not.

Foreign errors are translated here and nowhere else. Texts of providers are cleaned of secrets
and made printable before they become part of a message.
"""

import os
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from errno import errorcode
from math import isfinite
from typing import Any

from assay.core.aio import backoff
from assay.core.text import printable
from assay.errors import AssayError, ModelRefused, ModelRejected
from assay.models.wire import Malformed, parse_object

_LONGEST_WISH = 600.0
"""Seconds. A provider that wants more is waited for in parts."""
_SECONDS = re.compile(r"\s*\d+(\.\d+)?\s*\Z")


@dataclass(frozen=True, kw_only=True)
class CallRetries:
    """How patient a call is.

    Patience is used up by the waits between attempts, and by attempts that ran into the
    timeout; time in the queue for a turn costs none. What a provider asks for by Retry-After
    counts as an ordinary wait, so that a long one is not mistaken for a long failure.
    """

    patience: float = 120.0
    """Seconds."""
    first_wait: float = 0.5
    """Seconds; it doubles with each attempt, and a random part of it is waited."""
    longest_wait: float = 10.0

    def wait(self, attempt: int, jitter: random.Random) -> float:
        """Seconds to wait after an attempt, counted from 0."""
        most = backoff(attempt, self.first_wait, self.longest_wait)
        return most * jitter.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """How many seconds a provider asks to wait; None if it does not say.

    Reads `retry-after-ms`, and `retry-after` in seconds or as an HTTP date.

    Args:
        headers: With names in lower case, or of a mapping that ignores case.
        now: Seconds since 1970; the clock's if not given.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, _LONGEST_WISH)
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _number(text)
    if seconds is None:
        seconds = _until(text, time.time() if now is None else now)
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_WISH)


def _number(text: str | None) -> float | None:
    if text is None or not _SECONDS.match(text):
        return None
    number = float(text)
    return number if isfinite(number) else _LONGEST_WISH


def _until(text: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, OSError):
        return None


_LONGEST = 400
_READ = 65_536
"""Bytes of a body that are read: a key is taken out before a text is cut."""
_TOO_LONG = re.compile(
    r"context.?length|context.?window|maximum context"
    r"|(prompt|input|request) (is )?too (long|large)|too many (input )?tokens"
    r"|token count .{0,60}exceeds|reduce the length",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content.?(filter|policy|management)|safety (system|filter)", re.I)
_NO_QUOTA = re.compile(r"insufficient.?quota|billing|credit balance", re.IGNORECASE)


class FaultKind(StrEnum):
    """Faults that may pass."""

    RATE_LIMIT = "rate_limit"
    """The provider takes fewer calls."""
    OVERLOAD = "overload"
    """The provider has too much to do."""
    TIMEOUT = "timeout"
    """No answer in time."""
    CONNECTION = "connection"
    """No connection, or it was lost."""
    SERVER_ERROR = "server_error"
    """The provider failed."""
    MALFORMED = "malformed"
    """The answer was none of the chat protocol."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt that is worth another one."""

    kind: FaultKind
    message: str
    billed: bool
    """Whether the provider may have charged for it."""
    retry_after: float | None = None
    """Seconds the provider asks to wait."""


def fault_of_status(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    who: str,
    clean: Callable[[str], str],
    hints: Mapping[int, str] | None = None,
) -> Fault | AssayError:
    """Sort an answer that is not a success: a fault, or the exception to raise.

    Where `hints` are given, it was no chat: they say what to do next, by status.
    """
    error = _error(body)
    text = str(error.get("message") or body[:_READ].decode("utf-8", "replace")).strip()
    words = printable(clean(text)[:_LONGEST]) or "no reason given"
    code = f"{error.get('code') or ''} {error.get('type') or ''}"
    said = f"{who} answered {status}: {words}"
    wish = retry_after(headers)
    if status == 429 and not _NO_QUOTA.search(f"{code} {text}"):
        return Fault(FaultKind.RATE_LIMIT, said, False, wish)
    if status in (503, 529):
        return Fault(FaultKind.OVERLOAD, said, True, wish)
    if status < 200:
        return Fault(FaultKind.MALFORMED, said, True, wish)
    if status >= 500 or status in (409, 425):
        return Fault(FaultKind.SERVER_ERROR, said, True, wish)
    if status == 408:
        return Fault(FaultKind.TIMEOUT, said, True, wish)
    if hints is not None:
        hint = hints.get(status, "")
        return ModelRejected(f"{said}{hint and f'; {hint}'}")
    return _final(status, said, code, text, str(error.get("param") or ""))


def _final(status: int, said: str, code: str, text: str, param: str) -> AssayError:
    if "context_length_exceeded" in code or status == 413 or _TOO_LONG.search(text):
        return ModelRefused(f"{said}; the request is too long: lower --history")
    if status in (400, 403) and (_FILTERED.search(code) or _FILTERED.search(text)):
        return ModelRefused(said)
    hint = "see 'assay models'"
    if status == 401:
        hint = "check the key; 'assay doctor' says which variable holds it"
    elif status in (402, 429):
        hint = "the account has nothing left to spend; see the provider's billing page"
    elif status == 404:
        hint = "check the model's name and the base URL; see 'assay models'"
    elif 300 <= status < 400:
        hint = "it sends calls to another address; correct its base URL"
    elif param in ("max_tokens", "max_completion_tokens"):
        hint = "give its provider another limit_field in models.toml"
    elif param in ("temperature", "seed") and "unsupported" in code:
        hint = f'add unsupported = ["{param}"] to its row in models.toml'
    return ModelRejected(f"{said}; {hint}")


def fault_of_exception(error: BaseException, who: str, timeout: float) -> Fault:
    """Sort what the client raised when there was no answer; texts of others are left out.

    A connection that was never made costs nothing; any other may have been heard.
    """
    names = _names(error)
    if names & {"ClientConnectorError", "ConnectError", "ConnectionTimeoutError"}:
        reason = reason_of(error)
        message = f"{who} could not be reached{reason and f': {reason}'}"
        return Fault(FaultKind.CONNECTION, message, False)
    if names & {"ClientResponseError", "ValueError"}:
        message = f"{who} answered with bad HTTP{_bad_http(error)}"
        return Fault(FaultKind.MALFORMED, message, True)
    lost = {"ServerDisconnectedError", "ClientOSError", "ClientPayloadError", "ReadError"}
    if names & lost or not names & {"TimeoutError", "APITimeoutError", "TimeoutException"}:
        return Fault(FaultKind.CONNECTION, f"the connection to {who} was lost", True)
    return Fault(FaultKind.TIMEOUT, f"{who} did not answer within {timeout:g} s", True)


def _bad_http(error: BaseException) -> str:
    """What is wrong with an answer by its parser, without the bytes that it quotes."""
    said = str(getattr(error, "message", "")).partition("\n")[0]
    words = printable(re.split(r"\bb['\"]", said)[0]).rstrip(" :")[:100]
    return words and f": {words}"


def failed_generation(status: int, body: bytes) -> str | None:
    """What a model said that its provider could not read as a tool call; None otherwise.

    Some answer 400 then, though the request was in order: the model is to blame, and what it
    said is its reply.
    """
    if status != 400 or b"failed_generation" not in body:
        return None
    text = _error(body).get("failed_generation")
    return text if isinstance(text, str) else None


def _error(body: bytes) -> Mapping[str, Any]:
    try:
        document: Any = parse_object(body)
    except Malformed:
        try:
            # Gemini puts the error into a list.
            document = parse_object(body.strip()[1:-1]) if body[:1] == b"[" else {}
        except Malformed:
            return {}
    error = document.get("error", document)
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _names(error: BaseException) -> set[str]:
    """The names of the classes of an exception and of those it came from."""
    names: set[str] = set()
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            break
        names |= {kind.__name__ for kind in type(link).__mro__}
        link = link.__cause__ or link.__context__
    return names


def reason_of(error: BaseException) -> str:
    """What the machine says of a connection that failed; empty if it says nothing."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            break
        if isinstance(link, BaseExceptionGroup):
            link = link.exceptions[0]
        if isinstance(link, OSError) and link.strerror:
            # asyncio puts an address in place of the machine's words.
            number = link.errno or 0
            words = os.strerror(number) if number in errorcode else link.strerror
            return printable(str(words))[:100]
        link = link.__cause__ or link.__context__
    return ""
