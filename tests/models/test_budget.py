"""The budget is never exceeded by concurrent, failed or cancelled calls."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BudgetSpent, UsageError
from assay.models.budget import Budget

from .clock import run


def test_unused_reservation_is_returned() -> None:
    async def play() -> None:
        budget = Budget(1.0)
        first = await budget.reserve(0.75)
        assert (budget.reserved_usd, budget.spent_usd) == (0.75, 0.0)
        first.settle(0.25)
        first.settle(0.5)
        assert (budget.reserved_usd, budget.spent_usd) == (0.0, 0.25)
        (await budget.reserve(0.5)).settle(None)
        assert budget.spent_usd == 0.75

    run(play())


def test_call_that_exceeds_the_budget_waits_for_open_calls() -> None:
    async def play() -> None:
        budget = Budget(1.0)
        first = await budget.reserve(0.75)
        second = asyncio.create_task(budget.reserve(0.5))
        third = asyncio.create_task(budget.reserve(0.01))
        await asyncio.sleep(1)
        # First come, first served: a small one does not overtake.
        assert not second.done()
        assert not third.done()
        first.settle(0.1)
        await asyncio.sleep(1)
        assert second.done()
        assert third.done()

    run(play())


def test_call_that_can_never_fit_is_rejected() -> None:
    async def play() -> None:
        budget = Budget(1.0, spent=0.25)
        first = await budget.reserve(0.5)
        waiting = asyncio.create_task(budget.reserve(0.5))
        small = asyncio.create_task(budget.reserve(0.25))
        await asyncio.sleep(1)
        first.settle(None)
        with pytest.raises(BudgetSpent, match=r"\$0\.75 of \$1\.00"):
            await waiting
        assert (await small).usd == 0.25
        with pytest.raises(BudgetSpent):
            await budget.reserve(0.5)

    run(play())


def test_cancelled_waiter_lets_the_next_call_proceed() -> None:
    async def play() -> None:
        budget = Budget(1.0)
        first = await budget.reserve(0.75)
        large = asyncio.create_task(budget.reserve(0.9))
        small = asyncio.create_task(budget.reserve(0.2))
        await asyncio.sleep(1)
        large.cancel()
        await asyncio.sleep(1)
        assert small.done()
        # Served and cancelled in the same moment.
        waiting = asyncio.create_task(budget.reserve(0.5))
        await asyncio.sleep(1)
        first.settle(0.0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert budget.reserved_usd == 0.2

    run(play())


@pytest.mark.parametrize("cap", [0.0, -1.0, float("nan"), float("inf")])
def test_budget_must_be_a_number_of_dollars(cap: float) -> None:
    with pytest.raises(UsageError, match="budget"):
        Budget(cap)


async def spend(cap: float, calls: int, dice: random.Random) -> tuple[Budget, float, int]:
    """Make calls at random prices, some cancelled; return their total cost."""
    budget = Budget(cap)
    paid, refused = 0.0, 0

    async def call() -> None:
        nonlocal paid, refused
        for _ in range(3):
            bound = dice.choice([1e-7, 0.0003, 0.1 / 3, dice.random() / 50])
            await asyncio.sleep(dice.random())
            try:
                reservation = await budget.reserve(bound)
            except BudgetSpent:
                refused += 1
                return
            actual = dice.choice([bound, bound * dice.random(), 0.0, None])
            paid += bound if actual is None else actual
            try:
                await asyncio.sleep(dice.random())
            finally:
                reservation.settle(actual)
            assert budget.spent_usd + budget.reserved_usd <= cap

    tasks = [asyncio.create_task(call()) for _ in range(calls)]
    for task in dice.sample(tasks, calls // 20):
        asyncio.get_running_loop().call_later(dice.random() * 3, task.cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()
    return budget, paid, refused


@settings(max_examples=30)
@given(cap=st.floats(0.0001, 20), seed=st.integers(0, 2**32))
def test_spending_never_exceeds_the_cap(cap: float, seed: int) -> None:
    budget, paid, _ = run(spend(cap, 60, random.Random(seed)))
    assert budget.spent_usd <= cap
    assert budget.spent_usd == pytest.approx(paid, abs=1e-9)
    assert budget.reserved_usd == 0


def test_a_thousand_calls_at_once_stay_within_the_cap() -> None:
    budget, paid, refused = run(spend(5.0, 1000, random.Random(1)))
    assert paid <= 5.0 + 1e-9
    assert budget.spent_usd <= 5.0
    assert budget.spent_usd > 4.9
    assert refused > 0


class Lines:
    """A log in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def reserve(self, amount: int) -> int:
        self.lines.append(("reserve", amount / 10**12))
        return len(self.lines)

    def settle(self, call: int, amount: int, *, lost: bool) -> None:
        self.lines.append((call, amount / 10**12, lost))


def test_reservation_is_logged_before_the_call_and_settled_after() -> None:
    async def play() -> Lines:
        log = Lines()
        budget = Budget(1.0, log=log)
        (await budget.reserve(0.25)).lose(None)
        (await budget.reserve(0.25)).settle(0.125)
        return log

    lines = asyncio.run(play()).lines
    assert lines == [("reserve", 0.25), (1, 0.25, True), ("reserve", 0.25), (3, 0.125, False)]


def test_call_that_cannot_be_logged_is_not_sent() -> None:
    class Full(Lines):
        def reserve(self, amount: int) -> int:
            raise OSError("no space left")

    async def play() -> None:
        budget = Budget(1.0, log=Full())
        with pytest.raises(OSError, match="no space"):
            await budget.reserve(0.75)
        assert budget.reserved_usd == 0

    asyncio.run(play())
