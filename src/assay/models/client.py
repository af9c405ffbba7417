"""HTTP client for a chat model, with rate limits, a budget and retries.

Every attempt waits for a slot and reserves its maximum cost. The key is only sent to the
provider: it never appears in messages, exceptions or `repr`.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay.core.secrets import Secret, mask, redact
from assay.core.text import printable
from assay.errors import AssayError, ModelRefused, ModelRejected, ModelUnavailable
from assay.models.budget import Budget, Reservation, cost, upper_bound
from assay.models.connections import Connections, ReplyRefused
from assay.models.faults import (
    CallRetries,
    Fault,
    FaultKind,
    classify_exception,
    classify_status,
    failed_generation,
)
from assay.models.registry import ModelEntry, Price, find_base_url
from assay.models.throttle import CallSlot, Pace, read_allowance
from assay.models.wire import Malformed, RequestWriter, WireReply, embedded_error, read_reply
from assay.types import ChatReply, ChatRequest, Message, Usage

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_CONNECT_TIMEOUT = 10.0
_MAX_COUNT_FACTOR = 100
"""A token count above this multiple of the possible maximum is invalid."""

_MAX_UNREAD = 3
"""Attempts after which a reply that is too long to read counts as the model's reply."""


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    headers: "httpx2.Headers"
    body: bytes


class RemoteModel:
    """A `ChatModel` of a provider.

    Args:
        entry: The model.
        key: The provider's API key; None if it needs none.
        base_url: Address of the provider (default: from its row and the environment).
        pace: Rate limits of this provider and key, shared by its models.
        budget: Spending limit of the run; None for no limit.
        price: Price of tokens (default: from the entry).
        timeout: Seconds for one attempt (default: from the provider's row).
        retries: Retry settings.
        http: Connections shared by models.
        seed: Seed of the jitter of waits.
        on_fault: Called before a retry with the reason, the number of attempts so far and the
            seconds until the next one.

    Raises:
        ModelRejected: There is a budget but no price.
    """

    def __init__(
        self,
        entry: ModelEntry,
        *,
        key: Secret | str | None,
        base_url: str | None = None,
        pace: Pace | None = None,
        budget: Budget | None = None,
        price: Price | None = None,
        timeout: float | None = None,
        retries: CallRetries | None = None,
        http: Connections | None = None,
        seed: int = 0,
        on_fault: Callable[[str, int, float], None] = lambda *_: None,
    ) -> None:
        self._on_fault = on_fault
        self.name = entry.name
        self.provider = entry.provider.name
        self._base_url = (base_url or find_base_url(entry.provider)).rstrip("/")
        self._key = key.reveal() if isinstance(key, Secret) else key
        self._price = price or entry.price
        if budget is not None and self._price is None:
            raise ModelRejected(
                f"model {entry.name!r} has no known price, which a budget needs; "
                "give --price IN/OUT, in dollars per million tokens"
            )
        self._pace = pace or Pace(per_minute=entry.requests_per_minute)
        self._budget = budget
        self._timeout = entry.provider.timeout_s if timeout is None else timeout
        self._retries = retries or CallRetries()
        self._writer = RequestWriter(entry)
        self._jitter = random.Random(f"{seed} {entry.name}")
        self._connections = http or Connections()
        self._connections.join()
        self._joined = True
        self._options: Any = {}
        self._api: tuple[AsyncOpenAI, httpx2.AsyncClient] | None = None

    def __repr__(self) -> str:
        return f"RemoteModel({self.name!r} at {self.provider})"

    @property
    def address(self) -> str:
        """Base URL of the provider."""
        return self._base_url

    @property
    def origin(self) -> str:
        """Address and fixed request fields, which identify the model in a cache."""
        return f"{self._base_url} {self._writer.fixed}"

    @property
    def pace(self) -> Pace:
        """Rate limits of the provider, with the history of their changes."""
        return self._pace

    async def close(self) -> None:
        """Release the connections."""
        self._api = None
        if self._joined:
            self._joined = False
            await self._connections.leave()

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Send a request, with retries, and return the reply.

        Raises:
            ModelRefused: The model refused, or the request is too long for it.
            ModelUnavailable: The retries were used up; `kind` is the kind of the last fault.
            ModelRejected: No request to this model can succeed.
            BudgetSpent: The call does not fit into the budget.
        """
        # Loads the client library now, so that loading does not occupy a slot.
        self._client()
        began = time.perf_counter()
        call = _Call(request, self._writer.write(request))
        while True:
            async with self._pace.turn(again=call.attempts > 0) as turn:
                outcome = await self._attempt(call, turn)
            if isinstance(outcome, ChatReply):
                waited = max(0.0, time.perf_counter() - began - outcome.latency_s)
                return replace(outcome, waited_s=waited, retries=call.attempts)
            if isinstance(outcome, AssayError):
                raise outcome
            call.attempts += 1
            await self._back_off(call, outcome)

    async def _attempt(self, call: "_Call", turn: CallSlot) -> ChatReply | Fault | AssayError:
        reservation = await self._reserve(call)
        begun = time.perf_counter()
        answer: _Response | Fault | None = None
        outcome: WireReply | Fault | AssayError
        try:
            answer = await self._send(call.body)
            seconds = time.perf_counter() - begun
            outcome = answer if isinstance(answer, Fault) else self._classify(answer, call)
        except ReplyRefused as error:
            seconds = time.perf_counter() - begun
            outcome = self._handle_unread(call, error)
        except BaseException:
            # The provider may have received and charged the call.
            _lose(reservation, None)
            raise
        if isinstance(outcome, Fault):
            call.failed_s = seconds if outcome.kind is FaultKind.TIMEOUT else 0.0
            _lose(reservation, None if outcome.billed else 0.0)
            match outcome.kind:
                case FaultKind.RATE_LIMIT:
                    turn.throttled(outcome.retry_after)
                case FaultKind.OVERLOAD:
                    turn.overloaded(outcome.retry_after)
                case _:
                    turn.failed()
            return outcome
        turn.done(read_allowance(answer.headers) if isinstance(answer, _Response) else None)
        if isinstance(outcome, AssayError):
            _settle(reservation, 0.0)
            return outcome
        return self._accept(outcome, call, reservation, seconds)

    async def _reserve(self, call: "_Call") -> Reservation | None:
        if self._budget is None or self._price is None:
            return None
        if call.bound is None:
            call.bound = upper_bound(call.request, self._price)
        return await self._budget.reserve(call.bound)

    def _accept(
        self, reply: WireReply, call: "_Call", reservation: Reservation | None, seconds: float
    ) -> ChatReply | AssayError:
        possible = len(call.body) + call.request.max_tokens
        if reply.usage is not None and reply.usage.total > _MAX_COUNT_FACTOR * possible:
            _lose(reservation, None)
            return ModelRejected(
                f"{self._label} reports {reply.usage.total:,} tokens for a call with at most "
                f"{possible:,}; it is not called again, because its costs cannot be computed"
            )
        dollars = self._compute_cost(reply.usage, call)
        if reply.refusal is not None:
            _lose(reservation, dollars)
            words = printable(self._clean_error(reply.refusal)[:400])
            return ModelRefused(f"model {self.name!r} refused: {words}")
        _settle(reservation, dollars)
        return ChatReply(
            message=reply.message,
            finish_reason=reply.finish_reason,
            usage=reply.usage or Usage(),
            cost_usd=dollars,
            latency_s=seconds,
            answered_as=reply.model,
        )

    def _compute_cost(self, usage: Usage | None, call: "_Call") -> float | None:
        """Return the cost of a reply, or its maximum if the provider reports no usage."""
        if self._price is None:
            return None
        if usage is not None and (dollars := cost(usage, self._price)) is not None:
            return dollars
        return call.bound

    def _handle_unread(self, call: "_Call", error: ReplyRefused) -> WireReply | Fault:
        """Return a fault for an unread reply; after several, a reply with the reason."""
        call.unread += 1
        text = f"a reply that was not read: {error}"
        if call.unread < _MAX_UNREAD:
            return Fault(FaultKind.MALFORMED, f"{self._label} sent {text}", billed=True)
        return WireReply(Message({"role": "assistant", "content": f"({text})"}), "length", None)

    def _classify(self, answer: _Response, call: "_Call") -> WireReply | Fault | AssayError:
        status, body = answer.status, answer.body
        text = failed_generation(status, body)
        if text is not None:
            content = {"role": "assistant", "content": self._clean(text)}
            return WireReply(Message(content), "stop", None)
        if 200 <= status < 300:
            last = call.request.messages[-1].hash if call.request.messages else ""
            try:
                return read_reply(body, after=last, clean=self._clean)
            except Malformed as error:
                message = f"{self._label} sent a malformed reply: {error}"
            late = embedded_error(body)
            if late is None:
                return Fault(FaultKind.MALFORMED, message, billed=True)
            status = late
        clean = self._clean_error
        return classify_status(status, answer.headers, body, who=self._label, clean=clean)

    async def _send(self, body: bytes) -> "_Response | Fault":
        import httpx2
        from aiohttp import ClientError
        from openai import APIStatusError, OpenAIError

        client = self._client()
        try:
            async with asyncio.timeout(self._timeout):
                response = await client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=body,
                    options=self._options,
                )
        except APIStatusError as error:
            response = error.response
        except (OpenAIError, OSError, httpx2.HTTPError, ClientError, ValueError) as error:
            # ValueError: a response header that is not text.
            return classify_exception(error, self._label, self._timeout)
        return _Response(response.status_code, response.headers, response.content)

    def _client(self) -> "AsyncOpenAI":
        http = self._connections.http()
        if self._api is None or self._api[1] is not http:
            self._api = (self._make_client(http), http)
        return self._api[0]

    def _make_client(self, http: "httpx2.AsyncClient") -> "AsyncOpenAI":
        import httpx2
        from openai import AsyncOpenAI, Omit

        headers: dict[str, Any] = {}
        if self.provider != "openai":
            # They come from the environment and are not for other providers.
            headers = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        if self._key is None:
            self._options = {"headers": {"Authorization": Omit()}}
        timeout = httpx2.Timeout(self._timeout, connect=min(_CONNECT_TIMEOUT, self._timeout))
        return AsyncOpenAI(
            # Always given, or the key of OpenAI would be taken from the environment.
            api_key=self._key or "none",
            admin_api_key="none",
            base_url=self._base_url,
            max_retries=0,
            timeout=timeout,
            default_headers=headers,
            http_client=http,
        )

    async def _back_off(self, call: "_Call", fault: Fault) -> None:
        wait = self._retries.wait(call.attempts - 1, self._jitter)
        call.used += wait + call.failed_s
        if call.used > self._retries.patience:
            raise ModelUnavailable(
                f"model {self.name!r} gave no reply in {call.attempts} attempts; "
                f"the last time {fault.message}",
                kind=str(fault.kind),
            )
        delay = max(wait, fault.retry_after or 0.0)
        self._on_fault(fault.message, call.attempts, delay)
        if fault.kind not in _THROTTLED:
            wait = delay
        if not await self._pace.back_off(wait):
            raise ModelUnavailable(
                f"the run was stopped before model {self.name!r} was called again; "
                f"the last time {fault.message}",
                kind=str(fault.kind),
            )

    def _clean(self, text: str) -> str:
        """Remove known secrets from a reply; text that only looks like one is kept."""
        return redact(text, (self._key,))

    def _clean_error(self, text: str) -> str:
        return mask(self._clean(text))

    @property
    def _label(self) -> str:
        return f"{self.provider} (for {self.name!r})"


_THROTTLED = (FaultKind.RATE_LIMIT, FaultKind.OVERLOAD)
"""Faults after which `Pace` delays all calls, so that the call itself waits less."""


@dataclass(slots=True)
class _Call:
    """State of a call and its attempts."""

    request: ChatRequest
    body: bytes
    bound: float | None = None
    attempts: int = 0
    used: float = 0.0
    """Seconds of patience used."""
    unread: int = 0
    """Attempts whose reply was not read."""
    failed_s: float = 0.0
    """Seconds of the last attempt if it timed out, else 0."""


def _settle(reservation: Reservation | None, dollars: float | None) -> None:
    if reservation is not None:
        reservation.settle(dollars)


def _lose(reservation: Reservation | None, dollars: float | None) -> None:
    if reservation is not None:
        reservation.lose(dollars)
