"""Output files of runs: a folder for each run, and copies of the last run's files above them.

    traces_multi_model/
      20260101-120000-abc123/    permanent files of this run: traces, index and results
      index.json                 index of the run that ended last
      trace_episode_0.json       a copy of a file of that run, and so on

A run writes to its own folder and does not delete files of others. A file above the folders is
replaced only if it is a copy; files of earlier versions of assay, whose runs had no folders,
are moved to one. An index is written before the files it lists.
"""

import fcntl
import filecmp
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.core.canonical_json import format_json
from assay.core.files import atomic_file, atomic_write, remove_drafts
from assay.errors import OutputError, UsageError
from assay.store.export import read_traces
from assay.store.formats.trace_json import dump_trace
from assay.store.queries import EpisodeRow, episodes
from assay.store.store import Store

INDEX: Final = "index.json"
"""Name of the file that lists the content of a folder."""

_FORMAT: Final = "assay-traces/1"
_MAX_INDEX: Final = 256 << 20
# Other names in an index are never moved or read.
_OUR_FILES: Final = re.compile(
    r"(trace_episode_\d{1,9}|multi_model_results_[\w.-]{1,60})\.json"
)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One file of a folder."""

    file: str
    session_id: str
    model: str
    seed: int | None
    episode: int


@dataclass(frozen=True, slots=True)
class TraceIndex:
    """Content of a folder."""

    run_id: str
    database: str
    """Path relative to the folder."""
    files: tuple[TraceFile, ...]
    results: str | None = None
    """Name of the results file, if any."""


class _StrictSchema(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _FileSchema(_StrictSchema):
    file: str
    session: str
    model: str
    seed: int | None = None
    episode: int = 0


class _IndexSchema(_StrictSchema):
    format: str
    run: str
    database: str
    files: list[_FileSchema]
    results: str | None = None


def check_trace_folder(folder: Path, run_id: str) -> None:
    """Raise UsageError if a run cannot write its files to a folder; call before it starts."""
    for place in (folder, folder / run_id):
        if place.exists() and not place.is_dir():
            raise _make_error(place, "it is not a folder")
    _check_writable(folder)


def write_trace_folder(
    folder: Path,
    store: Store,
    run_id: str,
    *,
    traces: bool = True,
    results: str | None = None,
    on_session: Callable[[int], None] = lambda done: None,
) -> TraceIndex:
    """Write the files of a run to its own folder.

    Args:
        folder: Parent of the run folders, created if missing.
        store: The database.
        run_id: The run.
        traces: Whether to write the trace files; the index is always written.
        results: Name of the results file in the same folder, which may not exist yet.
        on_session: Called after each file with the number of files done.

    Raises:
        UsageError: The folder cannot be used.
        OutputError: A file cannot be written.
    """
    check_trace_folder(folder, run_id)
    own = folder / run_id
    _check_writable(own)
    remove_drafts(own)
    with store.reading() as connection:
        rows = episodes(connection, run_id=run_id) if traces else []
    index = TraceIndex(
        run_id,
        os.path.relpath(store.path.absolute(), own.absolute()),
        tuple(_make_trace_file(number, row) for number, row in enumerate(rows)),
        results,
    )
    atomic_write(own / INDEX, _dump(index))
    names = [item.session_id for item in index.files]
    for done, trace in enumerate(read_traces(store, names)):
        atomic_write(own / index.files[done].file, dump_trace(trace))
        on_session(done + 1)
    return index


def publish_traces(folder: Path, run_id: str) -> list[str]:
    """Replace the copies above the run folders with those of a run.

    A file that is not known to be a copy is not replaced; the names of such files are returned.
    """
    try:
        with _lock(folder):
            return _publish(folder, run_id)
    except OSError as error:
        raise OutputError(
            f"cannot write to {str(folder)!r}: {error.strerror}; "
            "give another folder with --traces-dir"
        ) from error


def _publish(folder: Path, run_id: str) -> list[str]:
    try:
        before = read_index(folder)
    except UsageError:
        return [INDEX]  # a file of another program
    index = read_index(folder / run_id)
    assert index is not None, "the folder of a run has an index"
    remove_drafts(folder)
    if before is not None:
        _remove_copies(folder, before)
    database = os.path.relpath((folder / run_id / index.database).absolute(), folder.absolute())
    atomic_write(folder / INDEX, _dump(replace(index, database=os.path.normpath(database))))
    blocking = []
    for name in _list_names(index):
        if (folder / name).exists():
            blocking.append(name)
        elif (folder / run_id / name).exists():
            _copy(folder / run_id / name, folder / name)
    return blocking


def _remove_copies(folder: Path, index: TraceIndex) -> None:
    """Remove the copies of a run's files; files that are not copies move to its folder."""
    own = folder / index.run_id
    for name in _list_names(index):
        copy, original = folder / name, own / name
        if not copy.is_file():
            continue
        if not original.exists():
            own.mkdir(exist_ok=True)
            copy.rename(original)
        elif copy.samefile(original) or filecmp.cmp(copy, original, shallow=False):
            copy.unlink()
    if own.is_dir() and not (own / INDEX).exists():
        database = os.path.relpath((folder / index.database).absolute(), own.absolute())
        atomic_write(own / INDEX, _dump(replace(index, database=os.path.normpath(database))))


def _copy(source: Path, target: Path) -> None:
    """Link a file under a second name, or copy it if the file system has no hard links."""
    try:
        # `_lock` keeps other processes from creating this name.
        os.link(source, target)
    except OSError:
        with source.open("rb") as content, atomic_file(target) as draft:
            shutil.copyfileobj(content, draft)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock a folder, because two runs may end at the same time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_trace_folder(folder: Path, run_id: str, database: Path) -> Path | None:
    """Return `folder` if it contains the folder of this run of this database; else None."""
    own = folder / run_id
    try:
        index = read_index(own)
    except UsageError:
        return None
    if index is None or index.run_id != run_id:
        return None
    same = (own / index.database).resolve() == database.resolve()
    return folder if same else None


def remove_traces(
    folder: Path, run_id: str, session_ids: Collection[str], *, whole: bool, dry: bool = False
) -> list[str]:
    """Remove the trace files of sessions and their copies; return the removed paths.

    Args:
        folder: Parent of the run folders.
        run_id: The run.
        session_ids: The sessions.
        whole: Whether the whole run is deleted, so that its results and index are removed too.
        dry: Only return what would be removed.
    """
    own = folder / run_id
    with _lock(folder):
        index = read_index(own)
        above = read_index(folder)
        if index is None:
            return []
        removed = {item.file for item in index.files if item.session_id in session_ids}
        if whole and index.results is not None:
            removed.add(index.results)
        names = sorted(name for name in removed if (own / name).is_file())
        if dry:
            return [str(own / name) for name in names]
        places = [(own, index)]
        if above is not None and above.run_id == run_id:
            for name in removed:
                copy = folder / name
                if copy.is_file() and filecmp.cmp(copy, own / name, shallow=False):
                    copy.unlink()
            places.append((folder, above))
        for name in names:
            (own / name).unlink()
        for place, listed in places:
            if whole:
                (place / INDEX).unlink(missing_ok=True)
            else:
                left = tuple(item for item in listed.files if item.file not in removed)
                atomic_write(place / INDEX, _dump(replace(listed, files=left)))
    if whole:
        with suppress(OSError):  # it contains other files
            own.rmdir()
    return [str(own / name) for name in names]


def read_index(folder: Path) -> TraceIndex | None:
    """Read the index of a folder; None if there is none.

    Raises:
        UsageError: The index is invalid or cannot be read.
    """
    path = folder / INDEX
    try:
        if path.stat().st_size > _MAX_INDEX or not path.is_file():
            raise UsageError(f"{str(path)!r} is too large for an index, or not a regular file")
        shape = _IndexSchema.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(_format_invalid(path)) from error
    index = TraceIndex(
        shape.run,
        shape.database,
        tuple(
            TraceFile(item.file, item.session, item.model, item.seed, item.episode)
            for item in shape.files
        ),
        shape.results,
    )
    if shape.format != _FORMAT or not all(map(_OUR_FILES.fullmatch, _list_names(index))):
        raise UsageError(_format_invalid(path))
    return index


def _format_invalid(path: Path) -> str:
    return (
        f"{str(path)!r} is not an index of traces ({_FORMAT}); "
        "move it away, or give another folder with --traces-dir"
    )


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _make_error(folder, str(error.strerror)) from error


def _list_names(index: TraceIndex) -> Iterator[str]:
    yield from (item.file for item in index.files)
    if index.results is not None:
        yield index.results


def _make_trace_file(number: int, row: EpisodeRow) -> TraceFile:
    name = f"trace_episode_{number}.json"
    return TraceFile(name, row.session_id, row.model, row.seed, row.episode)


def _dump(index: TraceIndex) -> bytes:
    about: dict[str, Any] = {
        "format": _FORMAT,
        "run": index.run_id,
        "database": index.database,
        "results": index.results,
    }
    about["files"] = [
        {
            "file": item.file,
            "session": item.session_id,
            "model": item.model,
            "seed": item.seed,
            "episode": item.episode,
        }
        for item in index.files
    ]
    return b"".join(format_json(about, levels=2))


def _make_error(folder: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot write traces to {str(folder)!r}: {why}; give another folder with --traces-dir"
    )
