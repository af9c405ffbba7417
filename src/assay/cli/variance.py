"""`assay variance`: how many training runs are enough."""

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from assay.cli.curve_options import Summarise, Wandb, no_summary
from assay.cli.database import Database, open_store
from assay.cli.output import Show, say, say_json, say_report, warn, working
from assay.errors import UsageError
from assay.traces.location import DEFAULT_DATABASE

__all__ = ["variance"]

INCOMPLETE = 3
_PLAN = Group("Planning", sort_key=2)


def variance(
    *runs: str,
    metric: str = "overview/reward",
    threshold: float = 0.05,
    output: Path = Path("variance_analysis.png"),
    summary: Summarise = no_summary,
    power: Annotated[float, Parameter(group=_PLAN)] = 0.8,
    alpha: Annotated[float, Parameter(group=_PLAN)] = 0.05,
    correlation: Annotated[float, Parameter(group=_PLAN)] = 0.5,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Estimate from a pilot how many training runs are enough.

    Each run is summarised by the area under its curve and by its slope. The report has the
    plain rule (the first N at which sd / mean of the first N runs falls below the
    threshold) and what answers the question: the relative standard error, the N for that
    precision, and the N to detect a difference of that size, with their ranges.

    A run is an id in the store (see 'assay curves import'), a file with a column 'step', or
    a folder of W&B's offline mode, TensorBoard or MLflow. 'run1 ... run15' includes the runs
    between. Runs that are missing, crashed or still running are listed and left out; the
    exit code is then 3.

    For example:

        assay variance run1 ... run15 --metric overview/reward --threshold 0.05

    Args:
        runs: Two or more runs; the plain rule takes them in this order.
        metric: The metric whose curves are read.
        threshold: The precision wanted, as a share of the mean: 0.05 is 5 %.
        output: The file to write: a figure (.png) or a report (.html, .md, .json, .csv).
        summary: Which part of a curve counts.
        power: The chance of detecting a difference as large as the threshold.
        alpha: The chance of a false alarm.
        correlation: The assumed correlation of two arms trained with the same seeds; 'assay
            analysis' measures it.
        wandb: ENTITY/PROJECT at W&B, where ids are looked up that are nowhere else.
        database: The store to read.
        show: What to print.
    """
    from assay import api
    from assay.report.files import ENDINGS, write_document
    from assay.report.variance import variance_document, variance_drawing

    figure = output.suffix.lower() == ".png"
    if not figure and output.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"--output {str(output)!r} is no PNG file and no report; give a name in"
            f" {', '.join(('.png', *ENDINGS))}"
        )
    if output.is_dir():
        raise UsageError(f"--output {str(output)!r} is a folder; name a file in it")
    chosen = summary.given()
    if chosen.get("type", "auc") != "auc":
        raise UsageError(
            f"--summary.type {chosen['type']} is not for variance, which takes the area and "
            "the slope; 'assay analysis' takes it"
        )
    with working(show, "reading the curves"):
        gathered, summaries, settings = api.variance(
            *runs,
            metric=metric,
            threshold=threshold,
            summary=chosen,
            power=power,
            alpha=alpha,
            correlation=correlation,
            wandb=wandb,
            database=open_store(database, show),
        )
        document = variance_document(gathered, summaries, settings)
        if figure:
            from assay.report.figures.drawing import save_png

            save_png(variance_drawing(gathered, summaries, settings), output)
        else:
            write_document(document, output)
    if show.json:
        for run in gathered.unusable:
            warn(f"{run.name} is left out: {run.reason}")
        say_json({**document.values(), "figure": str(output)})
    else:
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(document))
        if not show.quiet:
            say("")
            say(f"{'figure' if figure else 'report'} in {output}")
    return INCOMPLETE if gathered.unusable else 0
