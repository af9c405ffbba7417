"""`assay compare`: compare models or agents. Also prints registered analysis plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli.options import Database, Flag, Given, open_store, option_groups, print_document
from assay.cli.output import (
    OutputOptions,
    print_error,
    print_json,
    print_line,
    print_warning,
    show_spinner,
)
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api.training_runs import RegisteredPlan
    from assay.judge.results import Comparison
    from assay.judge.subjects import Subject


def print_registered_plan(registered: "RegisteredPlan", show: OutputOptions) -> None:
    """Print a registered plan, and how much data for it the database had by then."""
    plan, is_new = registered
    if show.json:
        print_json(
            {
                "hash": plan.hash,
                "created_at": plan.created_at.isoformat(),
                "registered": is_new,
                "seen": list(plan.seen),
                "plan": dict(plan.plan),
            }
        )
        return
    when = f"{plan.created_at:%Y-%m-%d %H:%M:%S} UTC"
    print_line(f"plan {plan.hash} registered {when}" + ("" if is_new else " (earlier)"))
    if not show.quiet:
        print_line(
            f"{len(plan.seen)} {_EXISTING_DATA[plan.plan.get('kind')]}; reports that use them"
            " state it"
        )


_EXISTING_DATA = {
    None: "runs with its metric were already in the database",
    "comparison": "experiments already had trials in the database",
}

_FAILED = 1
_SERIES_OPTIONS = (
    *("level", "seed", "tasks", "allow_different"),
    *("lower_is_better", "higher_is_better"),
)
"""Options that apply to --over-time; the others are about two experiments."""
_ONE_SOURCE_MESSAGE = (
    "give only one source: names of experiments, --experiments FILE, or --baseline FILE with"
    " --improved FILE"
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class _SourceOptions:
    """Files to compare, the baseline, and the metrics."""

    experiments: Annotated[Path | None, Parameter(show_default=False)] = None
    """JSON file of experiments to compare, as written by 'assay experiments export'."""
    baseline: Annotated[str | None, Parameter(show_default=False)] = None
    """With --improved: results file, or FILE#MODEL for one model in it. With names: the name
    of the baseline."""
    improved: Annotated[list[str] | None, Parameter(negative="", show_default=False)] = None
    """Results file to compare with the baseline. May be repeated."""
    metrics: Annotated[
        str | None,
        Parameter(
            name=["--metrics", "--metric"], show_default="all they share, achievements first"
        ),
    ] = None
    """Metrics to compare, separated by commas; the first is the primary metric."""
    metrics_from: Annotated[Path | None, Parameter(show_default=False)] = None
    """Python file with your own metrics."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class _PurposeOptions:
    """Purpose of the comparison: a plan, a CI check, or a history."""

    plan: Annotated[Path | None, Parameter(show_default=False)] = None
    """TOML or JSON file with the planned metric and sample size; deviations are reported."""
    register: Flag = False
    """Only store the file of --plan, before the episodes are run."""
    detail: Flag = False
    """Also print all tables, with explanations."""
    fail_if_worse: Flag = False
    """Exit with code 1 if a candidate is worse in the primary metric or cannot be compared."""
    over_time: Flag = False
    """Show one metric over all versions of a series."""


@option_groups(options="assay.judge.options:ComparisonOptions")
def compare(
    *names: str,
    source: _SourceOptions = _SourceOptions(),
    output: Annotated[list[Path] | None, Parameter(negative="")] = None,
    options: Given,
    purpose: _PurposeOptions = _PurposeOptions(),
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Compare models or agents: difference, confidence interval, verdict.

    The first name is the baseline, and the first metric is the primary one. Episodes with
    the same task and seed are compared pair by pair. If settings of the task differ, such as
    its limits, no verdict is given. The report answers four questions: is a candidate
    better, by how much, how certain is that, and what to run next.

    For example:

        assay compare latest
        assay compare "gpt-4o-mini v1.0" "gpt-4o-mini v1.1" --output report.html
        assay compare --experiments experiments.json --output report.html
        assay compare --baseline old.json --improved new.json --metric reward
        assay compare gpt-4o-mini --over-time --output history.html

    Args:
        names: Experiments: ids, names, or the start of one. A run, or 'latest', means all
            its experiments.
        source: Files to compare, the baseline, and the metrics.
        output: Write the report to this file: .html, .md, .json or .csv. May be repeated.
        options: Options of the comparison.
        purpose: Plan, exit code and history.
        database: Database to read.
        show: Output options.
    """
    from assay.api.comparison import compare, register_comparison_plan, stored_subjects
    from assay.report.comparison.document import comparison_document
    from assay.report.files import check_file_extensions, write_document

    paths, metrics = tuple(output or ()), _parse_metrics(source.metrics)
    check_file_extensions(paths)
    files = source.experiments or source.improved
    if purpose.register:
        if purpose.plan is None or names or files or source.baseline or metrics:
            raise UsageError("--register only stores a plan; give --plan FILE and no names")
        store = open_store(database, show)
        print_registered_plan(register_comparison_plan(purpose.plan, database=store), show)
        return 0
    if purpose.over_time:
        if files or source.baseline is not None:
            raise UsageError("--over-time needs the name of a series, not files")
        series_options = {name: options[name] for name in _SERIES_OPTIONS if name in options}
        series_options["metrics_from"] = source.metrics_from
        return _compare_over_time(names, metrics, paths, database, show, **series_options)
    if names:
        if files:
            raise UsageError(_ONE_SOURCE_MESSAGE)
        with show_spinner(show, "reading"):
            subjects = stored_subjects(
                names,
                metrics or (),
                database=open_store(database, show),
                metrics_from=source.metrics_from,
                notice=print_warning,
            )
    else:
        subjects = _read_subjects(source)
    with show_spinner(show, "comparing"):
        comparison = compare(
            *subjects,
            metrics=metrics,
            baseline=None if source.improved else source.baseline,
            plan=purpose.plan,
            database=open_store(database, show) if purpose.plan else None,
            **options,
        )
        if purpose.fail_if_worse:
            _check_direction(comparison)
        document = comparison_document(comparison)
        write_document(document, *paths)
    print_document(document, paths, show, detail=purpose.detail, answer_first=False)
    return report_regressions(comparison) if purpose.fail_if_worse else 0


def _parse_metrics(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(
            f"--metrics {text!r} is not allowed; give names separated by commas, such as"
            " achievements,reward"
        )
    return names


def _read_subjects(source: _SourceOptions) -> "list[Subject]":
    """Read the subjects from files."""
    from assay.api.comparison import read_experiments, read_results

    if source.experiments is None and not source.improved:
        missing = "nothing to compare"
        if source.baseline:
            missing = "--improved FILE is missing"
        raise UsageError(
            f"{missing}; give names of experiments ('assay experiments list' shows them),"
            " 'latest', --experiments FILE, or --baseline FILE with --improved FILE"
        )
    if source.metrics_from is not None:
        raise UsageError(
            "--metrics-from needs traces, which results files do not contain; give names of"
            " experiments in the database"
        )
    if source.experiments is not None:
        if source.improved:
            raise UsageError(_ONE_SOURCE_MESSAGE)
        return read_experiments(source.experiments)
    if source.baseline is None:
        raise UsageError("--improved needs results to compare with; give --baseline FILE")
    return read_results(source.baseline, *source.improved or ())


def _check_direction(comparison: "Comparison") -> None:
    """Raise UsageError if the primary metric has no direction, so that nothing can be worse."""
    from assay.judge.outcomes import Direction, direction_advice

    metric = comparison.setup.primary
    if comparison.setup.direction(metric) is Direction.NEITHER:
        raise UsageError(
            f"--fail-if-worse: {metric!r} has no direction, so that no value of it is worse;"
            f" {direction_advice(metric)}"
        )


def report_regressions(comparison: "Comparison") -> int:
    """Return 1 and print the reasons if a candidate is worse or cannot be compared, else 0."""
    for contrast in comparison.worse:
        name = comparison.of(contrast.candidate).name
        print_error(f"{name} is worse than {comparison.baseline.name} in {contrast.metric}")
    reasons = list(comparison.left_out.values())
    for contrast in comparison.decisive:
        name = comparison.of(contrast.candidate).name
        if contrast.withheld:
            from assay.report.comparison.sentences import lost_counts

            reasons.append(lost_counts(comparison, contrast))
        if contrast.same is not None:
            reasons.append(f"{name!r} and the baseline are the same: {contrast.same}")
        reasons += [
            f"{name!r} had a different task: {confound.name} {confound.candidate}, baseline"
            f" {confound.baseline}"
            for confound in contrast.confounds
        ]
    for reason in reasons:
        print_error(f"cannot be compared: {reason}")
    return _FAILED if comparison.worse or reasons else 0


def _compare_over_time(
    names: Sequence[str],
    metrics: Sequence[str] | None,
    paths: tuple[Path, ...],
    database: Path,
    show: OutputOptions,
    **series_options: Any,
) -> int:
    from assay.api.comparison import over_time
    from assay.report.files import write_document
    from assay.report.over_time import over_time_document

    if len(names) != 1:
        raise UsageError("--over-time needs one series; 'assay experiments list' shows them")
    if metrics is not None and len(metrics) > 1:
        raise UsageError(f"--over-time accepts one metric, not {len(metrics)}")
    with show_spinner(show, "comparing"):
        series = over_time(
            names[0],
            database=open_store(database, show),
            metric=metrics[0] if metrics else None,
            notice=print_warning,
            **series_options,
        )
        document = over_time_document(series)
        write_document(document, *paths)
    print_document(document, paths, show, detail=True, answer_first=False)
    return 0
