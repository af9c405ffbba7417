"""One attempt at a trial of any kind: its journal is opened, and gets an end."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from assay.errors import BudgetSpent
from assay.traces.recorder import Recorder
from assay.traces.records import ErrorRecord
from assay.trials import (
    Context,
    GroupStop,
    Interrupted,
    Trial,
    TrialVerdict,
    classify,
    trial_error,
)
from assay.types import TrialState

from .kind import TrialEnd

__all__ = ["attempt"]

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
