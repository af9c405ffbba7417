"""Finds the runs that somebody named, in files and in a store, and says which cannot be used.

A run that is missing, crashed or still running is named with the reason, never dropped in
silence and never filled in. A name that comes twice, or a metric that a run does not have, is
an error: a result would not mean what was asked for.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay._util.names import unknown_name
from assay.curves.fields import some_names
from assay.curves.files import is_run_file, read_run_file
from assay.curves.names import expand_names
from assay.errors import AmbiguousName, UsageError
from assay.experiments.curves import load_training_runs
from assay.experiments.training import Curve, TrainingRun, TrainingStatus
from assay.traces.names import resolve_training_run
from assay.traces.store import Store

__all__ = ["FoundRun", "Gathered", "Unusable", "gather_runs", "reasons"]

_REASONS = {
    TrainingStatus.CRASHED: "it crashed: its curve ends before its time",
    TrainingStatus.RUNNING: "it is still running: its curve is not whole",
}
_SHOWN = 12
_LARGEST = 1e60
"""Of a value: areas of it over any steps can still be squared, and squared again."""
_SHORT = 0.9
"""A run that ends below this share of the longest one's steps is told of."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundRun:
    """A run that can be used, and its curve of the metric that was asked for."""

    name: str
    """As the user wrote it."""
    run: TrainingRun
    curve: Curve

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two names the same run: the id in a store, the file elsewhere."""
        return _identity(self.name, self.run)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A run that was named and is not used."""

    name: str
    reason: str
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Runs in the order they were named, those left out, and what should be known of them."""

    metric: str
    runs: tuple[FoundRun, ...]
    unusable: tuple[Unusable, ...]
    notes: tuple[str, ...] = ()

    def find(self, name: str) -> FoundRun | None:
        """The usable run of a name, as it was written."""
        return next((one for one in self.runs if one.name == name), None)


def gather_runs(
    names: Sequence[str],
    metric: str,
    store: Store,
    taken: Collection[str] = (),
) -> Gathered:
    """Find runs by their ids, unambiguous starts of ids, or paths of files.

    Args:
        names: At least one; an ellipsis stands for those between or after.
        metric: Which curve to take.
        store: Where ids are looked up; its file may be missing if all names are files.
        taken: Names that belong elsewhere, before which an ellipsis stops.

    Raises:
        UsageError: A run comes twice, or does not have the metric.
    """
    found: list[FoundRun] = []
    unusable: list[Unusable] = []
    seen: dict[tuple[str, str], str] = {}
    with _Shelf(store, metric) as shelf:
        for name in expand_names(names, shelf.has, taken):
            run = shelf.find(name)
            if isinstance(run, Unusable):
                _once(seen, ("name", name), name)
                unusable.append(run)
                continue
            _once(seen, _identity(name, run), name)
            if run.status is not TrainingStatus.FINISHED:
                unusable.append(Unusable(name, _REASONS[run.status], run.seed))
            else:
                found.append(FoundRun(name, run, shelf.curve(name, run)))
    return Gathered(metric, tuple(found), tuple(unusable), tuple(_notes(found)))


def reasons(unusable: Sequence[Unusable]) -> str:
    """Why runs are left out, in brackets for the end of an error; empty if none are."""
    if not unusable:
        return ""
    said = "; ".join(f"{one.name}: {one.reason}" for one in unusable[:4])
    return f" ({said}{'; …' if len(unusable) > 4 else ''})"


class _Shelf:
    """Looks runs up, and opens a store once for all of a list."""

    def __init__(self, store: Store, metric: str) -> None:
        self._store = store
        self._metric = metric
        self._runs: dict[str, TrainingRun | Unusable] = {}
        self._open = ExitStack()
        self._connection: Any = None

    def __enter__(self) -> "_Shelf":
        return self

    def __exit__(self, *problem: object) -> None:
        self._open.close()

    def has(self, name: str) -> bool:
        return not isinstance(self.find(name), Unusable)

    def find(self, name: str) -> TrainingRun | Unusable:
        if name not in self._runs:
            self._runs[name] = self._look(name)
        return self._runs[name]

    def curve(self, name: str, run: TrainingRun) -> Curve:
        """The curve of the metric, of two points or more."""
        found = run.curves.get(self._metric)
        if found is None:
            if not is_run_file(name):
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

    def _look(self, name: str) -> TrainingRun | Unusable:
        if is_run_file(name):
            path = Path(name)
            return read_run_file(path) if path.is_file() else Unusable(name, "no such file")
        if self._connection is None:
            if not self._store.path.exists():
                where = f"no such file, and there is no database {str(self._store.path)!r}"
                return Unusable(name, where)
            self._connection = self._open.enter_context(self._store.reading())
        try:
            run_id = resolve_training_run(self._connection, name)
        except AmbiguousName:
            raise
        except UsageError as error:
            # Which runs there are is too long a list to stand at every name.
            return Unusable(name, str(error).partition("choose from:")[0].rstrip("; "))
        return load_training_runs(self._connection, [run_id], metrics=[self._metric])[0]


def _identity(name: str, run: TrainingRun) -> tuple[str, str]:
    return ("file", str(Path(name).resolve())) if is_run_file(name) else ("run", run.id)


def _once(seen: dict[tuple[str, str], str], key: tuple[str, str], name: str) -> None:
    if key in seen:
        other = seen[key]
        same = "" if other == name else f", which is also {other!r}"
        raise UsageError(f"run {name!r} is named twice{same}; name each run once")
    seen[key] = name


def _notes(found: Sequence[FoundRun]) -> list[str]:
    notes = []
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
