"""`assay run`, the real program: its output, files and exit codes."""

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

import assay
from assay.cli import main
from assay.crafter.service.app import ServiceSettings, running
from tests.support import Finished, call_assay

pytestmark = pytest.mark.usefixtures("compiled_engine")

DATABASE = "crafter_multi_model_traces.duckdb"
FOLDER = "traces_multi_model"
SMALL = ("--episodes", "2", "--max-turns", "6")
MODELS = ["builtin/random", "builtin/forager", "builtin/noop"]
"""Models of the shared run, in the order of its files; noop is a baseline."""

MANY_MODELS_FILE = """
[experiment]
episodes = 10
max_turns = 100
difficulty = "easy"

[services]
crafter_service_url = "http://localhost:8901"
database_path = "crafter_multi_model_traces.duckdb"
"""
ONE_MODEL_FILE = """
[eval]
model_name = "gpt-4o-mini"
episodes = 100
max_steps = 30
difficulty = "easy"
seed = 42

[service]
base_url = "http://localhost:8901"
timeout = 30.0

[output]
save_traces = true
save_detailed_results = true

[openai]
base_url = "https://api.openai.com/v1"
api_key = "your-api-key"
"""
SUMMARY_QUERY = """
    SELECT e.name, e.id, e.created_at,
           COUNT(st.session_id) as session_count
    FROM experiments e
    LEFT JOIN session_traces st ON e.id = st.experiment_id
    GROUP BY e.id, e.name, e.created_at
    ORDER BY e.created_at DESC
"""
PERFORMANCE_QUERY = """
    SELECT
        e.name as experiment_name,
        AVG(st.num_timesteps) as avg_steps,
        COUNT(st.session_id) as total_sessions
    FROM experiments e
    JOIN session_traces st ON e.id = st.experiment_id
    GROUP BY e.name
    ORDER BY avg_steps DESC
"""
HOOKS = """
from assay.metrics import BaseHook, HookRecord, hook


@hook
class EveryThird(BaseHook):
    def __init__(self):
        self.steps = 0

    def on_step(self, seen):
        self.steps += 1
        if self.steps % 3 == 0:
            yield HookRecord(name="third", code="3", priority=1, step=seen.step.index)
"""


def run(where: Path, *arguments: str) -> Finished:
    """Run `assay run` in this process, in a folder, without a terminal."""
    return call_assay(where, "run", *arguments)


def refusal(where: Path, *arguments: str) -> str:
    """Return the one error line of a command that starts nothing."""
    before = sorted(where.rglob("*"))
    done = run(where, *arguments)
    assert (done.code, done.output) == (2, "")
    assert done.errors.startswith("error: ")
    assert done.errors.count("\n") == 1
    assert sorted(where.rglob("*")) == before
    return done.errors


def played(database: Path) -> list[tuple[Any, ...]]:
    """Return the episodes of a database without ids and times."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(
            """
            SELECT e.model, s.seed, s.num_turns, s.total_reward, s.stop_reason,
                   list((t.action, t.digest) ORDER BY t.step_index),
                   (SELECT list(m.hash ORDER BY m.position) FROM messages m
                    WHERE m.session_id = s.session_id)
            FROM session_traces s JOIN experiments e ON e.id = s.experiment_id
            JOIN session_timesteps t USING (session_id)
            GROUP BY ALL ORDER BY ALL
            """
        ).fetchall()


def results_file(where: Path, folder: str = FOLDER) -> Path:
    (path,) = (where / folder).glob("multi_model_results_*.json")
    return path


def answer(where: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(where / DATABASE), read_only=True) as connection:
        return connection.execute(query).fetchall()


def next_commands(done: Finished) -> list[str]:
    """Return the commands suggested at the end of a run, without the program name."""
    return re.findall(r"^\w[\w ]*: +assay (traces .*)$", done.output, re.MULTILINE)


class Shared(NamedTuple):
    """A run that several tests read and none changes."""

    where: Path
    done: Finished


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, compiled_engine: None) -> Shared:
    where = tmp_path_factory.mktemp("shared")
    models = ("--models", "builtin/random", "builtin/forager")
    return Shared(where, run(where, *models, *SMALL, "--run-id", "shared"))


@pytest.fixture(scope="module")
def service(compiled_engine: None) -> Iterator[str]:
    with running(ServiceSettings(port=0)) as server:
        yield server.address


def test_a_run_ends_with_its_tables_and_the_commands_to_run_next(shared: Shared) -> None:
    assert shared.done.code == 0
    titles = (
        *("PERFORMANCE SUMMARY", "INVALID ACTION ANALYSIS", "ACHIEVEMENT ANALYSIS"),
        "MODEL RANKINGS",
    )
    assert all(title in shared.done.output for title in titles)
    # Scripted players cost nothing.
    assert "token" not in f"{shared.done.output}{shared.done.errors}".lower()
    assert "$" not in f"{shared.done.output}{shared.done.errors}"
    assert "builtin/noop*" in shared.done.output
    assert DATABASE in shared.done.output
    assert len(next_commands(shared.done)) == 3


def test_the_commands_to_run_next_do_run(shared: Shared) -> None:
    for command in next_commands(shared.done):
        with chdir(shared.where), redirect_stdout(StringIO()):
            assert main(shlex.split(command)) == 0


def test_run_without_a_terminal_prints_no_lines_about_single_models(shared: Shared) -> None:
    lines = shared.done.errors.splitlines()
    assert lines[0] == "Starting run shared"
    assert not [line for line in lines if line.startswith("builtin/")]
    assert "\x1b" not in shared.done.output + shared.done.errors


def test_journals_of_a_finished_run_are_deleted(shared: Shared) -> None:
    assert sorted(path.name for path in shared.where.iterdir()) == [DATABASE, FOLDER]


def test_documented_queries_return_the_right_numbers(shared: Shared) -> None:
    summary = answer(shared.where, SUMMARY_QUERY)
    assert {(row[0], row[3]) for row in summary} == {(f"{name} v1.0", 2) for name in MODELS}
    performance = answer(shared.where, PERFORMANCE_QUERY)
    counted = answer(
        shared.where,
        """
        SELECT subject || ' v1.0', sum(steps) / 2, 2 FROM (
            SELECT session_id, count(*) AS steps FROM session_timesteps GROUP BY ALL
        ) JOIN session_traces USING (session_id) GROUP BY subject
        """,
    )
    assert sorted(performance) == sorted(counted)
    assert [row[1] for row in performance] == sorted((row[1] for row in counted), reverse=True)


def test_trace_files_are_numbered_over_the_whole_run_in_order(shared: Shared) -> None:
    index = json.loads((shared.where / FOLDER / "index.json").read_text("utf-8"))
    assert index["run"] == "shared"
    assert [item["file"] for item in index["files"]] == [
        f"trace_episode_{number}.json" for number in range(6)
    ]
    assert [(item["model"], item["seed"]) for item in index["files"]] == [
        (model, seed) for model in MODELS for seed in (42, 43)
    ]
    for item in index["files"]:
        trace = json.loads((shared.where / FOLDER / item["file"]).read_text("utf-8"))
        assert trace["format"] == "assay-trace/1"
        assert trace["session"]["id"] == item["session"]
        assert trace["session"]["subject"] == item["model"]


def test_the_results_file_has_a_value_per_world_and_metric(shared: Shared) -> None:
    path = results_file(shared.where)
    assert re.fullmatch(r"multi_model_results_\d{8}_\d{6}\.json", path.name)
    results = json.loads(path.read_text("utf-8"))
    assert results["format"] == "assay-results/1"
    assert results["run"]["id"] == "shared"
    assert results["config"]["episodes"] == 2
    assert list(results["models"]) == MODELS
    stored = dict(
        answer(
            shared.where,
            "SELECT (subject, metric, seed)::VARCHAR, value FROM outcomes",
        )
    )
    assert stored
    for model, part in results["models"].items():
        assert part["name"] == f"{model} v1.0"
        assert part["seeds"] == [42, 43]
        assert part["baseline"] is (model == "builtin/noop")
        assert len(part["episodes"]) == 2
        assert {"achievements", "reward", "unlocked/collect_wood"} <= set(part["metrics"])
        for metric, values in part["metrics"].items():
            for seed, value in zip(part["seeds"], values, strict=True):
                assert stored.pop(f"({model}, {metric}, {seed})") == value
    assert not stored


def test_complete_configuration_is_stored_with_the_run(shared: Shared) -> None:
    ((text, status),) = answer(shared.where, "SELECT configuration, status FROM runs")
    stored = json.loads(text)
    assert stored["models"] == MODELS[:2]
    assert (stored["max_turns"], stored["seed"], stored["service_url"]) == (6, 42, None)
    assert status == "finished"


def test_every_model_plays_the_same_worlds(shared: Shared) -> None:
    first = "SELECT count(DISTINCT hash) FROM messages WHERE position = 1"
    assert answer(shared.where, first) == [(2,)]


def test_python_api_reads_a_run_of_the_command(shared: Shared) -> None:
    frame = assay.open(shared.where / DATABASE).episodes(run="latest")
    assert sorted(frame["model"]) == sorted(MODELS * 2)


def test_json_output_is_one_object(tmp_path: Path) -> None:
    done = run(tmp_path, "--model", "builtin/random", "--no-baselines", *SMALL, "--json")
    assert (done.code, done.errors) == (0, "")
    assert done.json["status"] == "finished"
    assert [model["model"] for model in done.json["models"]] == ["builtin/random"]
    assert (tmp_path / done.json["results"]).is_file()


def test_quiet_prints_only_the_run_id(tmp_path: Path) -> None:
    chosen = ("--model", "builtin/noop", "--no-baselines", "--run-id", "calm")
    assert run(tmp_path, *chosen, *SMALL, "--quiet") == Finished(0, "calm\n", "")


def test_dry_run_prints_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL, "--dry-run")
    assert done.code == 0
    assert "At most 48 model calls" in done.output
    assert "episodes: from command line" in done.output
    plan = run(tmp_path, *SMALL, "--dry-run", "--json").json
    assert (plan["episodes"], plan["seeds"], plan["resumes"]) == (8, [42, 43], False)
    assert plan["config"]["max_turns"] == 6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--models", "builtin/foragr"],
            ["'builtin/foragr'", "did you mean 'builtin/forager'"],
        ),
        (["--difficulty", "eazy"], ["'eazy'", "did you mean 'easy'"]),
        (["--modles", "builtin/noop"], ["--modles", "--models"]),
        (["--episodes", "0"], ["--episodes", "0", "1"]),
        (["--episodes", "many"], ["--episodes", "many"]),
        (["--max-turns", "-1"], ["--max-turns", "-1"]),
        (["--view", "fulll"], ["'fulll'", "full", "short"]),
        (["--service-url", "localhost"], ["--service-url", "localhost", "http://"]),
        (["--config", "missing.toml"], ["'missing.toml'", "assay init"]),
        (["--hooks", "missing.py"], ["missing.py"]),
        (["--prompt", "missing.txt"], ["missing.txt"]),
        (["--resume", "nothing"], ["'nothing'", "unfinished"]),
        (["--resume", "nothing", "--fresh"], ["--resume", "--fresh"]),
        (["--run-id", "../up"], ["'../up'", "letters"]),
        (["--temperature", "3"], ["--temperature", "3", "2"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_invalid_value_is_one_line_with_the_allowed_values(
    tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    line = refusal(tmp_path, *arguments)
    assert [word for word in words if word not in line] == []


def test_unknown_key_of_a_file_gets_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[experiment]\nepisods = 3\n")
    line = refusal(tmp_path, "--config", "mine.toml")
    assert "episods" in line
    assert "did you mean 'episodes'" in line


@pytest.mark.extras
@pytest.mark.parametrize(
    ("text", "turns"),
    [(MANY_MODELS_FILE, 100), (ONE_MODEL_FILE, 30)],
    ids=["many-models", "one-model"],
)
def test_existing_configuration_files_run_on_a_service(
    tmp_path: Path, service: str, text: str, turns: int
) -> None:
    (tmp_path / "mine.toml").write_text(text.replace("http://localhost:8901", service))
    over = ("--models", "builtin/random", "--episodes", "2", "--no-baselines")
    done = run(tmp_path, "--config", "mine.toml", *over)
    assert done.code == 0, done.errors
    ((stored,),) = answer(tmp_path, "SELECT configuration FROM runs")
    configuration = json.loads(stored)
    assert configuration["service_url"] == service
    assert configuration["max_turns"] == turns
    assert len(played(tmp_path / DATABASE)) == 2
    assert "your-api-key" not in stored


def test_placeholder_key_is_reported_and_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(ONE_MODEL_FILE)
    done = run(tmp_path, "--config", "mine.toml", "--model", "builtin/noop", "--dry-run")
    assert done.code == 0
    assert "placeholder" in done.errors
    assert "your-api-key" not in done.output + done.errors


@pytest.mark.extras
def test_episodes_are_the_same_with_and_without_a_service(
    shared: Shared, tmp_path: Path, service: str
) -> None:
    models = ("--models", "builtin/random", "builtin/forager")
    assert run(tmp_path, *models, *SMALL, "--service-url", service).code == 0
    assert played(tmp_path / DATABASE) == played(shared.where / DATABASE)


@pytest.mark.extras
def test_concurrent_models_play_the_same_episodes(shared: Shared, tmp_path: Path) -> None:
    models = ("--models", "builtin/random", "builtin/forager")
    together = ("--concurrent-models", "--max-concurrent-models", "2")
    assert run(tmp_path, *models, *SMALL, *together).code == 0
    assert played(tmp_path / DATABASE) == played(shared.where / DATABASE)


@pytest.mark.extras
def test_one_episode_at_a_time_gives_the_same_episodes(shared: Shared, tmp_path: Path) -> None:
    models = ("--models", "builtin/random", "builtin/forager")
    assert run(tmp_path, *models, *SMALL, "--max-concurrent-episodes", "1").code == 0
    assert played(tmp_path / DATABASE) == played(shared.where / DATABASE)


@pytest.mark.extras
def test_second_run_keeps_the_files_of_the_first_and_continues_the_numbers(
    tmp_path: Path,
) -> None:
    chosen = ("--model", "builtin/noop", "--no-baselines", "--max-turns", "2")
    assert run(tmp_path, *chosen, "--episodes", "3", "--run-id", "one").code == 0
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    assert run(tmp_path, *chosen, "--episodes", "1", "--run-id", "two").code == 0
    files = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    second = results_file(tmp_path).name
    assert files == ["index.json", second, "notes.txt", "one", "trace_episode_0.json", "two"]
    assert len(list((tmp_path / FOLDER / "one").glob("trace_episode_*.json"))) == 3
    assert json.loads(results_file(tmp_path).read_text())["run"]["id"] == "two"
    names = answer(tmp_path, "SELECT name FROM experiments ORDER BY created_at")
    assert names == [("builtin/noop v1.0",), ("builtin/noop v1.0 #2",)]
    assert answer(tmp_path, "SELECT count(*) FROM session_traces") == [(4,)]


def test_id_of_a_finished_run_is_rejected(tmp_path: Path) -> None:
    chosen = (
        "--model",
        "builtin/noop",
        "--no-baselines",
        "--max-turns",
        "2",
        "--run-id",
        "one",
    )
    assert run(tmp_path, *chosen, "--episodes", "1").code == 0
    again = run(tmp_path, *chosen, "--episodes", "1")
    assert again.code == 2
    assert "run 'one' is already finished" in again.errors
    other = run(tmp_path, *chosen, "--episodes", "1", "--seed", "7")
    assert other.code == 2
    assert "seed: 42 -> 7" in other.errors
    assert run(tmp_path, *chosen, "--episodes", "1", "--fresh", "--quiet").output == "one-2\n"
    counts = answer(
        tmp_path, "SELECT run_id, count(*) FROM session_traces GROUP BY 1 ORDER BY 1"
    )
    assert counts == [("one", 1), ("one-2", 1)]


@pytest.mark.extras
def test_trace_files_missing_in_the_database_are_kept(tmp_path: Path) -> None:
    chosen = ("--model", "builtin/noop", "--no-baselines", "--max-turns", "2")
    assert run(tmp_path, *chosen, "--episodes", "1", "--run-id", "one").code == 0
    (tmp_path / DATABASE).unlink()
    kept = {path: path.read_bytes() for path in (tmp_path / FOLDER / "one").iterdir()}
    assert run(tmp_path, *chosen, "--episodes", "1").code == 0
    assert {path: path.read_bytes() for path in (tmp_path / FOLDER / "one").iterdir()} == kept


def test_files_of_episodes_and_details_can_be_left_out(tmp_path: Path) -> None:
    chosen = ("--model", "builtin/noop", "--no-baselines", *SMALL)
    less = ("--no-save-traces", "--no-save-detailed-results")
    assert run(tmp_path, *chosen, *less).code == 0
    path = results_file(tmp_path)
    there = sorted(file.name for file in path.parent.iterdir() if file.is_file())
    assert there == ["index.json", path.name]
    part = json.loads(path.read_text("utf-8"))["models"]["builtin/noop"]
    assert "episodes" not in part
    assert len(part["metrics"]["reward"]) == 2


@pytest.mark.parametrize(
    ("limit", "reason", "steps"),
    [
        (("--step-limit", "7"), "step_limit", 7),
        (("--token-limit", "1"), "token_limit", 5),
        (("--time-limit", "0.001"), "time_limit", None),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_limit_ends_an_episode_with_a_result_and_is_shown(
    tmp_path: Path, limit: tuple[str, str], reason: str, steps: int | None
) -> None:
    chosen = ("--model", "builtin/noop", "--no-baselines", "--episodes", "1", *limit)
    assert run(tmp_path, *chosen).code == 0
    query = "SELECT state, stop_reason, num_timesteps FROM session_traces"
    ((state, found, counted),) = answer(tmp_path, query)
    assert (state, found) == ("result", reason)
    assert steps is None or counted == steps


@pytest.mark.extras
def test_verbose_adds_a_line_per_episode_and_twice_a_line_per_turn(tmp_path: Path) -> None:
    chosen = ("--model", "builtin/random", "--no-baselines", "--episodes", "2")

    def lines(*more: str) -> list[str]:
        done = run(tmp_path, *chosen, "--max-turns", "3", *more)
        assert done.code == 0
        return [line for line in done.errors.splitlines() if " episode " in line]

    assert len(lines("-v")) == 2
    twice = lines("-vv")
    assert len([line for line in twice if " turn " in line]) == 6
    assert len(twice) == 8


def test_results_of_user_hooks_are_stored_with_step_and_turn(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HOOKS)
    chosen = ("--model", "builtin/noop", "--no-baselines", "--episodes", "2")
    assert run(tmp_path, *chosen, "--max-turns", "2", "--hooks", "mine.py").code == 0
    rows = answer(
        tmp_path,
        "SELECT s.seed, h.turn, h.step, h.code FROM hook_results h"
        " JOIN session_traces s USING (session_id) WHERE h.hook_name = 'third' ORDER BY ALL",
    )
    one = [(1, 3, "3"), (2, 6, "3"), (2, 9, "3")]
    assert rows == [(seed, *row) for seed in (42, 43) for row in one]


def test_documented_hook_reports_thirst(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (source,) = [block for block in blocks if "@hook" in block]
    (tmp_path / "thirst.py").write_text(source)
    chosen = ("--model", "builtin/noop", "--no-baselines", "--episodes", "1")
    assert run(tmp_path, *chosen, "--max-turns", "6", "--hooks", "thirst.py").code == 0
    query = "SELECT code, step, turn, description FROM hook_results"
    assert answer(tmp_path, query) == [("T", 25, 5, "no water for 25 steps")]


def test_a_hook_that_raises_fails_its_episodes_and_the_run(tmp_path: Path) -> None:
    broken = HOOKS.replace("self.steps += 1", "raise ZeroDivisionError('of my own')")
    (tmp_path / "mine.py").write_text(broken)
    chosen = ("--model", "builtin/noop", "--no-baselines", "--hooks", "mine.py")
    done = run(tmp_path, *chosen, *SMALL)
    assert done.code == 1
    assert "2 of 2 episodes failed" in done.output
    assert "of my own" in done.output
    query = "SELECT DISTINCT state, error_traceback FROM session_traces"
    ((state, trace),) = answer(tmp_path, query)
    assert state == "failure"
    assert "mine.py" in trace
    results = json.loads(results_file(tmp_path).read_text("utf-8"))
    part = results["models"]["builtin/noop"]
    assert [item["seed"] for item in part["without_result"]] == [42, 43]


@pytest.mark.extras
def test_series_name_can_be_set(tmp_path: Path) -> None:
    chosen = ("--model", "builtin/noop", "--no-baselines", "--episodes", "1")
    assert run(tmp_path, *chosen, "--max-turns", "2", "--name", "mine").code == 0
    assert run(tmp_path, *chosen, "--max-turns", "3", "--name", "mine").code == 0
    names = answer(tmp_path, "SELECT name FROM experiments ORDER BY created_at")
    assert names == [("mine v1.0",), ("mine v1.1",)]


def test_unreachable_service_is_reported_before_the_run_starts(tmp_path: Path) -> None:
    with running(ServiceSettings(port=0)) as server:
        address = server.address
    done = run(tmp_path, "--model", "builtin/noop", "--service-url", address)
    assert done.code
    assert address in done.errors
    assert "assay serve" in done.errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<html>" + 3_000 * b"<p>hello</p>"),
        ("application/json", b'{"status": "ok", "of": "another"}'),
    ],
    ids=["a page", "another service"],
)
def test_address_of_another_server_gets_a_clear_error(
    tmp_path: Path, kind: str, body: bytes
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        done = run(tmp_path, "--model", "builtin/noop", "--service-url", address)
        server.shutdown()
    assert done.code == 2
    assert done.errors == (
        f"error: {address} is not an assay service: it answers GET /health with status 200 "
        f"and {kind}; start one with 'assay serve', or correct the address\n"
    )


@pytest.mark.extras
def test_service_token_is_read_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "a-token-of-thirty-two-letters-or-so"
    with running(ServiceSettings(port=0, token=token)) as server:
        monkeypatch.setenv("ASSAY_SERVICE_TOKEN", token)
        done = run(tmp_path, "--model", "builtin/noop", *SMALL, "--service-url", server.address)
    assert done.code == 0, done.errors


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    """Wait until a program prints this text on standard error."""
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)


def started(where: Path, *arguments: str) -> subprocess.Popen[str]:
    """Run `assay run` in a subprocess that prints every turn."""
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "run", *arguments, "-vv"],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.extras
def test_run_that_loses_its_service_exits_with_3_and_can_be_resumed(tmp_path: Path) -> None:
    chosen = ("--model", "builtin/forager", "--no-baselines", "--episodes", "20")
    with running(ServiceSettings(port=0)) as server:
        process = started(tmp_path, *chosen, "--service-url", server.address)
        wait_for(process, " turn 5/")
    with process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "20 of 20 episodes ended by infrastructure errors" in out
    (run_id,) = re.findall(r"assay run --resume (\S+)", out)
    again = run(tmp_path, "--resume", run_id, "--service-url", "")
    assert again.code == 0, again.errors
    states = "SELECT state, count(*) FROM session_traces GROUP BY ALL"
    assert answer(tmp_path, states) == [("result", 20)]
    assert not (tmp_path / f"{DATABASE}.journal").exists()


@pytest.mark.extras
def test_interrupted_run_exits_with_130_and_the_same_command_resumes_it(tmp_path: Path) -> None:
    size = ("--episodes", "20", "--max-turns", "40", "--no-save-traces")
    chosen = ("--model", "builtin/noop", "--no-baselines", *size)
    with started(tmp_path, *chosen) as process:
        wait_for(process, " turn 3/")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "assay run --resume " in out
    done = run(tmp_path, *chosen)
    assert done.code == 0
    assert "resuming unfinished run" in done.errors
    assert answer(tmp_path, "SELECT count(*) FROM runs") == [(1,)]
    assert answer(tmp_path, "SELECT count(*) FROM session_traces") == [(20,)]
    turns = "SELECT count(*) = count(DISTINCT (session_id, turn)) FROM turns"
    assert answer(tmp_path, turns) == [(True,)]
