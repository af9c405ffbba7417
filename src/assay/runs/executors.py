"""Where attempts run: in this event loop, or in processes of their own.

An executor opens for one kind of trial and then starts attempts, each with the path of its
journal. The journal is written here, wherever the trial runs: what another process sends is
on disk before that process goes on.

One attempt at a trial of any kind: its journal is opened, and gets an end.

How many trials are open at once: few, so that they come to an end one after the other.

As many as calls may be in flight and a quarter more, so that there is always one to ask; at
least a few. Where nobody can say how many calls there may be, as many as the run allows.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from assay.errors import BudgetSpent
from assay.runs.control import GroupStop, Interrupted, TrialVerdict, classify, trial_error
from assay.runs.engine import Context
from assay.runs.events import SILENT, RunObserver
from assay.runs.kind import ProviderCapacity, TrialEnd, TrialKind
from assay.runs.plan import Trial
from assay.store.recorder import Recorder
from assay.store.records import ErrorRecord
from assay.types import TrialState

_Try: TypeAlias = Callable[[Trial[Any], Recorder, Context], Awaitable[TrialEnd]]


async def attempt(
    try_once: _Try, trial: Trial[Any], recorder: Recorder, context: Context
) -> TrialVerdict:
    """Try once. Unless it is to be resumed, the journal says how it ended, and so do we.

    Args:
        try_once: `TrialKind.attempt`, or what has it called elsewhere.
        trial: What is tried.
        recorder: Writes its journal.
        context: What it knows of its run.

    Raises:
        Exception: What the trial raised, once its journal has an end; or has none, because
            it was interrupted, the budget is spent, or the same would happen to all others.
    """
    try:
        end = await try_once(trial, recorder, context)
    except (Interrupted, BudgetSpent):
        raise
    except Exception as error:
        sorted_as = classify(error)
        if not isinstance(sorted_as, GroupStop):
            said = trial_error(error)
            record = ErrorRecord(type=said.type, message=said.message, traceback=said.traceback)
            recorder.end(sorted_as.state, said.type, {}, record)
        raise
    recorder.end(TrialState.RESULT, end.stop_reason, end.outcomes)
    return TrialVerdict(TrialState.RESULT, end.stop_reason, value=end)


Start: TypeAlias = Callable[[Trial[Any], Path, Context], Awaitable[TrialVerdict]]
"""Runs one attempt at a trial, with its journal at a path."""


class TrialExecutor(Protocol):
    """Runs attempts; many may be open at once."""

    def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AbstractAsyncContextManager[Start]:
        """Get ready for a kind of trial; leaves nothing running behind.

        `observer` gets messages about lost workers and what user code prints.
        """
        ...


class InProcess:
    """Runs attempts as tasks of this event loop."""

    @asynccontextmanager
    async def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AsyncIterator[Start]:
        """There is nothing to get ready."""

        async def start(trial: Trial[Any], journal: Path, context: Context) -> TrialVerdict:
            recorder = Recorder.open(
                journal, lambda: kind.header(trial), resumes=kind.resumes(trial)
            )
            return await attempt(kind.attempt, trial, recorder, context)

        yield start


_FEWEST: Final = 16
_MORE: Final = 1.25


def admission_rule(
    capacities: Mapping[str, ProviderCapacity],
) -> Callable[[str, Mapping[str, int]], bool]:
    """Return whether another trial of an arm may start, given how many of each are begun."""

    def has_room(arm: str, begun: Mapping[str, int]) -> bool:
        capacity = capacities.get(arm)
        if capacity is None:
            return True
        beside = sum(
            count
            for other, count in begun.items()
            if other in capacities and capacities[other].name == capacity.name
        )
        return beside < max(_FEWEST, _MORE * capacity.calls())

    return has_room
