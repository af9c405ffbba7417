"""Errors, Ctrl-C and kills: the state they leave, and resuming from it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.sandboxes.boxes import leftovers, marked
from tests.support import run_python

from .coding_server import CodingServer, call, judge_script, serving, steps
from .runs import HALF, WHOLE, calc_task, command, entry, results, rollout, toml

pytestmark = pytest.mark.bench

DOWN = 503


@pytest.fixture
def server() -> Iterator[CodingServer]:
    coder = steps(
        call("bash", {"command": WHOLE}), call("submit", {"notes": "Both are mended."})
    )
    with serving(coder=coder, judge=judge_script(0.5)) as coding:
        yield coding


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "bench", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def trials_in_store(folder: Path) -> list[tuple[Any, ...]]:
    (database,) = folder.glob("*.duckdb")
    with duckdb.connect(str(database), read_only=True) as store:
        return store.execute("SELECT id, state FROM trials ORDER BY id").fetchall()


def test_infrastructure_errors_leave_no_score_and_a_resume_does_only_the_rest(
    tmp_path: Path, server: CodingServer
) -> None:
    """The model of one trial fails, and the judge of another trial whose agent has ended."""
    place = tmp_path / "here"
    calc_task(place / "task")
    calc_task(place / "judged", tests=False)
    entries = entry(agent="nop") + entry(model="coder")
    agent = entry("judged", agent="command", command=HALF)
    toml(place / "bench.toml", entries + agent, judge="judge", parallel=3)
    works = dict(server.scripts)
    server.scripts |= dict.fromkeys(works, lambda _: DOWN)
    asked = ("--openai-base-url", server.url, "--price", "1/10", "--call-patience", "0.2")
    done = command(place, "bench", "run", "bench.toml", *asked, OPENAI_API_KEY="x")
    assert done.code == 3, done.errors
    assert "2 trials without a score because of infrastructure errors" in done.errors
    nop, *down = results(place)
    assert nop["score"] == 0
    for result in down:
        assert (result["score"], result["state"]) == (None, "infrastructure")
        assert result["outcome"] == "ModelUnavailable"
    agent_file = Path(down[1]["run_dir"]) / "agent.json"
    ended = (place / agent_file).read_bytes()

    server.scripts.update(works)
    server.asked.clear()
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    evaluated(copy, server)

    server.asked.clear()
    done = command(place, "bench", "resume", "bench", OPENAI_API_KEY="x")
    assert done.code == 0, done.errors
    again, coded, judge_script = results(place)
    assert again == nop, "what has ended is not run again"
    assert (coded["score"], coded["state"], coded["error"]) == (1, "result", None)
    assert (place / agent_file).read_bytes() == ended, "the agent is not run again"
    assert (judge_script["score"], judge_script["outcome"]) == (0.5, "partly_solved")
    assert judge_script["model_calls"] == 3
    assert sum(request["model"] == "judge" for request in server.asked) == 3
    assert judge_script["cost_usd"] == pytest.approx(3 * 0.0002)
    assert [state for _, state in trials_in_store(place)] == ["result"] * 3
    (database,) = place.glob("*.duckdb")
    with duckdb.connect(str(database), read_only=True) as store:
        calls = store.execute(
            "SELECT calls, cost_usd FROM model_usage WHERE model_name = 'judge'"
        ).fetchall()
    assert calls == [(3, pytest.approx(0.0006))], "its calls are in the journal"
    shown = command(place, "traces", "show", judge_script["session_id"], "--full")
    assert "as I see it" in shown.output


def evaluated(folder: Path, server: CodingServer) -> None:
    """`eval` grades ungraded trials, and runs no agent."""
    done = command(folder, "bench", "eval", "bench", "--latest")
    assert done.code == 3, "one of the agents has not ended"
    assert "reads (weight 1): 0.50, votes agree 100%" in done.output
    assert "not graded: " in done.output
    _, coded, graded = results(folder)
    assert coded["score"] is None
    assert (graded["score"], graded["state"], graded["error"]) == (0.5, "result", None)
    assert (graded["model_calls"], len(server.asked)) == (3, 3)


def test_judge_calls_count_towards_the_budget(tmp_path: Path, server: CodingServer) -> None:
    calc_task(tmp_path / "task", tests=False)
    text = entry(agent="command", command=HALF)
    toml(tmp_path / "bench.toml", text, judge="judge", judge_votes=1)
    asked = ("--openai-base-url", server.url, "--price", "1/10")
    done = command(tmp_path, "bench", "run", "bench.toml", *asked, "--budget", "0.001")
    assert done.code == 130, done.errors
    assert "budget" in done.errors
    assert not server.asked, "not a call that might cost more"
    (waiting,) = results(tmp_path)
    assert waiting["score"] is None
    done = command(tmp_path, "bench", "resume", "bench", "--budget", "1")
    assert done.code == 0, done.errors
    assert [result["score"] for result in results(tmp_path)] == [0.5]


def test_ctrl_c_leaves_no_process_and_a_resume_finishes_the_rest(tmp_path: Path) -> None:
    calc_task(tmp_path / "task")
    mark = f"98{random.Random(3).randrange(10**6)}"
    waits = entry(agent="command", command=f"{HALF}; sleep {mark}", timeout=8)
    toml(tmp_path / "bench.toml", entry(agent="nop") + waits, parallel=2)
    process = start(tmp_path, "run", "bench.toml", "-v")
    until = time.monotonic() + 300
    while not marked(mark):
        assert time.monotonic() < until, "the agent works"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert leftovers(mark) == []
    assert "bench resume bench@" in said
    assert results(tmp_path)[1]["state"] is None, "it has no end"
    done = command(tmp_path, "bench", "resume", "bench")
    assert done.code == 0, done.errors
    nop, slow = results(tmp_path)
    assert (nop["score"], slow["score"], slow["outcome"]) == (0, 0.75, "agent_timeout")
    done = command(tmp_path, "bench", "resume", "bench")
    assert done.code == 2
    assert "is finished" in done.errors


def ended(folder: Path) -> dict[str, Any]:
    """Return the trials that have ended, and the agents that have ended."""
    if not (folder / "data" / "rollouts" / "bench").exists():
        return {}
    place = rollout(folder)
    settled = {path.name: path.read_bytes() for path in place.glob("task_results/*.json")}
    for path in (folder / "data" / "runs").glob("*/agent.json"):
        settled[str(path.parent.name)] = path.read_bytes()
    return settled


def finished(folder: Path) -> bool:
    if not (folder / "data" / "rollouts" / "bench").exists():
        return False
    file = rollout(folder) / "manifest.json"
    return bool(json.loads(file.read_text())["finished"])


def test_kills_lose_nothing_and_repeat_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    calc_task(tmp_path / "task")
    half = entry(agent="command", command=f"sleep 0.2; {HALF}", rollouts=3)
    toml(tmp_path / "bench.toml", half + entry(agent="oracle", rollouts=3), parallel=2)
    chance = random.Random(18)
    settled: dict[str, Any] = {}
    kills = 0
    while kills < 3:
        process = start(tmp_path, "run", "bench.toml")
        begun = time.monotonic()
        while len(ended(tmp_path)) <= len(settled) and time.monotonic() - begun < 20:
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 0.5))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=300)
        after = ended(tmp_path)
        assert {name: after[name] for name in settled} == settled, "nothing is run again"
        settled = after
        kills += 1
        if finished(tmp_path):
            break
    record_property("note", f"{kills} kills, {len(settled)} of 12 ends before the last resume")
    if not finished(tmp_path):
        done = command(tmp_path, "bench", "run", "bench.toml")
        assert done.code == 0, done.errors
    after = ended(tmp_path)
    assert {name: after[name] for name in settled} == settled
    assert [result["score"] for result in results(tmp_path)] == [0.75] * 3 + [1] * 3
    assert len(list((tmp_path / "data" / "rollouts" / "bench").iterdir())) == 1
    assert len(list((tmp_path / "data" / "runs").glob("2*"))) == 6
    assert [state for _, state in trials_in_store(tmp_path)] == ["result"] * 6
    assert finished(tmp_path)


DIES = """
import os
from pathlib import Path
from assay.bench.run import prepare_bench, run_prepared_bench
prepared = prepare_bench(Path("bench.toml"), {})
assert run_prepared_bench(prepared).run.status == "finished"
os._exit(9)
"""


@pytest.mark.parametrize("written", [True, False], ids=["", "manifest not yet finished"])
def test_finished_benchmark_with_unseen_result_is_shown_and_not_repeated(
    tmp_path: Path, written: bool
) -> None:
    calc_task(tmp_path / "task")
    toml(tmp_path / "bench.toml", entry(agent="nop"))
    run_python("-c", DIES, folder=tmp_path, expected=9)
    place = rollout(tmp_path)
    manifest = json.loads((place / "manifest.json").read_bytes())
    if not written:
        unfinished = json.dumps({**manifest, "finished": False})
        (place / "manifest.json").write_text(unfinished)
    ended = (place / "task_results").stat().st_mtime_ns
    done = command(tmp_path, "bench", "run", "bench.toml")
    assert done.code == 0, done.errors
    assert "All 1 tasks completed!" in done.output
    assert f"{place.name} is already finished; use --fresh to run it again" in done.errors
    assert rollout(tmp_path) == place
    assert (place / "task_results").stat().st_mtime_ns == ended
    assert json.loads((place / "manifest.json").read_bytes()) == manifest
    # After its result was shown, the benchmark runs again.
    assert command(tmp_path, "bench", "run", "bench.toml").code == 0
    assert len([*place.parent.iterdir()]) == 2
