"""Analysis of test scripts before they run, and validation of their reports."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.bench.grading import driver
from assay.bench.grading.cross_check import CheckedRun, check_shell, check_tests
from assay.bench.grading.scripts import PlantedScript, plant_canary, read_metrics
from assay.bench.grading.test_runs import read_answer
from tests.bench.benching import TEST_ADD, script
from tests.support import run_python

ALL_KINDS = """\
import unittest
import pytest


def test_plain(): pass


async def test_later(): pass


@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize(("b", "c"), [(1, 2), (3, 4)])
def test_table(a, b, c): pass


@pytest.mark.parametrize("a", range(4))
def test_computed(a): pass


class Shared:
    def test_shared(self): pass


class TestOwn(Shared):
    def test_own(self): pass
    def helper(self): pass


class Cases(unittest.TestCase):
    def test_case(self): pass


class MoreCases(Cases):
    def test_more(self): pass


class TestWithInit:
    def __init__(self): pass
    def test_never(self): pass


def helper(): pass
"""


def planted(content: str = TEST_ADD) -> PlantedScript:
    return plant_canary(script("test_x.py", content), random.Random(1))


def end(*reports: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    lines = [
        json.dumps({"name": name, "status": status, "message": message})
        for name, status, message in reports
    ]
    return {
        "exit_code": 1,
        "timed_out": False,
        "reports": "".join(f"{line}\n" for line in lines),
        "too_many_reports": False,
        "output": "",
        "result": None,
        **more,
    }


def checked(
    *reports: tuple[str, str, str], canary: bool = True, limited: bool = False, **more: Any
) -> CheckedRun:
    """Check the reports of a script with two tests; by default its canary fails as it must."""
    known = planted()
    failed = (known.canary, "failed", f"assert {known.proof}")
    given = end(*reports, *([failed] if canary else []), **more)
    return check_tests(known, given, limited=limited)


def test_all_kinds_of_tests_are_found_without_running_them() -> None:
    assert planted(ALL_KINDS).expected == {
        "test_plain": 1,
        "test_later": 1,
        "test_table": 6,
        "test_computed": 1,
        "TestOwn::test_shared": 1,
        "TestOwn::test_own": 1,
        "Cases::test_case": 1,
        "MoreCases::test_case": 1,
        "MoreCases::test_more": 1,
    }


@pytest.mark.bench
def test_pytest_collects_the_same_tests_and_the_canary_last(tmp_path: Path) -> None:
    known = planted(ALL_KINDS.replace("async ", ""))
    (tmp_path / "test_x.py").write_text(known.content, "utf-8")
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    seen = run_python(
        "-I", "-m", "pytest", *options, str(tmp_path / "test_x.py"), expected=None
    ).output
    names = [line.partition("::")[2] for line in seen.splitlines() if "::" in line]
    assert names[-1] == known.canary
    assert {name.partition("[")[0] for name in names[:-1]} == set(known.expected)
    assert len(names) - 1 == sum(known.expected.values()) + 3  # range(4) is not expanded


def test_a_canary_differs_each_time_and_keeps_the_lines_of_its_script() -> None:
    rng = random.Random(2)
    canaries = {plant_canary(script("test_x.py", TEST_ADD), rng).proof for _ in range(20)}
    assert len(canaries) == 20
    assert planted().content.startswith(TEST_ADD)


def test_honest_reports_count_unchanged() -> None:
    seen = checked(("test_adds", "passed", ""), ("test_adds_negative", "failed", "1 ==\n -3"))
    assert [test.status for test in seen.reports] == ["passed", "failed"]
    assert seen.reports[1].message == "1 == -3"
    assert not seen.tampered
    assert seen.findings == ()


def test_a_test_that_is_not_reported_is_missing() -> None:
    seen = checked(("test_adds", "passed", ""))
    assert [(test.name, test.status) for test in seen.reports] == [
        ("test_adds", "passed"),
        ("test_adds_negative", "missing"),
    ]


def test_a_test_that_fails_after_its_call_is_an_error_once() -> None:
    seen = checked(
        ("test_adds", "passed", ""),
        ("test_adds", "error", "teardown"),
        ("test_adds_negative", "passed", ""),
    )
    assert [test.status for test in seen.reports] == ["error", "passed"]


def test_reports_of_unknown_tests_are_listed_and_not_counted() -> None:
    both = (("test_adds", "failed", ""), ("test_adds_negative", "failed", ""))
    seen = checked(*both, *((f"test_{number}", "passed", "") for number in range(50)))
    assert [test.status for test in seen.reports] == ["failed", "failed"]
    assert [finding.name for finding in seen.findings] == ["unexpected_tests"]


BOTH = (("test_adds", "passed", ""), ("test_adds_negative", "passed", ""))


@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        (checked(*BOTH, canary=False), "canary_lost"),
        (checked(*BOTH, (planted().canary, "passed", ""), canary=False), "canary_passed"),
        (checked(*BOTH, (planted().canary, "failed", "!"), canary=False), "canary_forged"),
        (checked(*BOTH, (planted().canary, "skipped", ""), canary=False), "canary_lost"),
        (checked(*BOTH, exit_code=0), "exit_code_forged"),
        (checked(*BOTH, canary=False, exit_code=0), "exit_code_forged"),
        (checked(*BOTH, exit_code=3), "exit_code_forged"),
        (checked(*BOTH, ("test_adds", "passed", "")), "reports_forged"),
        (checked(*BOTH, ("test_adds", "great", "")), "reports_forged"),
        (check_tests(planted(), end(reports="{}\n")), "reports_forged"),
        (check_tests(planted(), end(reports="[" * 100_000)), "reports_forged"),
        (check_tests(planted(), end(too_many_reports=True)), "reports_forged"),
    ],
)
def test_reports_that_contradict_the_script_are_tampering(
    seen: CheckedRun, finding: str
) -> None:
    assert seen.tampered
    assert [name for name, _ in seen.findings] == [finding]
    assert {test.status for test in seen.reports} == {"error"}


def test_file_that_skips_itself_is_not_tampering() -> None:
    skipped = [(name, "skipped", "not here") for name in planted().expected]
    seen = checked(*skipped, (planted().canary, "skipped", ""), canary=False, exit_code=0)
    assert not seen.tampered
    at_once = checked(("", "skipped", "not here"), canary=False, exit_code=5)
    assert not at_once.tampered
    assert {test.status for test in (*seen.reports, *at_once.reports)} == {"skipped"}


@pytest.mark.parametrize("canary", [True, False])
def test_unexpected_signal_after_a_passed_test_is_tampering(canary: bool) -> None:
    seen = checked(*BOTH, canary=canary, exit_code=-9)
    assert seen.tampered
    assert [finding.name for finding in seen.findings] == ["test_process_killed"]
    failed = checked(("test_adds", "failed", ""), canary=canary, exit_code=-9)
    assert not failed.tampered
    assert [finding.name for finding in failed.findings] == ["test_process_died"]


def test_passes_do_not_count_if_a_limit_ended_the_run_before_the_canary() -> None:
    seen = checked(*BOTH, canary=False, exit_code=-9, limited=True)
    assert not seen.tampered
    assert {test.status for test in seen.reports} == {"error"}
    assert [finding.name for finding in seen.findings] == ["test_process_died"]


def test_a_shell_script_is_one_test() -> None:
    shell = script("x/run.sh", "")
    assert check_shell(shell, end(exit_code=0)).reports[0][:3] == (
        "x/run.sh",
        "run.sh",
        "passed",
    )
    assert check_shell(shell, end(exit_code=-9)).reports[0].status == "failed"
    assert check_shell(shell, end(timed_out=True)).timed_out


def test_driver_removes_its_orders_and_signs_its_output(tmp_path: Path) -> None:
    orders, hidden = tmp_path / "orders.json", tmp_path / "hidden"
    (hidden / "package").mkdir(parents=True)
    for name in ("driver.py", "landlock.py"):
        source = Path(driver.__file__).with_name(name).read_bytes()
        (hidden / "package" / name).write_bytes(source)
    write = 'ls "$0"; printf "%s" 7 >"$ASSAY_RESULT"; echo told; exit 3'
    argv = ["sh", "-c", write, f"{hidden}/0/package"]
    given = {
        "key": b"key".hex(),
        "timeout_s": 20,
        "jobs": [{"name": "x.sh", "argv": argv, "separate": False}],
        "places": {
            "hidden": str(hidden),
            "repository": str(tmp_path),
            "app": str(tmp_path),
            "orders": str(tmp_path),
        },
    }
    orders.write_text(json.dumps(given), "utf-8")
    start = f"import sys; sys.path.insert(0, {str(hidden)!r}); from package.driver import main"
    # -S leaves out installed packages, including pytest.
    output = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", f"{start}; main()", str(orders)],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert not orders.exists()
    assert list(hidden.iterdir()) == []
    answer = read_answer(b"assay-grading zz zz\n" + output, b"key")
    ends, has_pytest, _, forged = answer
    assert ends is not None
    told = "driver.py\nlandlock.py\ntold\n"
    assert (ends[0]["exit_code"], ends[0]["output"], ends[0]["result"]) == (3, told, "7")
    assert (has_pytest, forged) == (False, 1)
    assert read_answer(output, b"another key") == (None, True, False, 1)


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"exit_code": 0}, "m.py: it wrote no file at $ASSAY_RESULT"),
        ({"exit_code": 2, "output": "a\nb\n"}, "m.py: it ended with exit code 2: b"),
        ({"exit_code": None, "timed_out": True}, "m.py: it reached its time limit"),
        (
            {"exit_code": 0, "result": "[]"},
            "m.py: it must write an object with standard_metrics",
        ),
        ({"exit_code": 0, "result": "{"}, "m.py: the content of $ASSAY_RESULT is not JSON"),
        (
            {"exit_code": 0, "result": '{"custom_metrics": {"x": 1' + "0" * 400 + "}}"},
            "m.py: custom_metrics: 'x' is not a finite number: 1000",
        ),
        (
            {"exit_code": 0, "result": '{"custom_metrics": [1]}'},
            "m.py: custom_metrics is not an object of at most 200 numbers",
        ),
        ({"exit_code": 0, "result": '{"score": 1}'}, "m.py: it must write an object with"),
    ],
)
def test_non_numeric_metrics_are_rejected_with_a_reason(
    more: dict[str, Any], detail: str
) -> None:
    metrics = read_metrics("m.py", end(**more))
    assert metrics[:2] == ({}, {})
    assert metrics.findings[0].detail.startswith(detail)
