"""Trials that start late or not at all, depending on the results of others."""

import asyncio

from assay.runs.control import Limits, Retries, TrialVerdict
from assay.runs.events import TrialEnded
from assay.runs.plan import Admission, Trial
from assay.types import TrialState

from .trials import WON, Watched, of_kind, plan_of, run

BOTH = Limits(max_groups=2)


async def win(trial: Trial[int], _: object) -> TrialVerdict:
    await asyncio.sleep(0)
    return WON


def test_unneeded_trial_is_counted_and_never_starts() -> None:
    def admit(trial: Trial[int]) -> Admission:
        return Admission.NOW if trial.index < 3 else Admission.NEVER

    tallies, events = run(plan_of(5), win, admit=admit)
    tally = tallies["a"]
    assert (tally.planned, tally.started, tally.unneeded, tally.not_started) == (5, 3, 2, 0)
    assert [event.trial.id for event in of_kind(events, TrialEnded)] == ["a0", "a1", "a2"]


def test_a_trial_waits_until_others_have_ended() -> None:
    ended: list[str] = []

    def admit(trial: Trial[int]) -> Admission:
        both = min(sum(name[0] == group for name in ended) for group in "ab")
        return Admission.NOW if trial.index <= both else Admission.LATER

    def listen(event: object) -> None:
        if isinstance(event, TrialEnded):
            ended.append(event.trial.id)

    watched = Watched(win)
    tallies, _ = run(plan_of(4, 4), watched, admit=admit, listen=listen, limits=BOTH)
    assert [tally.results for tally in tallies.values()] == [4, 4]
    assert watched.most_open == 2
    assert [sorted(watched.order[at : at + 2]) for at in range(0, 8, 2)] == [
        [f"a{index}", f"b{index}"] for index in range(4)
    ]


def test_waiting_trials_can_become_unneeded() -> None:
    enough = False

    def admit(trial: Trial[int]) -> Admission:
        if trial.index < 2:
            return Admission.NOW
        return Admission.NEVER if enough else Admission.LATER

    def listen(event: object) -> None:
        nonlocal enough
        enough = enough or (isinstance(event, TrialEnded) and event.trial.id == "b1")

    tallies, _ = run(plan_of(9, 9), win, admit=admit, listen=listen, limits=BOTH)
    assert [(tally.started, tally.unneeded) for tally in tallies.values()] == [(2, 7), (2, 7)]


def test_trials_that_wait_for_lost_trials_are_not_started() -> None:
    async def lose_connection(trial: Trial[int], _: object) -> TrialVerdict:
        raise ConnectionError

    tallies, _ = run(
        plan_of(4),
        lose_connection,
        admit=lambda trial: Admission.LATER if trial.index else Admission.NOW,
        retries=Retries(attempts=2, first_wait=0),
    )
    tally = tallies["a"]
    assert (tally.infrastructure, tally.retries, tally.not_started) == (1, 1, 3)


def test_finished_trials_are_skipped_whether_needed_or_not() -> None:
    tallies, _ = run(
        plan_of(4),
        win,
        admit=lambda _: Admission.NEVER,
        done=lambda name: name in ("a1", "a3"),
    )
    assert (tallies["a"].skipped, tallies["a"].unneeded) == (2, 2)


def test_pending_retry_runs_although_no_more_trials_are_needed() -> None:
    tries = 0

    async def second_time(trial: Trial[int], _: object) -> TrialVerdict:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionError
        return WON

    tallies, events = run(
        plan_of(3),
        second_time,
        admit=lambda trial: Admission.NEVER if tries else Admission.NOW,
        limits=Limits(max_open=1),
    )
    assert (tallies["a"].results, tallies["a"].unneeded) == (1, 2)
    assert of_kind(events, TrialEnded)[0].verdict.state is TrialState.RESULT
