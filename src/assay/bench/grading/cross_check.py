"""Cross-check of the reports of a child process that ran tests.

The process also runs the code under test, which may manipulate it. So its reports must be
consistent with each other, its exit code, the tests in its script, and the canary. If they
contradict each other, none of them counts.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assay.bench.base import TestReport, TestScript
from assay.bench.grading.scripts import PlantedScript
from assay.core.text import cut
from assay.sandboxes.base import TrialFinding

_FAILED = 1
"""pytest's exit code if tests failed, as the canary always does."""
_LONGEST_MESSAGE = 600


class Checked(NamedTuple):
    """Checked result of one script."""

    reports: tuple[TestReport, ...]
    findings: tuple[TrialFinding, ...] = ()
    tampered: bool = False
    timed_out: bool = False


def check_shell(script: TestScript, end: Mapping[str, Any]) -> Checked:
    """Return the result of a shell script, which counts as one test, by its exit code."""
    name = script.path.rpartition("/")[2]
    if end["timed_out"]:
        return _timed_out(script, [name])
    code = end["exit_code"]
    if code == 0:
        return Checked((TestReport(script.path, name, "passed"),))
    message = _line(f"exit code {code}: {end['output'][-_LONGEST_MESSAGE:].strip()}")
    return Checked((TestReport(script.path, name, "failed", message),))


def check_tests(
    planted: PlantedScript, end: Mapping[str, Any], *, limited: bool = False
) -> Checked:
    """Return the checked tests of a pytest script, and findings on manipulated reports.

    Args:
        planted: The script.
        end: How its child process ended.
        limited: Whether a limit of the sandbox was hit, which may have killed it.
    """
    script = planted.script
    names = [name for name, count in planted.expected.items() for _ in range(count)]
    if end["timed_out"]:
        return _timed_out(script, names)
    said = _said(end["reports"])
    if said is None or end["too_many_reports"]:
        return _distrusted(script, names, "reports_forged", "its reports cannot be read")
    whole = [report for report in said if not report.name]
    statuses: dict[str, TestReport] = {}
    for report in said:
        before = statuses.get(report.name)
        if report.name and before and not _may_follow(before, report):
            return _distrusted(
                script, names, "reports_forged", f"{cut(report.name, 80)} was reported twice"
            )
        if report.name:
            statuses[report.name] = report._replace(script=script.path)
    canary = statuses.pop(planted.canary, None)
    any_passed = any(report.status == "passed" for report in statuses.values())
    if end["exit_code"] < 0 and any_passed and not limited:
        detail = f"signal {-end['exit_code']} ended it, though tests were reported as passed"
        return _distrusted(script, names, "test_process_killed", detail)
    if problem := _contradiction(planted, canary, any_passed, end["exit_code"]):
        return _distrusted(script, names, *problem)
    return _counted(planted, canary, statuses, whole, end)


def _contradiction(
    planted: PlantedScript,
    canary: TestReport | None,
    any_passed: bool,
    exit_code: int,
) -> tuple[str, str] | None:
    """Return evidence of manipulated reports, as a finding's name and a sentence, or None."""
    canary_failed = canary is not None and canary.status == "failed"
    # A skip mark for the whole file also skips the canary; then the exit code is 0.
    all_skipped = canary is not None and canary.status == "skipped" and not any_passed
    if canary and canary.status == "passed":
        return "canary_passed", "a planted test that must fail was reported as passed"
    if canary and canary_failed and planted.proof not in canary.message:
        return "canary_forged", "the planted test failed in another way than it must"
    if exit_code == 0 and not all_skipped:
        return "exit_code_forged", "it ended with exit code 0, though a planted test must fail"
    if exit_code > _FAILED and canary:
        return "exit_code_forged", f"all tests were reported, but the exit code is {exit_code}"
    if exit_code == _FAILED and any_passed and not canary_failed:
        return "canary_lost", "tests were reported as passed, but not the planted one as failed"
    return None


def _counted(
    planted: PlantedScript,
    canary: TestReport | None,
    statuses: Mapping[str, TestReport],
    whole: Sequence[TestReport],
    end: Mapping[str, Any],
) -> Checked:
    """Count each expected test once; without the canary's report, no passed test is trusted."""
    script, findings = planted.script.path, []
    reports, seen = [], Counter[str]()
    unexpected = []
    for report in statuses.values():
        base = report.name.partition("[")[0]
        if planted.expected and base not in planted.expected:
            unexpected.append(report.name)
            continue
        seen[base] += 1
        if report.status == "passed" and canary is None:
            message = f"not believed: the run broke off, with exit code {end['exit_code']}"
            report = report._replace(status="error", message=message)
        reports.append(report)
    status, why = "missing", f"it was not run; the exit code is {end['exit_code']}"
    if whole:
        status, why = (
            ("skipped" if whole[0].status == "skipped" else "missing"),
            whole[0].message,
        )
    reports += [
        TestReport(script, name, status, _line(why))
        for name, count in planted.expected.items()
        for _ in range(count - seen[name])
    ]
    if unexpected:
        findings.append(
            TrialFinding(
                "unexpected_tests",
                f"{script}: not in it, so not counted: {cut(', '.join(unexpected), 200)}",
            )
        )
    if end["exit_code"] < 0 or (canary is None and not whole):
        findings.append(
            TrialFinding(
                "test_process_died",
                f"{script}: the tests' process ended early, with exit code {end['exit_code']}",
            )
        )
    return Checked(tuple(reports), tuple(findings))


def _said(lines: str) -> list[TestReport] | None:
    """Parse the reports of a child process; return None if one is malformed."""
    said = []
    for line in lines.splitlines():
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(report, dict) or set(report) != {"name", "status", "message"}:
            return None
        if not all(isinstance(text, str) for text in report.values()):
            return None
        if report["status"] not in ("passed", "failed", "error", "skipped"):
            return None
        message = _line(report["message"])
        said.append(TestReport("", cut(report["name"], 300), report["status"], message))
    return said


def _may_follow(before: TestReport, report: TestReport) -> bool:
    """Return whether a test may be reported twice: its teardown may fail after its call."""
    return before.status != "error" and report.status == "error"


def _distrusted(script: TestScript, names: Sequence[str], name: str, detail: str) -> Checked:
    reports = tuple(
        TestReport(script.path, test, "error", f"not believed: {detail}") for test in names
    )
    return Checked(reports, (TrialFinding(name, f"{script.path}: {detail}"),), tampered=True)


def _timed_out(script: TestScript, names: Sequence[str]) -> Checked:
    message = "the time for this script was over"
    return Checked(
        tuple(TestReport(script.path, name, "missing", message) for name in names),
        (TrialFinding("grading_timeout", f"{script.path}: {message}"),),
        timed_out=True,
    )


def _line(text: str) -> str:
    return cut(" ".join(text.split()), _LONGEST_MESSAGE)
