"""`regrade`, and making and checking a task from a repository, by the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.support import Finished

from .coding_server import CodingServer, judge_script, serving
from .runs import HALF, PATCH, calc_task, command, entry, here, results, toml
from .tasks import make_repository, write

pytestmark = pytest.mark.bench


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Iterator[CodingServer]:
    with serving(judge=judge_script(0.25)) as coding:
        yield coding


def score_in_store(folder: Path) -> float:
    (database,) = folder.glob("*.duckdb")
    with duckdb.connect(str(database), read_only=True) as store:
        ((value,),) = store.execute(
            "SELECT value FROM outcomes WHERE metric = 'score'"
        ).fetchall()
    return float(value)


def test_regrade_keeps_the_old_grade_and_changes_the_store(
    folder: Path, server: CodingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    calc_task(folder / "task", tests=False)
    agent = entry(agent="command", command=f"{HALF}; sleep 30", timeout=1.5)
    toml(folder / "bench.toml", agent, judge="judge", judge_votes=1)
    done = command(folder, "bench", "run", "bench.toml", "--openai-base-url", server.url)
    assert done.code == 0, done.errors
    (first,) = results(folder)
    assert (first["score"], first["outcome"]) == (0.25, "agent_timeout")
    assert score_in_store(folder) == 0.25
    server.scripts["judge"] = judge_script(0.75)
    done = here(capsys, "bench", "regrade", "bench", "--latest")
    assert done.code == 0, done.errors
    assert "regraded 1 of 1 trials; 1 scores changed" in done.output
    assert f"{first['run_id']}: 0.25 -> 0.75" in done.output
    (second,) = results(folder)
    assert (second["score"], second["outcome"]) == (0.75, "agent_timeout")
    assert (second["agent_stop"], second["seconds"]["agent"]) == (
        first["agent_stop"],
        first["seconds"]["agent"],
    )
    assert score_in_store(folder) == 0.75
    run = folder / first["run_dir"]
    assert json.loads((run / "evaluation_results.json").read_text())["total_score"] == 0.75
    (old,) = run.glob("evaluation_results.*.json")
    assert json.loads(old.read_text())["total_score"] == 0.25
    assert not (run / "grading").exists()


def test_task_is_captured_prepared_and_checked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = make_repository(folder / "code")
    made = here(capsys, "bench", "new", "code", "--start", start, "--end", end, "--quiet")
    assert made.code == 0, made.errors
    task = made.output.strip()
    refused = here(capsys, "bench", "prepare", task)
    assert f"--allow-repo {folder / 'code'}" in refused.errors
    prepared = here(capsys, "bench", "prepare", task, "--allow-repo", "code", "--quiet")
    assert prepared.code == 0, prepared.errors
    checked = here(capsys, "bench", "check", prepared.output.strip(), "--tries", "2")
    assert checked.code == 0, checked.output
    assert "scored 1 in 2 of 2 tries; failure rate 0 to" in checked.output
    assert "✓ an empty patch: an empty patch scored 0.00 (empty_patch)" in checked.output
    assert "✓ hidden files" in checked.output
    assert not list(folder.rglob(".check-*"))


def check(capsys: pytest.CaptureFixture[str], *more: str) -> Finished:
    return here(capsys, "bench", "check", "task", "--tries", "1", *more)


def test_check_names_tests_that_pass_without_any_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calc_task(folder / "task")
    meta = json.loads((folder / "task" / "tb_meta.json").read_text())
    test = "def test_nothing():\n    assert True\n"
    meta["evaluation"]["test_scripts"][0]["content"] = test
    write(folder / "task", {"tb_meta.json": json.dumps(meta)})
    done = check(capsys)
    assert done.code == 1
    assert "these tests pass without any work" in done.output
    assert "test_nothing" in done.output
    assert "✗ a patch that does nothing" in done.output


def test_check_names_a_reference_that_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = calc_task(folder / "task")
    (task / "diff.patch").write_text(PATCH.replace("2 * a", "3 * a"))
    done = check(capsys)
    assert done.code == 1
    assert "✗ reference: the reference solution scored 1 in 0 of 1 tries" in done.output
    assert "test_doubles" in done.output


def test_check_names_hidden_tests_that_the_agent_can_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calc_task(folder / "task")
    kept = "from calc import add\n\n\ndef test_adds():\n    assert add(1, 2) == 3\n"
    write(folder / "task" / "repo", {"old/kept.py": kept})
    done = check(capsys)
    assert done.code == 1
    assert "✗ hidden files" in done.output
    assert "/app/repo/old/kept.py" in done.output


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"promt": "x"}, "promt"),
        ({"remove_repo_paths": ["no/such/*"]}, "no/such/*"),
    ],
    ids=["key", "path"],
)
def test_check_names_overrides_that_match_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], overrides: dict[str, object], said: str
) -> None:
    calc_task(folder / "task")
    write(folder / "task", {"overrides.json": json.dumps(overrides)})
    done = check(capsys)
    assert done.code in (1, 2)
    assert said in done.output + done.errors
