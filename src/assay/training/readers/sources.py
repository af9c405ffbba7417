"""Sources of training runs: files, folders and databases of trackers.

| source | recognised by |
|---|---|
| a file of points | its suffix, see `tables` |
| W&B, offline | a file `.wandb`, or the folder that contains it |
| TensorBoard | a folder with files `events.out.tfevents.*` |
| MLflow | an SQLite file and the name of a run, `mlflow.db:NAME`; a run's folder in `mlruns` |

A folder or database that is not a run itself means all runs in it. Nothing is written.

In a list of names, an ellipsis means the names between or after: `run3 ... run6` is run3, run4,
run5, run6, and `run3 ...` at the end continues as long as there is a next run. The two names
must differ in one number only, which keeps its leading zeros.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from assay.core.text import natural_key
from assay.errors import UsageError
from assay.store.training_runs import TrainingRun
from assay.training.readers.mlflow import (
    is_mlflow_folder,
    is_sqlite_file,
    mlflow_names,
    read_mlflow_database,
    read_mlflow_folder,
)
from assay.training.readers.tables import (
    SUFFIXES,
    is_run_file,
    read_run_file,
    reading,
    some_names,
)
from assay.training.readers.tensorboard import EVENT_FILES, read_event_folder
from assay.training.readers.wandb import read_wandb_file

_WANDB = ".wandb"
_KINDS = (
    f"a file of points ({', '.join(SUFFIXES)}), a folder of W&B's offline mode, of TensorBoard "
    "or of MLflow, or MLflow's SQLite file"
)


def is_source(name: str) -> bool:
    """Return whether a name is a file or folder from which runs can be read."""
    path, run = _parts(name)
    return is_run_file(name) or bool(run) or path.is_dir() or _is_tracker_file(path)


def runs_at(name: str) -> list[str]:
    """Return the names of the runs at a place in natural order, or the name if it is one run.

    Raises:
        UsageError: There is no run.
    """
    path, run = _parts(name)
    if run or is_run_file(name) or _is_run(path):
        return [name]
    with reading(path):
        found = sorted(_below(path), key=natural_key)
        if not found:
            raise UsageError(f"there is no run in it; name {_KINDS}")
    return found


def read_source(name: str) -> TrainingRun:
    """Read the run with this name.

    Raises:
        UsageError: It cannot be read, or contains several runs.
    """
    path, run = _parts(name)
    if is_run_file(name):
        return read_run_file(path)
    with reading(path):
        if run:
            return read_mlflow_database(path, run)
        if path.suffix == _WANDB:
            return read_wandb_file(path)
        if len(files := _wandb_files(path)) == 1:
            return read_wandb_file(files[0])
        if _has_events(path):
            return read_event_folder(path)
        if is_mlflow_folder(path):
            return read_mlflow_folder(path)
        if not path.exists():
            raise UsageError(f"there is no such file or folder; name {_KINDS}")
        raise UsageError(_several(sorted(_below(path), key=natural_key)))


def read_all(name: str) -> list[TrainingRun]:
    """Read all runs at a place, in natural order.

    Raises:
        UsageError: There is none, or one cannot be read.
    """
    runs = [(run, read_source(run)) for run in runs_at(name)]
    # TensorBoard has no ids, and folders with different parents may have the same name.
    return [
        replace(found, id=Path(run).relative_to(name).as_posix())
        if run != name and _has_events(Path(run))
        else found
        for run, found in runs
    ]


def _several(names: Sequence[str]) -> str:
    if not names:
        return f"there is no run in it; name {_KINDS}"
    return f"it holds {len(names)} runs, and one is meant; choose from: {some_names(names)}"


def _parts(name: str) -> tuple[Path, str]:
    """Split a name into its path and, after a colon, the run in an SQLite file."""
    start, _, run = name.rpartition(":")
    if start and run and not Path(name).exists() and is_sqlite_file(Path(start)):
        return Path(start), run
    return Path(name), ""


def _is_run(path: Path) -> bool:
    return (
        path.suffix == _WANDB
        or len(_wandb_files(path)) == 1
        or _has_events(path)
        or is_mlflow_folder(path)
    )


def _is_tracker_file(path: Path) -> bool:
    return path.is_file() and (path.suffix == _WANDB or is_sqlite_file(path))


def _wandb_files(folder: Path) -> list[Path]:
    return list(folder.glob(f"*{_WANDB}")) if folder.is_dir() else []


def _has_events(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob(EVENT_FILES))


def _below(path: Path) -> Iterator[str]:
    """Yield the names of all runs in a folder or a database."""
    if is_sqlite_file(path):
        yield from (f"{path}:{run_id}" for run_id in mlflow_names(path))
        return
    for folder, inner, files in os.walk(path):
        here = Path(folder)
        if own := [here / name for name in files if name.endswith(_WANDB)]:
            yield from [folder] if len(own) == 1 else map(str, own)
            inner.clear()
        elif is_mlflow_folder(here):
            yield folder
            inner.clear()
        elif _has_events(here):
            yield folder


ELLIPSES = ("...", "…")
_MOST = 10_000


def expand_names(
    names: Sequence[str],
    exists: Callable[[str], bool],
    taken: Collection[str] = (),
) -> list[str]:
    """Replace every ellipsis by the names it means.

    Args:
        names: The given names.
        exists: Returns whether a run exists; called for an ellipsis at the end.
        taken: Names that belong elsewhere; an ellipsis at the end stops before them.

    Raises:
        UsageError: An ellipsis has no meaning at its position.
    """
    found: list[str] = []
    for at, name in enumerate(names):
        if name not in ELLIPSES:
            found.append(name)
        elif at == 0 or names[at - 1] in ELLIPSES:
            raise UsageError(f"{name!r} comes after no name of a run; write run1 ... run15")
        elif at + 1 < len(names):
            found += _between(names[at - 1], names[at + 1])
        else:
            found += _after(names[at - 1], exists, {*taken, *names})
    return found


def _between(first: str, last: str) -> list[str]:
    for one in re.finditer(r"\d+", first):
        start, end = first[: one.start()], first[one.end() :]
        number = last[len(start) : len(last) - len(end)]
        if last.startswith(start) and last.endswith(end) and number.isdecimal():
            low, high = int(one.group()), int(number)
            if low < high <= low + _MOST:
                return [_numbered(first, one, at) for at in range(low + 1, high)]
    raise UsageError(
        f"'...' between {first!r} and {last!r} means nothing: they do not differ in one number "
        "that grows; write all names"
    )


def _after(first: str, exists: Callable[[str], bool], taken: Collection[str]) -> Iterator[str]:
    numbers = list(re.finditer(r"\d+", first))
    if not numbers:
        raise UsageError(
            f"'...' after {first!r} means nothing: it has no number; write all names"
        )
    for at in range(1, _MOST):
        name = _numbered(first, numbers[-1], int(numbers[-1].group()) + at)
        if name in taken or not exists(name):
            return
        yield name


def _numbered(name: str, digits: re.Match[str], number: int) -> str:
    return f"{name[: digits.start()]}{number:0{len(digits.group())}}{name[digits.end() :]}"
