"""From journals to the store, and what became of each.

Journals are read and made into rows before the database is opened, so that it is held only
while rows go in. A journal is deleted once its session is committed, unless the session
ended as an infrastructure error and may be resumed. Whatever goes wrong is reported, and the
journal stays where it is, so that no session is played anew unasked.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import duckdb

from assay._util.text import printable
from assay.errors import JournalError, StoreError
from assay.types import TrialState

from .file import StoreFile
from .ingest import Ingestion, ensure_run
from .journal import is_blank, read_session
from .records import RunRecord
from .rows import SessionRows, session_rows

__all__ = [
    "EndedJournal",
    "JournalDamaged",
    "SessionStored",
    "StoringFailed",
    "WriterEvent",
    "store_journals",
]


_AT_ONCE = 16
"""Sessions that share a transaction: to commit takes longer than to insert one of them."""


@dataclass(frozen=True, slots=True)
class SessionStored:
    """A session is in the store."""

    run_id: str
    session_id: str
    state: TrialState

    def __str__(self) -> str:
        return f"episode {self.session_id} is stored ({self.state})"


@dataclass(frozen=True, slots=True)
class JournalDamaged:
    """A journal could not be understood."""

    run_id: str
    session_id: str
    path: Path
    """Where it is."""
    reason: str

    def __str__(self) -> str:
        return f"episode {self.session_id} is not stored, {self.path} is kept: {self.reason}"


@dataclass(frozen=True, slots=True)
class StoringFailed:
    """A session could not be stored; its journal is kept and tried again on resume."""

    run_id: str
    session_id: str
    reason: str

    def __str__(self) -> str:
        return f"episode {self.session_id} is not stored, its journal is kept: {self.reason}"


WriterEvent: TypeAlias = SessionStored | JournalDamaged | StoringFailed
"""What became of a journal."""

_Tell: TypeAlias = Callable[[WriterEvent], None]


@dataclass(frozen=True, slots=True)
class EndedJournal:
    """The journal of a session that has ended, and the run it belongs to."""

    run: RunRecord
    journal: Path

    @property
    def session_id(self) -> str:
        """The session, by the name of its file."""
        return self.journal.name.removesuffix(".jsonl")


@dataclass(frozen=True, slots=True)
class _Ready:
    ended: EndedJournal
    rows: SessionRows
    state: TrialState


def store_journals(
    store: StoreFile,
    batch: Sequence[EndedJournal],
    on_event: _Tell,
    *,
    then: Callable[[duckdb.DuckDBPyConnection], object] = lambda connection: None,
    given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Move sessions into a store, here and now.

    Journals whose sessions go on are left alone: whoever resumed them hands them over again.
    `then` is called while the store is open, if anything could be stored. What is not stored
    when `given_up` says so stays in its journals.
    """
    once = {ended.journal: ended for ended in batch}
    ready = [found for ended in once.values() if (found := _read(ended, on_event))]
    waiting = {each.ended.journal: each for each in ready}
    if not ready:
        return
    try:
        with store.writing() as connection:
            # These are many small statements: more threads would wait for each other.
            connection.execute("SET threads = 1")
            ensure_run(connection, *_runs(ready))
            ingestion = Ingestion(connection, [each.rows for each in ready])
            for start in range(0, len(ready), _AT_ONCE):
                if given_up():
                    return
                _store(ingestion, ready[start : start + _AT_ONCE], waiting, on_event)
            then(connection)
    except StoreError as error:
        for each in waiting.values():
            on_event(StoringFailed(each.ended.run.id, each.ended.session_id, str(error)))


def _runs(ready: Sequence[_Ready]) -> Iterable[RunRecord]:
    """The runs of sessions, each once, with the experiments that any of its sessions names."""
    runs: dict[str, RunRecord] = {}
    for each in ready:
        run = each.ended.run
        known = runs.setdefault(run.id, run)
        if known.experiments != run.experiments:
            experiments = {one.id: one for one in (*known.experiments, *run.experiments)}
            runs[run.id] = replace(known, experiments=tuple(experiments.values()))
    return runs.values()


def _read(ended: EndedJournal, on_event: _Tell) -> _Ready | None:
    try:
        if is_blank(ended.journal):
            return None  # the disk was full before its first line
        session = read_session(ended.journal, ended.run.id)
        if session.end is None:
            return None
        return _Ready(ended, session_rows(session), session.end.state)
    except (JournalError, ValueError, TypeError, OverflowError) as error:
        reason = str(error)
        if isinstance(error.__cause__, OSError):
            on_event(StoringFailed(ended.run.id, ended.session_id, reason))
        else:
            on_event(JournalDamaged(ended.run.id, ended.session_id, ended.journal, reason))
        return None


def _store(
    ingestion: Ingestion, group: Sequence[_Ready], waiting: dict[Path, _Ready], on_event: _Tell
) -> None:
    try:
        ingestion.store(*(each.rows for each in group))
    except duckdb.Error as error:
        # One session that cannot be stored must not keep the others out.
        if len(group) > 1:
            for each in group:
                _store(ingestion, [each], waiting, on_event)
            return
        failed = waiting.pop(group[0].ended.journal).ended
        on_event(StoringFailed(failed.run.id, failed.session_id, printable(str(error))))
        return
    for each in group:
        ended = waiting.pop(each.ended.journal).ended
        if each.state is not TrialState.INFRASTRUCTURE:
            with suppress(OSError):
                ended.journal.unlink()
        on_event(SessionStored(ended.run.id, ended.session_id, each.state))
