"""Versions of what was played: listed, shown, tagged, followed, and written to a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import UsageError
from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.exchange.deletion import Deletion
    from assay.experiments.changelog import LogEntry
    from assay.experiments.versions import ListedExperiment, Tagged
    from assay.judge.subjects import Subject

__all__ = [
    "ExperimentDetails",
    "ExportedExperiments",
    "delete_experiments",
    "experiment_log",
    "export_experiments",
    "list_experiments",
    "show_experiment",
    "tag_experiment",
]

_METRIC = "achievements"
_USUAL = (_METRIC, "reward")
"""Metrics that may be missing."""


class ExperimentDetails(NamedTuple):
    """One experiment: where it comes from, and what its trials came to."""

    entry: "LogEntry"
    subject: "Subject"


class ExportedExperiments(NamedTuple):
    """What went into a file of experiments."""

    names: tuple[str, ...]
    left_out: int
    """Trials without a result."""


def list_experiments(
    *, series: str | None = None, metric: str = _METRIC, database: Where = None
) -> "list[ListedExperiment]":
    """All experiments, or those of a series, the oldest first, each with a mean of `metric`."""
    from assay.experiments import versions
    from assay.experiments.curves import enrolled

    with enrolled(store_at(database)) as connection:
        if metric not in _USUAL:
            versions.check_metric(connection, metric)
        return versions.list_experiments(connection, series=series, metric=metric)


def show_experiment(experiment: str, *, database: Where = None) -> ExperimentDetails:
    """One experiment, by its id, its name, or the start of one."""
    from assay.experiments.changelog import experiment_log
    from assay.experiments.curves import enrolled
    from assay.experiments.outcomes import load_subjects
    from assay.rollouts.config import UNLOGGED
    from assay.traces.names import resolve_experiment

    with enrolled(store_at(database)) as connection:
        meant = resolve_experiment(connection, experiment)
        entry = experiment_log(connection, meant, unlogged=UNLOGGED)
        return ExperimentDetails(entry, load_subjects(connection, [meant])[0])


def tag_experiment(
    experiment: str,
    *,
    version: str | None = None,
    note: str | None = None,
    database: Where = None,
) -> "Tagged":
    """Give an experiment a version or a note of your own; an empty note takes it away."""
    from assay.experiments import versions
    from assay.traces.names import resolve_experiment

    store = store_at(database)
    with store.reading() as connection:
        meant = resolve_experiment(connection, experiment)
    with store.writing() as connection:
        return versions.tag_experiment(connection, meant, version=version, note=note)


def experiment_log(
    series: str, *, metric: str = _METRIC, database: Where = None
) -> "list[LogEntry]":
    """The experiments of a series, the oldest first, each with what changed before it."""
    from assay.experiments.changelog import series_log
    from assay.experiments.versions import check_metric
    from assay.rollouts.config import UNLOGGED

    with store_at(database).reading() as connection:
        if metric not in _USUAL:
            check_metric(connection, metric)
        return series_log(connection, series, metric=metric, unlogged=UNLOGGED)


def export_experiments(
    names: Sequence[str],
    output: Path | str = "experiments.json",
    *,
    force: bool = False,
    database: Where = None,
) -> ExportedExperiments:
    """Write experiments into a file that `read_subjects` and `assay compare` read.

    Args:
        names: Experiments or runs; `latest` is the last run.
        output: The file to write.
        force: Replace the file if it is there.
        database: The store to read.
    """
    from assay.experiments.outcome_files import write_experiments_file
    from assay.experiments.outcomes import load_subjects, resolve_subjects

    path = Path(output)
    if not names:
        raise UsageError("name the experiments to write, or a run, or 'latest'")
    if path.is_dir():
        raise UsageError(f"--output {str(path)!r} is a folder; name a file in it")
    if path.exists() and not force:
        raise UsageError(f"{str(path)!r} is there already; name another file, or give --force")
    with store_at(database).reading() as connection:
        subjects = load_subjects(connection, resolve_subjects(connection, names))
    left_out = write_experiments_file(path, subjects)
    return ExportedExperiments(tuple(subject.name for subject in subjects), left_out)


def delete_experiments(
    *names: str, dry_run: bool = False, database: Where = None
) -> "Deletion":
    """Delete experiments with all their trials; `dry_run` only says what that is.

    Args:
        *names: Experiments or runs; `latest` is the last run.
        dry_run: Change nothing.
        database: The store to change.
    """
    from assay.exchange.deletion import delete, plan_deletion
    from assay.experiments.curves import enrolled
    from assay.experiments.outcomes import resolve_subjects

    if not names:
        raise UsageError("name the experiments to delete; 'assay experiments list' shows them")
    store = store_at(database)
    with enrolled(store) as connection:
        chosen = resolve_subjects(connection, names)
    return plan_deletion(store, (), chosen) if dry_run else delete(store, (), chosen)
