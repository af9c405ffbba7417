"""Model calls of one trial: recorded responses are reused, and new ones are recorded.

A response is in the journal before it is used.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from assay.runs.control import Interrupted
from assay.runs.engine import Context
from assay.store.recorder import Recorder
from assay.store.records import CallRecord, MessageRecord
from assay.types import ChatModel, ChatReply, Message, NewMessage, PreparedRequest


class CallTotals:
    """Tokens, cost and turns of the calls so far."""

    __slots__ = ("_turns", "cost_usd", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        """Prompt and completion tokens."""
        self.cost_usd: float | None = 0.0
        """Total cost; None as soon as one call has no known price."""
        self._turns: set[int] = set()

    def add_call(self, call: CallRecord) -> None:
        """Add one model call."""
        self._turns.add(call.turn)
        self.tokens += call.usage.total
        if self.cost_usd is not None:
            self.cost_usd = None if call.cost_usd is None else self.cost_usd + call.cost_usd

    @property
    def turns(self) -> int:
        """Number of counted turns."""
        return len(self._turns)


class ModelCalls:
    """Makes the model calls of one trial."""

    def __init__(self, recorder: Recorder, totals: CallTotals, context: Context) -> None:
        self.turn = 0
        """Turn that calls belong to, counted from 1."""
        self._recorder, self._totals, self._context = recorder, totals, context

    async def call(
        self,
        model: ChatModel,
        prepared: PreparedRequest,
        new: Sequence[NewMessage],
        read: Callable[[Message], NewMessage],
    ) -> ChatReply:
        """Return the response to a request, from the journal if it is recorded there.

        Args:
            model: The model to call otherwise.
            prepared: The request.
            new: Messages added to the conversation since the last call.
            read: Processes the response, and returns it as a message of the conversation.
        """
        recorded = self._recorder.recall(
            self.turn,
            prepared.positions,
            {message.position: message.message for message in new},
        )
        if recorded is not None:
            call, message = recorded
            reply = _rebuild_reply(call, message)
            read(message)
        else:
            # Models that respond without waiting would otherwise starve all other tasks.
            await asyncio.sleep(0)
            if self._context.stopping:
                raise Interrupted
            reply = await model.reply(prepared.request)
            call = self._record(model, prepared, reply, [*new, read(reply.message)])
            await self._recorder.wait_until_written()
        self._recorder.seconds += call.latency_s
        self._totals.add_call(call)
        return reply

    def _record(
        self,
        model: ChatModel,
        prepared: PreparedRequest,
        reply: ChatReply,
        new: Sequence[NewMessage],
    ) -> CallRecord:
        now, request = time.time(), prepared.request
        call = CallRecord(
            turn=self.turn,
            at=now,
            request=prepared.positions,
            reply=prepared.reply,
            model=model.name,
            provider=model.provider,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            cost_usd=reply.cost_usd,
            latency_s=reply.latency_s,
            waited_s=reply.waited_s,
            retries=reply.retries,
            parameters={
                "temperature": request.temperature,
                "max_tokens": request.max_tokens,
                "seed": request.seed,
            },
        )
        messages = [
            MessageRecord(position, self.turn, message, kind, now)
            for position, message, kind in new
        ]
        self._recorder.add_call(call, messages)
        return call


def _rebuild_reply(call: CallRecord, message: Message) -> ChatReply:
    return ChatReply(
        message=message,
        finish_reason=call.finish_reason,
        usage=call.usage,
        cost_usd=call.cost_usd,
        latency_s=call.latency_s,
        waited_s=call.waited_s,
        retries=call.retries,
    )
