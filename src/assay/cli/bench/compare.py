"""`assay bench compare`: rollouts of benchmarks beside each other."""

from typing import Literal

from assay.cli.bench.options import DEFAULT_DATA_DIR, DataDir, Flag, Paths, tell
from assay.cli.compare import judgement
from assay.cli.output import Show, complain, working

__all__ = ["compare"]


def compare(
    *rollouts: str,
    min_effect: float | None = None,
    grading: Literal["separate", "in-process"] | None = None,
    level: float = 0.95,
    output: Paths = None,
    detail: Flag = False,
    fail_if_worse: Flag = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: Show = Show(),
) -> int:
    """Compare rollouts: scores task by task, flaky tasks, and a verdict for every arm.

    The first rollout is what the others are compared with. An arm is compared with the arm of
    the same label; where each rollout has one arm, with that. Tasks that changed between the
    rollouts are named and not judged.

    For example:

        assay bench compare my_benchmark@20250824 my_benchmark
        assay bench compare v1 v2 --fail-if-worse

    Args:
        rollouts: Two or more: names, name@stamp, starts of stamps, tags, or paths.
        min_effect: The smallest difference in mean score that matters to you.
        grading: Compare only tasks that were graded so: "separate" if the code under test could
            not reach its tests.
        level: The confidence level, for all verdicts together.
        output: Write the report to this file: .html, .md, .json or .csv. May be repeated.
        detail: Also print all tables, and how to read them.
        fail_if_worse: Exit with code 1 if an arm is worse than in the first rollout, or cannot
            be judged.
        data_dir: Where benchmarks are.
        show: What to print.
    """
    from assay import api
    from assay.report import check_endings, write_document
    from assay.report.benchmark import rollouts_document

    paths = tuple(output or ())
    check_endings(paths)
    with working(show, "comparing"):
        comparison = api.bench_compare(
            *rollouts,
            data_dir=data_dir,
            level=level,
            min_effect=min_effect,
            grading=grading,
        )
        document = rollouts_document(comparison)
        write_document(document, *paths)
    tell(document, paths, show, detail=detail)
    if not fail_if_worse:
        return 0
    codes = [0]
    for arm in comparison.arms:
        for reason in arm.reasons:
            complain(f"cannot be judged: {reason}")
        codes.append(1 if arm.reasons else 0)
        if arm.comparison is not None:
            codes.append(judgement(arm.comparison))
    return max(codes)
