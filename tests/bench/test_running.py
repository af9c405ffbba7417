"""`assay bench run` as a real program: its output, and its files at the specified paths."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import assay
from tests.support import Finished

from .runs import HALF, calc_task, command, entry, results, rollout, toml

pytestmark = pytest.mark.bench

EXAMPLES = Path(__file__).parents[2] / "examples" / "bench"
STAMP = r"\d{8}__\d\d-\d\d-\d\d"
KEY = "sk-planted0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """Run the quickstart as a user with a key in the environment."""
    folder = tmp_path_factory.mktemp("quickstart")
    file = str(EXAMPLES / "quickstart.toml")
    return folder, command(folder, "bench", "run", file, OPENAI_API_KEY=KEY)


def test_the_quickstart_shows_a_table_of_three_agents(
    quickstart: tuple[Path, Finished],
) -> None:
    _, done = quickstart
    assert done.code == 0, done.errors
    means = dict(re.findall(r"^(oracle|first-idea|nop) +(\d\.\d\d) \[", done.output, re.M))
    assert (means["oracle"], means["nop"]) == ("1.00", "0.00")
    assert 0 < float(means["first-idea"]) < 1
    assert "✓ All 9 tasks completed!" in done.output


def test_lines_of_the_specification_are_printed_exactly(
    quickstart: tuple[Path, Finished],
) -> None:
    folder, done = quickstart
    stamp = rollout(folder, "quickstart").name
    lines = done.errors.splitlines()
    assert lines[:4] == [
        f"[rollouts] config={EXAMPLES / 'quickstart.toml'} name=quickstart tasks=9 parallel=2",
        f"[rollouts] output=data/rollouts/quickstart/{stamp}",
        "[rollouts] Running in quiet mode - use -vv for full output",
        "[rollouts] Starting 9 tasks with parallel=2",
    ]
    ticks = [line for line in lines if line.startswith("✓ Task ")]
    assert len(ticks) == 9
    assert all(re.match(rf"✓ Task {stamp}-\d completed \(launched\)", tick) for tick in ticks)


def test_files_have_the_specified_paths_and_keys(quickstart: tuple[Path, Finished]) -> None:
    folder, _ = quickstart
    place = rollout(folder, "quickstart")
    assert re.fullmatch(STAMP, place.name)
    manifest = json.loads((place / "manifest.json").read_text())
    assert {"config", "name", "created_at", "results"} <= manifest.keys()
    assert (manifest["name"], manifest["created_at"]) == ("quickstart", place.name)
    runs = [result["run_dir"] for result in manifest["results"]]
    assert (place / "runs.txt").read_text().split() == runs
    temp = folder / f"data/rollouts/temp/rollout_quickstart__{place.name}.json"
    assert json.loads(temp.read_text())["runs"] == runs
    for number, result in enumerate(manifest["results"]):
        assert result["run_id"] == f"{place.name}-{number}"
        assert (result["status"], result["launch_rc"]) == ("launched", 0)
        kept = json.loads((place / "task_results" / f"{result['run_id']}.json").read_text())
        assert kept == result
        run = folder / result["run_dir"]
        grade = json.loads((run / "evaluation_results.json").read_text())
        assert grade["total_score"] == result["score"]
        mode = None if result["outcome"] == "empty_patch" else "separate"
        assert grade["grading"] == result["grading"] == mode
        assert {"standard_metrics", "custom_metrics"} <= grade.keys()
        about = json.loads((run / "artifacts" / "repo_info.json").read_text())
        assert {"remote_urls", "branch", "start_commit", "touched_files"} <= about.keys()
        for name in ("artifacts/diff.patch", "artifacts/notes.md", "scoring_results.md"):
            assert (run / name).is_file(), name
        assert run.stat().st_mode & 0o777 == 0o700
        assert (run / "logs" / "eval.log").is_file()
        assert not (run / "work").exists()
        assert not (run / "grading").exists()
        assert set(result["seconds"]) == {"setup", "agent", "grading"}
        assert result["enforcement"]["backend"] == "bubblewrap"
        assert result["enforcement"]["self_test"].startswith("held: user, kernel files")


def test_trials_of_different_arms_are_interleaved(quickstart: tuple[Path, Finished]) -> None:
    folder, _ = quickstart
    ended = sorted(results(folder, "quickstart"), key=lambda result: result["ended_at"])
    assert len({result["arm"] for result in ended[:3]}) > 1


def test_the_trials_are_in_the_store_with_their_outcomes(
    quickstart: tuple[Path, Finished],
) -> None:
    folder, _ = quickstart
    (database,) = folder.glob("*.duckdb")
    with duckdb.connect(str(database), read_only=True) as store:
        trials = store.execute("SELECT subject, task, state, seed FROM trials").fetchall()
        scores = store.execute(
            "SELECT subject, avg(value) FROM outcomes WHERE metric = 'score' GROUP BY subject"
        ).fetchall()
        apart = store.execute(
            "SELECT DISTINCT subject, value FROM outcomes WHERE metric = 'separate_grading'"
        ).fetchall()
    assert len(trials) == 9
    assert dict(apart)["oracle"] == 1
    assert "nop" not in dict(apart)  # it was not run
    assert {(state, seed) for _, _, state, seed in trials} == {("result", 0)}
    assert {task for _, task, _, _ in trials} == {
        "bench/fix-bookings",
        "bench/split-bill",
        "bench/count-words",
    }
    assert dict(scores)["oracle"] == 1
    assert dict(scores)["nop"] == 0
    shown = command(folder, "traces", "show", "best")
    assert "apply the reference solution" in shown.output
    assert "graded: solved" in shown.output


def test_summary_and_grades_can_be_printed_again(quickstart: tuple[Path, Finished]) -> None:
    folder, _ = quickstart
    assert command(folder, "bench", "summarize", "quickstart", "--latest").code == 0
    done = command(folder, "bench", "eval", "quickstart", "--latest")
    assert done.code == 0, done.errors
    assert "contained (weight 2): 1.00" in done.output
    assert "graded" not in done.errors, "all of them have a grade"


def test_keys_of_the_environment_are_in_no_sandbox_and_no_file(tmp_path: Path) -> None:
    calc_task(tmp_path / "task")
    looks = "env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline; ls -a ~ / /tmp"
    toml(
        tmp_path / "bench.toml",
        entry(agent="command", command=looks, environment_variables={"LEVEL": "2"}),
    )
    done = command(tmp_path, "bench", "run", "bench.toml", "-vv", OPENAI_API_KEY=KEY)
    assert done.code == 0, done.errors
    (result,) = results(tmp_path)
    log = (tmp_path / result["run_dir"] / "logs" / "agent.log").read_text()
    assert "LEVEL=2" in log
    assert "OPENAI" not in log
    assert "planted" not in done.output + done.errors
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in written if b"planted" in path.read_bytes()] == []
    assert f"Task {result['run_id']} started: command" in done.errors
    assert "== data/runs/" in done.errors, "the logs are printed"
    assert "✓ Task" not in done.errors, "no icons"


def test_agent_with_an_error_exit_is_graded_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calc_task(tmp_path / "task")
    toml(
        tmp_path / "bench.toml",
        entry(agent="command", command=f"{HALF}; exit 3") + entry(agent="cheat/fake-passed"),
        parallel=2,
    )
    assay.bench_run("bench.toml")
    failed, cheat = results(tmp_path)
    assert (failed["outcome"], failed["score"], failed["status"]) == (
        "agent_failed",
        0.75,
        "launched",
    )
    assert cheat["score"] == 0


def test_benchmarks_started_at_once_have_different_stamps(tmp_path: Path) -> None:
    calc_task(tmp_path / "task")
    for name in ("one", "two"):
        toml(tmp_path / f"{name}.toml", entry(agent="nop", rollouts=2))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "assay", "bench", "run", f"{name}.toml"],
            cwd=tmp_path,
            env={**os.environ, "ASSAY_DATABASE": f"{name}.duckdb"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=600)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    stamps = [rollout(tmp_path, name).name for name in ("one", "two")]
    assert len({*stamps}) == 2
    assert len(list((tmp_path / "data" / "runs").glob("2*"))) == 4


DEEP = """
import os
for count, name in ((2500, 'd'), (60, 'e' * 255)):
    here = os.open('.', os.O_RDONLY)
    for _ in range(count):
        os.mkdir(name)
        os.chdir(name)
    open('end', 'w').close()
    os.fchdir(here)
"""


def test_folders_deeper_than_the_path_limit_lose_no_work(tmp_path: Path) -> None:
    calc_task(tmp_path / "task")
    (tmp_path / "task" / "repo" / "deep.py").write_text(DEEP)
    agent = entry(agent="command", command=f"echo begun; {HALF}; python3 deep.py")
    toml(tmp_path / "bench.toml", agent)
    done = command(tmp_path, "bench", "run", "bench.toml")
    assert "Traceback" not in done.errors
    (trial,) = results(tmp_path)
    assert (trial["state"], trial["score"]) == ("result", 0.75), trial
    findings = dict(trial["findings"])
    assert findings["path_too_long"].startswith(("d/d/d/", "eeee"))
    assert len(findings["path_too_long"]) < 2000
    run = tmp_path / trial["run_dir"]
    assert "+    return a + b" in (run / "artifacts" / "diff.patch").read_text()
    assert "begun" in (run / "logs" / "agent.log").read_text()
    assert sorted(path.name for path in run.iterdir() if path.is_dir()) == ["artifacts", "logs"]
