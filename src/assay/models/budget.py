"""A spending limit for all calls of a run, and the cost of a call.

The sum of what is spent and what is reserved for open calls never exceeds the limit, as long as
no call costs more than was reserved for it. Amounts are whole picodollars, so that a million
small ones add up exactly.

Before a call, its cost is bounded; afterwards it is computed from its tokens. The bound needs
no tokenizer, because no token is shorter than a byte.
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
    """Interface for recording reservations before calls are sent; amounts are picodollars."""

    def reserve(self, amount: int) -> int:
        """Record the maximum cost of a call and return the call's number."""
        ...

    def settle(self, call: int, amount: int, *, lost: bool) -> None:
        """Record the cost of a call, or its possible cost if the reply was lost."""
        ...


class Reservation:
    """Dollars reserved for one call, until `settle` or `lose`."""

    def __init__(self, budget: "Budget", amount: int, call: int) -> None:
        self._budget, self._amount, self._call = budget, amount, call
        self._open = True

    @property
    def usd(self) -> float:
        """The reserved amount."""
        return self._amount / _PICO

    def settle(self, actual: float | None) -> None:
        """Spend the actual cost and release the rest; None spends the whole amount.

        Only the first call has an effect.
        """
        self._end(actual, lost=False)

    def lose(self, actual: float | None) -> None:
        """Settle a call that may have cost something but has no usable reply."""
        self._end(actual, lost=True)

    def _end(self, actual: float | None, *, lost: bool) -> None:
        if self._open:
            self._open = False
            spent = self._amount if actual is None else _to_pico(actual)
            self._budget._settle(self._amount, spent)
            if self._budget.log is not None:
                # If this fails, the log counts the whole reservation; the reply is kept.
                with suppress(OSError):
                    self._budget.log.settle(self._call, spent, lost=lost)


class Budget:
    """Spending limit shared by all calls of a run.

    A call that does not fit waits, in order of arrival, while open calls may release part of
    their reservations.
    """

    def __init__(
        self, cap_usd: float, spent: float = 0.0, *, log: SpendingLog | None = None
    ) -> None:
        """Create a budget.

        Args:
            cap_usd: The limit in dollars.
            spent: Dollars spent before.
            log: Records reservations and costs.
        """
        self.log = log
        if not (math.isfinite(cap_usd) and cap_usd > 0):
            raise UsageError(f"the budget must be more than 0 dollars (got {cap_usd})")
        # Rounded down, so that the limit is never exceeded.
        self._cap = math.floor(cap_usd * _PICO)
        self._spent = _to_pico(spent)
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def resume(self, spent: float, log: SpendingLog) -> None:
        """Set the amount spent before, and record further spending in `log`."""
        self._spent, self.log = _to_pico(spent), log

    @property
    def cap_usd(self) -> float:
        """The limit."""
        return self._cap / _PICO

    @property
    def spent_usd(self) -> float:
        """Cost, or possible cost, of calls that ended."""
        return self._spent / _PICO

    @property
    def reserved_usd(self) -> float:
        """Amount reserved for open calls."""
        return self._reserved / _PICO

    async def reserve(self, upper_bound: float) -> Reservation:
        """Reserve dollars for a call, waiting if necessary.

        Raises:
            BudgetSpent: It does not fit even if open calls release their reservations.
        """
        amount = _to_pico(upper_bound)
        if not self._waiting and self._fits(amount):
            self._take(amount)
            return self._make_reservation(amount)
        if self._never_fits(amount):
            raise self._make_error(amount)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # It may have been served just before it was cancelled.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._settle(amount, 0)
            else:
                self._serve_waiting()
            raise
        return self._make_reservation(amount)

    def _make_reservation(self, amount: int) -> Reservation:
        """Record a reservation, or release it if that fails: no unrecorded call is sent."""
        try:
            call = 0 if self.log is None else self.log.reserve(amount)
        except BaseException:
            self._settle(amount, 0)
            raise
        return Reservation(self, amount, call)

    def _fits(self, amount: int) -> bool:
        return self._spent + self._reserved + amount <= self._cap

    def _never_fits(self, amount: int) -> bool:
        return self._spent + amount > self._cap

    def _take(self, amount: int) -> None:
        self._reserved += amount

    def _settle(self, amount: int, spent: int) -> None:
        self._reserved -= amount
        self._spent += spent
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
            elif self._fits(amount):
                self._waiting.popleft()
                self._take(amount)
                turn.set_result(None)
            elif self._never_fits(amount):
                self._waiting.popleft()
                turn.set_exception(self._make_error(amount))
            else:
                return

    def _make_error(self, amount: int) -> BudgetSpent:
        return BudgetSpent(
            f"the next call may cost {_format_dollars(amount)} and exceeds the budget: "
            f"{_format_dollars(self._spent)} of {_format_dollars(self._cap)} are spent; "
            "resume the run with a larger --budget"
        )


def _to_pico(usd: float) -> int:
    return math.ceil(usd * _PICO)


def _format_dollars(amount: int) -> str:
    usd = amount / _PICO
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3g}"


_MESSAGE_MARGIN = 16
"""Tokens a provider may add to a message: its role, delimiters and name."""
_TOOL_MARGIN = 64
"""Tokens a provider may add to a tool, by converting it to another format."""
_REQUEST_MARGIN = 256
"""Tokens a provider may add once: the start of the reply, and instructions for tools."""
_MILLION = 1_000_000


def upper_bound(request: ChatRequest, price: "Price") -> float:
    """Return the maximum cost of a request in dollars, for any tokenizer.

    Raises:
        ModelRefused: It may have more tokens than the price is valid for.
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
            f"a request of up to {tokens} tokens has no known price: the registry's price is "
            f"valid for at most {price.up_to}; shorten the history, or give --price"
        )
    # Some providers charge more for tokens written to their cache, which may be all of them.
    highest = max(price.input, price.cached or 0.0, price.cache_write or 0.0)
    return (tokens * highest + request.max_tokens * price.output) / _MILLION


def cost(usage: Usage, price: "Price") -> float | None:
    """Return the cost of tokens in dollars; None for more tokens than the price is valid for.

    Cached tokens without a separate price cost as much as others.
    """
    if price.up_to is not None and usage.prompt > price.up_to:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    dollars = fresh * price.input + usage.cached * cached + usage.completion * price.output
    return dollars / _MILLION
