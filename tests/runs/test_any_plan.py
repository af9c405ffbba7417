"""Properties of every plan, for any behaviour of its trials and any time of a stop."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InstanceLimit, ModelRejected
from assay.runs.control import Limits, Retries, Stop, TrialVerdict
from assay.runs.engine import Context
from assay.runs.events import (
    Event,
    GroupEnded,
    GroupStarted,
    TrialEnded,
    TrialInterrupted,
    TrialRetried,
    TrialSkipped,
    TrialStarted,
)
from assay.runs.plan import GroupCounts, Trial
from assay.types import TrialState

from .trials import WON, Watched, of_kind, plan_of, run


class Act(StrEnum):
    """The action of an attempt after its turns."""

    WIN = "win"
    BUG = "bug"
    DOWN = "down"
    DOWN_TOLD = "down, told by the verdict"
    FULL = "full"
    REJECTED = "rejected"
    CANCELS = "cancels itself"
    LEAVES = "leaves unasked"


@dataclass(frozen=True)
class Behaviour:
    turns: int
    minds_the_flag: bool
    acts: list[Act]
    """One per attempt; the last one is used for all later attempts."""


@dataclass(frozen=True)
class Case:
    sizes: list[int]
    behaviours: list[Behaviour]
    limits: Limits
    attempts: int
    done: set[str]
    stops: list[int] = field(default_factory=list)
    """Number of events before each request to stop."""


ORDINARY = [Act.WIN, Act.WIN, Act.BUG, Act.DOWN, Act.DOWN_TOLD, Act.FULL]
behaviours = st.builds(
    Behaviour,
    st.integers(0, 4),
    st.booleans(),
    st.lists(st.sampled_from([*ORDINARY, Act.CANCELS, Act.LEAVES]), min_size=1, max_size=4),
)
rejecting = st.builds(Behaviour, st.integers(0, 4), st.booleans(), st.just([Act.REJECTED]))
sizes = st.lists(st.integers(0, 7), min_size=0, max_size=4)
cases = st.builds(
    Case,
    sizes,
    st.lists(st.one_of(behaviours, behaviours, behaviours, rejecting), min_size=1, max_size=9),
    st.builds(Limits, st.integers(1, 6), st.integers(1, 3)),
    st.integers(1, 3),
    st.sets(st.sampled_from(["a0", "a1", "a3", "b0", "b2", "c0", "c1", "d0"])),
    st.lists(st.integers(0, 40), max_size=3),
)


def play(case: Case) -> tuple[dict[str, GroupCounts], list[Event], Watched]:
    stop = Stop()
    reported = 0

    def listen(_: Event) -> None:
        nonlocal reported
        for _time in range(case.stops.count(reported)):
            stop.request()
        reported += 1

    async def body(trial: Trial[int], context: Context) -> TrialVerdict:
        place = 7 * ord(trial.group) + trial.index
        behaviour = case.behaviours[place % len(case.behaviours)]
        for turn in range(behaviour.turns):
            if behaviour.minds_the_flag:
                context.check()
            await asyncio.sleep(0)
            context.report_progress(turn)
        return act(behaviour.acts[min(context.attempt, len(behaviour.acts)) - 1])

    watched = Watched(body)
    tallies, events = run(
        plan_of(*case.sizes),
        watched,
        limits=case.limits,
        retries=Retries(attempts=case.attempts),
        done=case.done.__contains__,
        stop=stop,
        listen=listen,
    )
    return tallies, events, watched


def act(what: Act) -> TrialVerdict:
    match what:
        case Act.WIN:
            return WON
        case Act.DOWN_TOLD:
            return TrialVerdict(TrialState.INFRASTRUCTURE, "down")
        case Act.LEAVES:
            Context(should_stop=lambda: True).check()
        case Act.BUG:
            raise ZeroDivisionError
        case Act.DOWN:
            raise ConnectionError
        case Act.FULL:
            raise InstanceLimit("full")
        case Act.REJECTED:
            raise ModelRejected("no such model")
    raise asyncio.CancelledError


@settings(max_examples=200)
@given(cases)
def test_every_trial_ends_once_and_everything_is_counted(case: Case) -> None:
    tallies, events, watched = play(case)
    ids = [trial.id for group in plan_of(*case.sizes).groups for trial in group]
    started = {event.trial.id for event in of_kind(events, TrialStarted)}
    ended = Counter(event.trial.id for event in of_kind(events, TrialEnded, TrialInterrupted))
    skipped = [event.trial.id for event in of_kind(events, TrialSkipped)]

    assert set(ended) == started
    assert set(ended.values()) <= {1}
    assert set(skipped) <= case.done
    assert not started & case.done
    assert watched.open.total() == 0
    for tally in tallies.values():
        assert tally.planned == tally.skipped + tally.started + tally.not_started
        assert tally.started == (
            tally.results + tally.failures + tally.infrastructure + tally.interrupted
        )
    total = {name: sum(getattr(t, name) for t in tallies.values()) for name in COUNTS}
    assert total["planned"] == len(ids)
    assert total["skipped"] == len(case.done & set(ids))
    assert total["started"] == len(started)
    assert total["retries"] == len(of_kind(events, TrialStarted)) - len(started) + sum(
        waiting_at_the_end(events).values()
    )


COUNTS = ("planned", "skipped", "started", "retries")


def waiting_at_the_end(events: list[Event]) -> Counter[str]:
    """Count trials that were interrupted during a wait, which have one extra wait."""
    states: dict[str, str] = {}
    waiting: Counter[str] = Counter()
    for event in events:
        match event:
            case TrialStarted(trial=trial):
                states[trial.id] = "open"
            case TrialInterrupted(trial=trial):
                waiting[trial.id] += states[trial.id] == "waits"
            case TrialRetried(trial=trial):
                states[trial.id] = "waits"
    return waiting


@settings(max_examples=150)
@given(cases)
def test_open_trials_stay_within_the_limits(case: Case) -> None:
    _, events, watched = play(case)
    assert watched.most_open <= case.limits.max_open
    assert watched.most_groups <= case.limits.max_groups
    at_once = most = 0
    for event in of_kind(events, GroupStarted, GroupEnded):
        at_once += 1 if isinstance(event, GroupStarted) else -1
        most = max(most, at_once)
    assert at_once == 0
    assert most <= case.limits.max_groups


@settings(max_examples=200)
@given(cases)
def test_run_without_a_stop_finishes_all_trials(case: Case) -> None:
    calm = [
        Behaviour(b.turns, b.minds_the_flag, [a for a in b.acts if a in ORDINARY] or [Act.WIN])
        for b in case.behaviours
    ]
    tallies, _, _ = play(Case(case.sizes, calm, case.limits, case.attempts, case.done))
    for tally in tallies.values():
        assert tally.not_started == tally.interrupted == 0


@settings(max_examples=50)
@given(cases)
def test_equal_runs_report_equal_events(case: Case) -> None:
    def story() -> list[str]:
        return [repr(event).partition("Traceback")[0] for event in play(case)[1]]

    assert story() == story()
