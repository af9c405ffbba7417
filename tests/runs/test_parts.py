"""Limits, waits and the classification of exceptions."""

import errno
import math
from dataclasses import fields

import pytest

from assay.errors import (
    AccessDenied,
    InstanceLimit,
    JournalError,
    ModelRefused,
    ModelRejected,
    ModelUnavailable,
    ServiceError,
    StoreBusy,
    UnknownInstance,
    UsageError,
)
from assay.runs.control import GroupStop, Interrupted, Limits, Retries, TrialVerdict
from assay.runs.control import classify as sort_out
from assay.runs.engine import Context
from assay.runs.plan import Group, GroupCounts
from assay.types import TrialState


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda: Limits(max_open=0), "max_open is 0; .* at least 1", id="open"),
        pytest.param(lambda: Limits(max_groups=-1), "max_groups is -1", id="groups"),
        pytest.param(lambda: Retries(attempts=0), "attempts is 0", id="attempts"),
        pytest.param(lambda: Retries(first_wait=-1), "first_wait is -1", id="first"),
        pytest.param(lambda: Retries(first_wait=math.nan), "first_wait is nan", id="nan"),
        pytest.param(lambda: Retries(longest_wait=math.inf), "longest_wait is inf", id="inf"),
        pytest.param(lambda: Retries(longest_wait=0.5), "at least 1", id="longest"),
        pytest.param(lambda: Group("a", -1, lambda i: None), "has -1 trials", id="size"),  # type: ignore[arg-type,return-value]
    ],
)
def test_invalid_limits_are_rejected(make: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()  # type: ignore[operator]


def test_waits_double_up_to_the_maximum_with_jitter() -> None:
    retries = Retries(first_wait=2, longest_wait=30)
    for attempt, full in [(1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (5000, 30)]:
        waits = [retries.wait(f"trial {i}", attempt) for i in range(200)]
        assert full / 2 < min(waits) < full * 0.55
        assert full * 0.95 < max(waits) <= full


def test_waits_depend_on_seed_trial_and_attempt() -> None:
    assert Retries(seed=3).wait("x", 2) == Retries(seed=3).wait("x", 2)
    assert len({Retries(seed=s).wait(t, 1) for s in (1, 2) for t in "xy"}) == 4


@pytest.mark.parametrize(
    "error",
    [
        ModelUnavailable("overloaded"),
        ServiceError("gone"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        UnknownInstance("expired"),
        JournalError("damaged"),
        StoreBusy("held"),
        MemoryError(),
        OSError(errno.ENOSPC, "disk full"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_connection_and_system_errors_are_infrastructure_errors(error: Exception) -> None:
    verdict = sort_out(error)
    assert isinstance(verdict, TrialVerdict)
    assert verdict.state is TrialState.INFRASTRUCTURE
    assert verdict.reason == type(error).__name__
    assert verdict.retry_after is None


def test_no_room_error_has_a_retry_time() -> None:
    verdict = sort_out(InstanceLimit("full", retry_after=9))
    assert isinstance(verdict, TrialVerdict)
    assert verdict.state is TrialState.INFRASTRUCTURE
    assert verdict.retry_after == 9


@pytest.mark.parametrize(
    "error",
    [ModelRefused("no"), FileNotFoundError(errno.ENOENT, "hook.txt"), UsageError("bad")],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_the_subject_are_failures(error: Exception) -> None:
    verdict = sort_out(error)
    assert isinstance(verdict, TrialVerdict)
    assert verdict.state is TrialState.FAILURE


@pytest.mark.parametrize("error", [ModelRejected("no key"), AccessDenied("no token")], ids=repr)
def test_errors_that_affect_every_trial_stop_the_group(error: Exception) -> None:
    stop = sort_out(error)
    assert isinstance(stop, GroupStop)
    assert stop.reason == str(error)
    assert stop.error is not None
    assert stop.error.type == type(error).__name__


def test_error_without_a_printable_message_is_classified() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    verdict = sort_out(Mute())
    assert verdict.error is not None
    assert verdict.error.message == "(its message cannot be shown)"
    assert "Mute" in verdict.error.traceback


def test_context_works_without_a_run() -> None:
    reports: list[object] = []
    context = Context(report=reports.append)
    context.check()
    context.report_progress("turn 1")
    assert reports == ["turn 1"]
    assert not context.stopping
    with pytest.raises(Interrupted):
        Context(should_stop=lambda: True).check()


def test_nothing_is_counted_before_it_happens() -> None:
    tally = GroupCounts(planned=3)
    counts = {field.name: getattr(tally, field.name) for field in fields(tally)}
    assert counts.pop("planned") == 3
    assert counts.pop("stop") is None
    assert set(counts.values()) == {0}
