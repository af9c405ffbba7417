"""What earlier attempts at a run have left: journals to hand on, and what is played already."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from assay.errors import JournalError, StoreBusy, UsageError
from assay.traces.folder import RunFolder
from assay.traces.journal import read_session
from assay.traces.load import load_outcomes
from assay.traces.queries import committed_sessions
from assay.traces.records import SessionRecord
from assay.traces.store import Store
from assay.traces.writer import Writer
from assay.types import TrialState

from .kind import PreparedRun, RunChoices

__all__ = ["EarlierAttempts", "catch_up", "sessions_left"]


class EarlierAttempts(NamedTuple):
    """What earlier attempts at a run have left."""

    earned: Mapping[str, float | None]
    """Sessions that need not be played, and what they earned where that is looked at."""
    begun: frozenset[str]
    """Sessions with a journal and no end."""


def sessions_left(folder: RunFolder) -> Iterator[tuple[Path, SessionRecord]]:
    """The journals of an unfinished run, and what they hold.

    Raises:
        UsageError: Some cannot be read, told after all others: answers in them were paid
            for, so their episodes are not played anew unasked.
    """
    unreadable: list[str] = []
    for path in folder.journals():
        try:
            session = read_session(path, folder.record.id)
        except JournalError as error:
            unreadable.append(str(error))
        else:
            yield path, session
    if unreadable:
        more = f", and {len(unreadable) - 1} more journals" if len(unreadable) > 1 else ""
        raise UsageError(
            f"run {folder.record.id!r} cannot be resumed: {unreadable[0]}{more}; use the assay "
            "that wrote it, or move the file away to have its episode played anew, or start "
            "all anew with --fresh"
        )


def catch_up(
    run: PreparedRun[RunChoices], folder: RunFolder, store: Store, writer: Writer
) -> EarlierAttempts:
    """Hand on journals that have an end, and say what earlier attempts came to.

    Raises:
        UsageError: Some journal cannot be read.
    """
    metric = run.config.until_decided
    earned: dict[str, float | None] = {}
    begun: set[str] = set()
    for path, session in sessions_left(folder):
        if session.end is not None and session.end.state is not TrialState.INFRASTRUCTURE:
            writer.submit(folder.record, path)
            value = None if metric is None else session.end.outcomes.get(metric)
            earned[session.header.session_id] = value
        else:
            begun.add(session.header.session_id)
    # A new run has stored nothing yet, so it need not wait for who holds the database.
    look = store if run.resumed is not None else Store(store.path, patience=0)
    try:
        with look.reading() as connection:
            stored = committed_sessions(connection, folder.record.id)
            ended = [name for name, how in stored.items() if how != TrialState.INFRASTRUCTURE]
            numbers = {} if metric is None else load_outcomes(connection, ended)
    except StoreBusy:
        if run.resumed is not None:
            raise
    else:
        earned |= {name: numbers.get(name, {}).get(metric or "") for name in ended}
    return EarlierAttempts(earned, frozenset(begun))
