"""The score of a patch: its rubrics by their tests or by a judge, weighted."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assay.bench.grading.metrics import Metrics
from assay.bench.sandboxes.base import TrialFinding
from assay.bench.seams import CodingOutcome, CodingTask, Rubric, RubricScore, TestReport

__all__ = ["Score", "score", "scored_rubrics", "zero_scores"]

_FULL = 1 - 1e-9


class Score(NamedTuple):
    """What a patch came to, but for the ways of grading to fail."""

    outcome: CodingOutcome
    total: float
    rubrics: tuple[RubricScore, ...]
    findings: tuple[TrialFinding, ...] = ()


def scored_rubrics(task: CodingTask) -> tuple[Rubric, ...]:
    """The rubrics of a task, and one for each group of tests that belongs to none of them."""
    known = {rubric.id for rubric in task.rubrics}
    without = dict.fromkeys(
        script.rubric_id for script in task.test_scripts if script.rubric_id not in known
    )
    criterion = "its hidden tests pass"
    return (*task.rubrics, *(Rubric(id=name, criterion=criterion) for name in without))


def zero_scores(task: CodingTask) -> tuple[RubricScore, ...]:
    """Rubrics where nothing counts."""
    tested = {script.rubric_id for script in task.test_scripts}
    return tuple(
        RubricScore(rubric=rubric, score=0.0, by="tests" if rubric.id in tested else "")
        for rubric in scored_rubrics(task)
    )


def score(
    task: CodingTask,
    tests: Sequence[TestReport],
    judged: Mapping[str, RubricScore],
    metrics: Metrics,
) -> Score:
    """Score the tests, what a judge said of rubrics, and the metrics where there is neither.

    A rubric is the share of its tests that passed, or what the judge gave. One that has
    neither is left out of the mean, and named.
    """
    rubric_of = {script.path: script.rubric_id for script in task.test_scripts}
    rubrics = tuple(
        _rubric_score(
            rubric,
            [test for test in tests if rubric_of[test.script] == rubric.id],
            judged.get(rubric.id),
        )
        for rubric in scored_rubrics(task)
    )
    counted = [rubric for rubric in rubrics if rubric.score is not None]
    weights = sum(rubric.rubric.weight for rubric in counted)
    findings = [
        TrialFinding(
            "rubric_not_scored", f"{rubric.rubric.id}: it has no test, and no judge was asked"
        )
        for rubric in rubrics
        if rubric.score is None
    ]
    if counted and weights > 0:
        total = (
            sum(rubric.rubric.weight * (rubric.score or 0.0) for rubric in counted) / weights
        )
        return Score(_outcome(total, tests), total, rubrics, tuple(findings))
    reported = metrics.standard.get("total_score")
    if reported is not None and 0 <= reported <= 1:
        return Score(_outcome(reported, tests), reported, rubrics, tuple(findings))
    if task.metrics_script is not None:
        detail = f"{task.metrics_script.path}: no total_score from 0 to 1 in standard_metrics"
        findings.append(TrialFinding("metrics_failed", detail))
    return Score(CodingOutcome.TESTS_DID_NOT_RUN, 0.0, rubrics, tuple(findings))


def _rubric_score(
    rubric: Rubric, tests: Sequence[TestReport], judged: RubricScore | None
) -> RubricScore:
    passed = sum(test.status == "passed" for test in tests)
    if not tests:
        return judged or RubricScore(rubric=rubric, score=None)
    # A judge that was asked all the same is shown beside the tests, and does not count.
    return RubricScore(
        rubric=rubric,
        score=passed / len(tests),
        by="tests",
        test_count=len(tests),
        tests_passed=passed,
        votes=judged.votes if judged else (),
        agreement=judged.agreement if judged else None,
        reasoning=judged.reasoning if judged else "",
    )


def _outcome(total: float, tests: Sequence[TestReport]) -> CodingOutcome:
    others = {test.status for test in tests if test.status != "passed"}
    if others == {"skipped"}:
        return CodingOutcome.TESTS_SKIPPED
    if tests and {test.status for test in tests} <= {"missing"}:
        return CodingOutcome.TESTS_DID_NOT_RUN
    if total >= _FULL and not others:
        return CodingOutcome.SOLVED
    return CodingOutcome.PARTLY if total > 0 else CodingOutcome.UNSOLVED
