"""Comparison of experiments, and the list, log, tags, export and deletion of experiments.

The compared subjects are experiments in a database, results files, or objects of the caller.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.core.options import takes_options
from assay.errors import UsageError
from assay.judge.options import ComparisonOptions, MethodOptions
from assay.store.location import DEFAULT_DATABASE
from assay.store.opening import Where, store_at

if TYPE_CHECKING:
    from assay.api.training_runs import RegisteredPlan
    from assay.judge.plans import ComparisonPlan
    from assay.judge.results import Comparison, TaskRule
    from assay.judge.subjects import Subject
    from assay.judge.versions import OverTime
    from assay.store.deletion import Deletion
    from assay.store.versions import ListedExperiment, LogEntry, Tagged


@takes_options
def compare(
    *subjects: "str | Subject",
    database: Where = None,
    metrics: Sequence[str] | None = None,
    metrics_from: Path | str | None = None,
    notice: Callable[[str], None] = lambda _: None,
    plan: Path | str | None = None,
    baseline: str | None = None,
    options: ComparisonOptions,
    methods: MethodOptions,
) -> "Comparison":
    """Compare models or agents; returns what `assay compare` shows.

    assay.compare("latest").decisive[0].verdict

    Args:
        *subjects: Names of experiments or runs in a database, or `Subject` objects. The first
            is the baseline.
        database: Database with the named subjects.
        metrics: Metrics to compare; the first is the primary metric. Default: all metrics that
            every subject has.
        metrics_from: Python file with user-defined metrics, applied to the named subjects.
        notice: Callback for messages about metrics that could not be computed.
        plan: TOML or JSON file that was pre-registered; it defines the primary metric.
        baseline: Id or name of the baseline, if it is not the first subject.
        options: Options of the comparison.
        methods: Methods for intervals and p values.
    """
    from assay.judge.comparison import compare

    planned = None
    if plan is not None:
        from assay.judge.plans import read_comparison_plan

        planned = read_comparison_plan(Path(plan))
        metrics = metrics or [planned.metric]
        for name in ("level", "min_effect"):
            if getattr(options, name) is None:
                options = replace(options, **{name: getattr(planned, name)})
    names = [subject for subject in subjects if isinstance(subject, str)]
    given_subjects = [subject for subject in subjects if not isinstance(subject, str)]
    if names and given_subjects:
        raise UsageError(
            "names and Subject objects cannot be mixed; load the named experiments with"
            " assay.stored_subjects"
        )
    if names:
        given_subjects = stored_subjects(
            names,
            metrics or (),
            database=database,
            metrics_from=metrics_from,
            notice=notice,
        )
    comparison = compare(
        given_subjects, metrics=metrics, baseline=baseline, options=options, methods=methods
    )
    if names and (training_notes := _describe_training_worlds(given_subjects, database)):
        comparison = replace(comparison, notes=(*training_notes, *comparison.notes))
    return (
        comparison if planned is None else _add_plan_deviations(comparison, planned, database)
    )


def _describe_training_worlds(subjects: Sequence["Subject"], database: Where) -> list[str]:
    """Return notes about training data that was made from the worlds of these trials."""
    from assay.store.finetune_jobs import find_training_worlds

    worlds = {
        (trial.task, trial.seed)
        for subject in subjects
        for trial in subject.trials
        if trial.task is not None and trial.seed is not None
    }
    with store_at(database).reading() as connection:
        datasets = find_training_worlds(connection, sorted(worlds))
    return [f"They played {dataset}: a model trained on it knows them." for dataset in datasets]


def _add_plan_deviations(
    comparison: "Comparison", plan: "ComparisonPlan", database: Where
) -> "Comparison":
    """Add deviations from the plan to a comparison, before all other notes."""
    from assay.judge.plans import plan_deviations
    from assay.store.plans import find_plan

    store, stored = store_at(database), None
    if store.path.exists():
        with store.reading() as connection:
            stored = find_plan(connection, plan.hash)
    deviations = plan_deviations(plan, comparison, stored)
    notes = [f"Deviation from the plan: {deviation}." for deviation in deviations]
    notes = notes or [f"It kept to its plan, {plan.hash}."]
    return replace(comparison, planned=not deviations, notes=(*notes, *comparison.notes))


def register_comparison_plan(plan: Path | str, *, database: Where = None) -> "RegisteredPlan":
    """Store (pre-register) a comparison plan before its trials exist."""
    from assay.api.training_runs import RegisteredPlan
    from assay.judge.plans import read_comparison_plan
    from assay.store.plans import experiments_with_trials, store_plan

    planned = read_comparison_plan(Path(plan))
    with store_at(database).writing() as connection:
        seen = experiments_with_trials(connection)
        return RegisteredPlan(*store_plan(connection, planned.hash, planned.content, seen))


def over_time(
    series: str,
    *,
    database: Where = None,
    metric: str | None = None,
    metrics_from: Path | str | None = None,
    notice: Callable[[str], None] = lambda _: None,
    level: float = 0.95,
    seed: int = 0,
    tasks: "TaskRule | str | None" = None,
    allow_different: Collection[str] = (),
    lower_is_better: Collection[str] = (),
    higher_is_better: Collection[str] = (),
) -> "OverTime":
    """Compute one metric over the versions of a series.

    Args:
        series: Name of the series, or the start of it.
        database: Database to read.
        metric: Metric; default: achievements, or the first that all versions have.
        metrics_from: Python file with user-defined metrics.
        notice: Callback for messages about metrics that could not be computed.
        level: Confidence level of the intervals.
        seed: Seed of the random numbers for resampling.
        tasks: fixed or sample; default: ten tasks or more are a sample.
        allow_different: Settings of the task that may differ, such as max_turns.
        lower_is_better: User-defined metrics where lower values are better.
        higher_is_better: User-defined metrics where higher values are better.
    """
    from assay.judge.versions import over_time
    from assay.store.subjects import series_experiments
    from assay.store.training_tables import open_with_trials

    store = store_at(database)
    with open_with_trials(store) as connection:
        names = series_experiments(connection, series)
    subjects = stored_subjects(
        names,
        () if metric is None else [metric],
        database=store,
        metrics_from=metrics_from,
        notice=notice,
    )
    series_ids = {*names}  # a single experiment is returned with the baselines of its run
    return over_time(
        [subject for subject in subjects if subject.id in series_ids],
        metric=metric,
        level=level,
        seed=seed,
        tasks=tasks,
        allow_different=allow_different,
        lower_is_better=lower_is_better,
        higher_is_better=higher_is_better,
    )


def stored_subjects(
    names: Sequence[str],
    metrics: Sequence[str] = (),
    *,
    database: Where = None,
    metrics_from: Path | str | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> "list[Subject]":
    """Load experiments by name, with the requested metrics.

    A single experiment is returned with the baselines of its run. Requested built-in metrics
    that are not stored are computed from the traces, as are all metrics of `metrics_from`; both
    are stored as outcomes.
    """
    from assay.episodes.metrics import load_metrics
    from assay.episodes.stored_metrics import ensure_metrics
    from assay.store.subjects import (
        load_subjects,
        named_experiments,
        resolve_subjects,
        run_baselines,
    )
    from assay.store.training_tables import open_with_trials

    store = store_at(database)
    user_metrics = None if metrics_from is None else load_metrics(Path(metrics_from))
    with open_with_trials(store) as connection:
        ids = resolve_subjects(connection, names)
        named = named_experiments(connection, names)
        if len(ids) == 1:
            ids += run_baselines(connection, ids[0])
    ensure_metrics(store, ids, metrics, extra=user_metrics, notice=notice)
    with store.reading() as connection:
        subjects = load_subjects(connection, ids)
    is_default = store.path.absolute() == DEFAULT_DATABASE.absolute()
    # A baseline that the user named is compared like any other experiment.
    return [
        replace(
            subject,
            baseline=subject.baseline and subject.id not in named,
            database=None if is_default else str(store.path),
        )
        for subject in subjects
    ]


def read_experiments(path: Path | str) -> "list[Subject]":
    """Read experiments from a file of `export_experiments`, or a handwritten one."""
    from assay.store.experiments_file import read_experiments_file

    return read_experiments_file(path)


def read_results(*files: str) -> "list[Subject]":
    """Read the models of results files, given as FILE or FILE#MODEL; names are made unique."""
    from assay.store.experiments_file import disambiguate, read_results_file

    return disambiguate([subject for file in files for subject in read_results_file(file)])


_METRIC = "achievements"
_COMMON_METRICS = (_METRIC, "reward")
"""Metrics that are accepted even if the database does not have them."""


class ExperimentDetails(NamedTuple):
    """One experiment: its log entry, and its trials with results."""

    entry: "LogEntry"
    subject: "Subject"


class ExportedExperiments(NamedTuple):
    """Experiments that were written to a file."""

    names: tuple[str, ...]
    left_out: int
    """Number of trials without a result."""


def list_experiments(
    *, series: str | None = None, metric: str = _METRIC, database: Where = None
) -> "list[ListedExperiment]":
    """List all experiments, or those of a series, oldest first, with the mean of `metric`."""
    from assay.store import versions
    from assay.store.training_tables import open_with_trials

    with open_with_trials(store_at(database)) as connection:
        if metric not in _COMMON_METRICS:
            versions.check_metric(connection, metric)
        return versions.list_experiments(connection, series=series, metric=metric)


def show_experiment(experiment: str, *, database: Where = None) -> ExperimentDetails:
    """Return one experiment by its id or name, or the start of one."""
    from assay.episodes.config import UNLOGGED
    from assay.store.names import resolve_experiment
    from assay.store.subjects import load_subjects
    from assay.store.training_tables import open_with_trials
    from assay.store.versions import experiment_log

    with open_with_trials(store_at(database)) as connection:
        experiment_id = resolve_experiment(connection, experiment)
        entry = experiment_log(connection, experiment_id, unlogged=UNLOGGED)
        return ExperimentDetails(entry, load_subjects(connection, [experiment_id])[0])


def tag_experiment(
    experiment: str,
    *,
    version: str | None = None,
    note: str | None = None,
    database: Where = None,
) -> "Tagged":
    """Set the version or note of an experiment; an empty note removes it."""
    from assay.store import versions
    from assay.store.names import resolve_experiment

    store = store_at(database)
    with store.reading() as connection:
        experiment_id = resolve_experiment(connection, experiment)
    with store.writing() as connection:
        return versions.tag_experiment(connection, experiment_id, version=version, note=note)


def experiment_log(
    series: str, *, metric: str = _METRIC, database: Where = None
) -> "list[LogEntry]":
    """Return the experiments of a series, oldest first, each with the changes before it."""
    from assay.episodes.config import UNLOGGED
    from assay.store.versions import check_metric, series_log

    with store_at(database).reading() as connection:
        if metric not in _COMMON_METRICS:
            check_metric(connection, metric)
        return series_log(connection, series, metric=metric, unlogged=UNLOGGED)


def export_experiments(
    names: Sequence[str],
    output: Path | str = "experiments.json",
    *,
    force: bool = False,
    database: Where = None,
) -> ExportedExperiments:
    """Write experiments to a file that `read_experiments` and `assay compare` can read.

    Args:
        names: Experiments or runs; `latest` is the last run.
        output: File to write.
        force: Replace an existing file.
        database: Database to read.
    """
    from assay.store.experiments_file import write_experiments_file
    from assay.store.subjects import load_subjects, resolve_subjects

    path = Path(output)
    if not names:
        raise UsageError("give the experiments to write: names, a run, or 'latest'")
    if path.is_dir():
        raise UsageError(f"--output {str(path)!r} is a folder; give a file in it")
    if path.exists() and not force:
        raise UsageError(f"{str(path)!r} already exists; give another file, or --force")
    with store_at(database).reading() as connection:
        subjects = load_subjects(connection, resolve_subjects(connection, names))
    left_out = write_experiments_file(path, subjects)
    return ExportedExperiments(tuple(subject.name for subject in subjects), left_out)


def delete_experiments(
    *names: str, dry_run: bool = False, database: Where = None
) -> "Deletion":
    """Delete experiments with all their trials.

    Args:
        *names: Experiments or runs; `latest` is the last run.
        dry_run: Delete nothing, and return what would be deleted.
        database: Database to change.
    """
    from assay.store.deletion import delete, plan_deletion
    from assay.store.subjects import resolve_subjects
    from assay.store.training_tables import open_with_trials

    if not names:
        raise UsageError("give the experiments to delete; 'assay experiments list' shows them")
    store = store_at(database)
    with open_with_trials(store) as connection:
        experiment_ids = resolve_subjects(connection, names)
    return (
        plan_deletion(store, (), experiment_ids)
        if dry_run
        else delete(store, (), experiment_ids)
    )
