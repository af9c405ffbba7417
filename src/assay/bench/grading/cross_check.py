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

_TESTS_FAILED = 1
"""pytest's exit code if tests failed, as the canary always does."""
_MAX_MESSAGE_LENGTH = 600


class CheckedRun(NamedTuple):
    """Checked result of one script."""

    reports: tuple[TestReport, ...]
    findings: tuple[TrialFinding, ...] = ()
    tampered: bool = False
    timed_out: bool = False


def check_shell(script: TestScript, end: Mapping[str, Any]) -> CheckedRun:
    """Return the result of a shell script, which counts as one test, by its exit code."""
    name = script.path.rpartition("/")[2]
    if end["timed_out"]:
        return _report_timeout(script, [name])
    code = end["exit_code"]
    if code == 0:
        return CheckedRun((TestReport(script.path, name, "passed"),))
    message = _join_lines(f"exit code {code}: {end['output'][-_MAX_MESSAGE_LENGTH:].strip()}")
    return CheckedRun((TestReport(script.path, name, "failed", message),))


def check_tests(
    planted: PlantedScript, end: Mapping[str, Any], *, limited: bool = False
) -> CheckedRun:
    """Return the checked tests of a pytest script, and findings on manipulated reports.

    Args:
        planted: The script.
        end: How its child process ended.
        limited: Whether a limit of the sandbox was hit, which may have killed it.
    """
    script = planted.script
    names = [name for name, count in planted.expected.items() for _ in range(count)]
    if end["timed_out"]:
        return _report_timeout(script, names)
    reports = _parse_reports(end["reports"])
    if reports is None or end["too_many_reports"]:
        return _reject(script, names, "reports_forged", "the reports cannot be read")
    file_reports = [report for report in reports if not report.name]
    statuses: dict[str, TestReport] = {}
    for report in reports:
        before = statuses.get(report.name)
        if report.name and before and not _can_follow(before, report):
            return _reject(
                script, names, "reports_forged", f"{cut(report.name, 80)} was reported twice"
            )
        if report.name:
            statuses[report.name] = report._replace(script=script.path)
    canary = statuses.pop(planted.canary, None)
    any_passed = any(report.status == "passed" for report in statuses.values())
    if end["exit_code"] < 0 and any_passed and not limited:
        signal = -end["exit_code"]
        detail = f"signal {signal} ended the process after tests were reported as passed"
        return _reject(script, names, "test_process_killed", detail)
    if problem := _find_contradiction(planted, canary, any_passed, end["exit_code"]):
        return _reject(script, names, *problem)
    return _count_tests(planted, canary, statuses, file_reports, end)


def _find_contradiction(
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
        return "canary_forged", "the planted test did not fail as expected"
    if exit_code == 0 and not all_skipped:
        return "exit_code_forged", "the exit code is 0, although a planted test must fail"
    if exit_code > _TESTS_FAILED and canary:
        return "exit_code_forged", f"all tests were reported, but the exit code is {exit_code}"
    if exit_code == _TESTS_FAILED and any_passed and not canary_failed:
        return "canary_lost", "tests were reported as passed, but not the planted one as failed"
    return None


def _count_tests(
    planted: PlantedScript,
    canary: TestReport | None,
    statuses: Mapping[str, TestReport],
    file_reports: Sequence[TestReport],
    end: Mapping[str, Any],
) -> CheckedRun:
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
            message = f"not trusted: the run ended early with exit code {end['exit_code']}"
            report = report._replace(status="error", message=message)
        reports.append(report)
    status, reason = "missing", f"it was not run; the exit code is {end['exit_code']}"
    if file_reports:
        status, reason = (
            ("skipped" if file_reports[0].status == "skipped" else "missing"),
            file_reports[0].message,
        )
    reports += [
        TestReport(script, name, status, _join_lines(reason))
        for name, count in planted.expected.items()
        for _ in range(count - seen[name])
    ]
    if unexpected:
        findings.append(
            TrialFinding(
                "unexpected_tests",
                f"{script}: tests that are not in the script are not counted: "
                f"{cut(', '.join(unexpected), 200)}",
            )
        )
    if end["exit_code"] < 0 or (canary is None and not file_reports):
        findings.append(
            TrialFinding(
                "test_process_died",
                f"{script}: the test process ended early with exit code {end['exit_code']}",
            )
        )
    return CheckedRun(tuple(reports), tuple(findings))


def _parse_reports(lines: str) -> list[TestReport] | None:
    """Parse the reports of a child process; return None if one is malformed."""
    reports = []
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
        message = _join_lines(report["message"])
        reports.append(TestReport("", cut(report["name"], 300), report["status"], message))
    return reports


def _can_follow(before: TestReport, report: TestReport) -> bool:
    """Return whether a test may be reported twice: its teardown may fail after its call."""
    return before.status != "error" and report.status == "error"


def _reject(script: TestScript, names: Sequence[str], name: str, detail: str) -> CheckedRun:
    reports = tuple(
        TestReport(script.path, test, "error", f"not trusted: {detail}") for test in names
    )
    return CheckedRun(reports, (TrialFinding(name, f"{script.path}: {detail}"),), tampered=True)


def _report_timeout(script: TestScript, names: Sequence[str]) -> CheckedRun:
    message = "this script reached its time limit"
    return CheckedRun(
        tuple(TestReport(script.path, name, "missing", message) for name in names),
        (TrialFinding("grading_timeout", f"{script.path}: {message}"),),
        timed_out=True,
    )


def _join_lines(text: str) -> str:
    return cut(" ".join(text.split()), _MAX_MESSAGE_LENGTH)
