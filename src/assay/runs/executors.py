"""Executors of attempts: in this event loop, or in worker processes.

An executor is opened for one kind of trial and then starts attempts, each with a journal path.
The journal is always written by the driver: data from a worker process is on disk before that
worker continues. Each completed or failed attempt gets an end record in its journal.

The number of open trials is kept small, so that trials finish one after another: a quarter
more than the calls that may be in flight, and at least 16. If the number of possible calls is
unknown, only the limit of the run applies.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from assay.errors import BudgetSpent
from assay.runs.control import GroupStop, Interrupted, TrialVerdict, classify, describe_error
from assay.runs.engine import Context
from assay.runs.events import SILENT, RunObserver
from assay.runs.kind import ProviderCapacity, TrialEnd, TrialKind
from assay.runs.plan import Trial
from assay.store.recorder import Recorder
from assay.store.records import ErrorRecord
from assay.types import TrialState

_AttemptFunction: TypeAlias = Callable[[Trial[Any], Recorder, Context], Awaitable[TrialEnd]]


async def attempt(
    run_attempt: _AttemptFunction, trial: Trial[Any], recorder: Recorder, context: Context
) -> TrialVerdict:
    """Execute a trial once, and record its end in the journal unless it is to be resumed.

    Args:
        run_attempt: `TrialKind.attempt`, or a function that calls it in another process.
        trial: The trial.
        recorder: Writes its journal.
        context: Context of its run.

    Raises:
        Exception: The exception of the trial, after its end was recorded. No end is recorded
            if it was interrupted, if the budget is spent, or if the group must stop.
    """
    try:
        result = await run_attempt(trial, recorder, context)
    except (Interrupted, BudgetSpent):
        raise
    except Exception as error:
        classification = classify(error)
        if not isinstance(classification, GroupStop):
            description = describe_error(error)
            record = ErrorRecord(
                type=description.type,
                message=description.message,
                traceback=description.traceback,
            )
            recorder.end(classification.state, description.type, {}, record)
        raise
    recorder.end(TrialState.RESULT, result.stop_reason, result.outcomes)
    return TrialVerdict(TrialState.RESULT, result.stop_reason, value=result)


StartAttempt: TypeAlias = Callable[[Trial[Any], Path, Context], Awaitable[TrialVerdict]]
"""Runs one attempt at a trial, with its journal at a path."""


class TrialExecutor(Protocol):
    """Runs attempts; many may be open at the same time."""

    def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AbstractAsyncContextManager[StartAttempt]:
        """Prepare for a kind of trial; on exit, stop everything that was started.

        `observer` receives messages about lost workers, and the output of user code.
        """
        ...


class InProcessExecutor:
    """Runs attempts as tasks of this event loop."""

    @asynccontextmanager
    async def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AsyncIterator[StartAttempt]:
        """Yield a function that runs an attempt in this event loop."""

        async def start(trial: Trial[Any], journal: Path, context: Context) -> TrialVerdict:
            recorder = Recorder.open(
                journal, lambda: kind.header(trial), resumes=kind.resumes(trial)
            )
            return await attempt(kind.attempt, trial, recorder, context)

        yield start


_MIN_OPEN: Final = 16
_OPEN_PER_CALL: Final = 1.25


def make_admission_rule(
    capacities: Mapping[str, ProviderCapacity],
) -> Callable[[str, Mapping[str, int]], bool]:
    """Return a function that decides whether another trial of an arm may start.

    Its arguments are the arm and the numbers of started, unfinished trials of all arms.
    """

    def may_start(arm: str, unfinished: Mapping[str, int]) -> bool:
        capacity = capacities.get(arm)
        if capacity is None:
            return True
        open_trials = sum(
            count
            for other, count in unfinished.items()
            if other in capacities and capacities[other].name == capacity.name
        )
        return open_trials < max(_MIN_OPEN, _OPEN_PER_CALL * capacity.calls())

    return may_start
