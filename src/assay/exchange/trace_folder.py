"""The folder of trace files that a run leaves: `trace_episode_N.json` and `index.json`.

A folder holds one run. A new run takes the place of the old one only where every session of
the old one is in a database; files that no index lists are never touched. The index is
written before the files it lists, so that a folder left half way can be taken over.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from assay._util.files import atomic_write
from assay.errors import AssayError, OutputError, StoreBusy, UsageError
from assay.exchange.export import read_traces
from assay.exchange.formats import dump_trace
from assay.exchange.formats.layout import laid_out
from assay.traces.queries import EpisodeRow, episodes
from assay.traces.store import Store

__all__ = [
    "INDEX",
    "TraceFile",
    "TraceIndex",
    "check_trace_folder",
    "read_index",
    "write_trace_folder",
]

INDEX: Final = "index.json"
"""The name of the file that says what a folder holds."""

_FORMAT: Final = "assay-traces/1"
_MAX_INDEX: Final = 256 << 20
_PATIENCE_S: Final = 5.0
# Only names of our own making are ever deleted or read, whatever an index says.
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


def check_trace_folder(folder: Path, store: Store, run_id: str) -> None:
    """Make sure that a run may leave its files in a folder; cheap, for before it starts.

    Raises:
        UsageError: The folder holds something that would be lost; names `--traces-dir`.
    """
    if folder.exists() and not folder.is_dir():
        raise _refused(folder, "it is not a folder")
    _try_to_write(folder)
    index = read_index(folder)
    listed = set(_names(index)) if index else set()
    foreign = [name for name in _existing(folder) if name not in listed]
    if foreign:
        raise _refused(folder, f"{foreign[0]!r} is in it, and no {INDEX} lists that file")
    if index is None or index.run_id == run_id:
        return
    missing = _not_stored(index, store, folder)
    if missing:
        raise _refused(
            folder,
            f"it holds run {index.run_id}, of which {missing} "
            f"session{'s are' if missing > 1 else ' is'} in no database",
        )


def write_trace_folder(
    folder: Path,
    store: Store,
    run_id: str,
    *,
    traces: bool = True,
    results: str | None = None,
    on_session: Callable[[int], None] = lambda done: None,
) -> TraceIndex:
    """Write the files of a run, in the place of the run that was there before.

    Args:
        folder: Made if missing.
        store: Where the sessions are.
        run_id: The run.
        traces: Whether to write the trace files; the index is written in any case.
        results: The name of a results file that will be or is beside them.
        on_session: Told after each file how many are done.

    Raises:
        UsageError: The folder holds something that would be lost; names `--traces-dir`.
        OutputError: A file cannot be written.
    """
    check_trace_folder(folder, store, run_id)
    with store.reading() as connection:
        rows = episodes(connection, run_id=run_id) if traces else []
    index = TraceIndex(
        run_id,
        os.path.relpath(store.path.absolute(), folder.absolute()),
        tuple(_file(number, row) for number, row in enumerate(rows)),
        results,
    )
    _clear(folder, read_index(folder), keep=results)
    atomic_write(folder / INDEX, _dump(index))
    names = [item.session_id for item in index.files]
    for done, trace in enumerate(read_traces(store, names)):
        atomic_write(folder / index.files[done].file, dump_trace(trace))
        on_session(done + 1)
    return index


def read_index(folder: Path) -> TraceIndex | None:
    """What a folder holds, or None where it has no index.

    Raises:
        UsageError: There is an index that cannot be read.
    """
    path = folder / INDEX
    try:
        if path.stat().st_size > _MAX_INDEX:
            raise UsageError(f"{str(path)!r} is too large for an index")
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


def _existing(folder: Path) -> list[str]:
    """The files of a folder whose names a run would use."""
    try:
        return sorted(name for name in os.listdir(folder) if _OURS.fullmatch(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _refused(folder, str(error.strerror)) from error


def _not_stored(index: TraceIndex, store: Store, folder: Path) -> int:
    """How many sessions of an index are in neither its own database nor this one."""
    missing = {item.session_id for item in index.files}
    own = Path(os.path.normpath(folder.absolute() / index.database))
    for path in (store.path, own):
        if missing and path.is_file():
            missing -= _stored(
                store if path == store.path else Store(path, patience=_PATIENCE_S),
                sorted(missing),
            )
    return len(missing)


def _stored(store: Store, session_ids: list[str]) -> set[str]:
    try:
        with store.reading() as connection:
            rows = connection.execute(
                "SELECT session_id FROM session_traces"
                " WHERE session_id IN (SELECT unnest(?::VARCHAR[]))",
                [session_ids],
            ).fetchall()
    except StoreBusy:
        raise
    except AssayError:
        return set()
    return {session_id for (session_id,) in rows}


def _file(number: int, row: EpisodeRow) -> TraceFile:
    name = f"trace_episode_{number}.json"
    return TraceFile(name, row.session_id, row.model, row.seed, row.episode)


def _clear(folder: Path, index: TraceIndex | None, keep: str | None) -> None:
    for name in _names(index) if index else ():
        if name == keep:
            continue
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot remove {str(folder / name)!r}: {error.strerror}; "
                "name another folder with --traces-dir"
            ) from error


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
