"""Sessions from files into a store.

Files come from anywhere: each is checked whole before anything of it is stored, and one
that is damaged is named while the rest goes on. A session that is stored stays as it is, so
that importing twice adds nothing.

The format is told by what is in a file, not by its name. A file is never read beyond a
bound, and what is damaged is named while the rest goes on. Nothing is written here.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import duckdb

from assay.core.canonical_json import derived_id
from assay.errors import UsageError
from assay.store.formats.atif_read import is_atif, read_atif, trajectory_id
from assay.store.formats.balrog import EPISODE_FILE, is_balrog, read_balrog
from assay.store.formats.foreign import as_mapping, load_object, open_archive
from assay.store.formats.harbor import TRIAL_FILES, HarborTrial, TrialFiles, is_trial, trial_of
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
"""A session may have this many bytes as JSON."""

_SUFFIXES: Final = (".json", ".jsonl")
_ARCHIVE: Final = b"PK\3\4"
# What other programs write beside their traces.
_NO_TRACES: Final = ("summary.json", "eval-set.json", "logs.json", "listing.json")
_TRAJECTORY: Final = "trajectory.json"
_LOG_NAMES: Final = (
    EPISODE_FILE,
    re.compile(r".+\.eval"),
    # Inspect names a log by the time, the task and an id.
    re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_.+\.json"),
)
_NO_SAMPLES: Final = "is a log of Inspect without samples"


class DamagedSource(NamedTuple):
    """Something that could not be imported."""

    where: str
    """The file, and the line of JSON Lines or the sample of a log."""
    reason: str


class SkippedSource(NamedTuple):
    """Something that is no session, or not yet."""

    where: str
    reason: str


class Found(NamedTuple):
    """A session that was found."""

    where: str
    trace: Trace
    size: int
    """Of what it was read from, in bytes."""
    earlier: Sequence[str] = ()
    """The ids that an earlier assay gave to parts of it, if it did not know the whole."""


Read = Found | DamagedSource | SkippedSource
"""What comes of a piece of a file."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file or the folder of a trial to import, or why there is none."""

    path: Path
    problem: str | None = None


def trace_files(paths: Sequence[Path]) -> list[TraceSource]:
    """The files that paths stand for: a file itself, of a folder what its index lists.

    A folder without an index stands for all files in it that end in .json or .jsonl, and
    for the logs of other programs in it and in the folders below.

    Raises:
        UsageError: A path does not exist.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {str(path)!r} to import")
    return [*dict.fromkeys(source for path in paths for source in _sources(path))]


def read_sources(
    files: Iterable[TraceSource], on_file: Callable[[int], None]
) -> Iterator[Read]:
    """The sessions of files; `on_file` is told how many files are done."""
    for done, source in enumerate(files, start=1):
        if source.problem is not None:
            yield DamagedSource(str(source.path), source.problem)
        else:
            yield from _read(source.path)
        on_file(done)


def _sources(path: Path) -> Iterator[TraceSource]:
    if not path.is_dir():
        trial = trial_of(path)
        yield TraceSource(trial or path, None if path.is_file() else "is not a regular file")
        return
    try:
        index = read_index(path)
    except UsageError:
        yield TraceSource(path / INDEX, "is not an index of traces")
        index = None
    if index is not None:
        yield from (_source(path / item.file) for item in index.files)
        return
    below = sorted(_below(path))
    here = {each for each in path.iterdir() if each.suffix in _SUFFIXES}
    names = sorted(each for each in here.difference(below) if _may_be_trace(each.name, below))
    if not names and not below:
        yield TraceSource(path, "holds no traces: there is no .json or .jsonl file in it")
    yield from map(_source, (*names, *below))


def _source(path: Path) -> TraceSource:
    """A file or a folder, unless to read it would wait for somebody, or never end."""
    is_special = path.exists() and not (path.is_file() or path.is_dir())
    return TraceSource(path, "is not a regular file" if is_special else None)


def _below(folder: Path) -> Iterator[Path]:
    """The logs of other programs in a folder and below it, which their names tell."""
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
    if name in _NO_TRACES or name.endswith("_summary.json"):
        return False
    return not (below and name in TRIAL_FILES)


def _read(path: Path) -> Iterator[Read]:
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
                yield from _parsed(str(path), content, path)
                return
        yield from _read_log(path)
    except OSError as error:
        yield DamagedSource(str(path), f"cannot be read: {error.strerror}")


def _read_lines(path: Path, stream: IO[bytes]) -> Iterator[Read]:
    number = 0
    while line := stream.readline(MAX_TRACE + 1):
        number += 1
        if line.strip():
            yield from _parsed(f"{path}, line {number}", line, None)
        while len(line) > MAX_TRACE and not line.endswith(b"\n"):
            line = stream.readline(MAX_TRACE + 1)


def _parsed(where: str, content: bytes, path: Path | None) -> Iterator[Read]:
    if len(content) > MAX_TRACE:
        limit = f"{MAX_TRACE >> 20} MB, the most a trace may have"
        yield DamagedSource(where, f"is larger than {limit}")
        return
    size = len(content)
    if FORMAT.encode() in content[:200]:
        yield _tried(where, size, lambda: parse_trace(content))
        return
    try:
        value = load_object(content)
        log = InspectLog(value) if is_inspect(value) else None
    except UsageError as error:
        yield DamagedSource(where, str(error))
        return
    if log is not None:
        yield from _samples(where, log, value, size)
    elif is_atif(value):
        yield _tried(where, size, lambda: read_atif(value))
    elif is_balrog(value) and path is not None:
        yield _tried(where, size, lambda: _episode(value, path))
    else:
        yield _tried(where, size, lambda: parse_trace(content))


def _tried(where: str, size: int, make: Callable[[], Trace]) -> Read:
    try:
        return Found(where, make(), size)
    except UsageError as error:
        return DamagedSource(where, str(error))
    except (ValueError, RecursionError, OverflowError) as error:
        return DamagedSource(where, f"holds a value that no trace may hold: {error}")


def _samples(
    where: str, log: InspectLog, value: Mapping[str, Any], size: int
) -> Iterator[Read]:
    samples = value.get("samples")
    if not isinstance(samples, list) or not samples:
        yield SkippedSource(where, _NO_SAMPLES)
        return
    for number, sample in enumerate(samples):
        found = sample if isinstance(sample, dict) else {}
        place = f"{where}, sample {number + 1}"
        yield _tried(place, size // len(samples), lambda found=found: log.session(found))  # type: ignore[misc]
        yield from _left_out(place, found)


def _read_log(path: Path) -> Iterator[Read]:
    try:
        with open_archive(path, MAX_TRACE) as archive:
            # A log that was not finished has no header yet, but the start of its journal.
            start = "header.json" if "header.json" in archive.names else "_journal/start.json"
            log = InspectLog(load_object(archive.read(start)))
            names = [each for each in archive.names if each.startswith("samples/")]
            if not names:
                yield SkippedSource(str(path), _NO_SAMPLES)
            for name in names:
                yield from _sample(f"{path}, {name}", log, lambda name=name: archive.read(name))  # type: ignore[misc]
    except UsageError as error:
        yield DamagedSource(str(path), str(error))


def _sample(where: str, log: InspectLog, read: Callable[[], bytes]) -> Iterator[Read]:
    try:
        content = read()
        value = load_object(content)
    except UsageError as error:
        yield DamagedSource(where, str(error))
        return
    yield _tried(where, len(content), lambda: log.session(value))
    yield from _left_out(where, value)


def _left_out(where: str, sample: Mapping[str, Any]) -> Iterator[SkippedSource]:
    for name in unread_scores(as_mapping(sample.get("scores"))):
        yield SkippedSource(where, f"the score {name!r} is no number")


def _episode(value: Mapping[str, Any], path: Path) -> Trace:
    steps, beside = None, path.with_suffix(".csv")
    if beside.is_file():
        with beside.open("rb") as stream:
            steps = stream.read(MAX_TRACE + 1)
        if len(steps) > MAX_TRACE:
            raise UsageError(f"the CSV file of its steps is larger than {MAX_TRACE >> 20} MB")
    return read_balrog(value, steps, path.absolute(), path.stat().st_mtime)


def _read_trial(folder: Path) -> Iterator[Read]:
    """A trial of Harbor, and what lies beside its trajectories and is none."""
    files = TrialFiles(folder, MAX_TRACE)
    try:
        result = files.result()
    except UsageError as error:
        yield DamagedSource(str(files.result_path), str(error))
        return
    if result is None:
        yield SkippedSource(
            str(folder), "the trial has no result.json yet; import again when it has ended"
        )
        return
    trajectories = files.trajectories()
    found = _tried(str(folder), files.size, lambda: HarborTrial(result, trajectories).session())
    if isinstance(found, Found):
        found = found._replace(earlier=[*map(trajectory_id, trajectories)])
    yield found
    yield from (DamagedSource(str(path), reason) for path, reason in files.damaged)
    yield from (SkippedSource(str(path), reason) for path, reason in files.skipped)


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
