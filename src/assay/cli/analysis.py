"""`assay analysis` compares training runs; `assay variance` estimates how many are needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from assay.cli.compare import print_registered_plan
from assay.cli.options import (
    AnalysisOutput,
    AnalysisOutputOptions,
    CurveSummaryOption,
    Database,
    Flag,
    Given,
    Wandb,
    no_output,
    no_summary,
    open_store,
    option_groups,
)
from assay.cli.output import (
    OutputOptions,
    print_json,
    print_line,
    print_report,
    print_warning,
    show_spinner,
)
from assay.core.files import atomic_write
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.report.document import Document
    from assay.store.store import Store
    from assay.training.analysis import Analysis

INCOMPLETE = 3
_RUNS_GROUP = Group("Which runs", sort_key=1)
_PLAN_GROUP = Group("Plan", sort_key=2)


@Parameter(name="*", group=_PLAN_GROUP)
@dataclass(frozen=True, kw_only=True)
class _PlanOptions:
    """Options for an analysis plan, registered before the runs."""

    plan: Annotated[Path | None, Parameter(show_default=False)] = None
    """Analysis plan (TOML or JSON) written before the runs; deviations are reported."""
    register: Flag = False
    """Only store the file of --plan, before the runs are trained."""


@option_groups(
    {
        "arms": _RUNS_GROUP,
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
    planned: _PlanOptions = _PlanOptions(),
    summary: CurveSummaryOption = no_summary,
    intervals: Given,
    tests: Given,
    output: AnalysisOutput = no_output,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
    _check_output_paths(output)
    if planned.register:
        settings = {**summary.collect_options(), **intervals, **tests}
        return _register_plan(planned.plan, arms, settings, store, show)
    with show_spinner(show, "comparing"):
        result, deviations = analysis(
            wandb=wandb,
            plan=planned.plan,
            summary=summary.collect_options(),
            database=store,
            **arms,
            **intervals,
            **tests,
        )
        document = analysis_document(result, deviations)
        files = _write_files(document, result, output)
    exit_code = INCOMPLETE if result.design.unusable else 0
    if show.json:
        _print_caveats(result, deviations)
        print_json({**document.values(), "files": list(map(str, files))})
        return exit_code
    if output.print_table and not show.quiet:
        from assay.report.terminal import TerminalReport

        print_report(TerminalReport(document))
    else:
        print_line(result.sentence)
        _print_caveats(result, deviations)
    for file in () if show.quiet else files:
        print_line(f"wrote {file}")
    return exit_code


def _check_output_paths(output: AnalysisOutputOptions) -> None:
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


def _register_plan(
    plan: Path | None, arms: Given, settings: Given, store: "Store", show: OutputOptions
) -> int:
    from assay.api.training_runs import register_plan

    if "metric" in arms or settings:
        raise UsageError(
            "--register stores the plan file unchanged; put all settings into the file, and "
            "omit --metric and other options"
        )
    if plan is None:
        raise UsageError("--register needs the plan to store; give --plan FILE")
    if arms.keys() - {"pair_by_seed", "allow_different"}:
        raise UsageError(
            "--register only stores the plan; omit the runs, and give them later without "
            "--register"
        )
    print_registered_plan(register_plan(plan, database=store), show)
    return 0


def _write_files(
    document: "Document", result: "Analysis", output: AnalysisOutputOptions
) -> list[Path]:
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

        drawings = analysis_drawings(result)
        for name, drawing in drawings.items():
            save_png(drawing, output.dir / name)
        tables = [output.dir / "analysis.csv", output.dir / "analysis.json"]
        write_document(document, *tables)
        files += [*(output.dir / name for name in drawings), *tables]
    return files


def _print_caveats(result: "Analysis", deviations: Sequence[str] | None) -> None:
    """Print the important caveats if no report is printed."""
    if result.look is not None and result.look.sentence:
        print_warning(result.look.sentence)
    for gap in result.design.capacity:
        print_warning(gap.sentence)
    for line in result.design.warnings:
        print_warning(line)
    for run in result.design.unusable:
        print_warning(f"{run.name} is excluded: {run.reason}")
    for line in deviations or ():
        print_warning(f"deviation from the plan: {line}")


@option_groups(
    {"precision": Group("Planning", sort_key=2)},
    precision="assay.training.options:PrecisionOptions",
)
def variance(
    *runs: str,
    metric: str = "overview/reward",
    threshold: float = 0.05,
    output: Path = Path("variance_analysis.png"),
    summary: CurveSummaryOption = no_summary,
    precision: Given,
    wandb: Wandb = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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

    is_figure = output.suffix.lower() == ".png"
    if not is_figure and output.suffix.lower() not in REPORT_EXTENSIONS:
        raise UsageError(
            f"--output {str(output)!r} is neither a PNG file nor a report; allowed endings:"
            f" {', '.join(('.png', *REPORT_EXTENSIONS))}"
        )
    if output.is_dir():
        raise UsageError(f"--output {str(output)!r} is a folder; name a file in it")
    summary_options = summary.collect_options()
    if summary_options.get("type", "auc") != "auc":
        raise UsageError(
            f"--summary.type {summary_options['type']} is not supported by 'assay variance', "
            "which uses the area and the slope; use 'assay analysis'"
        )
    with show_spinner(show, "reading the curves"):
        gathered, summaries, settings = variance(
            *runs,
            metric=metric,
            threshold=threshold,
            summary=summary_options,
            wandb=wandb,
            database=open_store(database, show),
            **precision,
        )
        document = variance_document(gathered, summaries, settings)
        if is_figure:
            from assay.report.figures.drawing import save_png

            save_png(draw_variance(gathered, summaries, settings), output)
        else:
            write_document(document, output)
    if show.json:
        for run in gathered.unusable:
            print_warning(f"{run.name} is excluded: {run.reason}")
        print_json({**document.values(), "figure": str(output)})
    else:
        from assay.report.terminal import TerminalReport

        print_report(TerminalReport(document))
        if not show.quiet:
            print_line("")
            print_line(f"{'figure' if is_figure else 'report'}: {output}")
    return INCOMPLETE if gathered.unusable else 0
