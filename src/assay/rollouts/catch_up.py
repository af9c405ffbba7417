"""What earlier attempts at a run have left: journals to hand on, and what is played already."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from assay.errors import JournalError, StoreBusy
from assay.traces.folder import RunFolder
from assay.traces.journal import read_journal, set_aside
from assay.traces.load import load_outcomes
from assay.traces.queries import committed_sessions
from assay.traces.store import Store
from assay.traces.writer import Writer
from assay.types import TrialState

from .prepare import PreparedRun

__all__ = ["Left", "catch_up"]


class Left(NamedTuple):
    """What earlier attempts at a run have left."""

    earned: Mapping[str, float | None]
    """Sessions that need not be played, and what they earned where that is looked at."""
    begun: frozenset[str]
    """Sessions with a journal and no end."""


def catch_up(
    prepared: PreparedRun,
    folder: RunFolder,
    store: Store,
    writer: Writer,
    notice: Callable[[str], None],
) -> Left:
    """Hand on journals that have an end, and say what earlier attempts came to."""
    metric = prepared.config.until_decided
    earned: dict[str, float | None] = {}
    begun: set[str] = set()
    for path in folder.journals():
        try:
            session = read_journal(path)
        except JournalError as error:
            kept = set_aside(path)
            notice(f"{error}; it is kept as {kept.name}, and the episode is played anew")
            continue
        if session.end is not None and session.end.state is not TrialState.INFRASTRUCTURE:
            writer.submit(folder.record, path)
            value = None if metric is None else session.end.outcomes.get(metric)
            earned[session.header.session_id] = value
        else:
            begun.add(session.header.session_id)
    # A new run has stored nothing yet, so it need not wait for who holds the database.
    look = store if prepared.resumed is not None else Store(store.path, patience=0)
    try:
        with look.reading() as connection:
            stored = committed_sessions(connection, folder.record.id)
            ended = [name for name, how in stored.items() if how != TrialState.INFRASTRUCTURE]
            numbers = {} if metric is None else load_outcomes(connection, ended)
    except StoreBusy:
        if prepared.resumed is not None:
            raise
    else:
        earned |= {name: numbers.get(name, {}).get(metric or "") for name in ended}
    return Left(earned, frozenset(begun))
