"""Shared helpers for tests of the engine."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from assay.runs.control import Stop, TrialVerdict
from assay.runs.engine import AsyncioExecutor, Body, Context, Rules, run_trials
from assay.runs.events import CallbackObserver, Event
from assay.runs.plan import Group, GroupCounts, Plan, Trial
from assay.types import TrialState

WON = TrialVerdict(TrialState.RESULT, "won")


def plan_of(*sizes: int) -> Plan[int]:
    """Return groups a, b, c, … of these sizes; the payload of a trial is its index."""

    def group(name: str, size: int) -> Group[int]:
        return Group(name, size, lambda index: Trial(f"{name}{index}", name, index, index))

    return Plan(tuple(group(chr(ord("a") + i), size) for i, size in enumerate(sizes)))


async def no_sleep(_: float) -> None:
    """Yield to other tasks without sleeping."""
    await asyncio.sleep(0)


class Watched:
    """An executor that runs a body and counts the open trials."""

    def __init__(self, body: Body[int]) -> None:
        self._inner = AsyncioExecutor(body)
        self.open: Counter[str] = Counter()
        self.most_open = 0
        self.most_groups = 0
        self.order: list[str] = []

    async def run(self, trial: Trial[int], context: Context) -> TrialVerdict:
        self.order.append(trial.id)
        self.open[trial.group] += 1
        self.most_open = max(self.most_open, self.open.total())
        self.most_groups = max(self.most_groups, len(+self.open))
        try:
            return await self._inner.run(trial, context)
        finally:
            self.open[trial.group] -= 1


def run(
    plan: Plan[int], body: Body[int] | Watched, **options: Any
) -> tuple[dict[str, GroupCounts], list[Event]]:
    """Run a plan without waiting; fail if a task is left running.

    Options are `listen`, `stop` and the fields of `Rules`.
    """
    events: list[Event] = []
    listen: Callable[[Event], None] = options.pop("listen", lambda _: None)
    stop: Stop | None = options.pop("stop", None)
    rules: Rules[int] = Rules(**{"sleep": no_sleep, **options})

    def record(event: Event) -> None:
        events.append(event)
        listen(event)

    async def main() -> dict[str, GroupCounts]:
        executor = body if isinstance(body, Watched) else AsyncioExecutor(body)
        observer = CallbackObserver(record)
        try:
            return await run_trials(plan, executor, rules, observer=observer, stop=stop)
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(main()), events


def of_kind(events: Sequence[Event], *kinds: type) -> list[Any]:
    """Return the events of these kinds, in order."""
    return [event for event in events if isinstance(event, kinds)]
