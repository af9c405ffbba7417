"""The files that runs leave: a folder for each run, and copies of the last one above them.

    traces_multi_model/
      20260101-120000-abc123/    of this run, for good: traces, index and results
      index.json                 of the run that ended last
      trace_episode_0.json       a copy of the file of that run, and so on

A run writes into its own folder and removes nothing of others. A file above the folders is
replaced only where it is a copy; of an earlier assay, whose runs had no folders, it moves into
one. An index is written before the files it lists.
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

from assay.core.canonical_json import laid_out
from assay.core.files import atomic_file, atomic_write, remove_drafts
from assay.errors import OutputError, UsageError
from assay.store.export import read_traces
from assay.store.formats.trace_json import dump_trace
from assay.store.queries import EpisodeRow, episodes
from assay.store.store import Store

INDEX: Final = "index.json"
"""The name of the file that says what a folder holds."""

_FORMAT: Final = "assay-traces/1"
_MAX_INDEX: Final = 256 << 20
# Only names of our own making are ever moved or read, whatever an index says.
_OURS: Final = re.compile(r"(trace_episode_\d{1,9}|multi_model_results_[\w.-]{1,60})\.json")


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
    """What a folder holds."""

    run_id: str
    database: str
    """Seen from the folder."""
    files: tuple[TraceFile, ...]
    results: str | None = None
    """The name of the results file, if there is one."""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _ShapeOfFile(_Shape):
    file: str
    session: str
    model: str
    seed: int | None = None
    episode: int = 0


class _ShapeOfIndex(_Shape):
    format: str
    run: str
    database: str
    files: list[_ShapeOfFile]
    results: str | None = None


def check_trace_folder(folder: Path, run_id: str) -> None:
    """Make sure that a run can leave its files in a folder; cheap, for before it starts.

    Raises:
        UsageError: It cannot; names `--traces-dir`.
    """
    for place in (folder, folder / run_id):
        if place.exists() and not place.is_dir():
            raise _refused(place, "it is not a folder")
    _try_to_write(folder)


def write_trace_folder(
    folder: Path,
    store: Store,
    run_id: str,
    *,
    traces: bool = True,
    results: str | None = None,
    on_session: Callable[[int], None] = lambda done: None,
) -> TraceIndex:
    """Write the files of a run into its own folder.

    Args:
        folder: Where the folders of runs are; made if missing.
        store: Where the sessions are.
        run_id: The run.
        traces: Whether to write the trace files; the index is written in any case.
        results: The name of a results file that will be or is beside them.
        on_session: Told after each file how many are done.

    Raises:
        UsageError: The folder cannot be used; names `--traces-dir`.
        OutputError: A file cannot be written.
    """
    check_trace_folder(folder, run_id)
    own = folder / run_id
    _try_to_write(own)
    remove_drafts(own)
    with store.reading() as connection:
        rows = episodes(connection, run_id=run_id) if traces else []
    index = TraceIndex(
        run_id,
        os.path.relpath(store.path.absolute(), own.absolute()),
        tuple(_file(number, row) for number, row in enumerate(rows)),
        results,
    )
    atomic_write(own / INDEX, _dump(index))
    names = [item.session_id for item in index.files]
    for done, trace in enumerate(read_traces(store, names)):
        atomic_write(own / index.files[done].file, dump_trace(trace))
        on_session(done + 1)
    return index


def publish_traces(folder: Path, run_id: str) -> list[str]:
    """Let the files above the folders be those of a run; the names of files in the way.

    A file is in the way if nobody knows it for a copy; it stays as it is.
    """
    try:
        with _locked(folder):
            return _publish(folder, run_id)
    except OSError as error:
        raise OutputError(
            f"cannot write into {str(folder)!r}: {error.strerror}; "
            "name another folder with --traces-dir"
        ) from error


def _publish(folder: Path, run_id: str) -> list[str]:
    try:
        before = read_index(folder)
    except UsageError:
        return [INDEX]  # somebody else's
    index = read_index(folder / run_id)
    assert index is not None, "the folder of a run has an index"
    remove_drafts(folder)
    if before is not None:
        _take_away(folder, before)
    database = os.path.relpath((folder / run_id / index.database).absolute(), folder.absolute())
    atomic_write(folder / INDEX, _dump(replace(index, database=os.path.normpath(database))))
    in_the_way = []
    for name in _names(index):
        if (folder / name).exists():
            in_the_way.append(name)
        elif (folder / run_id / name).exists():
            _copy(folder / run_id / name, folder / name)
    return in_the_way


def _take_away(folder: Path, index: TraceIndex) -> None:
    """Remove the copies of a run; files that are no copies become those of its folder."""
    own = folder / index.run_id
    for name in _names(index):
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
    """One file under a second name; a copy where the file system has no such thing."""
    try:
        # Nobody else makes this name meanwhile, see `_locked`; no draft of it can be left.
        os.link(source, target)
    except OSError:
        with source.open("rb") as content, atomic_file(target) as draft:
            shutil.copyfileobj(content, draft)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two runs that end together take turns."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def traces_of_run(folder: Path, run_id: str, database: Path) -> Path | None:
    """The folder in which the folder of a run lies, if it is there and of this database."""
    own = folder / run_id
    try:
        index = read_index(own)
    except UsageError:
        return None
    if index is None or index.run_id != run_id:
        return None
    same = (own / index.database).resolve() == database.resolve()
    return folder if same else None


def forget_traces(
    folder: Path, run_id: str, session_ids: Collection[str], *, whole: bool, dry: bool = False
) -> list[str]:
    """Remove the trace files of sessions, and their copies; return what was removed.

    With `whole` nothing is left of the run, so that its results and index go too; with `dry`
    nothing is removed.
    """
    own = folder / run_id
    with _locked(folder):
        index = read_index(own)
        above = read_index(folder)
        if index is None:
            return []
        gone = {item.file for item in index.files if item.session_id in session_ids}
        if whole and index.results is not None:
            gone.add(index.results)
        names = sorted(name for name in gone if (own / name).is_file())
        if dry:
            return [str(own / name) for name in names]
        places = [(own, index)]
        if above is not None and above.run_id == run_id:
            for name in gone:
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
                left = tuple(item for item in listed.files if item.file not in gone)
                atomic_write(place / INDEX, _dump(replace(listed, files=left)))
    if whole:
        with suppress(OSError):  # somebody else's file is in it
            own.rmdir()
    return [str(own / name) for name in names]


def read_index(folder: Path) -> TraceIndex | None:
    """What a folder holds, or None where it has no index.

    Raises:
        UsageError: There is an index that cannot be read.
    """
    path = folder / INDEX
    try:
        if path.stat().st_size > _MAX_INDEX or not path.is_file():
            raise UsageError(f"{str(path)!r} is too large for an index, or no regular file")
        shape = _ShapeOfIndex.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(_unreadable(path)) from error
    index = TraceIndex(
        shape.run,
        shape.database,
        tuple(
            TraceFile(item.file, item.session, item.model, item.seed, item.episode)
            for item in shape.files
        ),
        shape.results,
    )
    if shape.format != _FORMAT or not all(map(_OURS.fullmatch, _names(index))):
        raise UsageError(_unreadable(path))
    return index


def _unreadable(path: Path) -> str:
    return (
        f"{str(path)!r} is not an index of traces ({_FORMAT}); "
        "move it away, or name another folder with --traces-dir"
    )


def _try_to_write(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _refused(folder, str(error.strerror)) from error


def _names(index: TraceIndex) -> Iterator[str]:
    yield from (item.file for item in index.files)
    if index.results is not None:
        yield index.results


def _file(number: int, row: EpisodeRow) -> TraceFile:
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
    return b"".join(laid_out(about, levels=2))


def _refused(folder: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot leave traces in {str(folder)!r}: {why}; name another folder with --traces-dir"
    )
