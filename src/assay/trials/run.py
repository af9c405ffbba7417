"""The door to the engine."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from .engine import Engine, Rules, Sleep
from .events import Event
from .executor import Executor
from .limits import Limits, Retries
from .plan import Admission, Plan, Trial
from .stop import Stop
from .tally import GroupCounts
from .verdict import GroupStop, TrialVerdict
from .verdict import classify as classify_error

__all__ = ["run_trials"]

P = TypeVar("P")

_LIMITS = Limits()
_RETRIES = Retries()


async def run_trials(
    plan: Plan[P],
    executor: Executor[P],
    *,
    limits: Limits = _LIMITS,
    retries: Retries = _RETRIES,
    listen: Callable[[Event], None] = lambda _: None,
    stop: Stop | None = None,
    done: Callable[[str], bool] = lambda _: False,
    classify: Callable[[Exception], TrialVerdict | GroupStop] = classify_error,
    sleep: Sleep = asyncio.sleep,
    admit: Callable[[Trial[P]], Admission] = lambda _: Admission.NOW,
    room: Callable[[str, Mapping[str, int]], bool] = lambda _, __: True,
) -> dict[str, GroupCounts]:
    """Work off a plan and count, for each group, how its trials ended.

    Args:
        plan: What is to be tried. Within a group, trials start in order.
        executor: Runs one attempt of a trial.
        limits: How much goes on at once.
        retries: When a trial is tried again. While it waits, others may take its place.
        listen: Hears every event, in this thread and loop.
        stop: Asked once, open trials leave when they can and nothing new starts; asked
            twice, they are cancelled.
        done: Whether the trial with this id needs no more work.
        classify: Sorts what the executor raises. Never sees Interrupted or a cancellation.
        sleep: Waits for so many seconds between attempts.
        admit: Whether a trial whose turn has come may start; asked again whenever a trial
            has ended. Those that wait for others while nothing goes on are not started. Who
            makes trials of one group wait for those of another opens both at once.
        room: Whether another trial of a group may start, given how many trials of each open
            group are begun and have not ended; asked again whenever one goes on or ends. There
            is room where nothing is begun.
    """
    rules = Rules(limits, retries, classify, sleep, done, admit, room)
    return await Engine(plan, executor, rules, listen, stop or Stop()).run()
