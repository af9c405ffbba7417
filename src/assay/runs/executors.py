"""Where attempts run: in this event loop, or in processes of their own.

An executor opens for one kind of trial and then starts attempts, each with the path of its
journal. The journal is written here, wherever the trial runs: what another process sends is
on disk before that process goes on.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from assay.traces.recorder import Recorder
from assay.trials import Context, Trial, TrialVerdict

from .attempts import attempt
from .kind import TrialKind

__all__ = ["InProcess", "Start", "TrialExecutor"]

Start: TypeAlias = Callable[[Trial[Any], Path, Context], Awaitable[TrialVerdict]]
"""Runs one attempt at a trial, with its journal at a path."""


class TrialExecutor(Protocol):
    """Runs attempts; many may be open at once."""

    def open(self, kind: TrialKind[Any]) -> AbstractAsyncContextManager[Start]:
        """Get ready for a kind of trial; leaves nothing running behind."""
        ...


class InProcess:
    """Runs attempts as tasks of this event loop."""

    @asynccontextmanager
    async def open(self, kind: TrialKind[Any]) -> AsyncIterator[Start]:
        """There is nothing to get ready."""

        async def start(trial: Trial[Any], journal: Path, context: Context) -> TrialVerdict:
            recorder = Recorder.open(
                journal, lambda: kind.header(trial), resumes=kind.resumes(trial)
            )
            return await attempt(kind.attempt, trial, recorder, context)

        yield start
