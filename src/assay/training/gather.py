"""Lookup of training runs by name, with reports on the ones that cannot be used.

A name is a file or folder, a run id in the database (or the start of one), or a run at W&B if a
project is given. An exact run id takes precedence over a folder with that name.

A run that is missing, crashed or still running is reported with the reason. It is never dropped
silently, and missing points are never filled in. A run that is named twice, or lacks the
metric, is an error, because the result would not have the requested meaning.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assay.core.text import unknown_name
from assay.errors import AmbiguousName, UsageError
from assay.store.names import resolve_training_run
from assay.store.store import Store
from assay.store.training_runs import Curve, TrainingRun, TrainingStatus
from assay.store.training_tables import load_training_runs
from assay.training.readers.sources import expand_names, is_source, read_source, runs_at
from assay.training.readers.tables import is_run_file, some_names

_REASONS = {
    TrainingStatus.CRASHED: "it crashed: its curve ends before its time",
    TrainingStatus.RUNNING: "it is still running: its curve is not whole",
}
_SHOWN = 12
_LARGEST = 1e60
"""Largest value; the fourth power of its area over any steps is still finite."""
_SHORT = 0.9
"""A run with fewer than this share of the longest run's steps is reported."""


class RunPlace(StrEnum):
    """Source of a run."""

    STORE = "store"
    FILE = "file"
    """A file, a tracker's folder, or a run in a tracker's database."""
    WANDB = "wandb"


@dataclass(frozen=True, slots=True)
class Places:
    """Sources in which runs are looked up by id."""

    store: Store
    wandb: Callable[[str], TrainingRun | None] | None = None
    """Returns a run of a W&B project; None if no project was given."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundRun:
    """A usable run, with its curve of the requested metric."""

    name: str
    """The name as the user wrote it."""
    run: TrainingRun
    curve: Curve
    place: RunPlace = RunPlace.STORE

    @property
    def identity(self) -> tuple[str, str]:
        """Key by which two names are the same run: the path of a file, or the id."""
        return _identity(self.name, self.run, self.place)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A named run that is not used, with the reason."""

    name: str
    reason: str
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Usable runs in the order of their names, unusable ones, and notes on the data."""

    metric: str
    runs: tuple[FoundRun, ...]
    unusable: tuple[Unusable, ...]
    notes: tuple[str, ...] = ()

    def find(self, name: str) -> FoundRun | None:
        """Return the usable run with this name, as it was written."""
        return next((one for one in self.runs if one.name == name), None)


def gather_runs(
    names: Sequence[str],
    metric: str,
    places: Store | Places,
    taken: Collection[str] = (),
    *,
    single: bool = False,
) -> Gathered:
    """Find runs by their ids, unambiguous starts of ids, or paths of files and folders.

    Args:
        names: At least one name. An ellipsis means the names between or after; a folder or a
            tracker's database means all runs in it.
        metric: The metric whose curve is loaded.
        places: Where ids are looked up; the database may be missing if all names are files.
        taken: Names that belong elsewhere; an ellipsis stops before them.
        single: Whether each name must mean one run.

    Raises:
        UsageError: A run is named twice, or lacks the metric.
    """
    found: list[FoundRun] = []
    unusable: list[Unusable] = []
    seen: dict[tuple[str, str], str] = {}
    with _Shelf(places, metric) as shelf:
        named = expand_names(names, shelf.has, taken)
        for name in named if single else shelf.all_runs(named):
            # Runs found in a folder, not named by the user, may be unusable without an error.
            strict = name in named
            shelved = shelf.find(name, strict=strict)
            if isinstance(shelved, Unusable):
                _once(seen, ("name", name), name)
                unusable.append(Unusable(name, _brief(shelved.reason)))
                continue
            _once(seen, _identity(name, *shelved), name)
            run = shelf.use(name, shelved, strict=strict)
            if isinstance(run, Unusable):
                unusable.append(run)
            else:
                found.append(run)
    return Gathered(metric, tuple(found), tuple(unusable), tuple(_notes(found)))


def find_run(name: str, places: Store | Places) -> TrainingRun:
    """Return one run with all its curves, however it ended.

    Raises:
        UsageError: It does not exist or cannot be read.
    """
    if is_run_file(name):
        return read_source(name)
    with _Shelf(places) as shelf:
        found = shelf.find(name)
    if isinstance(found, Unusable):
        raise UsageError(found.reason)
    return found.run


def reasons(unusable: Sequence[Unusable]) -> str:
    """Format the reasons why runs are left out, in parentheses; empty if there are none."""
    if not unusable:
        return ""
    said = "; ".join(f"{one.name}: {one.reason}" for one in unusable[:4])
    return f" ({said}{'; …' if len(unusable) > 4 else ''})"


def _identity(name: str, run: TrainingRun, place: RunPlace) -> tuple[str, str]:
    return place, str(Path(name).resolve()) if place is RunPlace.FILE else run.id


class _Shelved(NamedTuple):
    run: TrainingRun
    place: RunPlace


class _Shelf:
    """Lookup that opens the database once for all names."""

    def __init__(self, places: Store | Places, metric: str | None = None) -> None:
        self._places = places if isinstance(places, Places) else Places(places)
        self._metric = metric
        """The metric loaded from the database; None for all."""
        self._runs: dict[str, _Shelved | Unusable] = {}
        self._open = ExitStack()
        self._connection: Any = None

    def __enter__(self) -> "_Shelf":
        return self

    def __exit__(self, *problem: object) -> None:
        self._open.close()

    def has(self, name: str) -> bool:
        return not isinstance(self.find(name), Unusable)

    def all_runs(self, names: Sequence[str]) -> list[str]:
        """Expand names to the names of all runs they mean."""
        return [
            run
            for name in names
            for run in (
                runs_at(name) if self._is_file(name) and Path(name).exists() else [name]
            )
        ]

    def find(self, name: str, *, strict: bool = True) -> _Shelved | Unusable:
        if name not in self._runs:
            try:
                self._runs[name] = self._look(name)
            except UsageError as error:
                if strict:
                    raise
                self._runs[name] = Unusable(name, str(error))
        return self._runs[name]

    def use(self, name: str, shelved: _Shelved, *, strict: bool) -> FoundRun | Unusable:
        """Return a run with its curve, or the reason if it did not finish."""
        run, place = shelved
        if run.status is not TrainingStatus.FINISHED:
            return Unusable(name, _reason(run), run.seed)
        try:
            return FoundRun(name, run, self._curve(name, shelved), place)
        except UsageError as error:
            if strict:
                raise
            return Unusable(name, _brief(str(error)), run.seed)

    def _curve(self, name: str, shelved: _Shelved) -> Curve:
        """Return the curve of the metric, with at least two points."""
        assert self._metric is not None
        run, place = shelved
        found = run.curves.get(self._metric)
        if found is None:
            if place is RunPlace.STORE:
                run = load_training_runs(self._connection, [run.id])[0]
            metrics = sorted(run.curves)
            if not metrics:
                raise UsageError(f"run {name!r} has no points at all; leave it out")
            more = ", …" if len(metrics) > _SHOWN else ""
            text = unknown_name("metric", self._metric, metrics[:_SHOWN])
            raise UsageError(f"run {name!r}: {text}{more}")
        if len(found) and (size := float(np.abs(found.values_P).max())) > _LARGEST:
            raise UsageError(
                f"run {name!r} has a value of size {size:.4g} of {self._metric!r}, too large "
                f"to compute with; give values in a unit in which they are below {_LARGEST:g}"
            )
        if len(found) < 2:
            raise UsageError(
                f"run {name!r} has {len(found)} finite points of {self._metric!r}; a curve "
                "takes two or more, so leave this run out"
            )
        return found

    def _look(self, name: str) -> _Shelved | Unusable:
        if self._is_file(name):
            if is_run_file(name) and not Path(name).is_file():
                return Unusable(name, "no such file")
            return _Shelved(read_source(name), RunPlace.FILE)
        run_id, reason = self._stored_id(name)
        if run_id is not None:
            metrics = None if self._metric is None else [self._metric]
            runs = load_training_runs(self._connection, [run_id], metrics=metrics)
            return _Shelved(runs[0], RunPlace.STORE)
        if self._places.wandb is None:
            return Unusable(name, reason)
        run = self._places.wandb(name)
        if run is None:
            return Unusable(name, f"it is not in the project at W&B, and {reason}")
        return _Shelved(run, RunPlace.WANDB)

    def _is_file(self, name: str) -> bool:
        """Return whether a name is a path; a run id takes precedence over a folder."""
        return is_run_file(name) or (is_source(name) and self._exact_id(name) is None)

    def _exact_id(self, name: str) -> str | None:
        if not self._connected():
            return None
        runs = load_training_runs(self._connection, [name], metrics=[])
        return runs[0].id if runs else None

    def _stored_id(self, name: str) -> tuple[str | None, str]:
        """Return the run id in the database that a name means, or None and the reason."""
        if not self._connected():
            where = str(self._places.store.path)
            return None, f"no such file, and there is no database {where!r}"
        try:
            return resolve_training_run(self._connection, name), ""
        except AmbiguousName:
            raise
        except UsageError as error:
            return None, str(error)

    def _connected(self) -> bool:
        if self._connection is None and self._places.store.path.exists():
            self._connection = self._open.enter_context(self._places.store.reading())
        return self._connection is not None


def _reason(run: TrainingRun) -> str:
    """Return the reason why a run cannot be used, with its notes."""
    told = f" ({'; '.join(run.notes)})" if run.notes else ""
    return f"{_REASONS[run.status]}{told}"


def _brief(reason: str) -> str:
    """Return a reason without its list of alternatives, too long to repeat for each name."""
    return reason.partition("choose from:")[0].rstrip("; ")


def _once(seen: dict[tuple[str, str], str], key: tuple[str, str], name: str) -> None:
    if key in seen:
        other = seen[key]
        same = "" if other == name else f", which is also {other!r}"
        raise UsageError(f"run {name!r} is named twice{same}; name each run once")
    seen[key] = name


def _notes(found: Sequence[FoundRun]) -> list[str]:
    notes = [f"{one.name}: {note}" for one in found for note in one.run.notes]
    for one in found:
        if one.curve.dropped:
            notes.append(
                f"{one.name}: {one.curve.dropped} points are NaN or infinite, left out"
            )
        if one.curve.repeated:
            notes.append(
                f"{one.name}: {one.curve.repeated} points have the step of a later one, which "
                "counts, as after a resume"
            )
    ends = {one.name: int(one.curve.steps_P[-1]) for one in found}
    longest = max(ends.values(), default=0)
    short = [name for name, end in ends.items() if end < _SHORT * longest]
    if short:
        notes.append(
            f"{some_names(short)} end before {100 * _SHORT:g} % of the {longest:,} steps of "
            "the longest run: a window in percent is of each run's own steps; "
            "--summary.step_min and --summary.step_max give the same steps to all"
        )
    seeds: dict[int, str] = {}
    for one in found:
        seed = one.run.seed
        if seed is not None and seed in seeds:
            notes.append(f"{one.name} and {seeds[seed]} have the same seed, {seed}")
        elif seed is not None:
            seeds[seed] = one.name
    return notes
