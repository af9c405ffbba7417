"""`assay analysis` compares training runs; `assay variance` estimates how many are needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from assay.cli.compare import say_registered
from assay.cli.options import (
    Database,
    Flag,
    Given,
    Output,
    OutputOptions,
    Summarise,
    Wandb,
    no_output,
    no_summary,
    open_store,
    option_groups,
)
from assay.cli.output import Show, say, say_json, say_report, warn, working
from assay.core.files import atomic_write
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.report.document import Document
    from assay.store.store import Store
    from assay.training.analysis import Analysis

INCOMPLETE = 3
_WHO = Group("Which runs", sort_key=1)
_WHICH = Group("Plan", sort_key=2)


@Parameter(name="*", group=_WHICH)
@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Options for an analysis plan, registered before the runs."""

    plan: Annotated[Path | None, Parameter(show_default=False)] = None
    """Analysis plan (TOML or JSON) written before the runs; deviations are reported."""
    register: Flag = False
    """Only store the file of --plan, before the runs are trained."""


@option_groups(
    {
        "arms": _WHO,
        "intervals": Group("Intervals", sort_key=4),
        "tests": Group("Tests and planning", sort_key=5),
    },
    arms="assay.training.options:ArmOptions",
    intervals="assay.training.options:IntervalOptions",
    tests="assay.training.options:ExtraTestOptions",
)
def analysis(
    *,
    arms: Given,
    planned: _Plan = _Plan(),
    summary: Summarise = no_summary,
    intervals: Given,
    tests: Given,
    output: Output = no_output,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Compare training runs of a candidate and a control.

    Each run is summarised by one number (--summary.type). The report has the difference of
    the means with its confidence interval, an exact test and effect sizes. For paired runs,
    it checks the seeds of each pair and reports the gain from pairing.

    A run is an id in the database (see 'assay curves import'), a file with a column 'step',
    or a folder of W&B's offline mode, TensorBoard or MLflow. 'run1 ... run15' includes the
    runs in between. Runs that are missing, crashed, still running or unpaired are listed
    and left out; the exit code is then 3.

    Each analysis is recorded in the database. If you add runs and analyse them again, the
    interval is wider, because that is a second look at the data. Looks that are declared in
    a plan share alpha.

    For example:

        assay analysis --control vit --candidate trxl --pair-by-seed

    Args:
        arms: Runs to compare.
        planned: Plan of the analysis.
        summary: Summary of a curve.
        intervals: Options for intervals.
        tests: Additional tests.
        output: Files to write.
        wandb: ENTITY/PROJECT at W&B, to look up ids that are not found elsewhere.
        database: Database to read.
        show: Output options.
    """
    from assay.api.training_runs import analysis
    from assay.report.training_analysis import analysis_document

    store = open_store(database, show)
    _check_output(output)
    if planned.register:
        settings = {**summary.given(), **intervals, **tests}
        return _register(planned.plan, arms, settings, store, show)
    with working(show, "comparing"):
        found, deviations = analysis(
            wandb=wandb,
            plan=planned.plan,
            summary=summary.given(),
            database=store,
            **arms,
            **intervals,
            **tests,
        )
        document = analysis_document(found, deviations)
        files = _write(document, found, output)
    exit_code = INCOMPLETE if found.design.unusable else 0
    if show.json:
        _warn(found, deviations)
        say_json({**document.values(), "files": list(map(str, files))})
        return exit_code
    if output.print_table and not show.quiet:
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(document))
    else:
        say(found.sentence)
        _warn(found, deviations)
    for file in () if show.quiet else files:
        say(f"wrote {file}")
    return exit_code


def _check_output(output: OutputOptions) -> None:
    """Raise UsageError before the computation if an output file cannot be written."""
    if output.csv_path is not None and output.csv_path.is_dir():
        raise UsageError(
            f"--output.csv_path {str(output.csv_path)!r} is a folder; name a file in it"
        )
    if output.report is not None:
        from assay.report.files import check_file_extensions

        check_file_extensions((output.report,))
    if output.dir is not None and output.dir.exists() and not output.dir.is_dir():
        raise UsageError(f"--output.dir {str(output.dir)!r} is a file; name a folder")


def _register(
    plan: Path | None, arms: Given, settings: Given, store: "Store", show: Show
) -> int:
    from assay.api.training_runs import register_plan

    if "metric" in arms or settings:
        raise UsageError(
            "--register stores the plan as its file has it; write settings into the file, and "
            "leave --metric and all other settings out"
        )
    if plan is None:
        raise UsageError("--register stores a plan; name it with --plan FILE")
    if arms.keys() - {"pair_by_seed", "allow_different"}:
        raise UsageError(
            "--register stores the plan and analyses nothing; leave the runs out, and name "
            "them later without --register"
        )
    say_registered(register_plan(plan, database=store), show)
    return 0


def _write(document: "Document", found: "Analysis", output: OutputOptions) -> list[Path]:
    from assay.report.files import write_document

    files = [path for path in (output.csv_path, output.report) if path is not None]
    if output.csv_path is not None:
        # Always CSV, regardless of the file extension.
        from assay.report.files import render_csv

        atomic_write(output.csv_path, render_csv(document).encode("utf-8", "replace"))
    if output.report is not None:
        write_document(document, output.report)
    if output.dir is not None:
        from assay.report.figures.drawing import save_png
        from assay.report.training_analysis import analysis_drawings

        drawings = analysis_drawings(found)
        for name, drawing in drawings.items():
            save_png(drawing, output.dir / name)
        tables = [output.dir / "analysis.csv", output.dir / "analysis.json"]
        write_document(document, *tables)
        files += [*(output.dir / name for name in drawings), *tables]
    return files


def _warn(found: "Analysis", deviations: Sequence[str] | None) -> None:
    """Print the important caveats if no report is printed."""
    if found.look is not None and found.look.sentence:
        warn(found.look.sentence)
    for gap in found.design.capacity:
        warn(gap.sentence)
    for line in found.design.warnings:
        warn(line)
    for run in found.design.unusable:
        warn(f"{run.name} is left out: {run.reason}")
    for line in deviations or ():
        warn(f"deviation from the plan: {line}")


@option_groups(
    {"precision": Group("Planning", sort_key=2)},
    precision="assay.training.options:PrecisionOptions",
)
def variance(
    *runs: str,
    metric: str = "overview/reward",
    threshold: float = 0.05,
    output: Path = Path("variance_analysis.png"),
    summary: Summarise = no_summary,
    precision: Given,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Estimate from pilot runs how many training runs are needed.

    Each run is summarised by the area under its curve and by its slope. The report has a
    rule of thumb, the first N at which sd / mean of the first N runs is below the threshold.
    It also has better estimates, with their ranges: the relative standard error, the number
    of runs for that precision, and the number of runs to detect a difference of that size.

    A run is an id in the database (see 'assay curves import'), a file with a column 'step',
    or a folder of W&B's offline mode, TensorBoard or MLflow. 'run1 ... run15' includes the
    runs in between. Runs that are missing, crashed or still running are listed and left
    out; the exit code is then 3.

    For example:

        assay variance run1 ... run15 --metric overview/reward --threshold 0.05

    Args:
        runs: Two or more runs; the rule of thumb uses this order.
        metric: Metric whose curves are read.
        threshold: Target precision as a share of the mean; 0.05 is 5 %.
        output: Write a figure (.png) or a report (.html, .md, .json, .csv) to this file.
        summary: Part of the curve to summarise.
        precision: Power and error rates to plan for.
        wandb: ENTITY/PROJECT at W&B, to look up ids that are not found elsewhere.
        database: Database to read.
        show: Output options.
    """
    from assay.api.training_runs import variance
    from assay.report.files import REPORT_EXTENSIONS, write_document
    from assay.report.training_variance import draw_variance, variance_document

    figure = output.suffix.lower() == ".png"
    if not figure and output.suffix.lower() not in REPORT_EXTENSIONS:
        raise UsageError(
            f"--output {str(output)!r} is no PNG file and no report; give a name in"
            f" {', '.join(('.png', *REPORT_EXTENSIONS))}"
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
        gathered, summaries, settings = variance(
            *runs,
            metric=metric,
            threshold=threshold,
            summary=chosen,
            wandb=wandb,
            database=open_store(database, show),
            **precision,
        )
        document = variance_document(gathered, summaries, settings)
        if figure:
            from assay.report.figures.drawing import save_png

            save_png(draw_variance(gathered, summaries, settings), output)
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
