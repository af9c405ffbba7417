"""Commands on the results of a benchmark.

`assay bench summarize` and `compare` report on rollouts, `eval` and `regrade` grade their
trials, `import` copies rollouts from other machines, and `tag` names a rollout.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay.cli.compare import report_regressions
from assay.cli.options import (
    DEFAULT_DATA_DIR,
    AllowedOptions,
    DataDir,
    Flag,
    Given,
    Paths,
    option_groups,
    print_document,
)
from assay.cli.output import (
    OutputOptions,
    print_error,
    print_json,
    print_line,
    print_note,
    print_warning,
    show_spinner,
)

if TYPE_CHECKING:
    from assay.bench.regrade import GradedTrial


@option_groups(options="assay.bench.options:BenchSummaryOptions")
def summarize(
    name: str,
    /,
    *,
    latest: Flag = False,
    rollout: Annotated[list[str] | None, Parameter(negative="")] = None,
    options: Given,
    output: Paths = None,
    detail: Flag = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Summarise a benchmark: scores, pass@k, cost, time and failures.

    Mean scores have confidence intervals. Arms are compared on the tasks they share, pair by
    pair. Failed trials have a score of 0. Trials that ended in infrastructure errors are
    excluded and listed. The summary is also written to summary.md in the rollout folder.

    For example:

        assay bench summarize my_benchmark --latest
        assay bench summarize my_benchmark --rollout 20250824__12-34-56 --output report.html

    Args:
        name: Benchmark name, name@stamp, start of a stamp, tag, or path.
        latest: Use the latest rollout, the default if only a name is given.
        rollout: Stamp of a rollout, or the start of it. May be repeated, to summarise
            several rollouts together.
        options: Options of the summary.
        output: Write the report to this file: .html, .md, .json or .csv. May be repeated.
        detail: Also print all tables, with explanations.
        data_dir: Folder of the benchmarks.
        show: Output options.
    """
    from assay.api.bench import bench_summary
    from assay.report.benchmark import benchmark_document
    from assay.report.files import check_file_extensions, write_document

    paths = tuple(output or ())
    check_file_extensions(paths)
    with show_spinner(show, "summing up"):
        summary = bench_summary(
            name,
            *(rollout or ()),
            latest=latest,
            data_dir=data_dir,
            save=True,
            notice=print_warning,
            **options,
        )
        document = benchmark_document(summary)
        write_document(document, *paths)
    print_document(document, paths, show, detail=detail)
    return 0


@option_groups(options="assay.bench.options:RolloutComparisonOptions")
def compare(
    *rollouts: str,
    options: Given,
    output: Paths = None,
    detail: Flag = False,
    fail_if_worse: Flag = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Compare rollouts: scores by task, flaky tasks, a verdict per arm.

    The first rollout is the baseline. An arm is compared with the arm of the same label, or
    with the only arm if each rollout has one. Tasks that changed between the rollouts are
    listed, and excluded from the verdict.

    For example:

        assay bench compare my_benchmark@20250824 my_benchmark
        assay bench compare v1 v2 --fail-if-worse

    Args:
        rollouts: Two or more rollouts: names, name@stamp, starts of stamps, tags, or paths.
        options: Options of the comparison.
        output: Write the report to this file: .html, .md, .json or .csv. May be repeated.
        detail: Also print all tables, with explanations.
        fail_if_worse: Exit with code 1 if an arm is worse than in the first rollout, or cannot
            be compared.
        data_dir: Folder of the benchmarks.
        show: Output options.
    """
    from assay.api.bench import bench_compare
    from assay.report.benchmark import rollouts_document
    from assay.report.files import check_file_extensions, write_document

    paths = tuple(output or ())
    check_file_extensions(paths)
    with show_spinner(show, "comparing"):
        comparison = bench_compare(*rollouts, data_dir=data_dir, **options)
        document = rollouts_document(comparison)
        write_document(document, *paths)
    print_document(document, paths, show, detail=detail)
    if not fail_if_worse:
        return 0
    exit_codes = [0]
    for arm in comparison.arms:
        for reason in arm.reasons:
            print_error(f"cannot be compared: {reason}")
        exit_codes.append(1 if arm.reasons else 0)
        if arm.comparison is not None:
            exit_codes.append(report_regressions(arm.comparison))
    return max(exit_codes)


INFRASTRUCTURE = 3
Stamp = Annotated[str | None, Parameter(show_default=False)]


@option_groups(options="assay.bench.options:RegradeOptions")
def eval_(
    name: str,
    /,
    *,
    options: Given,
    rollout: Stamp = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    allow: AllowedOptions = AllowedOptions(),
    show: OutputOptions = OutputOptions(),
) -> int:
    """Grade ungraded trials; print rubrics and tests of all trials.

    For example:

        assay bench eval my_benchmark --latest

    Args:
        name: Benchmark name, name@stamp, start of a stamp, tag, or path.
        options: Options of the grading.
        rollout: Stamp of a rollout, or the start of it.
        data_dir: Folder of the benchmarks.
        allow: Data outside their folders that tasks may read.
        show: Output options.
    """
    from assay.bench.regrade import bench_eval

    def print_graded(trial: "GradedTrial") -> None:
        if trial.is_new and not (show.json or show.quiet):
            print_note(f"graded {trial.result.run_id}")

    trials = bench_eval(
        name,
        data_dir=data_dir,
        stamp=rollout,
        allowed=allow.allowed,
        done=print_graded,
        **options,
    )
    return _print_trials(trials, show)


@option_groups(options="assay.bench.options:RegradeOptions")
def regrade(
    name: str,
    /,
    *,
    options: Given,
    rollout: Stamp = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    allow: AllowedOptions = AllowedOptions(),
    show: OutputOptions = OutputOptions(),
) -> int:
    """Grade all trials again from their patches; old grades are kept.

    For example:

        assay bench regrade my_benchmark --rollout 20250824__12-34-56

    Args:
        name: Benchmark name, name@stamp, start of a stamp, tag, or path.
        options: Options of the grading.
        rollout: Stamp of a rollout, or the start of it.
        data_dir: Folder of the benchmarks.
        allow: Data outside their folders that tasks may read.
        show: Output options.
    """
    from assay.bench.regrade import bench_eval, bench_trials

    before: dict[str, float | None] = {}
    changed: list[str] = []

    def record_change(trial: "GradedTrial") -> None:
        old = before.get(trial.result.run_id)
        if trial.is_new and old is not None and old != trial.result.score:
            changed.append(f"{trial.result.run_id}: {old:.2f} -> {trial.result.score:.2f}")

    latest = options.get("latest", False)
    for trial in bench_trials(name, data_dir=data_dir, latest=latest, stamp=rollout):
        before[trial.run_id] = trial.score
    trials = bench_eval(
        name,
        data_dir=data_dir,
        stamp=rollout,
        again=True,
        allowed=allow.allowed,
        done=record_change,
        **options,
    )
    code = _print_trials(trials, show)
    if not (show.json or show.quiet):
        graded = sum(trial.is_new for trial in trials)
        print_line(f"regraded {graded} of {len(trials)} trials; {len(changed)} scores changed")
        for line in changed:
            print_line(f"  {line}")
    return code


def _print_trials(trials: "tuple[GradedTrial, ...]", show: OutputOptions) -> int:
    if show.json:
        print_json({"trials": [_trial_to_json(trial) for trial in trials]})
    else:
        for trial in trials:
            for line in _format_trial(trial):
                print_line(line)
    return 0 if all(trial.grade is not None for trial in trials) else INFRASTRUCTURE


def _trial_to_json(trial: "GradedTrial") -> dict[str, object]:
    grade = trial.grade
    tests = [] if grade is None else [report._asdict() for report in grade.tests]
    return {**trial.result.as_json(), "graded_now": trial.is_new, "tests": tests}


def _format_trial(trial: "GradedTrial") -> list[str]:
    result, grade = trial.result, trial.grade
    head = f"{result.run_id}  {result.task_id}  {result.arm}"
    if grade is None:
        reason = result.error or "the agent has not finished"
        return [f"{head}: not graded: {reason}"]
    lines = [f"{head}: {result.outcome}, score {grade.total_score:.2f}"]
    for scored in grade.rubrics:
        value = "not scored" if scored.score is None else f"{scored.score:.2f}"
        tests = (
            f", {scored.tests_passed} of {scored.test_count} tests" if scored.test_count else ""
        )
        agreed = "" if scored.agreement is None else f", votes agree {scored.agreement:.0%}"
        lines.append(
            f"  {scored.rubric.id} (weight {scored.rubric.weight:g}): {value}{tests}{agreed}"
        )
    for report in grade.tests:
        if report.status != "passed":
            lines.append(f"    {report.status}: {report.name} {report.message}".rstrip())
    lines += [f"  ! {name}: {detail}" for name, detail in result.findings]
    return lines


def import_(
    *folders: Path,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    database: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Import rollouts from other machines, with their run folders.

    Nothing is overwritten. A rollout that is already imported is skipped, and a rollout whose
    stamp is in use gets the next free one. A damaged or incomplete rollout is rejected with a
    message, and the others are imported; the exit code is then 1. A Harbor job becomes a
    rollout, and its trials are stored as sessions.

    For example:

        assay bench import /mnt/other/data
        assay bench import /mnt/other/data/rollouts/my_benchmark/20250824__12-34-56
        assay bench import jobs/2026-01-02__03-04-05

    Args:
        folders: Rollout folders, folders above them (such as another data folder), or
            folders of Harbor jobs.
        data_dir: Destination folder.
        database: DuckDB file for the trials of Harbor jobs.
        show: Output options.
    """
    from assay.api.bench import bench_import

    result = bench_import(*folders, data_dir=data_dir, database=database)
    if show.json:
        print_json(
            {
                "imported": [
                    {
                        "source": str(rollout.source),
                        "rollout": rollout.rollout.label,
                        "path": str(rollout.rollout.path),
                        "added": rollout.added,
                    }
                    for rollout in result.imported
                ],
                "refused": [
                    {"source": str(rollout.source), "reason": rollout.reason}
                    for rollout in result.refused
                ],
                "sessions": result.sessions,
            }
        )
    else:
        for refused in result.refused:
            print_error(f"{refused.source}: {refused.reason}")
        for rollout in () if show.quiet else result.imported:
            what = "imported as" if rollout.added else "already imported as"
            print_line(f"{rollout.source}: {what} {rollout.rollout.label}")
    return 1 if result.refused else 0


def tag(
    rollout: str,
    tag: str,
    /,
    *,
    remove: Flag = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Tag a rollout; other commands accept the tag as its name.

    For example:

        assay bench tag my_benchmark@20250824 v1
        assay bench compare v1 my_benchmark

    Args:
        rollout: Benchmark name (its latest rollout), name@stamp, another tag, or path.
        tag: A letter, then letters, digits, '.', '_' or '-'; unique in the data folder.
        remove: Remove the tag.
        data_dir: Folder of the benchmarks.
        show: Output options.
    """
    from assay.api.bench import bench_tag

    result = bench_tag(rollout, tag, data_dir=data_dir, remove=remove)
    if show.json:
        print_json({"rollout": result.label, "tags": list(result.manifest.tags)})
    elif not show.quiet:
        tags = ", ".join(result.manifest.tags)
        print_line(f"{result.label} has {f'the tags {tags}' if tags else 'no tags'}")
    return 0
