"""Result files of a graded patch.

`evaluation_results.json` is for programs, `scoring_results.md` for people, and `logs/eval.log`
has the output of the tests. Text from a patch or a model is untrusted and is escaped in the
Markdown.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.bench.base import (
    CodingOutcome,
    CodingTask,
    Grade,
    GradingMode,
    Rubric,
    RubricScore,
    TestReport,
)
from assay.core.canonical_json import fix_surrogates
from assay.core.files import atomic_write
from assay.core.provenance import collect_provenance
from assay.core.text import cut, escape_markdown, printable
from assay.errors import UsageError
from assay.sandboxes.base import TrialFinding

RESULTS = "evaluation_results.json"
SCORING = "scoring_results.md"
LOG = "logs/eval.log"
FORMAT = "assay-grade/1"
_MAX_DIFF_LENGTH = 100_000


def write_grade(
    run_dir: Path,
    task: CodingTask,
    grade: Grade,
    *,
    diff: bytes = b"",
    run_id: str | None = None,
    judge: Mapping[str, Any] | None = None,
    agent_metrics: Mapping[str, Any] | None = None,
) -> None:
    """Write the grade of a patch to its run folder; each file is written atomically.

    Args:
        run_dir: The folder of the run.
        task: The graded task.
        grade: The grade.
        diff: The patch, for the Markdown page.
        run_id: The id of the run; by default the name of its folder.
        judge: Information about the judge, such as its model and votes.
        agent_metrics: Tokens, costs and times of the agent.

    Raises:
        OutputError: A file cannot be written.
    """
    results = _make_results(task, grade, run_id or run_dir.name, diff, judge, agent_metrics)
    # The results are written last: if they exist, so do the other files.
    atomic_write(run_dir / LOG, fix_surrogates(grade.log).encode())
    page = "\n".join(_format_page(task, grade, diff))
    atomic_write(run_dir / SCORING, f"{page}\n".encode())
    text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
    atomic_write(run_dir / RESULTS, f"{fix_surrogates(text)}\n".encode())


def read_grade(run_dir: Path) -> Grade | None:
    """Read the grade in a folder; return None if there is none.

    Raises:
        UsageError: The file was not written by assay, or is damaged.
    """
    path = run_dir / RESULTS
    try:
        results = json.loads(path.read_bytes())
        return _parse_grade(results, _read_log(run_dir / LOG))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {cut(str(error), 100)}; the file is damaged or was "
            "not written by assay; remove it, then grade again"
        ) from error


def _make_results(
    task: CodingTask,
    grade: Grade,
    run_id: str,
    diff: bytes,
    judge: Mapping[str, Any] | None,
    agent_metrics: Mapping[str, Any] | None,
) -> dict[str, Any]:
    rubrics = {scored.rubric.id: _make_rubric_entry(scored) for scored in grade.rubrics}
    return {
        "format": FORMAT,
        "task_id": task.task_id,
        "task_checksum": task.checksum,
        "run_id": run_id,
        "total_score": grade.total_score,
        "outcome": grade.outcome,
        "grading": grade.mode,
        "standard_metrics": dict(grade.standard_metrics),
        "custom_metrics": dict(grade.custom_metrics),
        "rubrics": rubrics,
        "evaluation": {
            "rubrics": rubrics,
            "total_score": grade.total_score,
            "max_score": 1.0,
        },
        "test_results": _make_test_entries(grade.tests),
        "findings": [finding._asdict() for finding in grade.findings],
        "judge": dict(judge) if judge else None,
        "agent_metrics": dict(agent_metrics) if agent_metrics else {},
        "diff_lines": diff.count(b"\n"),
        "grading_seconds": grade.seconds,
        "versions": collect_provenance().record(),
    }


def _make_rubric_entry(scored: RubricScore) -> dict[str, Any]:
    rubric = scored.rubric
    return {
        "criterion": rubric.criterion,
        "weight": rubric.weight,
        "evaluation_criteria": list(rubric.evaluation_criteria),
        "score": scored.score,
        "max_score": 1.0,
        "weighted_score": None if scored.score is None else scored.score * rubric.weight,
        "by": scored.by,
        "test_count": scored.test_count,
        "tests_passed": scored.tests_passed,
        "votes": list(scored.votes),
        "agreement": scored.agreement,
        "reasoning": scored.reasoning,
    }


def _make_test_entries(tests: Sequence[TestReport]) -> dict[str, Any]:
    return {
        script: {
            "success": all(test.status == "passed" for test in tests if test.script == script),
            "tests": [
                {"name": test.name, "status": test.status, "message": test.message}
                for test in tests
                if test.script == script
            ],
        }
        for script in dict.fromkeys(test.script for test in tests)
    }


def _parse_grade(results: Mapping[str, Any], log: str) -> Grade:
    if results["format"] != FORMAT:
        raise ValueError(f"its format is {results['format']!r}, not {FORMAT!r}")
    return Grade(
        outcome=CodingOutcome(results["outcome"]),
        total_score=float(results["total_score"]),
        rubrics=tuple(
            _parse_rubric_score(name, values) for name, values in results["rubrics"].items()
        ),
        tests=tuple(
            TestReport(script, test["name"], test["status"], test["message"])
            for script, result in results["test_results"].items()
            for test in result["tests"]
        ),
        standard_metrics=results["standard_metrics"],
        custom_metrics=results["custom_metrics"],
        findings=tuple(TrialFinding(**finding) for finding in results["findings"]),
        seconds=float(results["grading_seconds"]),
        log=log,
        mode=GradingMode(results["grading"]) if results.get("grading") else None,
    )


def _parse_rubric_score(name: str, values: Mapping[str, Any]) -> RubricScore:
    return RubricScore(
        rubric=Rubric(
            id=name,
            criterion=values["criterion"],
            weight=values["weight"],
            evaluation_criteria=tuple(values["evaluation_criteria"]),
        ),
        score=values["score"],
        by=values["by"],
        test_count=values["test_count"],
        tests_passed=values["tests_passed"],
        votes=tuple(values["votes"]),
        agreement=values["agreement"],
        reasoning=values["reasoning"],
    )


def _read_log(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _format_page(task: CodingTask, grade: Grade, diff: bytes) -> Iterator[str]:
    yield f"# {_escape(task.title or task.task_id)}\n"
    yield f"Score **{grade.total_score:.3f}**, outcome **{_escape(grade.outcome)}**.\n"
    yield "## Rubrics\n"
    yield "| rubric | weight | score | by | tests | votes | agreement |"
    yield "|---|---:|---:|---|---:|---:|---:|"
    for scored in grade.rubrics:
        yield _format_row(
            scored.rubric.id,
            f"{scored.rubric.weight:g}",
            "not scored" if scored.score is None else f"{scored.score:.3f}",
            scored.by,
            f"{scored.tests_passed} of {scored.test_count}" if scored.test_count else "",
            ", ".join(f"{vote:g}" for vote in scored.votes),
            "" if scored.agreement is None else f"{scored.agreement:.2f}",
        )
    for scored in grade.rubrics:
        if scored.reasoning:
            yield f"\n**{_escape(scored.rubric.id)}**, reasoning of the judge:\n"
            yield from (f"- {_escape(line)}" for line in scored.reasoning.splitlines())
    if grade.findings:
        yield "\n## Findings\n"
        yield from (
            f"- **{_escape(name)}** {_escape(detail)}" for name, detail in grade.findings
        )
    if grade.tests:
        yield "\n## Tests\n\n| script | test | status | message |\n|---|---|---|---|"
        for test in grade.tests:
            yield _format_row(test.script, test.name, test.status, cut(test.message, 300))
    for title, metrics in (
        ("Standard metrics", grade.standard_metrics),
        ("Custom metrics", grade.custom_metrics),
    ):
        if metrics:
            yield f"\n## {title}\n\n| metric | value |\n|---|---:|"
            yield from (_format_row(name, f"{value:g}") for name, value in metrics.items())
    if diff:
        yield "\n## Patch\n"
        yield from _format_code_block(diff.decode("utf-8", "replace"))


def _format_row(*cells: str) -> str:
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(text: str) -> str:
    return escape_markdown(fix_surrogates(text))


def _format_code_block(text: str) -> Iterator[str]:
    """Yield text as a code block, with a fence that is longer than any in the text."""
    if len(text) > _MAX_DIFF_LENGTH:
        text = f"{text[:_MAX_DIFF_LENGTH]}\n… {len(text) - _MAX_DIFF_LENGTH:,} more characters"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    yield f"{fence}diff"
    yield from (printable(line) for line in text.expandtabs(4).splitlines())
    yield fence
