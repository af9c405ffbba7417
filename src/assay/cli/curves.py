"""`assay curves`: import, list and show the learning curves of training runs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cyclopts import App

from assay.cli.options import (
    Database,
    Given,
    Text,
    Wandb,
    add_commands,
    open_store,
    option_groups,
)
from assay.cli.output import OutputOptions, print_json, print_line, print_warning
from assay.cli.tables import print_table, print_wrapped
from assay.core.text import cut, unknown_name
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.store.training_runs import TrainingRun
    from assay.store.training_tables import ListedTrainingRun

_HEADS = (
    "run",
    "series",
    "subject",
    "task",
    "seed",
    "status",
    "points",
    "last step",
    "metrics",
)
_RIGHT = ("seed", "points", "last step")
_MAX_WIDTH = 48
_MAX_SERIES = 12

curves = App(
    name="curves",
    help="""Import and list the learning curves of training runs.

For example:

    assay curves import run1.csv run2.csv --series baseline
""",
    help_format="plaintext",
)


@option_groups(overrides="assay.training.options:ImportOptions")
def import_(
    *files: str,
    overrides: Given,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Import training runs from files, tracker folders or W&B.

    A file (.csv, .tsv, .jsonl, .json or .parquet) has a column 'step' or '_step' and a
    column per metric. The run id is the field 'id', or the file name if there is none. The
    seed is the field 'seed', or the digits after 'seed' in the file name. All runs are
    imported from a folder of W&B's offline mode, of TensorBoard or of MLflow's mlruns, and
    from MLflow's SQLite file. If a run cannot be imported, none is stored. Importing a run
    twice has no effect.

    For example:

        assay curves import runs/vit.seed1072.csv wandb/ --series vit --prefix vit/

    Args:
        files: Files and folders to read; with --wandb also run ids.
        overrides: Values that replace those in the files.
        wandb: ENTITY/PROJECT at W&B, to look up names that are not files; needs the package
            wandb and WANDB_API_KEY.
        database: Database to write to; created if missing.
        show: Output options.
    """
    from assay.api.training_runs import import_curves

    runs, done = import_curves(
        *files,
        wandb=wandb,
        database=open_store(database, show),
        **overrides,
    )
    if show.json:
        print_json(
            {"database": str(database), "runs": [_import_to_json(run, done) for run in runs]}
        )
    elif not show.quiet:
        for run in runs:
            print_line(_format_import(run, done[run.id]))
        print_line(f"{', '.join(_format_counts(list(done.values())))} in {database}")
    _warn_about_points(runs, show)
    return 0


def list_(
    *,
    series: Text = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """List the training runs in the database.

    For example:

        assay curves list --series baseline

    Args:
        series: List only runs of this series.
        database: Database to read.
        show: Output options.
    """
    from assay.api.training_runs import list_curves

    runs = list_curves(database=open_store(database, show))
    names = list(dict.fromkeys(run.series for run in runs if run.series))
    if series is not None and runs and series not in names:
        raise UsageError(
            unknown_name(
                "series", series, [cut(name, _MAX_WIDTH) for name in names[:_MAX_SERIES]]
            )
            if names
            else f"unknown series {series!r}; no training run has a series, so omit --series"
        )
    runs = [run for run in runs if series in (None, run.series)]
    if show.json:
        print_json({"runs": [_listing_to_json(run) for run in runs]})
    elif show.quiet:
        for run in runs:
            print_line(run.id)
    elif not runs:
        print_line("no training runs; 'assay curves import' adds some")
    else:
        words = [head for head in _HEADS if head not in _RIGHT]
        print_table(_HEADS, [_format_cells(run) for run in runs], words)
    return 0


def show_(
    run: str,
    /,
    *,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Show one training run: its metadata and a summary of each metric.

    --json prints all points, in a format that 'assay curves import' reads.

    For example:

        assay curves show run1

    Args:
        run: Run id, the start of one, or the path of a file or folder.
        wandb: ENTITY/PROJECT at W&B, to look up an id that is not found elsewhere.
        database: Database to read.
        show: Output options.
    """
    from assay.api.training_runs import load_curves

    curves_of_run = load_curves(run, wandb=wandb, database=open_store(database, show))
    if show.json:
        print_json(_run_to_json(curves_of_run))
        return 0
    facts = ("id", "series", "subject", "task", "seed", "status", "source")
    for name in facts:
        if (value := getattr(curves_of_run, name)) is not None and not show.quiet:
            print_wrapped(f"{name}: {value}")
    for note in curves_of_run.notes if not show.quiet else ():
        print_wrapped(f"note: {note}")
    for name in ("configuration", "provenance"):
        if (mapping := getattr(curves_of_run, name)) and not show.quiet:
            print_wrapped(f"{name}: {json.dumps(mapping, sort_keys=True)}")
    heads = ("metric", "points", "first step", "last step", "first", "last", "least", "most")
    rows: list[tuple[str, ...]] = []
    for metric, curve in sorted(curves_of_run.curves.items()):
        steps, values = curve.steps_P, curve.values_P
        ends = (values[0], values[-1], values.min(), values.max()) if len(curve) else ()
        span = (f"{steps[0]:,}", f"{steps[-1]:,}") if len(curve) else ("-", "-")
        numbers = [f"{value:.6g}" for value in ends] or ["-"] * 4
        rows.append((cut(metric, _MAX_WIDTH), f"{len(curve):,}", *span, *numbers))
    print_table(heads, rows, ("metric",))
    return 0


def _format_import(run: "TrainingRun", status: str) -> str:
    points = sum(map(len, run.curves.values()))
    seed = "seed unknown" if run.seed is None else f"seed {run.seed}"
    words = {"present": "already present"}.get(status, status)
    return (
        f"{run.id}: {words}, {len(run.curves)} metrics, {points:,} points, {seed}, {run.status}"
    )


def _format_counts(words: Sequence[str]) -> list[str]:
    names = {"added": "added", "replaced": "replaced", "present": "already present"}
    return [
        f"{list(words).count(word)} {name}"
        for word, name in names.items()
        if word in words or word == "added"
    ]


def _warn_about_points(runs: Sequence["TrainingRun"], show: OutputOptions) -> None:
    if show.quiet:
        return
    for run in runs:
        for note in run.notes:
            print_warning(f"{run.id}: {note}")
        dropped = sum(curve.dropped for curve in run.curves.values())
        repeated = sum(curve.repeated for curve in run.curves.values())
        if dropped:
            print_warning(f"{run.id}: {dropped} points are NaN or infinite and were dropped")
        if repeated:
            print_warning(
                f"{run.id}: {repeated} points were replaced by later points of the same step"
            )


def _import_to_json(run: "TrainingRun", done: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": run.id,
        "result": str(done[run.id]),
        "seed": run.seed,
        "status": str(run.status),
        "metrics": sorted(run.curves),
        "points": sum(map(len, run.curves.values())),
        "dropped": sum(curve.dropped for curve in run.curves.values()),
        "repeated": sum(curve.repeated for curve in run.curves.values()),
        "notes": list(run.notes),
    }


def _listing_to_json(run: "ListedTrainingRun") -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}


def _run_to_json(run: "TrainingRun") -> dict[str, Any]:
    facts = ("id", "series", "subject", "task", "seed", "status", "configuration", "provenance")
    steps: dict[int, dict[str, float]] = {}
    for metric, curve in sorted(run.curves.items()):
        for step, value in zip(curve.steps_P.tolist(), curve.values_P.tolist(), strict=True):
            steps.setdefault(step, {})[metric] = value
    points = [{"step": step, **values} for step, values in sorted(steps.items())]
    return {**{name: getattr(run, name) for name in facts}, "points": points}


def _format_cells(run: "ListedTrainingRun") -> tuple[str, ...]:
    texts = [
        cut(text, _MAX_WIDTH) if text else "-"
        for text in (run.id, run.series, run.subject, run.task)
    ]
    return (
        *texts,
        "-" if run.seed is None else str(run.seed),
        str(run.status),
        f"{run.points:,}",
        "-" if run.last_step is None else f"{run.last_step:,}",
        cut(", ".join(run.metrics), _MAX_WIDTH) or "-",
    )


add_commands(curves, import_, list_, show_)
