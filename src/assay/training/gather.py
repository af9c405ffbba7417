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
from assay.training.readers.sources import expand_names, is_source, list_runs_at, read_source
from assay.training.readers.tables import format_names, is_run_file

_STATUS_REASONS = {
    TrainingStatus.CRASHED: "it crashed: its curve is incomplete",
    TrainingStatus.RUNNING: "it is still running: its curve is incomplete",
}
_MAX_METRICS_SHOWN = 12
_MAX_VALUE = 1e60
"""Largest value; the fourth power of its area over any steps is still finite."""
_MIN_LENGTH_SHARE = 0.9
"""A run with fewer than this share of the longest run's steps is reported."""


class RunPlace(StrEnum):
    """Source of a run."""

    STORE = "store"
    FILE = "file"
    """A file, a tracker's folder, or a run in a tracker's database."""
    WANDB = "wandb"


@dataclass(frozen=True, slots=True)
class RunSources:
    """Sources in which runs are looked up by id."""

    store: Store
    wandb: Callable[[str], TrainingRun | None] | None = None
    """Returns a run of a W&B project; None if no project was given."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRun:
    """A usable run, with its curve of the requested metric."""

    name: str
    """The name as the user wrote it."""
    run: TrainingRun
    curve: Curve
    place: RunPlace = RunPlace.STORE

    @property
    def identity(self) -> tuple[str, str]:
        """Key by which two names are the same run: the path of a file, or the id."""
        return _make_identity(self.name, self.run, self.place)


@dataclass(frozen=True, slots=True)
class SkippedRun:
    """A named run that is not used, with the reason."""

    name: str
    reason: str
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class RunSet:
    """Usable runs in the order of their names, unusable ones, and notes on the data."""

    metric: str
    runs: tuple[LoadedRun, ...]
    unusable: tuple[SkippedRun, ...]
    notes: tuple[str, ...] = ()

    def find(self, name: str) -> LoadedRun | None:
        """Return the usable run with this name, as it was written."""
        return next((run for run in self.runs if run.name == name), None)


def gather_runs(
    names: Sequence[str],
    metric: str,
    sources: Store | RunSources,
    taken: Collection[str] = (),
    *,
    single: bool = False,
) -> RunSet:
    """Find runs by their ids, unambiguous starts of ids, or paths of files and folders.

    Args:
        names: At least one name. An ellipsis means the names between or after; a folder or a
            tracker's database means all runs in it.
        metric: The metric whose curve is loaded.
        sources: Where ids are looked up; the database may be missing if all names are files.
        taken: Names that belong elsewhere; an ellipsis stops before them.
        single: Whether each name must mean one run.

    Raises:
        UsageError: A run is named twice, or lacks the metric.
    """
    usable: list[LoadedRun] = []
    unusable: list[SkippedRun] = []
    seen: dict[tuple[str, str], str] = {}
    with _RunLoader(sources, metric) as loader:
        expanded = expand_names(names, loader.exists, taken)
        for name in expanded if single else loader.expand_folders(expanded):
            # Runs found in a folder, not named by the user, may be unusable without an error.
            strict = name in expanded
            located = loader.find(name, strict=strict)
            if isinstance(located, SkippedRun):
                _check_named_once(seen, ("name", name), name)
                unusable.append(SkippedRun(name, _shorten_reason(located.reason)))
                continue
            _check_named_once(seen, _make_identity(name, *located), name)
            run = loader.load(name, located, strict=strict)
            if isinstance(run, SkippedRun):
                unusable.append(run)
            else:
                usable.append(run)
    return RunSet(metric, tuple(usable), tuple(unusable), tuple(_make_notes(usable)))


def find_run(name: str, sources: Store | RunSources) -> TrainingRun:
    """Return one run with all its curves, however it ended.

    Raises:
        UsageError: It does not exist or cannot be read.
    """
    if is_run_file(name):
        return read_source(name)
    with _RunLoader(sources) as loader:
        located = loader.find(name)
    if isinstance(located, SkippedRun):
        raise UsageError(located.reason)
    return located.run


def format_reasons(unusable: Sequence[SkippedRun]) -> str:
    """Format the reasons why runs are left out, in parentheses; empty if there are none."""
    if not unusable:
        return ""
    listed = "; ".join(f"{run.name}: {run.reason}" for run in unusable[:4])
    return f" ({listed}{'; …' if len(unusable) > 4 else ''})"


def _make_identity(name: str, run: TrainingRun, place: RunPlace) -> tuple[str, str]:
    return place, str(Path(name).resolve()) if place is RunPlace.FILE else run.id


class _LocatedRun(NamedTuple):
    run: TrainingRun
    place: RunPlace


class _RunLoader:
    """Lookup that opens the database once for all names."""

    def __init__(self, sources: Store | RunSources, metric: str | None = None) -> None:
        self._sources = sources if isinstance(sources, RunSources) else RunSources(sources)
        self._metric = metric
        """The metric loaded from the database; None for all."""
        self._runs: dict[str, _LocatedRun | SkippedRun] = {}
        self._connections = ExitStack()
        self._connection: Any = None

    def __enter__(self) -> "_RunLoader":
        return self

    def __exit__(self, *problem: object) -> None:
        self._connections.close()

    def exists(self, name: str) -> bool:
        return not isinstance(self.find(name), SkippedRun)

    def expand_folders(self, names: Sequence[str]) -> list[str]:
        """Expand names to the names of all runs they mean."""
        return [
            run
            for name in names
            for run in (
                list_runs_at(name) if self._is_file(name) and Path(name).exists() else [name]
            )
        ]

    def find(self, name: str, *, strict: bool = True) -> _LocatedRun | SkippedRun:
        if name not in self._runs:
            try:
                self._runs[name] = self._locate(name)
            except UsageError as error:
                if strict:
                    raise
                self._runs[name] = SkippedRun(name, str(error))
        return self._runs[name]

    def load(self, name: str, located: _LocatedRun, *, strict: bool) -> LoadedRun | SkippedRun:
        """Return a run with its curve, or the reason if it did not finish."""
        run, place = located
        if run.status is not TrainingStatus.FINISHED:
            return SkippedRun(name, _explain_status(run), run.seed)
        try:
            return LoadedRun(name, run, self._select_curve(name, located), place)
        except UsageError as error:
            if strict:
                raise
            return SkippedRun(name, _shorten_reason(str(error)), run.seed)

    def _select_curve(self, name: str, located: _LocatedRun) -> Curve:
        """Return the curve of the metric, with at least two points."""
        assert self._metric is not None
        run, place = located
        curve = run.curves.get(self._metric)
        if curve is None:
            if place is RunPlace.STORE:
                run = load_training_runs(self._connection, [run.id])[0]
            metrics = sorted(run.curves)
            if not metrics:
                raise UsageError(f"run {name!r} has no points; leave it out")
            more = ", …" if len(metrics) > _MAX_METRICS_SHOWN else ""
            text = unknown_name("metric", self._metric, metrics[:_MAX_METRICS_SHOWN])
            raise UsageError(f"run {name!r}: {text}{more}")
        if len(curve) and (size := float(np.abs(curve.values_P).max())) > _MAX_VALUE:
            raise UsageError(
                f"run {name!r} has a value {size:.4g} of {self._metric!r}, too large to "
                f"compute with; use a unit in which values are below {_MAX_VALUE:g}"
            )
        if len(curve) < 2:
            raise UsageError(
                f"run {name!r} has {len(curve)} finite points of {self._metric!r}; a curve "
                "needs at least two, so leave this run out"
            )
        return curve

    def _locate(self, name: str) -> _LocatedRun | SkippedRun:
        if self._is_file(name):
            if is_run_file(name) and not Path(name).is_file():
                return SkippedRun(name, "no such file")
            return _LocatedRun(read_source(name), RunPlace.FILE)
        run_id, reason = self._find_stored_id(name)
        if run_id is not None:
            metrics = None if self._metric is None else [self._metric]
            runs = load_training_runs(self._connection, [run_id], metrics=metrics)
            return _LocatedRun(runs[0], RunPlace.STORE)
        if self._sources.wandb is None:
            return SkippedRun(name, reason)
        run = self._sources.wandb(name)
        if run is None:
            return SkippedRun(name, f"it is not in the W&B project, and {reason}")
        return _LocatedRun(run, RunPlace.WANDB)

    def _is_file(self, name: str) -> bool:
        """Return whether a name is a path; a run id takes precedence over a folder."""
        return is_run_file(name) or (is_source(name) and self._find_exact_id(name) is None)

    def _find_exact_id(self, name: str) -> str | None:
        if not self._connect():
            return None
        runs = load_training_runs(self._connection, [name], metrics=[])
        return runs[0].id if runs else None

    def _find_stored_id(self, name: str) -> tuple[str | None, str]:
        """Return the run id in the database that a name means, or None and the reason."""
        if not self._connect():
            where = str(self._sources.store.path)
            return None, f"no such file, and the database {where!r} does not exist"
        try:
            return resolve_training_run(self._connection, name), ""
        except AmbiguousName:
            raise
        except UsageError as error:
            return None, str(error)

    def _connect(self) -> bool:
        if self._connection is None and self._sources.store.path.exists():
            self._connection = self._connections.enter_context(self._sources.store.reading())
        return self._connection is not None


def _explain_status(run: TrainingRun) -> str:
    """Return the reason why a run cannot be used, with its notes."""
    notes = f" ({'; '.join(run.notes)})" if run.notes else ""
    return f"{_STATUS_REASONS[run.status]}{notes}"


def _shorten_reason(reason: str) -> str:
    """Return a reason without its list of alternatives, too long to repeat for each name."""
    return reason.partition("choose from:")[0].rstrip("; ")


def _check_named_once(
    seen: dict[tuple[str, str], str], key: tuple[str, str], name: str
) -> None:
    if key in seen:
        other = seen[key]
        same = "" if other == name else f", which is also {other!r}"
        raise UsageError(f"run {name!r} is named twice{same}; name each run once")
    seen[key] = name


def _make_notes(runs: Sequence[LoadedRun]) -> list[str]:
    notes = [f"{run.name}: {note}" for run in runs for note in run.run.notes]
    for run in runs:
        if run.curve.dropped:
            notes.append(
                f"{run.name}: {run.curve.dropped} points are NaN or infinite and left out"
            )
        if run.curve.repeated:
            notes.append(
                f"{run.name}: {run.curve.repeated} points were logged again at the same "
                "step, as after a resume; the last value counts"
            )
    ends = {run.name: int(run.curve.steps_P[-1]) for run in runs}
    longest = max(ends.values(), default=0)
    short = [name for name, end in ends.items() if end < _MIN_LENGTH_SHARE * longest]
    if short:
        notes.append(
            f"{format_names(short)} end before {100 * _MIN_LENGTH_SHARE:g} % of the "
            f"{longest:,} steps of the longest run: "
            "a window in percent applies to each run's own steps; use --summary.step_min and "
            "--summary.step_max for the same steps in all runs"
        )
    seeds: dict[int, str] = {}
    for run in runs:
        seed = run.run.seed
        if seed is not None and seed in seeds:
            notes.append(f"{run.name} and {seeds[seed]} have the same seed, {seed}")
        elif seed is not None:
            seeds[seed] = run.name
    return notes
