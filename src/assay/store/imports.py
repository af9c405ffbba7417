"""Import of sessions from files of assay and of other programs.

Files may be untrusted. The format is detected from a file's content, not from its name, and
the bytes read are bounded. A session is checked completely before it is stored; damaged files
are reported and the others are imported. A stored session is not changed, so importing twice
adds nothing.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import duckdb

from assay.core.canonical_json import derive_id
from assay.errors import UsageError
from assay.store.formats.atif_read import is_atif, read_atif, trajectory_id
from assay.store.formats.balrog import EPISODE_FILE, is_balrog, read_balrog
from assay.store.formats.foreign import as_mapping, load_object, open_archive
from assay.store.formats.harbor import (
    TRIAL_FILES,
    HarborTrial,
    TrialFiles,
    find_trial_folder,
    is_trial,
)
from assay.store.formats.inspect import InspectLog, is_inspect, unread_scores
from assay.store.formats.trace_json import FORMAT, parse_trace
from assay.store.ingest import Ingestion, delete_sessions, transaction
from assay.store.merge import adopt_experiment, adopt_run
from assay.store.records import Trace, unverifiable_reason
from assay.store.rows import session_rows
from assay.store.schema import ASSAY_SOURCE
from assay.store.store import Store
from assay.store.trace_folder import INDEX, read_index
from assay.types import TrialState

MAX_TRACE: Final = 256 << 20
"""Largest size of a session as JSON, in bytes."""

_SUFFIXES: Final = (".json", ".jsonl")
_ARCHIVE: Final = b"PK\3\4"
# Files that other programs write next to their traces.
_OTHER_FILES: Final = ("summary.json", "eval-set.json", "logs.json", "listing.json")
_TRAJECTORY: Final = "trajectory.json"
_LOG_NAMES: Final = (
    EPISODE_FILE,
    re.compile(r".+\.eval"),
    # Inspect names a log by time, task and id.
    re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_.+\.json"),
)
_NO_SAMPLES: Final = "is an Inspect log without samples"


class DamagedSource(NamedTuple):
    """A file, or a part of one, that could not be imported."""

    where: str
    """The file, with the line of JSON Lines or the sample of a log."""
    reason: str


class SkippedSource(NamedTuple):
    """A file, or a part of one, that is not a session or not a finished one."""

    where: str
    reason: str


class FoundSession(NamedTuple):
    """A session that was found."""

    where: str
    trace: Trace
    size: int
    """Size of its source in bytes."""
    earlier: Sequence[str] = ()
    """Ids under which an earlier version of assay stored parts of the session."""


Read = FoundSession | DamagedSource | SkippedSource
"""Result of reading a part of a file."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file or trial folder to import, or the problem with it."""

    path: Path
    problem: str | None = None


def trace_files(paths: Sequence[Path]) -> list[TraceSource]:
    """Expand paths to trace files: a file to itself, a folder to the files in its index.

    A folder without an index expands to its .json and .jsonl files, and to the logs of other
    programs in it and its subfolders.

    Raises:
        UsageError: A path does not exist.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"file or folder {str(path)!r} not found")
    return [*dict.fromkeys(source for path in paths for source in _expand(path))]


def read_sources(
    files: Iterable[TraceSource], on_file: Callable[[int], None]
) -> Iterator[Read]:
    """Read the sessions of files; `on_file` is called with the number of files done."""
    for done, source in enumerate(files, start=1):
        if source.problem is not None:
            yield DamagedSource(str(source.path), source.problem)
        else:
            yield from _read_source(source.path)
        on_file(done)


def _expand(path: Path) -> Iterator[TraceSource]:
    if not path.is_dir():
        trial = find_trial_folder(path)
        yield TraceSource(trial or path, None if path.is_file() else "is not a regular file")
        return
    try:
        index = read_index(path)
    except UsageError:
        yield TraceSource(path / INDEX, "is not an index of traces")
        index = None
    if index is not None:
        yield from (_make_source(path / item.file) for item in index.files)
        return
    below = sorted(_find_logs(path))
    here = {file for file in path.iterdir() if file.suffix in _SUFFIXES}
    names = sorted(file for file in here.difference(below) if _may_be_trace(file.name, below))
    if not names and not below:
        yield TraceSource(path, "contains no traces: it has no .json or .jsonl files")
    yield from map(_make_source, (*names, *below))


def _make_source(path: Path) -> TraceSource:
    """Return the source of a path; reading a pipe or a device might never end."""
    is_special = path.exists() and not (path.is_file() or path.is_dir())
    return TraceSource(path, "is not a regular file" if is_special else None)


def _find_logs(folder: Path) -> Iterator[Path]:
    """Find the logs of other programs in a folder and its subfolders, by their names."""
    for root, folders, names in os.walk(folder):
        if is_trial(Path(root), names):
            folders.clear()
            yield Path(root)
            continue
        for name in names:
            if name == _TRAJECTORY or any(form.fullmatch(name) for form in _LOG_NAMES):
                yield Path(root, name)


def _may_be_trace(name: str, below: Sequence[Path]) -> bool:
    if name == INDEX or name.startswith("multi_model_results_"):
        return False
    if name in _OTHER_FILES or name.endswith("_summary.json"):
        return False
    return not (below and name in TRIAL_FILES)


def _read_source(path: Path) -> Iterator[Read]:
    if path.is_dir():
        yield from _read_trial(path)
        return
    try:
        with path.open("rb") as stream:
            if path.suffix == ".jsonl":
                yield from _read_lines(path, stream)
                return
            start = stream.read(len(_ARCHIVE))
            if start != _ARCHIVE and path.suffix != ".eval":
                content = start + stream.read(MAX_TRACE + 1 - len(start))
                yield from _parse_content(str(path), content, path)
                return
        yield from _read_log(path)
    except OSError as error:
        yield DamagedSource(str(path), f"cannot be read: {error.strerror}")


def _read_lines(path: Path, stream: IO[bytes]) -> Iterator[Read]:
    number = 0
    while line := stream.readline(MAX_TRACE + 1):
        number += 1
        if line.strip():
            yield from _parse_content(f"{path}, line {number}", line, None)
        while len(line) > MAX_TRACE and not line.endswith(b"\n"):
            line = stream.readline(MAX_TRACE + 1)


def _parse_content(where: str, content: bytes, path: Path | None) -> Iterator[Read]:
    if len(content) > MAX_TRACE:
        limit = f"{MAX_TRACE >> 20} MB, the limit for a trace"
        yield DamagedSource(where, f"is larger than {limit}")
        return
    size = len(content)
    if FORMAT.encode() in content[:200]:
        yield _try_read(where, size, lambda: parse_trace(content))
        return
    try:
        value = load_object(content)
        log = InspectLog(value) if is_inspect(value) else None
    except UsageError as error:
        yield DamagedSource(where, str(error))
        return
    if log is not None:
        yield from _read_samples(where, log, value, size)
    elif is_atif(value):
        yield _try_read(where, size, lambda: read_atif(value))
    elif is_balrog(value) and path is not None:
        yield _try_read(where, size, lambda: _read_episode(value, path))
    else:
        yield _try_read(where, size, lambda: parse_trace(content))


def _try_read(where: str, size: int, make: Callable[[], Trace]) -> Read:
    try:
        return FoundSession(where, make(), size)
    except UsageError as error:
        return DamagedSource(where, str(error))
    except (ValueError, RecursionError, OverflowError) as error:
        return DamagedSource(where, f"contains an invalid value: {error}")


def _read_samples(
    where: str, log: InspectLog, value: Mapping[str, Any], size: int
) -> Iterator[Read]:
    samples = value.get("samples")
    if not isinstance(samples, list) or not samples:
        yield SkippedSource(where, _NO_SAMPLES)
        return
    for number, sample in enumerate(samples):
        found = sample if isinstance(sample, dict) else {}
        place = f"{where}, sample {number + 1}"
        yield _try_read(place, size // len(samples), lambda found=found: log.session(found))  # type: ignore[misc]
        yield from _report_unread_scores(place, found)


def _read_log(path: Path) -> Iterator[Read]:
    try:
        with open_archive(path, MAX_TRACE) as archive:
            # An unfinished log has no header yet, but it has the start of its journal.
            start = "header.json" if "header.json" in archive.names else "_journal/start.json"
            log = InspectLog(load_object(archive.read(start)))
            names = [name for name in archive.names if name.startswith("samples/")]
            if not names:
                yield SkippedSource(str(path), _NO_SAMPLES)
            for name in names:
                yield from _read_one(f"{path}, {name}", log, partial(archive.read, name))
    except UsageError as error:
        yield DamagedSource(str(path), str(error))


def _read_one(where: str, log: InspectLog, read: Callable[[], bytes]) -> Iterator[Read]:
    try:
        content = read()
        value = load_object(content)
    except UsageError as error:
        yield DamagedSource(where, str(error))
        return
    yield _try_read(where, len(content), lambda: log.session(value))
    yield from _report_unread_scores(where, value)


def _report_unread_scores(where: str, sample: Mapping[str, Any]) -> Iterator[SkippedSource]:
    for name in unread_scores(as_mapping(sample.get("scores"))):
        yield SkippedSource(where, f"the score {name!r} is not a number")


def _read_episode(value: Mapping[str, Any], path: Path) -> Trace:
    steps, table = None, path.with_suffix(".csv")
    if table.is_file():
        with table.open("rb") as stream:
            steps = stream.read(MAX_TRACE + 1)
        if len(steps) > MAX_TRACE:
            raise UsageError(f"the steps CSV is larger than {MAX_TRACE >> 20} MB")
    return read_balrog(value, steps, path.absolute(), path.stat().st_mtime)


def _read_trial(folder: Path) -> Iterator[Read]:
    """Read a Harbor trial, and report its files that are not valid trajectories."""
    files = TrialFiles(folder, MAX_TRACE)
    try:
        result = files.result()
    except UsageError as error:
        yield DamagedSource(str(files.result_path), str(error))
        return
    if result is None:
        yield SkippedSource(
            str(folder), "the trial has no result.json yet; import again when it is finished"
        )
        return
    trajectories = files.trajectories()
    found = _try_read(
        str(folder), files.size, lambda: HarborTrial(result, trajectories).session()
    )
    if isinstance(found, FoundSession):
        found = found._replace(earlier=[*map(trajectory_id, trajectories)])
    yield found
    yield from (DamagedSource(str(path), reason) for path, reason in files.damaged)
    yield from (SkippedSource(str(path), reason) for path, reason in files.skipped)


_CHOSEN: Final = "IN (SELECT unnest(?::VARCHAR[]))"
_RETRIED: Final = "ended with an error and was retried"
_EARLIER: Final = (
    "was imported already, as {0}, by an earlier version of assay that read only part of a "
    "trial; for all of it, run 'assay traces delete {0}' and import again"
)
_BATCH: Final = 64
_BATCH_BYTES: Final = 32 << 20


class Unverifiable(NamedTuple):
    """Imported sessions that cannot be replayed, for one reason."""

    sessions: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Result of an import."""

    added: int
    present: int
    """Sessions that were in the database already."""
    damaged: tuple[DamagedSource, ...]
    unverifiable: tuple[Unverifiable, ...] = ()
    """Sessions of other programs that cannot be replayed, by reason."""
    skipped: tuple[SkippedSource, ...] = ()
    """Files that are not sessions or not finished ones."""


class _Counts:
    def __init__(self) -> None:
        self.added = self.present = 0
        self.damaged: list[DamagedSource] = []
        self.skipped: list[SkippedSource] = []
        self.reasons: Counter[str] = Counter()
        self.earlier: set[str] = set()
        """Ids of sessions from an earlier version of assay that were matched with a trial."""

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
    """Store the sessions of files; `on_file` is called with the number of files done.

    Raises:
        StoreError: The database cannot be written.
    """
    counts = _Counts()
    batch: list[FoundSession] = []
    for found in read_sources(files, on_file):
        if isinstance(found, DamagedSource):
            counts.damaged.append(found)
            continue
        if isinstance(found, SkippedSource):
            counts.skipped.append(found)
            continue
        batch.append(found)
        if len(batch) >= _BATCH or sum(item.size for item in batch) >= _BATCH_BYTES:
            _store(store, batch, counts)
            batch = []
    if batch:
        _store(store, batch, counts)
    return counts.report()


def _store(store: Store, batch: Sequence[FoundSession], counts: _Counts) -> None:
    with store.writing() as connection:
        new: dict[str, FoundSession] = {}
        for found in _join_first_runs(connection, batch):
            new.setdefault(found.trace.session.header.session_id, found)
        left_out = _drop_superseded(connection, new, counts)
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
    connection: duckdb.DuckDBPyConnection, new: dict[str, FoundSession], counts: _Counts
) -> None:
    """Remove from `new` the sessions of which an earlier version of assay stored a part."""
    ids = [earlier for found in new.values() for earlier in found.earlier]
    rows = connection.execute(
        f"SELECT session_id FROM session_traces WHERE session_id {_CHOSEN}", [ids]
    ).fetchall()
    stored = {session_id for (session_id,) in rows}
    for session_id, found in list(new.items()):
        free = (name for name in found.earlier if name in stored - counts.earlier)
        if (earlier := next(free, None)) is not None:
            counts.earlier.add(earlier)
            counts.skipped.append(SkippedSource(found.where, _EARLIER.format(earlier)))
            del new[session_id]


def _join_first_runs(
    connection: duckdb.DuckDBPyConnection, batch: Sequence[FoundSession]
) -> Iterator[FoundSession]:
    """Yield the batch, with each retried Inspect evaluation in the run of its first attempt."""
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
        experiment = replace(trace.experiment, id=derive_id(run.id, trace.experiment.model))
        header = replace(trace.session.header, run_id=run.id, experiment_id=experiment.id)
        session = replace(trace.session, header=header)
        yield found._replace(trace=Trace(run, experiment, session, trace.source))


def _drop_superseded(
    connection: duckdb.DuckDBPyConnection, new: dict[str, FoundSession], counts: _Counts
) -> int:
    """Keep a retried Inspect sample once, as its successful attempt.

    If another attempt succeeded, an attempt that ended with an error is removed from `new`, or
    deleted if it is stored. Returns how many were removed from `new`.
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
    obsolete: list[str] = []
    for experiment_id, task, replicate, failed, session_id in stored:
        new_tries = tries.get((experiment_id, task, replicate), [])
        if failed and any(not new_failed for new_failed, _ in new_tries):
            obsolete.append(session_id)
        elif new_tries:
            new_tries.append((failed, session_id))
    if obsolete:
        with transaction(connection):
            delete_sessions(connection, obsolete)
    left_out = 0
    for others in tries.values():
        for failed, session_id in others:
            if failed and session_id in new and not all(other for other, _ in others):
                counts.skipped.append(SkippedSource(new.pop(session_id).where, _RETRIED))
                left_out += 1
    return left_out
