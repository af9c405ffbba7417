"""Who is better: experiments of a store, files of results, or subjects of one's own."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import UsageError
from assay.traces.location import DEFAULT_DATABASE
from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.api.training import RegisteredPlan
    from assay.judge import Comparison, OverTime
    from assay.judge.facts import TaskRule
    from assay.judge.plans import ComparisonPlan
    from assay.judge.subjects import Subject

__all__ = [
    "compare",
    "over_time",
    "read_experiments",
    "read_results",
    "register_comparison_plan",
    "stored_subjects",
]


def compare(
    *subjects: "str | Subject",
    database: Where = None,
    metrics: Sequence[str] | None = None,
    metrics_from: Path | str | None = None,
    notice: Callable[[str], None] = lambda _: None,
    plan: Path | str | None = None,
    **choices: Any,
) -> "Comparison":
    """Say which of several is better: what `assay compare` shows, as values.

    assay.compare("latest").decisive[0].verdict

    Args:
        *subjects: Experiments or runs of a database by name, or subjects of your own. The
            first is what the others are compared with.
        database: Where the named ones are.
        metrics: What to compare; the first decides. Without it all that everybody has.
        metrics_from: A Python file with metrics of your own, applied to the named ones.
        notice: Told of metrics that could not be computed.
        plan: A TOML or JSON file that was registered before the trials; it says what decides.
        **choices: baseline, level, min_effect, success_achievements, seed, method, correction,
            tasks, allow_different and seeds, as `assay.judge.compare` takes them.
    """
    from assay.judge import compare

    planned = None
    if plan is not None:
        from assay.judge.plans import read_comparison_plan

        planned = read_comparison_plan(Path(plan))
        metrics = metrics or [planned.metric]
        for name in ("level", "min_effect"):
            if choices.get(name) is None:
                choices[name] = getattr(planned, name)
    names = [subject for subject in subjects if isinstance(subject, str)]
    own = [subject for subject in subjects if not isinstance(subject, str)]
    if names and own:
        raise UsageError(
            "names of a database and subjects of your own cannot be mixed; read the named ones"
            " with assay.stored_subjects"
        )
    if names:
        own = stored_subjects(
            names,
            metrics or (),
            database=database,
            metrics_from=metrics_from,
            notice=notice,
        )
    found = compare(own, metrics=metrics, **choices)
    if names and (known := _known_worlds(own, database)):
        found = replace(found, notes=(*known, *found.notes))
    return found if planned is None else _beside_plan(found, planned, database)


def _known_worlds(subjects: Sequence["Subject"], database: Where) -> list[str]:
    """What the store knows of training data that was made of the worlds of these trials."""
    from assay.experiments.trained_worlds import trained_worlds

    worlds = {
        (trial.task, trial.seed)
        for subject in subjects
        for trial in subject.trials
        if trial.task is not None and trial.seed is not None
    }
    with store_at(database).reading() as connection:
        found = trained_worlds(connection, sorted(worlds))
    return [f"They played {each}: a model trained on it knows them." for each in found]


def _beside_plan(
    comparison: "Comparison", plan: "ComparisonPlan", database: Where
) -> "Comparison":
    """The comparison with what it did otherwise than its plan, before all other notes."""
    from assay.experiments.plans import find_plan
    from assay.judge.plans import plan_deviations

    store, stored = store_at(database), None
    if store.path.exists():
        with store.reading() as connection:
            stored = find_plan(connection, plan.hash)
    found = plan_deviations(plan, comparison, stored)
    said = [f"Deviation from the plan: {one}." for one in found]
    said = said or [f"It kept to its plan, {plan.hash}."]
    return replace(comparison, planned=not found, notes=(*said, *comparison.notes))


def register_comparison_plan(plan: Path | str, *, database: Where = None) -> "RegisteredPlan":
    """Store a plan of a comparison before its trials are there."""
    from assay.api.training import RegisteredPlan
    from assay.experiments.plans import experiments_with_trials, store_plan
    from assay.judge.plans import read_comparison_plan

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
) -> "OverTime":
    """Follow one metric over the versions of a series.

    Args:
        series: The series, or the start of its name.
        database: Where it is.
        metric: What to follow; without it achievements, or the first that all have.
        metrics_from: A Python file with metrics of your own.
        notice: Told of metrics that could not be computed.
        level: Of the intervals.
        seed: Of the random numbers that resampling draws.
        tasks: fixed or sample; without it ten tasks or more are a sample.
        allow_different: Settings of the task that may differ, such as max_turns.
    """
    from assay.experiments.curves import enrolled
    from assay.experiments.outcomes import series_experiments
    from assay.judge.over_time import over_time

    store = store_at(database)
    with enrolled(store) as connection:
        names = series_experiments(connection, series)
    subjects = stored_subjects(
        names,
        () if metric is None else [metric],
        database=store,
        metrics_from=metrics_from,
        notice=notice,
    )
    own = {*names}  # one alone comes with the baselines of its run
    return over_time(
        [subject for subject in subjects if subject.id in own],
        metric=metric,
        level=level,
        seed=seed,
        tasks=tasks,
        allow_different=allow_different,
    )


def stored_subjects(
    names: Sequence[str],
    metrics: Sequence[str] = (),
    *,
    database: Where = None,
    metrics_from: Path | str | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> "list[Subject]":
    """Experiments of a store that names stand for, with the metrics somebody asks for.

    One experiment alone is joined by the baselines that played beside it. Shipped metrics
    that are asked for and not stored are computed from the traces, and so are all of
    `metrics_from`; both are stored as outcomes.
    """
    from assay.experiments.curves import enrolled
    from assay.experiments.outcomes import (
        load_subjects,
        named_experiments,
        resolve_subjects,
        run_baselines,
    )
    from assay.metrics import ensure_metrics, load_metrics

    store = store_at(database)
    own = None if metrics_from is None else load_metrics(Path(metrics_from))
    with enrolled(store) as connection:
        ids = resolve_subjects(connection, names)
        named = named_experiments(connection, names)
        if len(ids) == 1:
            ids += run_baselines(connection, ids[0])
    ensure_metrics(store, ids, metrics, extra=own, notice=notice)
    with store.reading() as connection:
        subjects = load_subjects(connection, ids)
    usual = store.path.absolute() == DEFAULT_DATABASE.absolute()
    # A baseline that somebody names is as good as any other.
    return [
        replace(
            subject,
            baseline=subject.baseline and subject.id not in named,
            database=None if usual else str(store.path),
        )
        for subject in subjects
    ]


def read_experiments(path: Path | str) -> "list[Subject]":
    """The experiments of a file that `export_experiments` wrote, or of one written by hand."""
    from assay.experiments.outcome_files import read_experiments_file

    return read_experiments_file(path)


def read_results(*files: str) -> "list[Subject]":
    """The models of results files, each as FILE or FILE#MODEL, with names of their own."""
    from assay.experiments.outcome_files import disambiguate, read_results_file

    return disambiguate([subject for file in files for subject in read_results_file(file)])
