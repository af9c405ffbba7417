import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.bench.base import CodingTask
from assay.bench.grading import programs
from assay.bench.grading.scripts import PACKAGE
from assay.bench.tasks import (
    Workspace,
    apply_patch,
    load_task,
    make_workspace,
    overrides_problems,
)

# Each test starts pytest several times.
pytestmark = pytest.mark.bench

SAMPLES = sorted(
    path.parent
    for path in (Path(__file__).parents[2] / "examples/bench/tasks").glob("*/tb_meta.json")
)
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


def run_tests(task: CodingTask, workspace: Workspace, folder: Path) -> dict[str, bool]:
    """Run all hidden tests in one process; return whether each passed."""
    put_scripts(task, folder)
    report = folder / "report.xml"
    quiet = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--tb=no")
    subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, f"--junitxml={report}", str(folder)],
        cwd=workspace.repo,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    cases = report.read_text("utf-8").split("<testcase ")[1:]
    return {case.split(' time="')[0]: "<failure" not in case for case in cases}


def put_scripts(task: CodingTask, folder: Path) -> None:
    folder.mkdir()
    for script in task.test_scripts:
        (folder / script.path).write_text(script.content, "utf-8")
    for path, content in task.evaluation_files.items():
        (folder / path).write_bytes(content)
    (folder / f"{PACKAGE}.py").write_bytes(Path(programs.__file__).read_bytes())


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda folder: folder.name)
def test_reference_passes_every_hidden_test_and_an_empty_patch_passes_none(
    folder: Path, tmp_path: Path
) -> None:
    overrides = folder / "overrides.json"
    task = load_task(folder, overrides if overrides.exists() else None)
    assert {script.rubric_id for script in task.test_scripts} == {
        rubric.id for rubric in task.rubrics
    }
    assert len(task.rubrics) >= 2
    idle = run_tests(task, make_workspace(task, tmp_path / "idle"), tmp_path / "idle_tests")
    assert idle
    assert not any(idle.values())
    solved = make_workspace(task, tmp_path / "solved")
    apply_patch(solved, task.reference_patch or b"")
    done = run_tests(task, solved, tmp_path / "solved_tests")
    assert done.keys() == idle.keys()
    assert all(done.values())


def test_six_sample_tasks_have_valid_overrides() -> None:
    assert len(SAMPLES) >= 6
    given = [path for folder in SAMPLES for path in folder.glob("overrides.json")]
    assert given
    for path in given:
        assert overrides_problems(path.parent, path) == ()


def test_shortcut_passes_the_visible_test_and_fails_the_hidden_ones(tmp_path: Path) -> None:
    folder = next(folder for folder in SAMPLES if folder.name == "split-bill")
    task = load_task(folder)
    workspace = make_workspace(task, tmp_path / "workspace")
    (workspace.repo / "bill.py").write_text(
        "from decimal import Decimal\n\n\ndef split(total, people):\n"
        "    share = round(Decimal(total) / people, 2)\n"
        "    return [total - share * (people - 1), *[share] * (people - 1)]\n",
        "utf-8",
    )
    seen = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_bill.py"],
        cwd=workspace.repo,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert seen.returncode == 0
    passed = run_tests(task, workspace, tmp_path / "tests")
    assert 0 < sum(passed.values()) < len(passed)
    assert not any(ok for name, ok in passed.items() if "test_fair" in name)


def test_metrics_script_writes_to_the_given_path(tmp_path: Path) -> None:
    task = load_task(next(folder for folder in SAMPLES if folder.name == "cheapest-route"))
    assert task.metrics_script is not None
    workspace = make_workspace(task, tmp_path / "workspace")
    apply_patch(workspace, task.reference_patch or b"")
    put_scripts(task, tmp_path / "hidden")
    script = tmp_path / "hidden" / task.metrics_script.path
    script.write_text(task.metrics_script.content, "utf-8")
    result = tmp_path / "result.json"
    subprocess.run(
        [sys.executable, str(script)],
        cwd=workspace.repo,
        env={**ENVIRONMENT, "ASSAY_RESULT": str(result)},
        check=True,
    )
    written = json.loads(result.read_text("utf-8"))
    assert written["standard_metrics"] == {"reached_goal": 1.0}
    assert set(written["custom_metrics"]) == {"large_map_seconds", "lines_of_code"}
