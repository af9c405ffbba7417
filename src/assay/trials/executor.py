"""Where the body of a trial runs: in this event loop, or wherever another executor puts it.

An executor runs one attempt of one trial and knows nothing of queues, limits and retries.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from .plan import Trial
from .verdict import Interrupted, TrialVerdict

__all__ = ["AsyncioExecutor", "Body", "Context", "Executor"]

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Context:
    """What an attempt knows of the run it is part of."""

    attempt: int = 1
    """Counted from 1."""
    last: bool = True
    """Whether an infrastructure error of this attempt is final."""
    asked_to_stop: Callable[[], bool] = lambda: False
    report: Callable[[Any], None] = lambda _: None

    @property
    def stopping(self) -> bool:
        """Whether the trial is to finish what it has in hand and leave."""
        return self.asked_to_stop()

    def check(self) -> None:
        """Raise Interrupted if the trial is to leave; call it where that loses nothing."""
        if self.asked_to_stop():
            raise Interrupted("asked to stop; resume goes on from here")

    def progress(self, payload: Any) -> None:
        """Tell the listeners of the run how the trial goes."""
        self.report(payload)


class Executor(Protocol[P_contra]):
    """Runs attempts; many may be open at once."""

    async def run(self, trial: Trial[P_contra], context: Context) -> TrialVerdict:
        """Run one attempt to its end.

        Raises Interrupted when it leaves without one. Other exceptions are sorted by whoever
        called. Once cancelled, it holds nothing any more when it returns.
        """
        ...


Body: TypeAlias = Callable[[Trial[P], Context], Awaitable[TrialVerdict]]
"""What one attempt of a trial does."""


class AsyncioExecutor(Generic[P]):
    """Runs bodies as tasks of the running event loop; they must not block it."""

    def __init__(self, body: Body[P]) -> None:
        self._body = body

    async def run(self, trial: Trial[P], context: Context) -> TrialVerdict:
        """Await the body."""
        return await self._body(trial, context)
