"""The grade files of a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.bench import base
from assay.bench.base import CodingOutcome, Grade, Rubric, RubricScore
from assay.bench.grading.results import read_grade, write_grade
from assay.errors import UsageError
from assay.sandboxes.base import TrialFinding
from tests.bench.benching import small_task

ADDS = Rubric(id="adds", criterion="add adds", weight=3.0, evaluation_criteria=("quickly",))
STYLE = Rubric(id="style", criterion="it reads well")
GRADE = Grade(
    outcome=CodingOutcome.PARTLY,
    total_score=0.6,
    rubrics=(
        RubricScore(rubric=ADDS, score=0.5, by="tests", test_count=2, tests_passed=1),
        RubricScore(
            rubric=STYLE,
            score=0.9,
            by="judge",
            votes=(0.9, 0.9),
            agreement=1.0,
            reasoning="0.9: fine\n0.9: <b>fine</b>",
        ),
    ),
    tests=(
        base.TestReport("tests/test_add.py", "test_adds", "passed"),
        base.TestReport("tests/test_add.py", "test_adds_negative", "failed", "1 == -3"),
    ),
    standard_metrics={"total_score": 0.5},
    custom_metrics={"lines": 6.0},
    findings=(TrialFinding("left_processes", "1 process"),),
    seconds=1.5,
    log="== tests/test_add.py\n1 failed, 1 passed\n",
)


def test_a_grade_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_grade(tmp_path, small_task(tmp_path / "task"), GRADE, diff=b"+a\n")
    assert read_grade(tmp_path) == GRADE
    assert (tmp_path / "logs/eval.log").read_text("utf-8") == GRADE.log


def test_documented_keys_are_in_the_grade_file(tmp_path: Path) -> None:
    write_grade(
        tmp_path / "20250824-1",
        small_task(tmp_path / "task"),
        GRADE,
        diff=b"+a\n+b\n",
        judge={"model": "gpt-5-nano", "votes": 2},
        agent_metrics={"tokens_total": 12},
    )
    results = json.loads((tmp_path / "20250824-1/evaluation_results.json").read_bytes())
    assert results["total_score"] == results["evaluation"]["total_score"] == 0.6
    assert (results["task_id"], results["run_id"]) == ("calc", "20250824-1")
    assert results["outcome"] == "partly_solved"
    assert results["standard_metrics"] == {"total_score": 0.5}
    assert results["custom_metrics"] == {"lines": 6.0}
    adds = results["evaluation"]["rubrics"]["adds"]
    assert (adds["weighted_score"], adds["max_score"], adds["tests_passed"]) == (1.5, 1.0, 1)
    assert results["test_results"]["tests/test_add.py"]["success"] is False
    assert results["judge"] == {"model": "gpt-5-nano", "votes": 2}
    assert results["agent_metrics"] == {"tokens_total": 12}
    assert results["diff_lines"] == 2
    assert results["versions"]["assay"]


def test_text_of_a_model_is_escaped_in_the_report(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> [x](http://evil) | **bold** @everyone\n# Score 1.0\x1b[2J"
    grade = replace(
        GRADE,
        tests=(base.TestReport("t.py", "test_x", "failed", evil),),
        rubrics=(replace(GRADE.rubrics[1], reasoning=evil),),
        findings=(TrialFinding("unexpected_tests", evil),),
    )
    diff = f"+````\n+```\n# Score 1.0\n{evil}\n".encode()
    write_grade(tmp_path, small_task(tmp_path / "task"), grade, diff=diff)
    page = (tmp_path / "scoring_results.md").read_text("utf-8")
    before, fence, patch = page.partition("`````diff\n")
    assert fence
    assert patch.endswith("\n`````\n")
    assert "<script>" not in before
    assert "[x](http" not in before
    assert "\x1b" not in page
    assert "@everyone" not in before
    assert [line for line in before.splitlines() if line.startswith("# ")] == [
        "# Mend the calculator"
    ]


def test_missing_grade_is_read_as_none(tmp_path: Path) -> None:
    assert read_grade(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": "other/1"}', '{"format": "assay-grade/1"}']
)
def test_invalid_grade_file_is_rejected_with_the_next_step(
    content: str, tmp_path: Path
) -> None:
    (tmp_path / "evaluation_results.json").write_text(content, "utf-8")
    with pytest.raises(UsageError, match="remove it, then grade again"):
        read_grade(tmp_path)
