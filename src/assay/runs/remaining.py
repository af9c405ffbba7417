"""How much of a run is still to be played; reads journals and rows, changes nothing."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from assay.errors import UsageError
from assay.traces.queries import committed_sessions
from assay.traces.store import Store
from assay.trials import Plan
from assay.types import TrialState

from .catch_up import sessions_left
from .kind import PreparedRun, RunChoices

__all__ = ["Remaining", "remaining"]

_PATIENCE = 5.0
"""Seconds to wait for who holds the database."""


class Remaining(NamedTuple):
    """What one arm still has to play, at most."""

    episodes: int
    calls: int


def remaining(
    run: PreparedRun[RunChoices],
    plan: Plan[Any],
    turns: int,
    given: Callable[[Any], int] | None = None,
) -> dict[str, Remaining]:
    """What each arm still has to play; all of it, if the run is new.

    Args:
        run: The run.
        plan: All its trials.
        turns: Calls of one trial, at most.
        given: How many of them a trial begins with, from its payload; none by default.

    Raises:
        StoreBusy: Another process holds the database.
        UsageError: Some journal cannot be read.
    """
    asked = _asked(run) if run.resumed else {}
    left = {}
    for group in plan.groups:
        made: list[int | None] = [0] * group.size
        if asked or given:
            begun = given or (lambda _: 0)
            made = [asked.get(trial.id, begun(trial.payload)) for trial in group]
        open_ones = [turns - count for count in made if count is not None]
        left[group.name] = Remaining(len(open_ones), sum(max(0, n) for n in open_ones))
    return left


def _asked(run: PreparedRun[RunChoices]) -> dict[str, int | None]:
    """The turns that each session has already; None for those that are over."""
    asked: dict[str, int | None] = {}
    for _, session in sessions_left(run.resumed) if run.resumed else ():
        over = session.end and session.end.state is not TrialState.INFRASTRUCTURE
        asked[session.header.session_id] = None if over else len(session.calls)
    # Without a database nothing was stored yet.
    store = Store(run.config.database, patience=_PATIENCE)
    with suppress(UsageError), store.reading() as connection:
        for session_id, state in committed_sessions(connection, run.record.id).items():
            if state is not TrialState.INFRASTRUCTURE:
                asked[session_id] = None
    return asked
