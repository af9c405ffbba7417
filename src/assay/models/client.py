"""A chat model behind HTTP: asked in turn, within the budget, and again where that may help.

Every attempt waits for its turn and sets aside what it may cost. The key is sent and goes
nowhere else: not into messages, exceptions or what a model is shown as.
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
    failed_generation,
    fault_of_exception,
    fault_of_status,
)
from assay.models.registry import ModelEntry, Price, find_base_url
from assay.models.throttle import Pace, PaceTurn, read_allowance
from assay.models.wire import Malformed, RequestWriter, WireReply, embedded_error, read_reply
from assay.types import ChatReply, ChatRequest, Message, Usage

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_CONNECT_TIMEOUT = 10.0
_ABSURD = 100
"""Times the tokens that a call can have: no provider is so far off by its own way to count."""

_UNREAD = 3
"""Attempts after which a reply that is too long to be read counts as the model's reply."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: "httpx2.Headers"
    body: bytes


class RemoteModel:
    """A `ChatModel` of a provider.

    Args:
        entry: The model.
        key: What to show the provider; None if it asks for nothing.
        base_url: Where the provider is, if not where its row and the environment say.
        pace: The turns of this provider and key; shared by its models.
        budget: What the run may spend; None for no limit.
        price: What tokens cost, if not what the entry says.
        timeout: Seconds for one attempt; as its provider's row says unless given.
        retries: How patient a call is.
        http: Connections that models share.
        seed: For the random part of waits.
        on_fault: Who hears that a call will be tried again: why, after how many attempts, and
            in how many seconds.

    Raises:
        ModelRejected: There is a budget and no price.
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
        """Where it is asked."""
        return self._base_url

    @property
    def origin(self) -> str:
        """Who answers: the address, and what stands in every request."""
        return f"{self._base_url} {self._writer.fixed}"

    @property
    def pace(self) -> Pace:
        """The turns it waits for; its history says when the provider slowed it down."""
        return self._pace

    async def close(self) -> None:
        """Let go of connections."""
        self._api = None
        if self._joined:
            self._joined = False
            await self._connections.leave()

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Answer one request, after as many attempts as patience allows.

        Raises:
            ModelRefused: The model will not answer, or the request is too long for it.
            ModelUnavailable: Patience ended; `kind` says with what.
            ModelRejected: No request to this model can succeed.
            BudgetSpent: The call does not fit into the budget.
        """
        # What is loaded late is loaded before anybody's turn, which it would take up.
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

    async def _attempt(self, call: "_Call", turn: PaceTurn) -> ChatReply | Fault | AssayError:
        reservation = await self._reserve(call)
        begun = time.perf_counter()
        answer: _Answer | Fault | None = None
        outcome: WireReply | Fault | AssayError
        try:
            answer = await self._send(call.body)
            seconds = time.perf_counter() - begun
            outcome = answer if isinstance(answer, Fault) else self._judge(answer, call)
        except ReplyRefused as error:
            seconds = time.perf_counter() - begun
            outcome = self._unread(call, error)
        except BaseException:
            # It was cut off here, and may have been heard there.
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
        turn.done(read_allowance(answer.headers) if isinstance(answer, _Answer) else None)
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
        if reply.usage is not None and reply.usage.total > _ABSURD * possible:
            _lose(reservation, None)
            return ModelRejected(
                f"{self._who} counts {reply.usage.total:,} tokens for a call that can have had "
                f"{possible:,}; it is asked no more, because nothing can be paid by such counts"
            )
        dollars = self._dollars(reply.usage, call)
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

    def _dollars(self, usage: Usage | None, call: "_Call") -> float | None:
        """What a reply cost; the most it can have cost, if the provider does not say."""
        if self._price is None:
            return None
        if usage is not None and (dollars := cost(usage, self._price)) is not None:
            return dollars
        return call.bound

    def _unread(self, call: "_Call", error: ReplyRefused) -> WireReply | Fault:
        """What a reply is that was not read: worth another attempt, at the end a bad reply."""
        call.unread += 1
        said = f"a reply that was not read: {error}"
        if call.unread < _UNREAD:
            return Fault(FaultKind.MALFORMED, f"{self._who} sent {said}", billed=True)
        return WireReply(Message({"role": "assistant", "content": f"({said})"}), "length", None)

    def _judge(self, answer: _Answer, call: "_Call") -> WireReply | Fault | AssayError:
        status, body = answer.status, answer.body
        said = failed_generation(status, body)
        if said is not None:
            content = {"role": "assistant", "content": self._clean(said)}
            return WireReply(Message(content), "stop", None)
        if 200 <= status < 300:
            last = call.request.messages[-1].hash if call.request.messages else ""
            try:
                return read_reply(body, after=last, clean=self._clean)
            except Malformed as error:
                message = f"{self._who} sent a malformed reply: {error}"
            late = embedded_error(body)
            if late is None:
                return Fault(FaultKind.MALFORMED, message, billed=True)
            status = late
        clean = self._clean_error
        return fault_of_status(status, answer.headers, body, who=self._who, clean=clean)

    async def _send(self, body: bytes) -> "_Answer | Fault":
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
            # ValueError: bytes of a head that are no text.
            return fault_of_exception(error, self._who, self._timeout)
        return _Answer(response.status_code, response.headers, response.content)

    def _client(self) -> "AsyncOpenAI":
        http = self._connections.http()
        if self._api is None or self._api[1] is not http:
            self._api = (self._make(http), http)
        return self._api[0]

    def _make(self, http: "httpx2.AsyncClient") -> "AsyncOpenAI":
        import httpx2
        from openai import AsyncOpenAI, Omit

        headers: dict[str, Any] = {}
        if self.provider != "openai":
            # They come from the environment, and are nobody else's business.
            headers = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        if self._key is None:
            self._options = {"headers": {"Authorization": Omit()}}
        timeout = httpx2.Timeout(self._timeout, connect=min(_CONNECT_TIMEOUT, self._timeout))
        return AsyncOpenAI(
            # Never left out: the key of OpenAI would be taken from the environment instead.
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
                f"model {self.name!r} could not be asked in {call.attempts} attempts; "
                f"the last time {fault.message}",
                kind=str(fault.kind),
            )
        asked = max(wait, fault.retry_after or 0.0)
        self._on_fault(fault.message, call.attempts, asked)
        if fault.kind not in _PACED:
            wait = asked
        if not await self._pace.rest(wait):
            raise ModelUnavailable(
                f"the run was stopped while model {self.name!r} was to be asked again; "
                f"the last time {fault.message}",
                kind=str(fault.kind),
            )

    def _clean(self, text: str) -> str:
        """A reply without any known secret. It is data: what only looks like one stays."""
        return redact(text, (self._key,))

    def _clean_error(self, text: str) -> str:
        return mask(self._clean(text))

    @property
    def _who(self) -> str:
        return f"{self.provider} (for {self.name!r})"


_PACED = (FaultKind.RATE_LIMIT, FaultKind.OVERLOAD)
"""Faults after which the pace waits, for all calls together."""


@dataclass(slots=True)
class _Call:
    """What is known of a call while it is tried."""

    request: ChatRequest
    body: bytes
    bound: float | None = None
    attempts: int = 0
    used: float = 0.0
    """Patience, in seconds."""
    unread: int = 0
    """Attempts whose reply was not read."""
    failed_s: float = 0.0
    """Seconds the last attempt took, where that counts."""


def _settle(reservation: Reservation | None, dollars: float | None) -> None:
    if reservation is not None:
        reservation.settle(dollars)


def _lose(reservation: Reservation | None, dollars: float | None) -> None:
    if reservation is not None:
        reservation.lose(dollars)
