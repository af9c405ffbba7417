"""HTTP client for worlds: keeps connections, and retries requests that are safe to repeat."""

import asyncio
import os
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from assay.core.aio import backoff_seconds
from assay.core.text import counted, cut
from assay.crafter.difficulty import Difficulty
from assay.crafter.rules import WORLD_LENGTH
from assay.crafter.service.client import initialize_body, restore_body, step_body
from assay.crafter.service.problems import make_exception
from assay.crafter.service.requests import ENVIRONMENT
from assay.crafter.service.results import (
    Checkpoint,
    Health,
    Started,
    StepReply,
    Terminated,
    adapter,
)
from assay.errors import AssayError, ServiceError

_T = TypeVar("_T")
_BUSY: Final = (408, 503)
"""Status codes of a service that did not process the request."""


class _RetryIf(Enum):
    """When a request may be retried."""

    UNSENT = "unsent"
    """Only if it never reached the service: a second one would create a second world."""
    ALWAYS = "always"
    """Always: it changes nothing, or the service recognises its request id."""


@dataclass(frozen=True, kw_only=True)
class RequestRetries:
    """Number of attempts and the waits between them."""

    attempts: int = 5
    first_wait: float = 0.1
    """In seconds; doubled after each attempt, then reduced by a random share up to half."""
    longest_wait: float = 5.0

    def wait(self, attempt: int, jitter: random.Random) -> float:
        """Return the seconds to wait after an attempt, counted from 0."""
        most = backoff_seconds(attempt, self.first_wait, self.longest_wait)
        return most * jitter.uniform(0.5, 1.0)


class HttpClient:
    """A `WorldClient` that uses a service.

    Coroutines may share one. `timeout` is in seconds per attempt.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        connections: int = 100,
        retries: RequestRetries | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(5.0, timeout))
        self._connections = connections
        self._retries = retries or RequestRetries()
        self._jitter = jitter or random.Random()
        self._session: aiohttp.ClientSession | None = None
        self._prefix = uuid.uuid4().hex
        self._numbers = count()

    async def health(self) -> Health:
        """Return the health of the service.

        Raises:
            ServiceError: No response, or the response of another service.
        """
        answer = await self._request("GET", "/health")
        try:
            return _parse(Health, answer)
        except ServiceError as error:
            kind = answer.headers.get("content-type", "no content type").partition(";")[0]
            raise ServiceError(
                f"{self._address} is not an assay service: it answers GET /health with "
                f"status {answer.status} and {cut(kind, 40)}; start one with 'assay serve', or "
                "correct the address"
            ) from error

    async def initialize(
        self,
        seed: int | None = None,
        difficulty: str | Difficulty | Mapping[str, float] = "classic",
        length: int = WORLD_LENGTH,
        *,
        include: Sequence[str] = ("view",),
    ) -> Started:
        """Create a world."""
        body = initialize_body(seed, difficulty, length, include)
        return await self._post(Started, "initialize", body, _RetryIf.UNSENT)

    async def step(self, env_id: str, *actions: int | str) -> StepReply:
        """Carry out actions in order, exactly once even if the request is retried."""
        body = step_body(env_id, actions, f"{self._prefix}-{next(self._numbers)}")
        return await self._post(StepReply, "step", body, _RetryIf.ALWAYS)

    async def terminate(self, env_id: str) -> None:
        """Delete an instance."""
        answer = await self._request("POST", _path("terminate"), to_json({"env_id": env_id}))
        # An earlier attempt may have succeeded, with only its response lost.
        if answer.status != 404 or answer.attempts == 1:
            _parse(Terminated, answer)

    async def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance."""
        return await self._get(Checkpoint, _path("checkpoint"), {"env_id": env_id})

    async def restore(self, checkpoint: Checkpoint) -> Started:
        """Create an instance from a saved world."""
        return await self._post(Started, "restore", restore_body(checkpoint), _RetryIf.UNSENT)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _post(
        self, kind: type[_T], name: str, body: Mapping[str, Any], safe: _RetryIf
    ) -> _T:
        return _parse(kind, await self._request("POST", _path(name), to_json(body), safe=safe))

    async def _get(self, kind: type[_T], path: str, query: Mapping[str, str]) -> _T:
        return _parse(kind, await self._request("GET", path, query=query))

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        safe: _RetryIf = _RetryIf.ALWAYS,
    ) -> "_HttpAnswer":
        for attempt in range(self._retries.attempts):
            last = attempt + 1 == self._retries.attempts
            try:
                answer = await self._send(method, path, body, query)
            except (aiohttp.ClientError, TimeoutError) as error:
                unsent = isinstance(error, aiohttp.ClientConnectorError)
                if last or not (unsent or safe is _RetryIf.ALWAYS):
                    raise ServiceError(self._format_error(error, attempt + 1)) from error
            else:
                if last or answer.status not in _BUSY:
                    return replace(answer, attempts=attempt + 1)
            await asyncio.sleep(self._retries.wait(attempt, self._jitter))
        raise AssertionError("the last attempt returns or raises")

    async def _send(
        self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None
    ) -> "_HttpAnswer":
        session = self._session or self._open_session()
        async with session.request(
            method, self._address + path, data=body, params=query, allow_redirects=False
        ) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return _HttpAnswer(response.status, await response.read(), headers)

    def _open_session(self) -> aiohttp.ClientSession:
        headers = {"content-type": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=self._timeout,
            # Shorter than the service keeps them, so that the client closes them first.
            connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    def _format_error(self, error: Exception, attempts: int) -> str:
        reason = str(error) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
            reason = os.strerror(error.os_error.errno).lower()
        return (
            f"no answer from {self._address} ({counted(attempts, 'attempt')}): {reason}; "
            "is 'assay serve' running there?"
        )


@dataclass(frozen=True, slots=True)
class _HttpAnswer:
    status: int
    body: bytes
    headers: Mapping[str, str]
    attempts: int = 1


def _path(name: str) -> str:
    return f"/env/{ENVIRONMENT}/{name}"


def _parse(kind: type[_T], answer: _HttpAnswer) -> _T:
    if answer.status != 200:
        raise _make_error(answer)
    try:
        return adapter(kind).validate_json(answer.body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        where = f" at {cut(place, 40)}" if place else ""
        raise ServiceError(
            f"invalid {kind.__name__} from the service{where}: {cut(first['msg'], 100)}"
        ) from error


def _make_error(answer: _HttpAnswer) -> AssayError:
    try:
        body = from_json(answer.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        text = answer.body[:200].decode("utf-8", "replace").strip()
        body = {"detail": text.partition("\n")[0] or "nothing"}
    return make_exception(answer.status, body, answer.headers)
