"""The throttle with rate-limited providers, on a virtual clock."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from assay.errors import UsageError
from assay.models.throttle import Allowance, Pace

from .clock import run
from .providers import Bucket, FixedWindow, Limiter, Load, Moody, Rooms, SlidingWindow

MINUTE_LIMITS: list[Any] = [
    pytest.param(lambda: Bucket(5, 10), id="bucket of 10"),
    pytest.param(lambda: Bucket(5, 300), id="bucket of 300"),
    pytest.param(lambda: SlidingWindow(300), id="sliding window"),
    pytest.param(lambda: FixedWindow(300), id="fixed window"),
]


def loaded(limiter: Limiter, seconds: float, pace: Pace | None = None, **how: Any) -> Load:
    async def play() -> Load:
        load = Load(limiter, pace or Pace(), **how)
        await load.run(seconds)
        return load

    return run(play())


@pytest.mark.parametrize("limiter", MINUTE_LIMITS)
@pytest.mark.parametrize(
    ("says", "latency"),
    [("exact", 1.0), ("seconds", 0.05), ("seconds", 1.0), ("seconds", 8.0)],
)
def test_rate_limit_of_300_per_minute_is_used_with_few_rejections(
    limiter: Callable[[], Limiter], says: str, latency: float
) -> None:
    load = loaded(limiter(), 420, says=says, latency=latency)
    assert load.busy(120, 420, per_second=5) >= 0.9
    assert load.wasted(after=120) < 0.02


@pytest.mark.parametrize("limiter", MINUTE_LIMITS)
def test_rate_limit_without_retry_after_is_handled(
    limiter: Callable[[], Limiter],
) -> None:
    load = loaded(limiter(), 420, says="nothing")
    assert load.busy(120, 420, per_second=5) >= 0.8
    assert load.wasted(after=120) < 0.03


def test_known_limit_causes_almost_no_rejections() -> None:
    load = loaded(Bucket(5, 10), 300, Pace(per_minute=300))
    assert load.busy(10, 300, per_second=5) >= 0.9
    assert len(load.rejected) <= 20


def test_raised_limit_is_detected() -> None:
    bucket = Bucket(5, 10)

    async def play() -> Load:
        load = Load(bucket, Pace())
        asyncio.get_running_loop().call_later(200, lambda: setattr(bucket, "per_second", 20))
        await load.run(400)
        return load

    load = run(play())
    assert load.busy(320, 400, per_second=20) >= 0.85


def test_lowered_limit_is_followed_quickly() -> None:
    bucket = Bucket(20, 10)

    async def play() -> Load:
        load = Load(bucket, Pace())
        asyncio.get_running_loop().call_later(100, lambda: setattr(bucket, "per_second", 4))
        await load.run(300)
        return load

    load = run(play())
    assert load.busy(150, 300, per_second=4) >= 0.85
    assert load.wasted(after=150) < 0.03


def test_limit_on_open_calls_is_detected() -> None:
    load = loaded(Rooms(30), 200, latency=2.0, says="exact")
    assert load.busy(60, 200, per_second=15) >= 0.75
    assert load.wasted(after=60) < 0.02


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_rate_independent_rejections_do_not_slow_calls(share: float) -> None:
    load = loaded(Moody(share), 120, says="nothing", latency=2.0)
    # Eighty callers, two seconds each.
    assert load.busy(60, 120, per_second=40) >= 0.9
    assert "unrelated" in [change.reason for change in load.pace.history]


def test_unlimited_calls_are_all_open_after_a_few_round_trips() -> None:
    load = loaded(Rooms(10_000), 6)
    assert load.most_open == 80
    assert load.rejected == []


def test_open_calls_never_exceed_the_maximum() -> None:
    load = loaded(Rooms(10_000), 30, Pace(max_connections=7))
    assert load.most_open == 7


def test_calls_start_in_order_with_retries_first() -> None:
    async def play() -> list[str]:
        pace, order = Pace(max_connections=1), []

        async def call(name: str, again: bool = False) -> None:
            async with pace.turn(again=again) as turn:
                order.append(name)
                await asyncio.sleep(1)
                turn.done()

        first = [asyncio.create_task(call(name)) for name in ("a", "b", "c")]
        await asyncio.sleep(0.5)
        again = [asyncio.create_task(call(name, again=True)) for name in ("x", "y")]
        await asyncio.gather(*first, *again)
        return order

    assert run(play()) == ["a", "x", "y", "b", "c"]


def test_calls_wait_for_the_requested_retry_delay() -> None:
    async def play() -> float:
        pace = Pace()
        async with pace.turn() as turn:
            turn.throttled(retry_after=30.0)
        async with pace.turn(again=True) as turn:
            return turn.started

    assert run(play()) == pytest.approx(30.0)


def test_rejections_in_one_round_trip_reduce_the_limit_once() -> None:
    async def play() -> Pace:
        pace = Pace()
        turns = [pace.turn() for _ in range(64)]
        opened = [await turn.__aenter__() for turn in turns]
        for slot in opened:
            slot.throttled(retry_after=1.0)
        for turn in turns:
            await turn.__aexit__(None, None, None)
        return pace

    pace = run(play())
    assert [change.reason for change in pace.history] == ["start", "rate_limit"]
    assert pace.limit == 32


def test_overload_reduces_the_limit_and_a_rare_one_does_not() -> None:
    async def play() -> tuple[int, int]:
        pace = Pace()
        async with pace.turn() as turn:
            turn.overloaded()
        shrunk = pace.limit
        for _ in range(10):
            async with pace.turn() as turn:
                turn.done()
        async with pace.turn() as turn:
            turn.overloaded()
        return shrunk, pace.limit

    assert run(play()) == (32, 32)


def test_rate_limit_headers_slow_calls_before_a_rejection() -> None:
    async def play() -> Pace:
        pace = Pace()
        async with pace.turn() as turn:
            turn.done(Allowance(remaining=400, refill=2.0))
        assert pace.rate is None
        async with pace.turn() as turn:
            turn.done(Allowance(remaining=0, refill=2.0))
        return pace

    pace = run(play())
    assert pace.rate == 2.0
    assert pace.history[-1].reason == "headers"


def test_cancelled_wait_does_not_block_the_queue() -> None:
    async def play() -> Pace:
        pace = Pace(max_connections=1)
        async with pace.turn():
            waiting = asyncio.create_task(pace.turn().__aenter__())
            await asyncio.sleep(1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            served = asyncio.create_task(pace.turn().__aenter__())
            await asyncio.sleep(1)
        # Served and cancelled in the same moment.
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)
        async with pace.turn():
            pass
        return pace

    pace = run(play())
    assert (pace.open, pace.waiting) == (0, 0)


def test_limit_history_is_bounded_and_timestamped() -> None:
    seconds = iter(range(10**6))

    async def play() -> Pace:
        pace = Pace(clock=lambda: float(next(seconds)))
        for _ in range(1500):
            async with pace.turn() as turn:
                turn.throttled(retry_after=0.01)
        return pace

    history = list(run(play()).history)
    assert len(history) == 1000
    assert [change.at for change in history] == sorted(change.at for change in history)


def test_limit_below_one_call_is_invalid() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Pace(max_connections=0)
