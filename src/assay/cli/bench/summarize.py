"""`assay bench summarize`: what a benchmark came to."""

from typing import Annotated, Literal

from cyclopts import Parameter

from assay.cli.bench.options import DEFAULT_DATA_DIR, DataDir, Flag, Paths, tell
from assay.cli.output import Show, warn, working

__all__ = ["summarize"]


def summarize(
    name: str,
    /,
    *,
    latest: Flag = False,
    rollout: Annotated[list[str] | None, Parameter(negative="")] = None,
    baseline: Annotated[str | None, Parameter(show_default="the first arm")] = None,
    min_effect: float | None = None,
    grading: Literal["separate", "in-process"] | None = None,
    level: float = 0.95,
    output: Paths = None,
    detail: Flag = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: Show = Show(),
) -> int:
    """Sum up a benchmark: mean scores with intervals, pass@k, cost, time and failures.

    Arms are compared pair by pair on the tasks they share. Trials that the agent failed count
    with a score of 0; trials that ended by infrastructure errors do not count, and are named.
    It also writes summary.md into the folder of the rollout.

    For example:

        assay bench summarize my_benchmark --latest
        assay bench summarize my_benchmark --rollout 20250824__12-34-56 --output report.html

    Args:
        name: A benchmark, name@stamp, the start of a stamp, a tag, or a path.
        latest: Take the latest rollout, as a name alone does.
        rollout: The stamp of a rollout, or the start of it. May be repeated: several rollouts
            are summed up together.
        baseline: The arm that the others are compared with.
        min_effect: The smallest difference in mean score that matters to you.
        grading: Count only tasks that were graded so: "separate" if the code under test could
            not reach its tests.
        level: The confidence level of the intervals.
        output: Write the report to this file: .html, .md, .json or .csv. May be repeated.
        detail: Also print all tables, and how to read them.
        data_dir: Where benchmarks are.
        show: What to print.
    """
    from assay import api
    from assay.report import check_endings, write_document
    from assay.report.benchmark import benchmark_document

    paths = tuple(output or ())
    check_endings(paths)
    with working(show, "summing up"):
        summary = api.bench_summary(
            name,
            *(rollout or ()),
            latest=latest,
            data_dir=data_dir,
            level=level,
            baseline=baseline,
            min_effect=min_effect,
            grading=grading,
            save=True,
            notice=warn,
        )
        document = benchmark_document(summary)
        write_document(document, *paths)
    tell(document, paths, show, detail=detail)
    return 0
