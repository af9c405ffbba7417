"""Classification of failed calls: which are retried, and after how long.

Errors of the HTTP client and of providers are translated only here. Texts from providers are
stripped of secrets and made printable before they become part of a message.
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

from assay.core.aio import backoff_seconds
from assay.core.text import printable
from assay.errors import AssayError, ModelRefused, ModelRejected
from assay.models.wire import Malformed, parse_object

_LONGEST_RETRY_AFTER = 600.0
"""Seconds; a longer Retry-After is waited for in parts."""
_SECONDS = re.compile(r"\s*\d+(\.\d+)?\s*\Z")


@dataclass(frozen=True, kw_only=True)
class CallRetries:
    """Retry settings of a call.

    Patience is used up by waits between attempts and by attempts that time out, but not by time
    in the queue. A wait requested with Retry-After counts only as an ordinary wait, so that a
    long one is not mistaken for a long failure.
    """

    patience: float = 120.0
    """Seconds."""
    first_wait: float = 0.5
    """Seconds; doubles with each attempt. The actual wait is a random 50 to 100 % of it."""
    longest_wait: float = 10.0

    def wait(self, attempt: int, jitter: random.Random) -> float:
        """Return the seconds to wait after an attempt, counted from 0."""
        most = backoff_seconds(attempt, self.first_wait, self.longest_wait)
        return most * jitter.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a provider asks to wait; None if it does not.

    Reads `retry-after-ms`, and `retry-after` in seconds or as an HTTP date.

    Args:
        headers: Headers with names in lower case, or a mapping that ignores case.
        now: Seconds since 1970 (default: the current time).
    """
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, _LONGEST_RETRY_AFTER)
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _parse_number(text)
    if seconds is None:
        seconds = _parse_date(text, time.time() if now is None else now)
    return None if seconds is None else min(max(seconds, 0.0), _LONGEST_RETRY_AFTER)


def _parse_number(text: str | None) -> float | None:
    if text is None or not _SECONDS.match(text):
        return None
    number = float(text)
    return number if isfinite(number) else _LONGEST_RETRY_AFTER


def _parse_date(text: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, OSError):
        return None


_LONGEST = 400
_READ = 65_536
"""Bytes of a body that are decoded; secrets are removed before the text is cut."""
_TOO_LONG = re.compile(
    r"context.?length|context.?window|maximum context"
    r"|(prompt|input|request) (is )?too (long|large)|too many (input )?tokens"
    r"|token count .{0,60}exceeds|reduce the length",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content.?(filter|policy|management)|safety (system|filter)", re.I)
_NO_QUOTA = re.compile(r"insufficient.?quota|billing|credit balance", re.IGNORECASE)


class FaultKind(StrEnum):
    """Kinds of temporary faults."""

    RATE_LIMIT = "rate_limit"
    """The provider's rate limit was exceeded."""
    OVERLOAD = "overload"
    """The provider is overloaded."""
    TIMEOUT = "timeout"
    """The provider did not respond in time."""
    CONNECTION = "connection"
    """The connection failed or was lost."""
    SERVER_ERROR = "server_error"
    """The provider had an internal error."""
    MALFORMED = "malformed"
    """The response does not follow the chat protocol."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt that may be retried."""

    kind: FaultKind
    message: str
    billed: bool
    """Whether the provider may have charged for it."""
    retry_after: float | None = None
    """Seconds the provider asks to wait."""


def classify_status(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    who: str,
    clean: Callable[[str], str],
    hints: Mapping[int, str] | None = None,
) -> Fault | AssayError:
    """Classify an error response: return a fault, or the exception to raise.

    `hints`, for requests other than chats, are the next steps to suggest, by status.
    """
    error = _parse_error(body)
    text = str(error.get("message") or body[:_READ].decode("utf-8", "replace")).strip()
    words = printable(clean(text)[:_LONGEST]) or "no reason given"
    code = f"{error.get('code') or ''} {error.get('type') or ''}"
    message = f"{who} answered {status}: {words}"
    wait = retry_after(headers)
    if status == 429 and not _NO_QUOTA.search(f"{code} {text}"):
        return Fault(FaultKind.RATE_LIMIT, message, False, wait)
    if status in (503, 529):
        return Fault(FaultKind.OVERLOAD, message, True, wait)
    if status < 200:
        return Fault(FaultKind.MALFORMED, message, True, wait)
    if status >= 500 or status in (409, 425):
        return Fault(FaultKind.SERVER_ERROR, message, True, wait)
    if status == 408:
        return Fault(FaultKind.TIMEOUT, message, True, wait)
    if hints is not None:
        hint = hints.get(status, "")
        return ModelRejected(f"{message}{hint and f'; {hint}'}")
    return _make_error(status, message, code, text, str(error.get("param") or ""))


def _make_error(status: int, message: str, code: str, text: str, param: str) -> AssayError:
    if "context_length_exceeded" in code or status == 413 or _TOO_LONG.search(text):
        return ModelRefused(f"{message}; the request is too long: lower --history")
    if status in (400, 403) and (_FILTERED.search(code) or _FILTERED.search(text)):
        return ModelRefused(message)
    hint = "see 'assay models'"
    if status == 401:
        hint = "check the key; 'assay doctor' shows its environment variable"
    elif status in (402, 429):
        hint = "the account has no credit left; see the provider's billing page"
    elif status == 404:
        hint = "check the model's name and the base URL; see 'assay models'"
    elif 300 <= status < 400:
        hint = "it redirects to another address; correct its base URL"
    elif param in ("max_tokens", "max_completion_tokens"):
        hint = "give its provider another limit_field in models.toml"
    elif param in ("temperature", "seed") and "unsupported" in code:
        hint = f'add unsupported = ["{param}"] to its row in models.toml'
    return ModelRejected(f"{message}; {hint}")


def classify_exception(error: BaseException, who: str, timeout: float) -> Fault:
    """Classify an exception of the HTTP client; its text is not repeated.

    A connection that was never established costs nothing; any other may have been charged.
    """
    names = _class_names(error)
    if names & {"ClientConnectorError", "ConnectError", "ConnectionTimeoutError"}:
        reason = find_system_reason(error)
        message = f"{who} could not be reached{reason and f': {reason}'}"
        return Fault(FaultKind.CONNECTION, message, False)
    if names & {"ClientResponseError", "ValueError"}:
        message = f"{who} answered with bad HTTP{_describe_bad_http(error)}"
        return Fault(FaultKind.MALFORMED, message, True)
    lost = {"ServerDisconnectedError", "ClientOSError", "ClientPayloadError", "ReadError"}
    if names & lost or not names & {"TimeoutError", "APITimeoutError", "TimeoutException"}:
        return Fault(FaultKind.CONNECTION, f"the connection to {who} was lost", True)
    return Fault(FaultKind.TIMEOUT, f"{who} did not answer within {timeout:g} s", True)


def _describe_bad_http(error: BaseException) -> str:
    """Return the reason of an HTTP parser error, without the bytes that it quotes."""
    message = str(getattr(error, "message", "")).partition("\n")[0]
    words = printable(re.split(r"\bb['\"]", message)[0]).rstrip(" :")[:100]
    return words and f": {words}"


def failed_generation(status: int, body: bytes) -> str | None:
    """Return a model's text that its provider could not parse as a tool call, or None.

    Some providers respond with 400 then, although the request was valid; the text is used as
    the model's reply.
    """
    if status != 400 or b"failed_generation" not in body:
        return None
    text = _parse_error(body).get("failed_generation")
    return text if isinstance(text, str) else None


def _parse_error(body: bytes) -> Mapping[str, Any]:
    try:
        document: Any = parse_object(body)
    except Malformed:
        try:
            # Gemini sends the error in a list.
            document = parse_object(body.strip()[1:-1]) if body[:1] == b"[" else {}
        except Malformed:
            return {}
    error = document.get("error", document)
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _class_names(error: BaseException) -> set[str]:
    names: set[str] = set()
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            break
        names |= {kind.__name__ for kind in type(link).__mro__}
        link = link.__cause__ or link.__context__
    return names


def find_system_reason(error: BaseException) -> str:
    """Return the operating system's reason for a failed connection, or ""."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            break
        if isinstance(link, BaseExceptionGroup):
            link = link.exceptions[0]
        if isinstance(link, OSError) and link.strerror:
            # asyncio replaces the system's message with an address.
            number = link.errno or 0
            words = os.strerror(number) if number in errorcode else link.strerror
            return printable(str(words))[:100]
        link = link.__cause__ or link.__context__
    return ""
