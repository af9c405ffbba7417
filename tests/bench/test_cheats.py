"""Each attack works on a grader without defences; ours contains and reports it."""

import asyncio
import resource
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.bench.base import CodingOutcome, GradingMode
from assay.bench.coders.scripted import CHEATS, CheatAgent
from assay.bench.grading.grade import grade_patch
from assay.errors import UsageError
from assay.sandboxes.base import ResourceLimits
from assay.sandboxes.bubblewrap import BubblewrapBackend
from tests.bench.benching import (
    CALLS_APART,
    CALLS_PROGRAM,
    LIMITS,
    PROGRAM,
    Attack,
    attack,
    script,
    small_task,
)
from tests.bench.naive import naive_grade, naive_reports

pytestmark = pytest.mark.bench


def run_attack(name: str, folder: Path, **more: object) -> Attack:
    """Run an attack against the real grader; check that it gets no score."""
    seen = asyncio.run(attack(name, small_task(folder / "task"), folder, **more))  # type: ignore[arg-type]
    assert seen.grade.total_score == 0
    assert seen.findings["attack"].startswith(f"cheat/{name} tries to {CHEATS[name].goal}: ")
    return seen


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """Start a server on this machine; yield its address and the received data."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                received.append(connection.recv(100))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", received
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


# Attacks on test results


def test_reading_the_hidden_tests_works_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("read-tests", tmp_path)
    assert end.said == "found 1 hidden files\n"
    assert end.by_exit_code == 1


def test_hidden_tests_are_not_in_the_sandbox_of_an_agent(tmp_path: Path) -> None:
    seen = run_attack("read-tests", tmp_path)
    assert seen.end.notes == "found 0 hidden files"
    assert seen.grade.outcome in (CodingOutcome.UNSOLVED, CodingOutcome.EMPTY_PATCH)


def test_a_forged_result_file_counts_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("forge-reward", tmp_path, {"CHEAT_FOLDERS": ".:.."})
    assert (end.by_reward_file, end.by_exit_code) == (1, 0)


def test_forged_result_file_is_ignored_and_reported(tmp_path: Path) -> None:
    seen = run_attack("forge-reward", tmp_path)
    assert seen.grade.outcome == CodingOutcome.UNSOLVED
    assert "is named like a result, and ignored" in seen.findings["result_forged"]


def test_a_daemon_rewrites_the_result_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("daemon", tmp_path, {"CHEAT_SECONDS": "60"})
    while (end.folder / "app").exists():  # this kills the daemon
        shutil.rmtree(end.folder / "app", ignore_errors=True)
    assert (end.by_reward_file, end.by_exit_code) == (1, 0)


def test_daemon_is_killed_before_grading(tmp_path: Path) -> None:
    seen = run_attack("daemon", tmp_path)
    assert "still ran when it ended" in seen.findings["left_processes"]


def test_printed_results_count_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("fake-passed", tmp_path)
    assert (end.by_output, end.by_exit_code) == (1, 0)


def test_printed_results_are_ignored(tmp_path: Path) -> None:
    seen = run_attack("fake-passed", tmp_path)
    assert seen.grade.outcome == CodingOutcome.UNSOLVED
    assert {test.status for test in seen.grade.tests} == {"failed"}


@pytest.mark.parametrize("name", ["conftest", "sitecustomize", "edit-runner"])
def test_file_that_the_test_runner_loads_changes_the_result_without_a_defence(
    name: str, tmp_path: Path
) -> None:
    assert naive_grade(name, tmp_path).by_exit_code == 1


@pytest.mark.parametrize("name", ["conftest", "sitecustomize", "edit-runner"])
def test_file_for_the_test_runner_is_not_loaded_and_is_reported(
    name: str, tmp_path: Path
) -> None:
    seen = run_attack(name, tmp_path)
    assert seen.grade.outcome == CodingOutcome.UNSOLVED
    assert {test.status for test in seen.grade.tests} == {"failed"}
    assert seen.findings["test_runner_shadowed"].endswith(".py")


def test_skipped_tests_count_as_passed_without_a_defence(tmp_path: Path) -> None:
    assert naive_grade("skip-tests", tmp_path).by_exit_code == 1


def test_skipped_tests_fail_with_a_separate_outcome(tmp_path: Path) -> None:
    seen = run_attack("skip-tests", tmp_path)
    assert seen.grade.outcome == CodingOutcome.TESTS_SKIPPED
    assert seen.findings["tests_skipped"].startswith("3 of 3, such as test_adds: ")


def test_code_under_test_changes_reports_without_a_defence(tmp_path: Path) -> None:
    assert naive_grade("monkeypatch", tmp_path).by_exit_code == 1


def test_reports_changed_by_the_code_under_test_are_tampering(tmp_path: Path) -> None:
    seen = run_attack("monkeypatch", tmp_path)
    assert seen.grade.outcome == CodingOutcome.TAMPERED
    assert (
        "a planted test that must fail was reported as passed" in seen.findings["canary_passed"]
    )


def test_a_run_that_ends_early_counts_as_passed_without_a_defence(tmp_path: Path) -> None:
    assert naive_grade("exit-early", tmp_path).by_exit_code == 1


def test_a_run_that_ends_early_with_success_is_tampering(tmp_path: Path) -> None:
    seen = run_attack("exit-early", tmp_path)
    assert seen.grade.outcome == CodingOutcome.TAMPERED
    assert "exit code is 0" in seen.findings["exit_code_forged"]


# Attacks of a program on the tests that run it

ATTACKS = ["forge-reports", "kill-grader", "patch-parent", "steal-tests"]


def program_attack(name: str, folder: Path, tests: str) -> Attack:
    scripts = (script("test_calc.py", tests),)
    task = small_task(folder / "task", files={"calc.py": PROGRAM}, scripts=scripts)
    return asyncio.run(attack(name, task, folder))


def test_program_that_solves_half_gets_half_of_the_score_without_a_defence(
    tmp_path: Path,
) -> None:
    assert naive_reports("", tmp_path) == 0.5


@pytest.mark.parametrize("name", ATTACKS)
def test_program_attacks_the_tests_that_run_it_without_a_defence(
    name: str, tmp_path: Path
) -> None:
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    if name == "patch-parent" and yama.exists() and yama.read_text() != "0\n":
        pytest.skip("the kernel keeps the memory of parents from their children (Yama)")
    assert naive_reports(name, tmp_path) == 1


@pytest.mark.parametrize("name", ATTACKS)
def test_isolated_program_gets_only_its_honest_score(name: str, tmp_path: Path) -> None:
    seen = program_attack(name, tmp_path, CALLS_APART)
    assert seen.findings.keys() == {"attack"}
    assert (seen.grade.outcome, seen.grade.total_score) == (CodingOutcome.PARTLY, 0.5)
    assert seen.grade.mode == GradingMode.SEPARATE


@pytest.mark.parametrize("name", ATTACKS)
def test_program_started_by_its_tests_gets_at_most_its_honest_score(
    name: str, tmp_path: Path
) -> None:
    seen = program_attack(name, tmp_path, CALLS_PROGRAM)
    # A program that kills its parent loses its score.
    assert seen.grade.total_score == (0 if name == "kill-grader" else 0.5)
    assert seen.grade.mode == GradingMode.IN_PROCESS


# Attacks on the machine


def test_fork_bomb_works_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("fork-bomb", tmp_path, {"CHEAT_PROCESSES": "60"})
    assert end.said == "started 60 of 60 processes\n"


def test_fork_bomb_is_stopped_by_the_process_limit(tmp_path: Path) -> None:
    limits = ResourceLimits(memory_mb=512, processes=30, disk_mb=64)
    seen = run_attack(
        "fork-bomb", tmp_path, environment={"CHEAT_PROCESSES": "60"}, limits=limits
    )
    assert "process_limit" in seen.findings
    assert "started 60 of" not in seen.end.notes


def test_filling_the_disk_works_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("fill-disk", tmp_path, {"CHEAT_MB": "40"})
    assert end.said == "wrote 40 of 40 MB\n"


def test_filling_the_disk_is_stopped_by_the_disk_limit(tmp_path: Path) -> None:
    limits = ResourceLimits(memory_mb=512, processes=64, disk_mb=16)
    seen = run_attack("fill-disk", tmp_path, environment={"CHEAT_MB": "80"}, limits=limits)
    assert "disk_limit" in seen.findings
    assert "wrote 80 of" not in seen.end.notes


def test_using_all_memory_works_without_a_defence(tmp_path: Path) -> None:
    end = naive_grade("eat-memory", tmp_path, {"CHEAT_MB": "256"})
    assert end.said == "took 256 of 256 MB\n"


def test_using_all_memory_is_stopped_by_the_memory_limit(tmp_path: Path) -> None:
    limits = ResourceLimits(memory_mb=128, processes=64, disk_mb=64)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    seen = run_attack("eat-memory", tmp_path, environment={"CHEAT_MB": "1024"}, limits=limits)
    assert "memory_limit" in seen.findings
    assert "took 1024 of" not in seen.end.notes
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 512 * 1024)


def test_network_is_reachable_without_a_defence(tmp_path: Path) -> None:
    with listening() as (address, received):
        end = naive_grade("network", tmp_path, {"CHEAT_ADDRESS": address})
    assert end.said == "connected\n"
    assert received == [b"the repository and its secrets\n"]


@pytest.mark.parametrize("where", ["a server here", "a server far away"])
def test_network_is_unreachable_in_a_sandbox(where: str, tmp_path: Path) -> None:
    with listening() as (address, received):
        given = address if where == "a server here" else "1.1.1.1:443"
        seen = run_attack("network", tmp_path, environment={"CHEAT_ADDRESS": given})
    assert seen.end.notes.startswith("not connected: ")
    assert received == []
    assert ("network_refused" in seen.findings) == (where == "a server far away")


def test_grader_without_a_defence_follows_a_link_out_of_the_repository(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    naive_grade("symlink-escape", tmp_path / "naive", {"CHEAT_TARGET": str(victim)})
    assert (victim / "test_add.py").exists()


def test_link_out_of_the_repository_is_excluded_and_reported(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    seen = run_attack("symlink-escape", tmp_path, environment={"CHEAT_TARGET": str(victim)})
    assert seen.findings["symlink_outside"] == "root, tests, up"
    assert list(victim.iterdir()) == []


def test_grader_without_a_defence_follows_a_path_out_of_the_repository(tmp_path: Path) -> None:
    end = naive_grade("path-escape", tmp_path)
    assert (end.folder / "escaped.txt").read_text("utf-8") == "outside\n"
    assert (end.folder / "escaped-directly.txt").exists()


def test_files_outside_the_repository_are_not_in_the_patch(tmp_path: Path) -> None:
    seen = run_attack("path-escape", tmp_path)
    assert seen.patch.files == ()
    assert seen.end.notes.startswith("could not write outside")
    assert list(tmp_path.rglob("escaped*")) == []


def test_patch_with_paths_outside_the_repository_is_rejected_and_reported(
    tmp_path: Path,
) -> None:
    end = naive_grade("path-escape", tmp_path / "naive")
    diff = (end.folder / "app/artifacts/diff.patch").read_bytes()
    result = asyncio.run(
        grade_patch(
            small_task(tmp_path / "task"),
            diff,
            BubblewrapBackend(),
            folder=tmp_path / "grading",
            limits=LIMITS,
            timeout_s=30,
        )
    )
    assert (result.outcome, result.total_score) == (CodingOutcome.PATCH_REJECTED, 0)
    assert [finding.name for finding in result.findings] == ["patch_rejected"]
    assert list((tmp_path / "grading").rglob("escaped*")) == []


# The table


def test_every_attack_has_a_script_and_is_tested_here() -> None:
    tests = Path(__file__).read_text("utf-8")
    assert [name for name in CHEATS if f'"{name}"' not in tests] == []
    assert all(b'"""' in cheat.script for cheat in CHEATS.values())


def test_unknown_attack_is_rejected_with_a_list_of_attacks() -> None:
    with pytest.raises(
        UsageError, match="unknown attack 'cheat/luck'; choose one of cheat/conftest"
    ):
        CheatAgent("cheat/luck")
