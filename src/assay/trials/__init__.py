"""Many trials at once: a plan is worked off under limits, with retries and typed events.

Knows nothing of what a trial does: an executor runs it, and says how it ended.
"""

from .events import (
    CallRetried,
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
    Troubles,
)
from .executor import AsyncioExecutor, Body, Context, Executor
from .limits import Limits, Retries
from .plan import Admission, Group, Plan, Trial
from .run import run_trials
from .stop import Stop
from .tally import GroupCounts
from .verdict import GroupStop, Interrupted, TrialError, TrialVerdict, classify, trial_error

__all__ = [
    "Admission",
    "AsyncioExecutor",
    "Body",
    "CallRetried",
    "Context",
    "Event",
    "Executor",
    "Group",
    "GroupCounts",
    "GroupEnded",
    "GroupStarted",
    "GroupStop",
    "GroupStopped",
    "Interrupted",
    "Limits",
    "Plan",
    "Retries",
    "RunEnded",
    "RunStarted",
    "Stop",
    "Trial",
    "TrialEnded",
    "TrialError",
    "TrialInterrupted",
    "TrialProgress",
    "TrialRetried",
    "TrialSkipped",
    "TrialStarted",
    "TrialVerdict",
    "Troubles",
    "classify",
    "run_trials",
    "trial_error",
]
