"""Training runs: import of learning curves, required number of runs, and comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.core.options import takes_options
from assay.errors import UsageError
from assay.store.opening import Where, store_at
from assay.training.options import (
    ArmOptions,
    ExtraTestOptions,
    ImportOptions,
    IntervalOptions,
    PrecisionOptions,
)

if TYPE_CHECKING:
    from assay.judge.plans import StoredPlan
    from assay.store.store import Store
    from assay.store.training_runs import TrainingRun
    from assay.store.training_tables import ListedTrainingRun, Written
    from assay.training.analysis import Analysis
    from assay.training.design import Design
    from assay.training.gather import RunSet, RunSources
    from assay.training.variance import SummaryVariance, VarianceSettings


class ImportedCurves(NamedTuple):
    """Training runs that were read, and the result of storing each, by run id."""

    runs: "list[TrainingRun]"
    written: "dict[str, Written]"


class VarianceResult(NamedTuple):
    """Variance between runs, and the number of runs that is enough."""

    gathered: "RunSet"
    summaries: "tuple[SummaryVariance, ...]"
    settings: "VarianceSettings"


class AnalysisResult(NamedTuple):
    """Comparison of a control with a candidate, and its deviations from a plan."""

    analysis: "Analysis"
    deviations: list[str] | None
    """None without a plan."""


class RegisteredPlan(NamedTuple):
    """A plan in the database."""

    plan: "StoredPlan"
    is_new: bool
    """False if the same plan was registered before."""


@takes_options
def import_curves(
    *files: Path | str,
    instead: ImportOptions,
    wandb: str | None = None,
    database: Where = None,
) -> ImportedCurves:
    """Store the training runs in files and folders, either all or none.

    Args:
        *files: A .csv, .tsv, .jsonl, .json or .parquet file with a column `step`, a folder of
            W&B's offline mode, of TensorBoard or MLflow, or MLflow's SQLite file.
        instead: Values that replace those in the files.
        wandb: ENTITY/PROJECT; names that are not files are run ids in this project.
        database: Database to write to, created if missing.
    """
    from assay.core.text import natural_key
    from assay.store.training_runs import TrainingStatus
    from assay.store.training_tables import write_training_runs
    from assay.training.readers.sources import read_all_runs
    from assay.training.readers.wandb import WandbProject

    if not files:
        raise UsageError("give files to import, such as run1.csv, with one training run each")
    overrides: dict[str, Any] = {
        name: value for name, value in asdict(instead).items() if value is not None
    }
    prefix, overwrite = overrides.pop("prefix"), overrides.pop("overwrite")
    if instead.status is not None:
        overrides["status"] = TrainingStatus.named(instead.status)
    project = None if wandb is None else WandbProject(wandb)
    loaded = [
        run
        for file in sorted(map(str, files), key=natural_key)
        for run in (
            [project.load(file)] if project and not Path(file).exists() else read_all_runs(file)
        )
    ]
    runs = [replace(run, id=f"{prefix}{run.id}", **overrides) for run in loaded]
    _check_unique_ids(runs)
    with store_at(database).writing() as connection:
        return ImportedCurves(runs, write_training_runs(connection, runs, swap=overwrite))


def _check_unique_ids(runs: "Sequence[TrainingRun]") -> None:
    sources: dict[str, str] = {}
    for run in runs:
        if run.id in sources:
            raise UsageError(
                f"{sources[run.id]!r} and {run.source!r} contain runs with the same id, "
                f"{run.id!r}; import them separately with --prefix, or give each a field 'id'"
            )
        sources[run.id] = run.source


def list_curves(*, database: Where = None) -> "list[ListedTrainingRun]":
    """Return the training runs in a database, without their points."""
    from assay.store.training_tables import list_training_runs

    with store_at(database).reading() as connection:
        return list_training_runs(connection)


def load_curves(run: str, *, wandb: str | None = None, database: Where = None) -> "TrainingRun":
    """Load a training run with all its points.

    Args:
        run: An id, the start of one, or the path of a file or folder.
        wandb: ENTITY/PROJECT in which ids are looked up that are not found elsewhere.
        database: Database to read.
    """
    from assay.training.gather import find_run

    return find_run(run, _make_sources(database, wandb))


def _make_sources(database: Where, wandb: str | None) -> "RunSources":
    from assay.training.gather import RunSources
    from assay.training.readers.wandb import WandbProject

    project = None if wandb is None else WandbProject(wandb)
    return RunSources(store_at(database), None if project is None else project.find)


@takes_options
def variance(
    *runs: str,
    metric: str = "overview/reward",
    threshold: float = 0.05,
    summary: Mapping[str, Any] | None = None,
    precision: PrecisionOptions,
    wandb: str | None = None,
    database: Where = None,
) -> VarianceResult:
    """Estimate how many training runs are enough.

    Args:
        *runs: Two or more run ids, files or folders, in the order for the plain rule.
        metric: Name of the curve.
        threshold: Proportion of the mean: 0.05 is 5 %.
        summary: Part of a curve that counts, such as {"percent": 25}.
        precision: Precision that the number of runs must achieve.
        wandb: ENTITY/PROJECT in which ids are looked up that are not found elsewhere.
        database: Database to read.
    """
    from assay.training.analysis_settings import make_summary
    from assay.training.gather import gather_runs
    from assay.training.variance import VarianceSettings, analyse_variance

    if not runs:
        raise UsageError(
            "give two or more runs: ids in the database, or files with a step column"
        )
    auc = make_summary(summary or {})
    settings = VarianceSettings(threshold=threshold, auc=auc, **asdict(precision))
    gathered = gather_runs(runs, metric, _make_sources(database, wandb))
    summaries = analyse_variance(gathered.runs, settings, gathered.unusable)
    return VarianceResult(gathered, summaries, settings)


@takes_options
def analysis(
    *,
    arms: ArmOptions,
    plan: Path | str | None = None,
    summary: Mapping[str, Any] | None = None,
    intervals: IntervalOptions,
    tests: ExtraTestOptions,
    wandb: str | None = None,
    database: Where = None,
) -> AnalysisResult:
    """Compare training runs of a control with those of a candidate.

    An analysis of runs in the database is recorded there as an interim analysis (a look). Later
    analyses with more of these runs correct for it.

    Args:
        arms: Runs to compare.
        plan: TOML or JSON file that was written before the runs.
        summary: Summary of a curve, such as {"type": "final"}.
        intervals: Options for intervals.
        tests: Additional tests to report.
        wandb: ENTITY/PROJECT in which ids are looked up that are not found elsewhere.
        database: Database to read, and to record the look in.
    """
    from assay.training.analysis import analyse_and_record, find_deviations
    from assay.training.analysis_settings import make_settings, read_plan

    store = store_at(database)
    planned = None if plan is None else read_plan(Path(plan))
    settings = make_settings(
        {"metric": arms.metric, **asdict(intervals), **asdict(tests)},
        summary or {},
        None if planned is None else planned.content,
    )
    arms = replace(
        arms,
        control=_resolve_arm_runs("control", arms.control, arms.control_series, store),
        candidate=_resolve_arm_runs("candidate", arms.candidate, arms.candidate_series, store),
    )
    design = _make_design(arms, settings.metric, _make_sources(database, wandb))
    result = analyse_and_record(design, settings, planned, store)
    deviations = None if planned is None else find_deviations(planned, result, store)
    return AnalysisResult(result, deviations)


def _resolve_arm_runs(
    arm: str, runs: tuple[str, ...], series: str | None, store: "Store"
) -> tuple[str, ...]:
    """Return the runs of an arm: the named ones, or all runs of a series."""
    from assay.store.training_tables import runs_of_series

    if series is None:
        return runs
    if runs:
        raise UsageError(f"give either --{arm} or --{arm}-run-ids, not both")
    with store.reading() as connection:
        return tuple(runs_of_series(connection, series))


def _make_design(arms: ArmOptions, metric: str, places: "RunSources") -> "Design":
    from assay.training.design import paired_design, parse_pairs, seed_design, unpaired_design

    allowed = arms.allow_different
    if arms.pairs and (arms.control or arms.candidate or arms.pair_by_seed):
        named = arms.control or arms.candidate
        other = "--control-run-ids" if named else "--pair-by-seed"
        raise UsageError(f"give either --pairs or {other}, not both")
    if arms.pairs:
        return paired_design(parse_pairs(arms.pairs), metric, places, allowed)
    if not (arms.control and arms.candidate):
        raise UsageError(
            "give the runs: --control-run-ids r1 r2 ... and --candidate-run-ids r3 r4 ..., "
            "--control SERIES and --candidate SERIES, or "
            '--pairs \'{"control": "r1", "candidate": "r3"}\' ...'
        )
    design = seed_design if arms.pair_by_seed else unpaired_design
    return design(arms.control, arms.candidate, metric, places, allowed)


def register_plan(plan: Path | str, *, database: Where = None) -> RegisteredPlan:
    """Store (pre-register) an analysis plan before its runs exist."""
    from assay.store.plans import store_plan
    from assay.store.training_tables import runs_with_metric
    from assay.training.analysis_settings import read_plan

    planned = read_plan(Path(plan))
    with store_at(database).writing() as connection:
        seen = runs_with_metric(connection, planned.metric)
        return RegisteredPlan(*store_plan(connection, planned.hash, planned.content, seen))
