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
from assay.cli.output import Show, say, say_json, warn
from assay.cli.tables import say_prose, say_table
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
_WIDEST = 48
_MOST_SERIES = 12

curves = App(
    name="curves",
    help="""Import and list the learning curves of training runs.

For example:

    assay curves import run1.csv run2.csv --series baseline
""",
    help_format="plaintext",
)


@option_groups(instead="assay.training.options:ImportOptions")
def import_(
    *files: str,
    instead: Given,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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
        instead: Values that replace those in the files.
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
        **instead,
    )
    if show.json:
        say_json({"database": str(database), "runs": [_json_row(run, done) for run in runs]})
    elif not show.quiet:
        for run in runs:
            say(_import_line(run, done[run.id]))
        say(f"{', '.join(_counts(list(done.values())))} in {database}")
    _warn_of_points(runs, show)
    return 0


def list_(
    *,
    series: Text = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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
                "series", series, [cut(name, _WIDEST) for name in names[:_MOST_SERIES]]
            )
            if names
            else f"unknown series {series!r}; no training run has one, leave --series out"
        )
    runs = [run for run in runs if series in (None, run.series)]
    if show.json:
        say_json({"runs": [_listed_json(run) for run in runs]})
    elif show.quiet:
        for run in runs:
            say(run.id)
    elif not runs:
        say("no training runs; 'assay curves import' adds some")
    else:
        words = [head for head in _HEADS if head not in _RIGHT]
        say_table(_HEADS, [_listed_cells(run) for run in runs], words)
    return 0


def show_(
    run: str,
    /,
    *,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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

    found = load_curves(run, wandb=wandb, database=open_store(database, show))
    if show.json:
        say_json(_whole_json(found))
        return 0
    facts = ("id", "series", "subject", "task", "seed", "status", "source")
    for name in facts:
        if (value := getattr(found, name)) is not None and not show.quiet:
            say_prose(f"{name}: {value}")
    for note in found.notes if not show.quiet else ():
        say_prose(f"note: {note}")
    for name in ("configuration", "provenance"):
        if (mapping := getattr(found, name)) and not show.quiet:
            say_prose(f"{name}: {json.dumps(mapping, sort_keys=True)}")
    heads = ("metric", "points", "first step", "last step", "first", "last", "least", "most")
    rows: list[tuple[str, ...]] = []
    for metric, curve in sorted(found.curves.items()):
        steps, values = curve.steps_P, curve.values_P
        ends = (values[0], values[-1], values.min(), values.max()) if len(curve) else ()
        span = (f"{steps[0]:,}", f"{steps[-1]:,}") if len(curve) else ("-", "-")
        numbers = [f"{value:.6g}" for value in ends] or ["-"] * 4
        rows.append((cut(metric, _WIDEST), f"{len(curve):,}", *span, *numbers))
    say_table(heads, rows, ("metric",))
    return 0


def _import_line(run: "TrainingRun", what: str) -> str:
    points = sum(map(len, run.curves.values()))
    seed = "seed not known" if run.seed is None else f"seed {run.seed}"
    words = {"present": "is there already"}.get(what, what)
    return (
        f"{run.id}: {words}, {len(run.curves)} metrics, {points:,} points, {seed}, {run.status}"
    )


def _counts(words: Sequence[str]) -> list[str]:
    names = {"added": "added", "replaced": "replaced", "present": "there already"}
    return [
        f"{list(words).count(word)} {name}"
        for word, name in names.items()
        if word in words or word == "added"
    ]


def _warn_of_points(runs: Sequence["TrainingRun"], show: Show) -> None:
    if show.quiet:
        return
    for run in runs:
        for note in run.notes:
            warn(f"{run.id}: {note}")
        dropped = sum(curve.dropped for curve in run.curves.values())
        repeated = sum(curve.repeated for curve in run.curves.values())
        if dropped:
            warn(f"{run.id}: {dropped} points are NaN or infinite and were left out")
        if repeated:
            warn(f"{run.id}: {repeated} points have the step of a later one, which counts")


def _json_row(run: "TrainingRun", done: dict[str, Any]) -> dict[str, Any]:
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


def _listed_json(run: "ListedTrainingRun") -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}


def _whole_json(run: "TrainingRun") -> dict[str, Any]:
    facts = ("id", "series", "subject", "task", "seed", "status", "configuration", "provenance")
    steps: dict[int, dict[str, float]] = {}
    for metric, curve in sorted(run.curves.items()):
        for step, value in zip(curve.steps_P.tolist(), curve.values_P.tolist(), strict=True):
            steps.setdefault(step, {})[metric] = value
    points = [{"step": step, **values} for step, values in sorted(steps.items())]
    return {**{name: getattr(run, name) for name in facts}, "points": points}


def _listed_cells(run: "ListedTrainingRun") -> tuple[str, ...]:
    texts = [
        cut(text, _WIDEST) if text else "-"
        for text in (run.id, run.series, run.subject, run.task)
    ]
    return (
        *texts,
        "-" if run.seed is None else str(run.seed),
        str(run.status),
        f"{run.points:,}",
        "-" if run.last_step is None else f"{run.last_step:,}",
        cut(", ".join(run.metrics), _WIDEST) or "-",
    )


add_commands(curves, import_, list_, show_)
