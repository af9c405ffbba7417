"""Grading of a patch, in a fresh copy of the repository and a fresh sandbox.

The score is computed here, as the weighted mean of the rubrics, from the results that the test
driver signed and the votes of the judge. Nothing that a patch contains or prints affects it
otherwise.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assay.bench.base import CodingOutcome, CodingTask, Grade, Rubric, RubricScore, TestReport
from assay.bench.grading.llm_judge import Judge, read_touched_files
from assay.bench.grading.scripts import Metrics, plant_canary
from assay.bench.grading.test_runs import is_runnable_script, list_module_names, run_scripts
from assay.bench.tasks.workspace import apply_patch, capture, make_workspace
from assay.core.files import remove_folder
from assay.core.text import cut, format_install_command
from assay.errors import PatchRejected, UsageError
from assay.sandboxes.base import ResourceLimits, SandboxBackend, TrialFinding

_FULL_SCORE = 1 - 1e-9


class Score(NamedTuple):
    """Score of a patch whose grading did not fail."""

    outcome: CodingOutcome
    total: float
    rubrics: tuple[RubricScore, ...]
    findings: tuple[TrialFinding, ...] = ()


def list_scored_rubrics(task: CodingTask) -> tuple[Rubric, ...]:
    """Return the rubrics of a task, and one for each group of tests without a rubric."""
    known = {rubric.id for rubric in task.rubrics}
    untitled = dict.fromkeys(
        script.rubric_id for script in task.test_scripts if script.rubric_id not in known
    )
    criterion = "its hidden tests pass"
    return (*task.rubrics, *(Rubric(id=name, criterion=criterion) for name in untitled))


def zero_scores(task: CodingTask) -> tuple[RubricScore, ...]:
    """Return a score of 0 for every rubric."""
    tested = {script.rubric_id for script in task.test_scripts}
    return tuple(
        RubricScore(rubric=rubric, score=0.0, by="tests" if rubric.id in tested else "")
        for rubric in list_scored_rubrics(task)
    )


def compute_score(
    task: CodingTask,
    tests: Sequence[TestReport],
    judged: Mapping[str, RubricScore],
    metrics: Metrics,
) -> Score:
    """Compute the score from tests and judged rubrics, or from metrics if there is neither.

    The score of a rubric is the proportion of its tests that passed, or the judge's score. A
    rubric with neither is left out of the mean and reported.
    """
    rubric_of = {script.path: script.rubric_id for script in task.test_scripts}
    rubrics = tuple(
        _score_rubric(
            rubric,
            [test for test in tests if rubric_of[test.script] == rubric.id],
            judged.get(rubric.id),
        )
        for rubric in list_scored_rubrics(task)
    )
    counted = [rubric for rubric in rubrics if rubric.score is not None]
    weights = sum(rubric.rubric.weight for rubric in counted)
    findings = [
        TrialFinding("rubric_not_scored", f"{rubric.rubric.id}: no test and no judge")
        for rubric in rubrics
        if rubric.score is None
    ]
    if counted and weights > 0:
        total = (
            sum(rubric.rubric.weight * (rubric.score or 0.0) for rubric in counted) / weights
        )
        return Score(_classify_outcome(total, tests), total, rubrics, tuple(findings))
    reported = metrics.standard.get("total_score")
    if reported is not None and 0 <= reported <= 1:
        return Score(_classify_outcome(reported, tests), reported, rubrics, tuple(findings))
    if task.metrics_script is not None:
        detail = f"{task.metrics_script.path}: no total_score from 0 to 1 in standard_metrics"
        findings.append(TrialFinding("metrics_failed", detail))
    return Score(CodingOutcome.TESTS_DID_NOT_RUN, 0.0, rubrics, tuple(findings))


def _score_rubric(
    rubric: Rubric, tests: Sequence[TestReport], judged: RubricScore | None
) -> RubricScore:
    passed = sum(test.status == "passed" for test in tests)
    if not tests:
        return judged or RubricScore(rubric=rubric, score=None)
    # The judge's votes are reported next to the tests, but do not count.
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


def _classify_outcome(total: float, tests: Sequence[TestReport]) -> CodingOutcome:
    others = {test.status for test in tests if test.status != "passed"}
    if others == {"skipped"}:
        return CodingOutcome.TESTS_SKIPPED
    if tests and {test.status for test in tests} <= {"missing"}:
        return CodingOutcome.TESTS_DID_NOT_RUN
    if total >= _FULL_SCORE and not others:
        return CodingOutcome.SOLVED
    return CodingOutcome.PARTLY if total > 0 else CodingOutcome.UNSOLVED


_RESULT_FILES = {
    *("reward.txt", "reward.json", "scoring_results.md", "evaluation_results.json"),
    "tb_evaluation_results.json",
}
"""File names that this and other benchmarks use for scores."""


async def grade_patch(
    task: CodingTask,
    diff: bytes,
    backend: SandboxBackend,
    *,
    folder: Path,
    limits: ResourceLimits,
    timeout_s: float,
    judge: Judge | None = None,
) -> Grade:
    """Grade a patch.

    Args:
        task: The loaded task.
        diff: A git diff against the start of the task.
        backend: Creates the sandbox.
        folder: A new or empty folder to work in; its contents are removed afterwards.
        limits: Resource limits of the tests.
        timeout_s: Time limit of all scripts together.
        judge: Scores the rubrics that have no test.

    Raises:
        UsageError: The task cannot be graded here; nothing was started.
        SandboxUnavailable: The sandbox or its Python does not work.
        ModelUnavailable: The judge could not be called, or its response was invalid.
    """
    check_gradable(task, judged=judge is not None)
    start = time.monotonic()
    if not diff.strip():
        return _grade_untested(task, CodingOutcome.EMPTY_PATCH)
    workspace = await asyncio.to_thread(make_workspace, task, folder / "workspace")
    hidden = folder / "hidden"
    try:
        own_names = list_module_names(workspace.repo)
        try:
            await asyncio.to_thread(apply_patch, workspace, diff)
        except PatchRejected as error:
            finding = TrialFinding("patch_rejected", cut(str(error), 300))
            return _grade_untested(task, CodingOutcome.PATCH_REJECTED, finding)
        patch = await asyncio.to_thread(capture, workspace)
        # Before the tests run, so that the judge reads exactly what the patch left.
        touched = read_touched_files(workspace.repo, patch.files) if judge else {}
        run = await run_scripts(
            task,
            workspace,
            backend,
            own_names=own_names,
            hidden=hidden,
            limits=limits,
            timeout_s=timeout_s,
        )
    finally:
        await asyncio.to_thread(workspace.remove)
        await asyncio.to_thread(remove_folder, hidden)
    findings = (*patch.findings, *_find_forged_results(patch.files), *run.findings)
    if run.tampered:
        return Grade(
            outcome=CodingOutcome.TAMPERED,
            total_score=0.0,
            rubrics=zero_scores(task),
            tests=run.tests,
            findings=findings,
            seconds=time.monotonic() - start,
            log=run.log,
            mode=run.mode,
        )
    judged = await judge.score_rubrics(task, diff, touched) if judge else {}
    result = compute_score(task, run.tests, judged, run.metrics)
    return Grade(
        outcome=CodingOutcome.GRADING_TIMEOUT if run.timed_out else result.outcome,
        total_score=result.total,
        rubrics=result.rubrics,
        tests=run.tests,
        standard_metrics=run.metrics.standard,
        custom_metrics=run.metrics.custom,
        findings=(*findings, *_find_skipped_tests(run.tests), *result.findings),
        seconds=time.monotonic() - start,
        log=run.log,
        mode=run.mode,
    )


def check_gradable(task: CodingTask, *, judged: bool = False) -> None:
    """Check that a task can be graded on this machine, before anything is started.

    Raises:
        UsageError: pytest is not installed, a script is not Python, or nothing gives a score.
    """
    scripts = [script for script in task.test_scripts if is_runnable_script(script)]
    tested = [script for script in scripts if script.path.endswith(".py")]
    if tested and find_spec("pytest") is None:
        raise UsageError(
            f"the tests of task {task.task_id!r} need pytest, which {sys.executable} does not "
            f"have; install it: {format_install_command('bench')}"
        )
    for script in tested:
        plant_canary(script, random.Random(0))
    if not scripts and task.metrics_script is None and not (judged and task.rubrics):
        raise UsageError(
            f"task {task.task_id!r} cannot be scored: it has no test, no metrics script, "
            "and no judge for its rubrics; name a judge, or add a test"
        )
    if not scripts and task.metrics_script is not None and not judged:
        return
    if sum(rubric.weight for rubric in list_scored_rubrics(task)) <= 0:
        raise UsageError(f"all rubrics of task {task.task_id!r} have weight 0; increase one")


def _grade_untested(task: CodingTask, outcome: CodingOutcome, *findings: TrialFinding) -> Grade:
    """Return the grade of a patch on which no test was run."""
    return Grade(outcome=outcome, total_score=0.0, rubrics=zero_scores(task), findings=findings)


def _find_forged_results(paths: Sequence[str]) -> Iterator[TrialFinding]:
    for path in paths:
        if PurePosixPath(path).name in _RESULT_FILES:
            yield TrialFinding("result_forged", f"{path} is named like a result, and ignored")


def _find_skipped_tests(tests: Sequence[TestReport]) -> Iterator[TrialFinding]:
    if skipped := [test for test in tests if test.status == "skipped"]:
        example = f"{skipped[0].name}: {skipped[0].message}"
        yield TrialFinding(
            "tests_skipped", cut(f"{len(skipped)} of {len(tests)}, such as {example}", 300)
        )
