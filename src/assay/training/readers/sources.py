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
    list_mlflow_runs,
    read_mlflow_database,
    read_mlflow_folder,
)
from assay.training.readers.tables import (
    SUFFIXES,
    convert_read_errors,
    format_names,
    is_run_file,
    read_run_file,
)
from assay.training.readers.tensorboard import EVENT_FILES, read_event_folder
from assay.training.readers.wandb import read_wandb_file

_WANDB_SUFFIX = ".wandb"
_SOURCE_KINDS = (
    f"a file of points ({', '.join(SUFFIXES)}), a folder of W&B's offline mode, of TensorBoard "
    "or of MLflow, or MLflow's SQLite file"
)


def is_source(name: str) -> bool:
    """Return whether a name is a file or folder from which runs can be read."""
    path, run = _split_name(name)
    return is_run_file(name) or bool(run) or path.is_dir() or _is_tracker_file(path)


def list_runs_at(name: str) -> list[str]:
    """Return the names of the runs at a place in natural order, or the name if it is one run.

    Raises:
        UsageError: There is no run.
    """
    path, run = _split_name(name)
    if run or is_run_file(name) or _is_single_run(path):
        return [name]
    with convert_read_errors(path):
        names = sorted(_walk_runs(path), key=natural_key)
        if not names:
            raise UsageError(f"it contains no run; name {_SOURCE_KINDS}")
    return names


def read_source(name: str) -> TrainingRun:
    """Read the run with this name.

    Raises:
        UsageError: It cannot be read, or contains several runs.
    """
    path, run = _split_name(name)
    if is_run_file(name):
        return read_run_file(path)
    with convert_read_errors(path):
        if run:
            return read_mlflow_database(path, run)
        if path.suffix == _WANDB_SUFFIX:
            return read_wandb_file(path)
        if len(files := _find_wandb_files(path)) == 1:
            return read_wandb_file(files[0])
        if _has_events(path):
            return read_event_folder(path)
        if is_mlflow_folder(path):
            return read_mlflow_folder(path)
        if not path.exists():
            raise UsageError(f"no such file or folder; name {_SOURCE_KINDS}")
        raise UsageError(_explain_choice(sorted(_walk_runs(path), key=natural_key)))


def read_all_runs(name: str) -> list[TrainingRun]:
    """Read all runs at a place, in natural order.

    Raises:
        UsageError: There is none, or one cannot be read.
    """
    runs = [(run, read_source(run)) for run in list_runs_at(name)]
    # TensorBoard has no ids, and folders with different parents may have the same name.
    return [
        replace(found, id=Path(run).relative_to(name).as_posix())
        if run != name and _has_events(Path(run))
        else found
        for run, found in runs
    ]


def _explain_choice(names: Sequence[str]) -> str:
    if not names:
        return f"it contains no run; name {_SOURCE_KINDS}"
    return f"it contains {len(names)} runs; choose one of them: {format_names(names)}"


def _split_name(name: str) -> tuple[Path, str]:
    """Split a name into its path and, after a colon, the run in an SQLite file."""
    start, _, run = name.rpartition(":")
    if start and run and not Path(name).exists() and is_sqlite_file(Path(start)):
        return Path(start), run
    return Path(name), ""


def _is_single_run(path: Path) -> bool:
    return (
        path.suffix == _WANDB_SUFFIX
        or len(_find_wandb_files(path)) == 1
        or _has_events(path)
        or is_mlflow_folder(path)
    )


def _is_tracker_file(path: Path) -> bool:
    return path.is_file() and (path.suffix == _WANDB_SUFFIX or is_sqlite_file(path))


def _find_wandb_files(folder: Path) -> list[Path]:
    return list(folder.glob(f"*{_WANDB_SUFFIX}")) if folder.is_dir() else []


def _has_events(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob(EVENT_FILES))


def _walk_runs(path: Path) -> Iterator[str]:
    """Yield the names of all runs in a folder or a database."""
    if is_sqlite_file(path):
        yield from (f"{path}:{run_id}" for run_id in list_mlflow_runs(path))
        return
    for folder, subfolders, files in os.walk(path):
        here = Path(folder)
        if wandb_files := [here / name for name in files if name.endswith(_WANDB_SUFFIX)]:
            yield from [folder] if len(wandb_files) == 1 else map(str, wandb_files)
            subfolders.clear()
        elif is_mlflow_folder(here):
            yield folder
            subfolders.clear()
        elif _has_events(here):
            yield folder


ELLIPSES = ("...", "…")
_MAX_NAMES = 10_000


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
    expanded: list[str] = []
    for index, name in enumerate(names):
        if name not in ELLIPSES:
            expanded.append(name)
        elif index == 0 or names[index - 1] in ELLIPSES:
            raise UsageError(f"{name!r} must follow the name of a run; write run1 ... run15")
        elif index + 1 < len(names):
            expanded += _list_between(names[index - 1], names[index + 1])
        else:
            expanded += _list_following(names[index - 1], exists, {*taken, *names})
    return expanded


def _list_between(first: str, last: str) -> list[str]:
    for digits in re.finditer(r"\d+", first):
        start, end = first[: digits.start()], first[digits.end() :]
        number = last[len(start) : len(last) - len(end)]
        if last.startswith(start) and last.endswith(end) and number.isdecimal():
            low, high = int(digits.group()), int(number)
            if low < high <= low + _MAX_NAMES:
                return [_replace_number(first, digits, n) for n in range(low + 1, high)]
    raise UsageError(
        f"'...' between {first!r} and {last!r} cannot be expanded: the names must differ in "
        "one increasing number; write all names"
    )


def _list_following(
    first: str, exists: Callable[[str], bool], taken: Collection[str]
) -> Iterator[str]:
    numbers = list(re.finditer(r"\d+", first))
    if not numbers:
        raise UsageError(
            f"'...' after {first!r} cannot be expanded: the name has no number; write all names"
        )
    for at in range(1, _MAX_NAMES):
        name = _replace_number(first, numbers[-1], int(numbers[-1].group()) + at)
        if name in taken or not exists(name):
            return
        yield name


def _replace_number(name: str, digits: re.Match[str], number: int) -> str:
    return f"{name[: digits.start()]}{number:0{len(digits.group())}}{name[digits.end() :]}"
