"""What is left after errors, Ctrl-C and kills, and what a resume makes of it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from .boxes import leftovers
from .coding_server import CodingServer, call, judged, serving, steps
from .runs import HALF, WHOLE, calc_task, command, entry, results, rollout, toml

pytestmark = pytest.mark.bench

DOWN = 503


@pytest.fixture
def server() -> Iterator[CodingServer]:
    coder = steps(
        call("bash", {"command": WHOLE}), call("submit", {"notes": "Both are mended."})
    )
    with serving(coder=coder, judge=judged(0.5)) as coding:
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


def test_a_model_server_that_is_down_leaves_no_score_and_a_resume_finishes(
    tmp_path: Path, server: CodingServer
) -> None:
    calc_task(tmp_path / "task")
    toml(tmp_path / "bench.toml", entry(model="coder") + entry(agent="nop"))
    works = server.scripts["coder"]
    server.scripts["coder"] = lambda _: DOWN
    asked = ("--openai-base-url", server.url, "--call-patience", "0.2")
    done = command(tmp_path, "bench", "run", "bench.toml", *asked, OPENAI_API_KEY="x")
    assert done.code == 3, done.errors
    assert "without a score, because of an infrastructure error" in done.errors
    down, nop = results(tmp_path)
    assert (down["score"], down["state"]) == (None, "infrastructure")
    assert down["outcome"] == "ModelUnavailable"
    assert nop["score"] == 0
    server.scripts["coder"] = works
    done = command(tmp_path, "bench", "resume", "bench", OPENAI_API_KEY="x")
    assert done.code == 0, done.errors
    finished, again = results(tmp_path)
    assert (finished["score"], finished["state"], finished["error"]) == (1, "result", None)
    assert again == nop, "what has ended is not run again"
    assert [state for _, state in trials_in_store(tmp_path)] == ["result"] * 2


def test_a_judge_that_fails_is_no_zero_and_a_resume_only_grades(
    tmp_path: Path, server: CodingServer
) -> None:
    calc_task(tmp_path / "task", tests=False)
    text = entry(agent="command", command=HALF)
    toml(tmp_path / "bench.toml", text, judge="judge", judge_votes=3)
    asked = ("--openai-base-url", server.url, "--price", "1/10")
    scores = server.scripts["judge"]
    server.scripts["judge"] = lambda _: DOWN
    patience = ("--call-patience", "0.2")
    done = command(tmp_path, "bench", "run", "bench.toml", *asked, *patience)
    assert done.code == 3, done.errors
    (down,) = results(tmp_path)
    assert (down["score"], down["state"]) == (None, "infrastructure")
    agent = tmp_path / down["run_dir"] / "agent.json"
    before = (agent.read_bytes(), agent.stat().st_mtime_ns)

    server.scripts["judge"] = scores
    server.asked.clear()
    done = command(tmp_path, "bench", "resume", "bench")
    assert done.code == 0, done.errors
    (graded,) = results(tmp_path)
    assert (agent.read_bytes(), agent.stat().st_mtime_ns) == before, (
        "the agent is not run again"
    )
    assert (graded["score"], graded["outcome"]) == (0.5, "partly_solved")
    assert (len(server.asked), graded["model_calls"]) == (3, 3)
    assert graded["cost_usd"] == pytest.approx(3 * 0.0002)
    (database,) = tmp_path.glob("*.duckdb")
    with duckdb.connect(str(database), read_only=True) as store:
        calls = store.execute(
            "SELECT model_name, sum(calls), sum(cost_usd) FROM model_usage GROUP BY 1"
        ).fetchall()
    assert calls == [("judge", 3, pytest.approx(0.0006))]
    shown = command(tmp_path, "traces", "show", graded["session_id"], "--full")
    assert "as I see it" in shown.output


def test_the_judge_is_in_the_budget(tmp_path: Path, server: CodingServer) -> None:
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
    waits = entry(agent="command", command=f"{HALF}; sleep {mark}", timeout=3)
    toml(tmp_path / "bench.toml", entry(agent="nop") + waits, parallel=2)
    process = start(tmp_path, "run", "bench.toml", "-v")
    until = time.monotonic() + 60
    while not leftovers(mark) and time.monotonic() < until:
        time.sleep(0.02)
    assert leftovers(mark), "the agent works"
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
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
    """What is settled: trials that have ended, and agents that have."""
    if not (folder / "data" / "rollouts" / "bench").exists():
        return {}
    place = rollout(folder)
    settled = {path.name: path.read_bytes() for path in place.glob("task_results/*.json")}
    for path in (folder / "data" / "runs").glob("*/agent.json"):
        settled[str(path.parent.name)] = path.read_bytes()
    return settled


def finished(folder: Path) -> bool:
    file = rollout(folder) / "manifest.json"
    return bool(json.loads(file.read_text())["finished"])


def test_nothing_is_lost_and_nothing_is_run_twice_by_kills(
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
        process.communicate(timeout=20)
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
