"""A cap on what all calls of a run may cost together.

What is spent and what is reserved for open calls never exceed the cap together, as long as
no call costs more than was reserved for it. Amounts are whole picodollars inside, so that a
million small ones add up exactly.

What a call costs: at most, before it is made, and exactly, once its tokens are known.

The bound needs no tokenizer: no token is shorter than a byte.
"""

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from assay.errors import BudgetSpent, ModelRefused, UsageError
from assay.types import ChatRequest, Usage

if TYPE_CHECKING:
    from assay.models.registry import Price

_PICO = 10**12


class SpendingLog(Protocol):
    """Who writes down what is set aside before a call goes out; amounts are picodollars."""

    def reserve(self, amount: int) -> int:
        """Write down what a call may cost; the number of the call."""
        ...

    def settle(self, call: int, amount: int, *, lost: bool) -> None:
        """Write down what it cost, or may have cost where its answer is lost."""
        ...


class Reservation:
    """Dollars that are set aside for one call, until `settle`."""

    def __init__(self, budget: "Budget", amount: int, call: int) -> None:
        self._budget, self._amount, self._call = budget, amount, call
        self._open = True

    @property
    def usd(self) -> float:
        """How much is set aside."""
        return self._amount / _PICO

    def settle(self, actual: float | None) -> None:
        """Spend what the call cost and give back the rest; None spends all of it.

        Only the first time counts.
        """
        self._end(actual, lost=False)

    def lose(self, actual: float | None) -> None:
        """Settle a call that may have cost something and has no reply to show for it."""
        self._end(actual, lost=True)

    def _end(self, actual: float | None, *, lost: bool) -> None:
        if self._open:
            self._open = False
            spent = self._amount if actual is None else _whole(actual)
            self._budget._settle(self._amount, spent)
            if self._budget.log is not None:
                # Where it cannot be written, all that was set aside counts: an answer that was
                # paid for is not thrown away for that.
                with suppress(OSError):
                    self._budget.log.settle(self._call, spent, lost=lost)


class Budget:
    """What a run may spend; many calls share one.

    A call that does not fit waits, first come, first served, while calls are open that may
    give something back.
    """

    def __init__(
        self, cap_usd: float, spent: float = 0.0, *, log: SpendingLog | None = None
    ) -> None:
        """Make a budget.

        Args:
            cap_usd: The most that may be spent.
            spent: What was spent before.
            log: Who writes it down.
        """
        self.log = log
        if not (math.isfinite(cap_usd) and cap_usd > 0):
            raise UsageError(f"a budget of {cap_usd} dollars; it must be more than 0")
        # Downwards: half a picodollar over the cap is over the cap.
        self._cap = math.floor(cap_usd * _PICO)
        self._spent = _whole(spent)
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def resume(self, spent: float, log: SpendingLog) -> None:
        """Count what was spent before, and have the rest written down."""
        self._spent, self.log = _whole(spent), log

    @property
    def cap_usd(self) -> float:
        """The most that may be spent."""
        return self._cap / _PICO

    @property
    def spent_usd(self) -> float:
        """What calls that ended cost, or may have cost."""
        return self._spent / _PICO

    @property
    def reserved_usd(self) -> float:
        """What is set aside for open calls."""
        return self._reserved / _PICO

    async def reserve(self, upper_bound: float) -> Reservation:
        """Set dollars aside for a call, or wait until that is possible.

        Raises:
            BudgetSpent: It does not fit, whatever open calls give back.
        """
        amount = _whole(upper_bound)
        if not self._waiting and self._fits(amount):
            self._take(amount)
            return self._written(amount)
        if self._hopeless(amount):
            raise self._refusal(amount)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # It may have been served in the very moment it was cancelled.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._settle(amount, 0)
            else:
                self._serve()
            raise
        return self._written(amount)

    def _written(self, amount: int) -> Reservation:
        """A reservation that is written down, or none: a call must not go out unrecorded."""
        try:
            call = 0 if self.log is None else self.log.reserve(amount)
        except BaseException:
            self._settle(amount, 0)
            raise
        return Reservation(self, amount, call)

    def _fits(self, amount: int) -> bool:
        return self._spent + self._reserved + amount <= self._cap

    def _hopeless(self, amount: int) -> bool:
        return self._spent + amount > self._cap

    def _take(self, amount: int) -> None:
        self._reserved += amount

    def _settle(self, amount: int, spent: int) -> None:
        self._reserved -= amount
        self._spent += spent
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
            elif self._fits(amount):
                self._waiting.popleft()
                self._take(amount)
                turn.set_result(None)
            elif self._hopeless(amount):
                self._waiting.popleft()
                turn.set_exception(self._refusal(amount))
            else:
                return

    def _refusal(self, amount: int) -> BudgetSpent:
        return BudgetSpent(
            f"the next call may cost {_dollars(amount)} and does not fit: "
            f"{_dollars(self._spent)} of {_dollars(self._cap)} are spent; "
            "resume the run with a larger --budget"
        )


def _whole(usd: float) -> int:
    return math.ceil(usd * _PICO)


def _dollars(amount: int) -> str:
    usd = amount / _PICO
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3g}"


_MESSAGE_MARGIN = 16
"""Tokens a provider adds around a message: its role, its ends, its name."""
_TOOL_MARGIN = 64
"""Tokens a provider adds around a tool, when it is written in a form of its own."""
_REQUEST_MARGIN = 256
"""Tokens a provider adds once: the start of the reply, and how tools are to be used."""
_MILLION = 1_000_000


def upper_bound(request: ChatRequest, price: "Price") -> float:
    """The most dollars a request can cost, however its text is cut into tokens.

    Raises:
        ModelRefused: It may be longer than what the price is for.
    """
    tools = request.tools.value
    tokens = (
        sum(len(message.encoded) + _MESSAGE_MARGIN for message in request.messages)
        + len(request.tools.encoded)
        + _TOOL_MARGIN * (len(tools) if isinstance(tools, list | tuple) else 1)
        + _REQUEST_MARGIN
    )
    if price.up_to is not None and tokens > price.up_to:
        raise ModelRefused(
            f"a request of up to {tokens} tokens has no known price: that of the registry is "
            f"for at most {price.up_to}; shorten the history, or give --price"
        )
    # Tokens that are kept for later cost more with some providers, and all of them may be.
    dearest = max(price.input, price.cached or 0.0, price.cache_write or 0.0)
    return (tokens * dearest + request.max_tokens * price.output) / _MILLION


def cost(usage: Usage, price: "Price") -> float | None:
    """The dollars that tokens cost; None for more of them than the price is for.

    Cached ones count as others where they have no price of their own.
    """
    if price.up_to is not None and usage.prompt > price.up_to:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    dollars = fresh * price.input + usage.cached * cached + usage.completion * price.output
    return dollars / _MILLION
