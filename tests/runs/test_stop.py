"""Stopping: clean, immediate, from a signal, from a thread, by cancellation."""

import asyncio
import os
import signal
import threading

import pytest

from assay.runs.control import Limits, Stop, TrialVerdict
from assay.runs.engine import AsyncioExecutor, Context, run_trials
from assay.runs.events import (
    CallbackObserver,
    Event,
    TrialEnded,
    TrialInterrupted,
    TrialProgress,
    TrialRetried,
)
from assay.runs.plan import GroupCounts, Trial

from .trials import WON, Watched, of_kind, plan_of, run


async def endless(trial: Trial[int], context: Context) -> TrialVerdict:
    """Play turns until a stop is requested, and report each."""
    turn = 0
    while True:
        context.check()
        await asyncio.sleep(0)
        turn += 1
        context.report_progress(turn)


def on_turn(stop: Stop, turn: int) -> object:
    def listen(event: Event) -> None:
        if isinstance(event, TrialProgress) and event.payload == turn:
            stop.request()

    return listen


def test_open_trials_can_be_cancelled_after_a_stop_request() -> None:
    stop = Stop()

    async def deaf(trial: Trial[int], context: Context) -> TrialVerdict:
        stop.cancel_trials()
        assert not stop.should_cancel, "no stop was requested yet"
        stop.request()
        await asyncio.Event().wait()
        return WON

    tallies, _ = run(plan_of(2), deaf, stop=stop, limits=Limits(max_open=1))
    assert tallies == {"a": GroupCounts(planned=2, started=1, interrupted=1, not_started=1)}
    assert not stop.is_forced


def test_first_stop_request_lets_turns_finish_and_starts_nothing() -> None:
    stop = Stop()
    watched = Watched(endless)
    tallies, events = run(
        plan_of(5, 2),
        watched,
        stop=stop,
        listen=on_turn(stop, 3),
        limits=Limits(max_open=2),
        done={"a4", "b1"}.__contains__,
    )
    assert tallies == {
        "a": GroupCounts(planned=5, skipped=1, started=2, interrupted=2, not_started=2),
        "b": GroupCounts(planned=2, skipped=1, not_started=1),
    }
    last = of_kind(events, TrialProgress)[-2:]
    assert [event.payload for event in last] == [3, 3]
    assert len(of_kind(events, TrialInterrupted)) == 2
    assert (stop.is_requested, stop.is_forced) == (True, True)


def test_stop_request_before_the_start_starts_nothing() -> None:
    stop = Stop()
    stop.request()
    tallies, _ = run(plan_of(3), endless, stop=stop)
    assert tallies["a"] == GroupCounts(planned=3, not_started=3)


def test_trial_that_ends_during_a_stop_counts_as_ended() -> None:
    stop = Stop()

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        stop.request()
        assert context.stopping
        return WON

    tallies, _ = run(plan_of(2), body, stop=stop, limits=Limits(max_open=1))
    assert tallies["a"] == GroupCounts(planned=2, started=1, results=1, not_started=1)


def test_second_stop_request_cancels_trials() -> None:
    stop = Stop()
    let_go: list[str] = []

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        context.report_progress(1)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            let_go.append(trial.id)
        return WON

    tallies, _ = run(plan_of(3), body, stop=stop, listen=on_turn(stop, 1))
    assert tallies["a"].interrupted == 3
    assert sorted(let_go) == ["a0", "a1", "a2"]


def test_trial_waiting_for_a_retry_is_interrupted() -> None:
    stop = Stop()

    async def forever(_: float) -> None:
        await asyncio.Event().wait()

    def listen(event: Event) -> None:
        if isinstance(event, TrialRetried) and event.trial.index == 1:
            stop.request()

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        raise ConnectionError

    tallies, events = run(plan_of(2), body, stop=stop, listen=listen, sleep=forever)
    assert tallies["a"] == GroupCounts(planned=2, started=2, interrupted=2, retries=2)
    assert of_kind(events, TrialEnded) == []


def test_signal_handler_can_request_a_stop() -> None:
    stop = Stop()
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.request())

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        # Only one of them is awake to see the flag; the second signal ends the others.
        if trial.index == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.Event().wait()
        return WON

    try:
        tallies, _ = run(plan_of(3), body, stop=stop)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert tallies["a"].interrupted == 3


def test_another_thread_can_request_a_stop() -> None:
    stop = Stop()

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.index == 2:
            for _ in range(2):
                threading.Thread(target=stop.request).start()
        await asyncio.Event().wait()
        return WON

    tallies, _ = run(plan_of(3), body, stop=stop)
    assert tallies["a"].interrupted == 3


def test_stop_request_after_the_end_has_no_effect() -> None:
    stop = Stop()
    run(plan_of(1), lambda *_: asyncio.sleep(0, WON), stop=stop)
    stop.request()
    assert stop.is_requested
    assert not stop.is_forced


def test_cancelled_run_awaits_its_trials() -> None:
    watched = Watched(slow_to_leave)

    async def main() -> None:
        task = asyncio.create_task(run_trials(plan_of(4), watched))
        await asyncio.sleep(0.001)
        assert watched.open.total() == 4
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert watched.open.total() == 0


async def slow_to_leave(trial: Trial[int], context: Context) -> TrialVerdict:
    try:
        await asyncio.Event().wait()
    finally:
        try:
            for _ in range(5):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
    return WON


def test_a_keyboard_interrupt_leaves_nothing_behind() -> None:
    watched = Watched(slow_to_leave)

    async def main() -> None:
        def listen(event: Event) -> None:
            if isinstance(event, TrialProgress):
                raise KeyboardInterrupt

        async def body(trial: Trial[int], context: Context) -> TrialVerdict:
            if trial.index == 3:
                context.report_progress(None)
            return await slow_to_leave(trial, context)

        watched._inner = AsyncioExecutor(body)
        await run_trials(plan_of(4), watched, observer=CallbackObserver(listen))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert watched.open.total() == 0


def test_trial_that_cancels_itself_is_interrupted_and_others_continue() -> None:
    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.index == 1:
            raise asyncio.CancelledError
        return WON

    tallies, _ = run(plan_of(3), body)
    assert tallies["a"] == GroupCounts(planned=3, started=3, results=2, interrupted=1)


def test_watchers_are_not_woken_after_they_leave() -> None:
    stop, woken = Stop(), list[str]()

    async def ask() -> None:
        stop.request()
        await asyncio.sleep(0)

    async def go() -> None:
        with stop.watch(lambda: woken.append("outer")):
            with stop.watch(lambda: woken.append("inner")):
                await ask()
            await ask()
        await ask()

    asyncio.run(go())
    assert woken == ["outer", "inner", "outer"]
