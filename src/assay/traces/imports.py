"""Sessions from files into a store.

Files come from anywhere: each is checked whole before anything of it is stored, and one
that is damaged is named while the rest goes on. A session that is stored stays as it is, so
that importing twice adds nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple

from assay.errors import UsageError

from .adopt import adopt_experiment, adopt_run
from .formats import Trace, parse_trace
from .ingest import Ingestion, transaction
from .rows import SessionRows, session_rows
from .store import Store
from .trace_folder import INDEX, read_index

__all__ = [
    "MAX_TRACE",
    "Damaged",
    "ImportReport",
    "TraceSource",
    "import_traces",
    "trace_files",
]

MAX_TRACE: Final = 256 << 20
"""A session may have this many bytes as JSON."""
_BATCH: Final = 64
_BATCH_BYTES: Final = 32 << 20
_SUFFIXES: Final = (".json", ".jsonl")


class Damaged(NamedTuple):
    """Something that could not be imported."""

    where: str
    """The file, and the line of JSON Lines."""
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of an import."""

    added: int
    present: int
    """Sessions that were in the store already."""
    damaged: tuple[Damaged, ...]


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file to import, or why there is none."""

    path: Path
    problem: str | None = None


class _Found(NamedTuple):
    where: str
    trace: Trace
    size: int


def trace_files(paths: Sequence[Path]) -> list[TraceSource]:
    """The files that paths stand for: a file itself, of a folder what its index lists.

    A folder without an index stands for all files in it that end in .json or .jsonl.

    Raises:
        UsageError: A path does not exist.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {str(path)!r} to import")
    return [source for path in paths for source in _sources(path)]


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
    damaged: list[Damaged] = []
    counts = {"added": 0, "present": 0}
    batch: list[_Found] = []
    for found in _read_all(files, on_file):
        if isinstance(found, Damaged):
            damaged.append(found)
            continue
        batch.append(found)
        if len(batch) >= _BATCH or sum(each.size for each in batch) >= _BATCH_BYTES:
            _store(store, batch, counts, damaged)
            batch = []
    if batch:
        _store(store, batch, counts, damaged)
    return ImportReport(counts["added"], counts["present"], tuple(damaged))


def _sources(path: Path) -> Iterator[TraceSource]:
    if not path.is_dir():
        yield TraceSource(path, None if path.is_file() else "is not a regular file")
        return
    try:
        index = read_index(path)
    except UsageError:
        yield TraceSource(path / INDEX, "is not an index of traces")
        index = None
    if index is not None:
        yield from (TraceSource(path / item.file) for item in index.files)
        return
    names = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    names = [each for each in names if each.name != INDEX and not _is_results(each)]
    if not names:
        yield TraceSource(path, "holds no traces: there is no .json or .jsonl file in it")
    yield from map(TraceSource, names)


def _is_results(path: Path) -> bool:
    return path.name.startswith("multi_model_results_")


def _read_all(
    files: Iterable[TraceSource], on_file: Callable[[int], None]
) -> Iterator[_Found | Damaged]:
    for done, source in enumerate(files, start=1):
        if source.problem is not None:
            yield Damaged(str(source.path), source.problem)
        else:
            yield from _read(source.path)
        on_file(done)


def _read(path: Path) -> Iterator[_Found | Damaged]:
    try:
        with path.open("rb") as stream:
            if path.suffix == ".jsonl":
                yield from _read_lines(path, stream)
            else:
                yield _parsed(str(path), stream.read(MAX_TRACE + 1))
    except OSError as error:
        yield Damaged(str(path), f"cannot be read: {error.strerror}")


def _read_lines(path: Path, stream: IO[bytes]) -> Iterator[_Found | Damaged]:
    number = 0
    while line := stream.readline(MAX_TRACE + 1):
        number += 1
        if line.strip():
            yield _parsed(f"{path}, line {number}", line)
        while len(line) > MAX_TRACE and not line.endswith(b"\n"):
            line = stream.readline(MAX_TRACE + 1)


def _parsed(where: str, content: bytes) -> _Found | Damaged:
    if len(content) > MAX_TRACE:
        return Damaged(where, f"is larger than {MAX_TRACE >> 20} MB, the most a trace may have")
    try:
        return _Found(where, parse_trace(content), len(content))
    except UsageError as error:
        return Damaged(where, str(error))


def _store(
    store: Store, batch: Sequence[_Found], counts: dict[str, int], damaged: list[Damaged]
) -> None:
    with store.writing() as connection:
        new: dict[str, tuple[_Found, SessionRows]] = {}
        for found in batch:
            session_id = found.trace.session.header.session_id
            if session_id not in new:
                rows = session_rows(found.trace.session, source=found.trace.source)
                new[session_id] = (found, rows)
        known = connection.execute(
            "SELECT session_id FROM session_traces"
            " WHERE session_id IN (SELECT unnest(?::VARCHAR[]))",
            [list(new)],
        ).fetchall()
        for (session_id,) in known:
            del new[session_id]
        refused = 0
        for session_id, (found, _) in list(new.items()):
            try:
                with transaction(connection):
                    adopt_run(connection, found.trace.run)
                    adopt_experiment(connection, found.trace.run.id, found.trace.experiment)
            except UsageError as error:
                damaged.append(Damaged(found.where, str(error)))
                del new[session_id]
                refused += 1
        if new:
            rows_of_new = [rows for _, rows in new.values()]
            Ingestion(connection, rows_of_new).store(*rows_of_new)
    counts["added"] += len(new)
    counts["present"] += len(batch) - len(new) - refused
