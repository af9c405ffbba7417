"""How much of a run is still to be played; reads journals and rows, changes nothing."""

from contextlib import suppress
from typing import NamedTuple

from assay.errors import UsageError
from assay.traces.queries import committed_sessions
from assay.traces.store import Store
from assay.types import TrialState

from .catch_up import sessions_left
from .prepare import PreparedRun
from .record import make_plan

__all__ = ["Remaining", "remaining"]

_PATIENCE = 5.0
"""Seconds to wait for who holds the database."""


class Remaining(NamedTuple):
    """What one model still has to play, at most."""

    episodes: int
    calls: int


def remaining(prepared: PreparedRun) -> dict[str, Remaining]:
    """What each model still has to play; all of it, if the run is new.

    Raises:
        StoreBusy: Another process holds the database.
        UsageError: Some journal cannot be read.
    """
    config = prepared.config
    plan = make_plan(config, prepared.record.id)
    if prepared.resumed is None:
        whole = Remaining(config.episodes, config.episodes * config.max_turns)
        return {group.name: whole for group in plan.groups}
    asked = _asked(prepared)
    left = {}
    for group in plan.groups:
        turns = [asked.get(group.make(index).id, 0) for index in range(group.size)]
        open_ones = [config.max_turns - turn for turn in turns if turn is not None]
        left[group.name] = Remaining(len(open_ones), sum(max(0, n) for n in open_ones))
    return left


def _asked(prepared: PreparedRun) -> dict[str, int | None]:
    """The turns that each session has already; None for those that are over."""
    asked: dict[str, int | None] = {}
    for _, session in sessions_left(prepared.resumed) if prepared.resumed else ():
        over = session.end and session.end.state is not TrialState.INFRASTRUCTURE
        asked[session.header.session_id] = None if over else len(session.calls)
    # Without a database nothing was stored yet.
    store = Store(prepared.config.database, patience=_PATIENCE)
    with suppress(UsageError), store.reading() as connection:
        for session_id, state in committed_sessions(connection, prepared.record.id).items():
            if state is not TrialState.INFRASTRUCTURE:
                asked[session_id] = None
    return asked
