"""The engine on plans with known steps."""

import asyncio
from collections.abc import Callable

import pytest

from assay.errors import (
    InstanceLimit,
    ModelRefused,
    ModelRejected,
    ModelUnavailable,
    UsageError,
)
from assay.runs.control import GroupStop, Limits, Retries, TrialVerdict
from assay.runs.engine import Context
from assay.runs.events import (
    Event,
    GroupEnded,
    GroupStarted,
    GroupStopped,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialInterrupted,
    TrialProgress,
    TrialRetried,
    TrialSkipped,
    TrialStarted,
)
from assay.runs.plan import Group, GroupCounts, Plan, Trial
from assay.types import TrialState

from .trials import WON, Watched, of_kind, plan_of, run


async def win(trial: Trial[int], context: Context) -> TrialVerdict:
    await asyncio.sleep(0)
    return WON


def failing(make: Callable[[], Exception], times: int = 10**9) -> Watched:
    """Return a body that raises on the first attempts of each trial, then wins."""

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        await asyncio.sleep(0)
        if context.attempt <= times:
            raise make()
        return WON

    return Watched(body)


def test_events_of_one_trial_are_ordered() -> None:
    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        context.report_progress({"turn": 1})
        return TrialVerdict(TrialState.RESULT, "died", value=7)

    tallies, events = run(plan_of(1), body)
    trial = plan_of(1).groups[0].make(0)
    tally = GroupCounts(planned=1, started=1, results=1)
    assert tallies == {"a": tally}
    assert events == [
        RunStarted({"a": 1}),
        GroupStarted("a", 1),
        TrialStarted(trial, 1),
        TrialProgress(trial, {"turn": 1}),
        TrialEnded(trial, 1, TrialVerdict(TrialState.RESULT, "died", value=7)),
        GroupEnded("a", tally),
        RunEnded({"a": tally}),
    ]


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0, 3, 0)], ids=str)
def test_empty_plans_and_groups_end(sizes: tuple[int, ...]) -> None:
    tallies, events = run(plan_of(*sizes), win)
    assert [tally.results for tally in tallies.values()] == list(sizes)
    assert len(of_kind(events, GroupStarted)) == len(of_kind(events, GroupEnded)) == len(sizes)


def test_trials_of_a_group_start_in_order_within_the_limit() -> None:
    watched = Watched(win)
    run(plan_of(20), watched, limits=Limits(max_open=3))
    assert watched.order == [f"a{i}" for i in range(20)]
    assert watched.most_open == 3


def test_groups_run_one_after_another_by_default() -> None:
    watched = Watched(win)
    run(plan_of(3, 3), watched)
    assert (watched.most_groups, watched.most_open) == (1, 3)
    watched = Watched(win)
    run(plan_of(3, 3, 3), watched, limits=Limits(max_groups=2))
    assert (watched.most_groups, watched.most_open) == (2, 6)


@pytest.mark.parametrize("places", [1, 2, 4])
def test_concurrent_groups_share_the_places(places: int) -> None:
    watched = Watched(win)
    run(plan_of(8, 8), watched, limits=Limits(max_open=places, max_groups=2))
    assert [trial[0] for trial in watched.order] == ["a", "b"] * 8


def test_group_of_long_trials_does_not_block_other_groups() -> None:
    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        for _ in range(50 if trial.group == "a" else 1):
            await asyncio.sleep(0)
        return WON

    watched = Watched(body)
    run(plan_of(100, 4, 4), watched, limits=Limits(max_open=4, max_groups=2))
    assert "c3" in watched.order[:20]


def test_group_of_long_trials_gets_at_most_its_share() -> None:
    left = 20
    most = 0

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        nonlocal left, most
        for _ in range(200 if trial.group == "a" else 1):
            if left > 2:
                most = max(most, watched.open["a"])
            await asyncio.sleep(0)
        left -= trial.group == "b"
        return WON

    watched = Watched(body)
    run(plan_of(20, 20), watched, limits=Limits(max_open=4, max_groups=2))
    assert (left, most) == (0, 2)


def test_trials_are_created_lazily() -> None:
    made: list[int] = []

    def make(index: int) -> Trial[int]:
        made.append(index)
        return Trial(str(index), "a", index, index)

    ahead: list[int] = []

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        ahead.append(len(made) - trial.index)
        await asyncio.sleep(0)
        return WON

    run(Plan((Group("a", 500, make),)), Watched(body), limits=Limits(max_open=5))
    assert made == list(range(500))
    assert max(ahead) <= 6


def test_finished_trials_are_skipped() -> None:
    watched = Watched(win)
    tallies, events = run(plan_of(4, 2), watched, done={"a0", "a2", "b0", "b1"}.__contains__)
    assert watched.order == ["a1", "a3"]
    assert tallies["a"] == GroupCounts(planned=4, skipped=2, started=2, results=2)
    assert tallies["b"] == GroupCounts(planned=2, skipped=2)
    assert [event.trial.id for event in of_kind(events, TrialSkipped)] == [
        "a0",
        "a2",
        "b0",
        "b1",
    ]


def test_infrastructure_errors_are_retried_until_success() -> None:
    watched = failing(lambda: ModelUnavailable("overloaded"), times=2)
    tallies, events = run(plan_of(2), watched, retries=Retries(attempts=3))
    assert tallies["a"] == GroupCounts(planned=2, started=2, results=2, retries=4)
    assert [event.attempt for event in of_kind(events, TrialEnded)] == [3, 3]
    retried = of_kind(events, TrialRetried)[0]
    assert retried.verdict.error.message == "overloaded"


def test_an_infrastructure_error_is_final_after_the_last_attempt() -> None:
    tallies, events = run(
        plan_of(1), failing(lambda: TimeoutError("slow")), retries=Retries(attempts=3)
    )
    assert tallies["a"] == GroupCounts(planned=1, started=1, infrastructure=1, retries=2)
    ended = of_kind(events, TrialEnded)[0]
    assert (ended.attempt, ended.verdict.reason) == (3, "TimeoutError")
    assert "raise make()" in ended.verdict.error.traceback


def test_a_body_knows_its_last_attempt() -> None:
    seen: list[tuple[int, bool]] = []

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        seen.append((context.attempt, context.last))
        return TrialVerdict(TrialState.INFRASTRUCTURE, "down")

    tallies, _ = run(plan_of(1), body, retries=Retries(attempts=3))
    assert seen == [(1, False), (2, False), (3, True)]
    assert tallies["a"].infrastructure == 1


@pytest.mark.parametrize("error", [ModelRefused("no"), ZeroDivisionError("bug")], ids=repr)
def test_failure_is_final_and_other_trials_continue(error: Exception) -> None:
    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.index == 1:
            raise error
        return WON

    tallies, events = run(plan_of(3), body)
    assert tallies["a"] == GroupCounts(planned=3, started=3, results=2, failures=1)
    verdict = next(e.verdict for e in of_kind(events, TrialEnded) if e.trial.index == 1)
    assert verdict.error.type == type(error).__name__
    assert "raise error" in verdict.error.traceback


def test_waiting_trial_frees_its_place() -> None:
    gate = asyncio.Event()

    async def sleep(_: float) -> None:
        await gate.wait()

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.index == 0 and context.attempt == 1:
            raise ConnectionError
        if trial.index == 4:
            gate.set()
        return WON

    watched = Watched(body)
    tallies, _ = run(plan_of(5), watched, limits=Limits(max_open=1), sleep=sleep)
    assert watched.order == ["a0", "a1", "a2", "a3", "a4", "a0"]
    assert tallies["a"].results == 5


def test_trials_without_room_queue_and_lose_no_attempt() -> None:
    inside = 0

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        nonlocal inside
        assert not context.last
        if inside == 2:
            raise InstanceLimit("full", retry_after=7)
        inside += 1
        for _ in range(40):
            await asyncio.sleep(0)
        inside -= 1
        return WON

    watched = Watched(body)
    tallies, events = run(
        plan_of(12), watched, limits=Limits(max_open=4), retries=Retries(attempts=2)
    )
    assert tallies["a"].results == 12
    assert min(event.wait for event in of_kind(events, TrialRetried)) == 7
    # Trials without room keep their places: no later trial tries before them.
    assert list(dict.fromkeys(watched.order)) == [f"a{i}" for i in range(12)]
    assert sum(watched.order.index(f"a{i}") > 40 for i in range(6, 12)) >= 4


def test_trial_without_room_keeps_its_place_while_it_waits() -> None:
    seen, refused = list[list[str]](), False

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        nonlocal refused
        if trial.index == 1 and not refused:
            refused = True
            raise InstanceLimit("full", retry_after=7)
        for _ in range(40):
            await asyncio.sleep(0)
        return WON

    async def sleep(_: float) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        seen.append(list(watched.order))

    watched = Watched(body)
    tallies, _ = run(plan_of(4), watched, limits=Limits(max_open=2), sleep=sleep)
    assert seen == [["a0", "a1"]]
    assert tallies["a"].results == 4


def test_permanent_lack_of_room_is_an_infrastructure_error() -> None:
    tallies, _ = run(
        plan_of(6), failing(lambda: InstanceLimit("full")), retries=Retries(attempts=2)
    )
    assert tallies["a"].infrastructure == 6


def test_a_rejected_model_stops_its_group_and_no_other() -> None:
    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        await asyncio.sleep(0)
        context.check()
        if trial.group == "a":
            raise ModelRejected("no such model: a")
        return WON

    tallies, events = run(plan_of(10, 3), body, limits=Limits(max_open=4))
    a = tallies["a"]
    assert (a.started, a.interrupted, a.not_started) == (4, 4, 6)
    assert a.stop is not None
    assert a.stop.reason == "no such model: a"
    assert tallies["b"].results == 3
    assert [event.group for event in of_kind(events, GroupStopped)] == ["a"]


def test_open_trials_of_a_stopped_group_get_a_stop_request() -> None:
    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.id == "a0":
            raise ModelRejected("no")
        for _ in range(50):
            await asyncio.sleep(0)
            context.check()
        return WON

    tallies, _ = run(plan_of(3, 3), body, limits=Limits(max_groups=2))
    assert (tallies["a"].interrupted, tallies["a"].results) == (3, 0)
    assert (tallies["b"].interrupted, tallies["b"].results) == (0, 3)


def test_stopped_group_counts_trials_finished_before() -> None:
    tallies, _ = run(
        plan_of(6),
        failing(lambda: ModelRejected("no")),
        limits=Limits(max_open=1),
        done={"a0", "a4"}.__contains__,
    )
    a = tallies["a"]
    assert (a.skipped, a.started, a.interrupted, a.not_started) == (2, 1, 1, 3)


def test_a_stopped_group_does_not_wait_for_its_retries() -> None:
    async def forever(_: float) -> None:
        await asyncio.Event().wait()

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.index < 3:
            raise ConnectionError
        await asyncio.sleep(0)
        raise ModelRejected("no")

    tallies, events = run(plan_of(4), body, sleep=forever)
    assert tallies["a"].interrupted == 4
    assert len(of_kind(events, TrialInterrupted)) == 4


def test_custom_classifier_is_used() -> None:
    def classify(error: Exception) -> TrialVerdict | GroupStop:
        return TrialVerdict(TrialState.RESULT, f"forgiven: {error}")

    tallies, events = run(plan_of(1), failing(lambda: KeyError("x")), classify=classify)
    assert tallies["a"].results == 1
    assert of_kind(events, TrialEnded)[0].verdict.reason == "forgiven: 'x'"


@pytest.mark.parametrize("kind", [RunStarted, GroupStarted, TrialStarted, TrialEnded, RunEnded])
def test_a_listener_that_raises_ends_the_run(kind: type) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, kind):
            raise ZeroDivisionError(kind.__name__)

    watched = Watched(win)
    with pytest.raises(ZeroDivisionError, match=kind.__name__):
        run(plan_of(5), watched, listen=listen, limits=Limits(max_open=2))
    assert watched.open.total() == 0


def test_a_body_is_not_blamed_for_a_listener_that_raises() -> None:
    raised: list[str] = []
    events: list[Event] = []

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        try:
            context.report_progress("half way")
        except Exception as error:
            raised.append(type(error).__name__)
            raise
        await asyncio.Event().wait()
        return WON

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, TrialProgress) and event.trial.index == 2:
            raise ZeroDivisionError

    watched = Watched(body)
    with pytest.raises(ZeroDivisionError):
        run(plan_of(4), watched, listen=listen)
    assert raised == ["Interrupted"]
    assert isinstance(events[-1], TrialProgress)
    assert watched.open.total() == 0


@pytest.mark.parametrize("broken", ["done", "classify", "sleep"])
def test_error_in_a_component_ends_the_run(broken: str) -> None:
    def bug(*_: object) -> bool:
        raise LookupError(broken)

    async def broken_sleep(_: float) -> None:
        raise LookupError(broken)

    options = {broken: broken_sleep if broken == "sleep" else bug}
    with pytest.raises(LookupError, match=broken):
        run(plan_of(3), failing(ConnectionError), **options)


def test_base_exception_ends_the_run() -> None:
    class Odd(BaseException):
        pass

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        if trial.index == 2:
            raise Odd
        await asyncio.Event().wait()
        return WON

    with pytest.raises(Odd):
        run(plan_of(5), body)


def test_two_groups_with_the_same_name_are_rejected() -> None:
    with pytest.raises(UsageError, match="two groups are named 'a'"):
        Plan((Group.of("a", []), Group.of("a", [])))


def test_group_of_precomputed_trials_works() -> None:
    trials = [Trial("x", "a", 0, 5), Trial("y", "a", 1, 6)]
    plan = Plan((Group.of("a", trials),))
    assert list(plan.groups[0]) == trials
    assert plan.size == 2
    tallies, _ = run(plan, win)
    assert tallies["a"].results == 2


def test_trials_start_only_with_room_for_their_group() -> None:
    watched = Watched(win)
    most = {"a": 2, "b": 1}
    tallies, _ = run(
        plan_of(6, 6),
        watched,
        limits=Limits(max_open=100, max_groups=2),
        room=lambda group, begun: begun[group] < most[group],
    )
    assert watched.most_open == 3
    assert {tally.results for tally in tallies.values()} == {6}


def test_more_trials_start_when_room_is_freed() -> None:
    room = 1

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        nonlocal room
        if trial.index:
            await asyncio.sleep(0.01)
            return WON
        for room in range(1, 6):
            context.report_progress(room)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert watched.most_open == 5, "they did not wait for the first one to end"
        return WON

    watched = Watched(body)
    tallies, _ = run(plan_of(9), watched, room=lambda group, begun: begun[group] < room)
    assert tallies["a"].results == 9
