"""Sessions from files into a store.

Files come from anywhere: each is checked whole before anything of it is stored, and one
that is damaged is named while the rest goes on. A session that is stored stays as it is, so
that importing twice adds nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import duckdb

from assay._util.canonical import derived_id
from assay.errors import UsageError
from assay.exchange.adopt import adopt_experiment, adopt_run
from assay.exchange.sources import (
    DamagedSource,
    Found,
    SkippedSource,
    TraceSource,
    read_sources,
)
from assay.traces.ingest import Ingestion, delete_sessions, transaction
from assay.traces.rows import session_rows
from assay.traces.schema import ASSAY_SOURCE
from assay.traces.store import Store
from assay.traces.totals import unverifiable_reason
from assay.traces.trace import Trace
from assay.types import TrialState

__all__ = [
    "ImportReport",
    "Unverifiable",
    "import_traces",
]

_CHOSEN: Final = "IN (SELECT unnest(?::VARCHAR[]))"
_RETRIED: Final = "ended with an error, and was tried again"
_EARLIER: Final = (
    "is there already as {0}, imported by an earlier assay, which read less of a trial; for "
    "all of it, run 'assay traces delete {0}' and import again"
)
_BATCH: Final = 64
_BATCH_BYTES: Final = 32 << 20


class Unverifiable(NamedTuple):
    """Sessions that were added and that nobody can play again."""

    sessions: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of an import."""

    added: int
    present: int
    """Sessions that were in the store already."""
    damaged: tuple[DamagedSource, ...]
    unverifiable: tuple[Unverifiable, ...] = ()
    """By reason, of the sessions of other programs."""
    skipped: tuple[SkippedSource, ...] = ()
    """What is no session, or not yet."""


class _Counts:
    def __init__(self) -> None:
        self.added = self.present = 0
        self.damaged: list[DamagedSource] = []
        self.skipped: list[SkippedSource] = []
        self.reasons: Counter[str] = Counter()
        self.earlier: set[str] = set()
        """Sessions of an earlier assay, each of which one trial was found to be."""

    def report(self) -> ImportReport:
        reasons = tuple(Unverifiable(n, reason) for reason, n in sorted(self.reasons.items()))
        return ImportReport(
            self.added, self.present, tuple(self.damaged), reasons, tuple(self.skipped)
        )


def import_traces(
    store: Store,
    files: Iterable[TraceSource],
    *,
    on_file: Callable[[int], None] = lambda done: None,
) -> ImportReport:
    """Store the sessions of files; `on_file` is told how many files are done.

    Raises:
        StoreError: The store cannot be written.
    """
    counts = _Counts()
    batch: list[Found] = []
    for found in read_sources(files, on_file):
        if isinstance(found, DamagedSource):
            counts.damaged.append(found)
            continue
        if isinstance(found, SkippedSource):
            counts.skipped.append(found)
            continue
        batch.append(found)
        if len(batch) >= _BATCH or sum(each.size for each in batch) >= _BATCH_BYTES:
            _store(store, batch, counts)
            batch = []
    if batch:
        _store(store, batch, counts)
    return counts.report()


def _store(store: Store, batch: Sequence[Found], counts: _Counts) -> None:
    with store.writing() as connection:
        new: dict[str, Found] = {}
        for found in _with_first_tries(connection, batch):
            new.setdefault(found.trace.session.header.session_id, found)
        left_out = _superseded(connection, new, counts)
        known = connection.execute(
            f"SELECT session_id FROM session_traces WHERE session_id {_CHOSEN}", [list(new)]
        ).fetchall()
        for (session_id,) in known:
            del new[session_id]
        _drop_earlier(connection, new, counts)
        refused = 0
        for session_id, found in list(new.items()):
            try:
                with transaction(connection):
                    adopt_run(connection, found.trace.run)
                    adopt_experiment(connection, found.trace.run.id, found.trace.experiment)
            except UsageError as error:
                counts.damaged.append(DamagedSource(found.where, str(error)))
                del new[session_id]
                refused += 1
        if new:
            rows = [
                session_rows(found.trace.session, source=found.trace.source)
                for found in new.values()
            ]
            Ingestion(connection, rows).store(*rows)
    counts.added += len(new)
    counts.present += len(batch) - len(new) - refused - left_out
    for found in new.values():
        reason = unverifiable_reason(found.trace.session.header.metadata)
        if reason is not None and found.trace.source != ASSAY_SOURCE:
            counts.reasons[reason] += 1


def _drop_earlier(
    connection: duckdb.DuckDBPyConnection, new: dict[str, Found], counts: _Counts
) -> None:
    """Leave out of `new` what an earlier assay stored under the id of a part of it."""
    ids = [earlier for found in new.values() for earlier in found.earlier]
    rows = connection.execute(
        f"SELECT session_id FROM session_traces WHERE session_id {_CHOSEN}", [ids]
    ).fetchall()
    stored = {session_id for (session_id,) in rows}
    for session_id, found in list(new.items()):
        free = (each for each in found.earlier if each in stored - counts.earlier)
        if (earlier := next(free, None)) is not None:
            counts.earlier.add(earlier)
            counts.skipped.append(SkippedSource(found.where, _EARLIER.format(earlier)))
            del new[session_id]


def _with_first_tries(
    connection: duckdb.DuckDBPyConnection, batch: Sequence[Found]
) -> Iterator[Found]:
    """The batch, with retried evaluations of Inspect in the runs of their first tries."""
    firsts: dict[str, str] = {}
    for found in batch:
        trace = found.trace
        task = trace.run.provenance.get("task_id")
        if trace.source != "inspect" or not isinstance(task, str) or not task:
            yield found
            continue
        if task not in firsts:
            row = connection.execute(
                "SELECT id FROM runs WHERE json_extract_string(provenance, '$.task_id') = ?"
                " ORDER BY created_at, id",
                [task],
            ).fetchone()
            firsts[task] = trace.run.id if row is None else row[0]
        run = replace(trace.run, id=firsts[task])
        experiment = replace(trace.experiment, id=derived_id(run.id, trace.experiment.model))
        header = replace(trace.session.header, run_id=run.id, experiment_id=experiment.id)
        session = replace(trace.session, header=header)
        yield found._replace(trace=Trace(run, experiment, session, trace.source))


def _superseded(
    connection: duckdb.DuckDBPyConnection, new: dict[str, Found], counts: _Counts
) -> int:
    """Let a sample of Inspect that was tried again be there once: as its retry left it.

    A sample that ended with an error is left out of `new` where another try of it did not,
    and deleted where it is stored; returns how many are left out.
    """
    tries: dict[tuple[str, str, int], list[tuple[bool, str]]] = {}
    for session_id, found in new.items():
        if found.trace.source == "inspect":
            header, end = found.trace.session.header, found.trace.session.end
            failed = end is not None and end.state is TrialState.INFRASTRUCTURE
            key = (header.experiment_id or "", header.task, header.replicate)
            tries.setdefault(key, []).append((failed, session_id))
    stored = connection.execute(
        "SELECT experiment_id, task, replicate, state = 'infrastructure', session_id"
        f" FROM session_traces WHERE source = 'inspect' AND experiment_id {_CHOSEN}",
        [list({experiment for experiment, _, _ in tries})],
    ).fetchall()
    gone: list[str] = []
    for experiment_id, task, replicate, failed, session_id in stored:
        found_tries = tries.get((experiment_id, task, replicate), [])
        if failed and any(not again for again, _ in found_tries):
            gone.append(session_id)
        elif found_tries:
            found_tries.append((failed, session_id))
    if gone:
        with transaction(connection):
            delete_sessions(connection, gone)
    left_out = 0
    for others in tries.values():
        for failed, session_id in others:
            if failed and session_id in new and not all(each for each, _ in others):
                counts.skipped.append(SkippedSource(new.pop(session_id).where, _RETRIED))
                left_out += 1
    return left_out
