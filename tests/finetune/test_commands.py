"""`assay finetune` commands against a service over real HTTP and a real database."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.cli import main
from assay.store.store import Store

from .conftest import write_rows
from .server import Fault, Service

KEY = "sk-planted-0123456789abcdef"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Service) -> Path:
    """Change to an empty folder, with a key and the service as every backend."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", service.url)
    monkeypatch.setenv("SYNTH_API_KEY", KEY)
    monkeypatch.setenv("MODAL_BASE_URL", service.root)
    monkeypatch.setenv("ASSAY_FINETUNE_URL", service.root)
    monkeypatch.delenv("ASSAY_DATABASE", raising=False)
    write_rows(tmp_path / "data.jsonl")
    return tmp_path


Out = pytest.CaptureFixture[str]


def run(line: str) -> int:
    return main(shlex.split(line))


def run_json(line: str, capsys: Out, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(f"{line} --json") == code, capsys.readouterr()
    return dict(json.loads(capsys.readouterr().out))


def stored(query: str) -> list[tuple[Any, ...]]:
    with Store(Path("crafter_multi_model_traces.duckdb")).reading() as connection:
        return connection.execute(query).fetchall()


START = "finetune start data.jsonl --poll-interval 0"


def test_a_job_is_checked_started_followed_stored_and_its_model_tested(
    service: Service, capsys: Out
) -> None:
    service.key = KEY
    write_rows(Path("data.holdout.jsonl"), 4)
    assert run(f"{START} --backend openai --model GPT-4o-mini --suffix crafter") == 0
    shown, errors = capsys.readouterr()
    (job,) = service.jobs.values()
    name = job.about["fine_tuned_model"]
    assert "data.jsonl: 24 rows, no errors, ~" in shown
    assert f"destination of the data: {service.url}" in shown
    assert shown.index("destination of the data") < shown.index("started ftjob-")
    assert "validation: data.holdout.jsonl" in shown
    assert f"reply of {name} to the first row of its data" in shown
    assert 'calls interact({"actions": ["noop"]})' in shown
    assert f"assay models test {name}" in shown
    assert f"assay run --models {name} gpt-4o-mini" in shown
    assert "step 20/20, loss 0.1000" in errors
    assert f"succeeded after 10 min, 3,702 tokens trained: {name}" in errors
    assert KEY not in shown + errors
    # The upload is the file.
    assert service.files[job.about["training_file"]] == Path("data.jsonl").read_bytes()
    ((model, backend, result, rows, history, data, command),) = stored(
        "SELECT model, backend, result_model, rows, history::VARCHAR, data_sha256, command"
        " FROM finetune_jobs"
    )
    assert (model, backend, result, rows) == ("gpt-4o-mini", "openai", name, 24)
    assert [status for status, _ in json.loads(history)] == [
        *("validating_files", "running", "succeeded"),
    ]
    assert len(data) == 64
    assert "--suffix crafter" in command
    losses = stored("SELECT step, metrics->>'valid_loss' FROM finetune_events WHERE step > 0")
    assert [step for step, _ in losses] == list(range(1, 21))
    assert all(float(loss) > 0 for _, loss in losses)
    assert KEY.encode() not in Path("crafter_multi_model_traces.duckdb").read_bytes()


def test_a_file_is_uploaded_once_and_again_if_the_service_lost_it(
    service: Service, capsys: Out
) -> None:
    line = f"{START} --model gpt-4o-mini --no-wait"
    for _ in range(2):
        assert run(line) == 0
    assert service.count("POST", "files") == 1
    assert len(service.jobs) == 2
    service.files.clear()
    assert run(line) == 0
    assert service.count("POST", "files") == 2


@pytest.mark.extras
def test_each_combination_of_values_is_one_job_with_nested_subsets(
    service: Service, capsys: Out
) -> None:
    models = "Qwen/Qwen2.5-7b-Instruct Qwen/Qwen2.5-14B-Instruct"
    found = run_json(f"{START} --backend synth --model {models} --subset 5 24", capsys)
    assert [job["rows"] for job in found["jobs"]] == [5, 24, 5, 24]
    assert found["jobs"][0]["model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert all(job["status"] == "succeeded" for job in found["jobs"])
    assert found["jobs"][0]["test"] == {"problem": None, "finish": "stop"}
    sizes = [set(content.splitlines()) for content in service.files.values()]
    assert [len(rows) for rows in sizes] == [5, 24]
    assert sizes[0] < sizes[1]
    assert {"purpose": "fine-tune"} in service.queries
    assert service.bodies[0]["training_type"] == "sft"


def test_a_dry_run_sends_no_request_and_reports_missing_settings(
    service: Service, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("MODAL_BASE_URL")
    assert run(f"{START} --model gpt-4o-mini --dry-run") == 0
    shown, errors = capsys.readouterr()
    assert "nothing was uploaded (--dry-run)" in shown
    assert "at prices of 2026-04-07" in shown
    assert "set the variable OPENAI_API_KEY" in errors
    line = f"{START} --model gpt-4o-mini --base-url http://example.com/v1 --dry-run"
    assert "is not encrypted" in run_json(line, capsys)["warnings"][0]
    found = run_json(f"{START} --model Qwen/Qwen2.5-7B-Instruct --price 2 --dry-run", capsys)
    assert found["address"] is None
    tokens = found["jobs"][0]["trained_tokens"]
    assert found["cost_usd"] == pytest.approx(tokens / 1e6 * 2)
    assert found["jobs"][0]["seconds"] == pytest.approx(tokens * 0.0018)
    assert service.requests == []
    assert not Path("crafter_multi_model_traces.duckdb").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("--model gpt-4o-minni", "did you mean 'gpt-4o-mini'", id="model"),
        pytest.param("", "--model is missing", id="no model"),
        pytest.param("--backend opnai --model x", "did you mean 'openai'", id="backend"),
        pytest.param(
            "--backend synth --model gpt-4o-mini", "does not train a model", id="another's"
        ),
        pytest.param("--model gpt-4.1-nano", "retired on 2026-10-23", id="retired"),
        pytest.param("--model gpt-4o-mini --epochs 0", "--epochs", id="epochs"),
        pytest.param("--model gpt-4o-mini --subset 3", "3 rows are too few", id="few rows"),
        pytest.param(
            "--model local/tiny --base-url http://example.com/v1",
            "runs on this machine, but 'example.com' is another one",
            id="not here",
        ),
        pytest.param(
            "--model local/tiny --base-url http://127.0.0.1.example.com/v1",
            "'127.0.0.1.example.com' is another one",
            id="not quite here",
        ),
        pytest.param(
            "--model gpt-4o-mini --base-url http://me:secret@x/v1",
            "--base-url must be a URL",
            id="password",
        ),
    ],
)
def test_invalid_values_are_rejected_before_any_request(
    service: Service, capsys: Out, line: str, words: str
) -> None:
    assert run(f"{START} {line}") == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert "secret" not in shown
    assert service.requests == []


def test_invalid_data_is_not_uploaded(service: Service, capsys: Out) -> None:
    with Path("data.jsonl").open("a") as stream:
        stream.write('{"messages": [{"role": "user", "content": "x"}]}\n')
    assert run(f"{START} --model gpt-4o-mini") == 2
    assert "(line 25: ends with user instead of an answer)" in capsys.readouterr().err
    assert run("finetune start none.jsonl --model gpt-4o-mini") == 2
    Path("share.jsonl").write_text(
        '{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}\n'
    )
    assert run("finetune start share.jsonl --model gpt-4o-mini") == 2
    assert "'assay sft filter --format openai'" in capsys.readouterr().err
    assert service.requests == []


def test_a_rejected_key_is_one_error_line_without_the_key(
    service: Service, capsys: Out
) -> None:
    service.key = "sk-another-0123456789abcdef"
    assert run(f"{START} --model gpt-4o-mini") == 2
    errors = capsys.readouterr().err
    assert "check the key; 'assay doctor'" in errors
    assert KEY not in errors


def test_a_missing_key_or_address_variable_is_named(
    capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODAL_BASE_URL")
    monkeypatch.delenv("SYNTH_API_KEY")
    assert run(f"{START} --model Qwen/Qwen2.5-7B-Instruct") == 2
    errors = capsys.readouterr().err
    assert "set the variable MODAL_BASE_URL" in errors
    assert "set the variable SYNTH_API_KEY" in errors


def test_a_failed_job_exits_with_1_and_its_reason(service: Service, capsys: Out) -> None:
    service.script = ("running", "failed")
    assert run(f"{START} --model gpt-4o-mini") == 1
    assert f"failed after 60 s: {service.error}" in capsys.readouterr().err
    (job,) = service.jobs
    assert run(f"finetune test {job}") == 2
    assert "has not produced a model (status: failed)" in capsys.readouterr().err


@pytest.mark.extras
def test_jobs_can_be_waited_for_listed_queried_and_cancelled(
    service: Service, capsys: Out
) -> None:
    assert run(f"{START} --model gpt-4o-mini --epochs 1 2 --no-wait --quiet") == 0
    first, second = capsys.readouterr().out.split()
    assert run_json(f"finetune status {first}", capsys)["status"] == "running"
    done = run_json(f"finetune wait {first} --poll-interval 0", capsys)["jobs"]
    assert done[0]["result_model"].startswith("ft:gpt-4o-mini:")
    assert run_json(f"finetune cancel {second}", capsys)["jobs"][0]["status"] == "cancelled"
    assert run(f"finetune cancel {second}") == 2
    assert "has ended already: cancelled" in capsys.readouterr().err
    jobs = run_json("finetune list", capsys)["jobs"]
    assert {job["id"]: job["status"] for job in jobs} == {
        first: "succeeded",
        second: "cancelled",
    }
    events = run_json(f"finetune events {first}", capsys)["events"]
    assert events[0]["message"] == "Created fine-tuning job"
    assert sum("train_loss" in event["metrics"] for event in events) == 20
    assert run(f"finetune status {first}") == 0
    shown = capsys.readouterr().out
    assert "loss      2.0000 to 0.1000  █" in shown
    assert "SHA-256" in shown
    assert run("finetune list") == 0
    assert first in capsys.readouterr().out
    assert run("finetune status ftjob-none") == 2
    assert "unknown job 'ftjob-none'" in capsys.readouterr().err


def test_a_job_missing_from_the_database_is_found_at_its_backend_and_stored(
    service: Service, capsys: Out
) -> None:
    assert run(f"{START} --model gpt-4o-mini --no-wait --quiet") == 0
    name = capsys.readouterr().out.strip()
    Path("crafter_multi_model_traces.duckdb").unlink()
    assert run(f"finetune wait {name} --backend openai --poll-interval 0 --quiet") == 0
    assert capsys.readouterr().out.startswith("ft:gpt-4o-mini:")
    assert stored("SELECT id, status FROM finetune_jobs") == [(name, "succeeded")]


def test_a_fine_tuned_model_is_called_at_the_service_of_its_job_in_any_case(
    service: Service, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(f"{START} --model Qwen/Qwen2.5-7B-Instruct") == 0
    (job,) = service.jobs.values()
    name = job.about["fine_tuned_model"]
    # The variable's current address is ignored: the job has the address of its model.
    monkeypatch.setenv("MODAL_BASE_URL", "http://127.0.0.1:1")
    found = run_json(f"models test {name.upper()}", capsys)
    assert found["reply"] == "ok"
    assert service.bodies[-1]["model"] == name
    listed = run_json("models --provider synth", capsys)["models"]
    assert name in [row["name"] for row in listed]
    line = f"run --model {name.upper()} --episodes 1 --max-turns 2 --no-baselines"
    assert run(line) == 0
    assert stored("SELECT DISTINCT model FROM experiments") == [(name,)]
    assert service.bodies[-1]["model"] == name


@pytest.mark.extras
def test_a_fine_tuned_name_without_a_job_uses_its_base_model_or_the_given_provider(
    service: Service, capsys: Out
) -> None:
    assert run(f"{START} --model Qwen/Qwen2.5-7B-Instruct --quiet") == 0
    (job,) = service.jobs.values()
    name = job.about["fine_tuned_model"]
    job.about["fine_tuned_model"] = other = name.replace("qwen2-5-7b", "mine")
    Path("crafter_multi_model_traces.duckdb").unlink()
    assert run(f"models test {name}") == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(f"models test {other}") == 2
    assert "unknown model" in capsys.readouterr().err
    assert run_json(f"models test {other} --provider synth", capsys)["reply"] == "ok"
    line = f"run --models {other} --provider synth --episodes 1 --max-turns 1 --no-baselines"
    assert run(line) == 0
    assert service.bodies[-1]["model"] == other
    assert run(f"models test {other} --provider sinth") == 2
    assert "did you mean 'synth'" in capsys.readouterr().err


def test_a_model_that_does_not_respond_yet_does_not_fail_its_job(
    service: Service, capsys: Out
) -> None:
    service.faults["POST chat/completions"].append(Fault(404, message="not yet"))
    assert run(f"{START} --model gpt-4o-mini") == 0
    shown, errors = capsys.readouterr()
    assert "was created, but its test request failed" in errors
    assert "Run it:" in shown
    assert run("finetune test latest") == 0
    assert "to the first row of its data" in capsys.readouterr().out


def test_any_service_with_the_protocol_can_be_the_local_backend(
    service: Service, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_FINETUNE_URL")
    line = f"{START} --backend local --model local/tiny"
    assert run(f"{line} --base-url {service.url}") == 0
    assert "authorization" not in service.headers[-1]
    assert run(f"{line} --base-url http://127.0.0.1:1/v1") == 1
    errors = capsys.readouterr().err
    assert "no fine-tuning service is running at http://127.0.0.1:1/v1" in errors
    assert "assay serve-finetune --port PORT" in errors


def test_health_and_check_model_report_the_response_of_the_service(
    service: Service, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("finetune health --backend synth") == 0
    assert f"synth responds at {service.url}: status ok" in capsys.readouterr().out
    found = run_json("finetune check-model qwen/qwen2.5-7b-instruct --data data.jsonl", capsys)
    assert found["model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert (found["ok"], found["on_service"], found["rows"]) == (True, True, 24)
    found = run_json("finetune check-model gpt-4o", capsys, 1)
    assert (found["on_service"], found["price"]) == (False, 25.0)
    monkeypatch.delenv("SYNTH_API_KEY")
    assert run("finetune check-model Qwen/Qwen2.5-7B-Instruct") == 0
    shown, errors = capsys.readouterr()
    assert "can be fine-tuned with synth" in shown
    assert "set the variable SYNTH_API_KEY" in errors
    assert run("finetune health --backend synth") == 2
    assert run("finetune check-model Qwen/Qwen2.5-8B-Instruct") == 2


@pytest.mark.extras
def test_ctrl_c_leaves_the_job_running_and_prints_the_command_to_follow_it(
    service: Service,
) -> None:
    service.script = ("running",)
    words = shlex.split("finetune start data.jsonl --model gpt-4o-mini --poll-interval 60")
    with subprocess.Popen(
        [sys.executable, "-m", "assay", *words], stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        while "loss" not in (line := program.stderr.readline()):
            assert line, "it ended by itself"
        program.send_signal(signal.SIGINT)
        errors = program.stderr.read()
    (job,) = service.jobs
    assert program.returncode == 130
    assert "training continues without this command" in errors
    assert f"assay finetune wait {job}" in errors
    assert stored("SELECT id, status FROM finetune_jobs") == [(job, "running")]


@pytest.mark.extras
def test_the_lineage_of_the_data_is_stored_with_the_job(service: Service, capsys: Out) -> None:
    assay.run(models=["builtin/forager"], episodes=2, max_turns=8, baselines=False)
    built = assay.sft_filter("played.jsonl", min_reward=-9)
    assert run("finetune start played.jsonl --model gpt-4o-mini --poll-interval 0") == 0
    # The worlds were 42 and 43: the printed command plays other ones.
    assert "--episodes 20 --seed 44" in capsys.readouterr().out
    ((lineage, sha256, provenance),) = stored(
        "SELECT lineage::VARCHAR, data_sha256, provenance::VARCHAR FROM finetune_jobs"
    )
    assert sha256.startswith(built.dataset)
    assert json.loads(lineage)["worlds"]["train"]
    assert "assay" in json.loads(provenance)


def test_a_fine_tuned_model_plays_with_its_training_settings_by_default(
    service: Service, capsys: Out
) -> None:
    assay.run(
        models=["builtin/forager"],
        episodes=2,
        max_turns=8,
        baselines=False,
        view="short",
        history=2,
        actions_per_turn=1,
    )
    assay.sft_filter("played.jsonl", min_reward=-9)
    assert run("finetune start played.jsonl --model gpt-4o-mini --poll-interval 0 --quiet") == 0
    (job,) = service.jobs.values()
    name = job.about["fine_tuned_model"]
    line = f"run --models {name.upper()} --episodes 1 --seed 900 --max-turns 2 --no-baselines"
    capsys.readouterr()

    assert run(line) == 0
    errors = capsys.readouterr().err
    assert (
        "was fine-tuned with view short, history 2, actions per turn 1, so this run" in errors
    )
    assert "its training may have less effect" not in errors
    played = "SELECT DISTINCT metadata->>'$.agent' FROM session_traces WHERE seed = {}"
    ((agent,),) = stored(played.format(900))
    options = json.loads(agent)
    assert (options["view"], options["history"], options["actions_per_turn"]) == ("short", 2, 1)

    assert run(f"{line.replace('900', '901')} --view full --history 2") == 0
    errors = capsys.readouterr().err
    assert "was fine-tuned with view short, and this run uses view full" in errors
    ((agent,),) = stored(played.format(901))
    options = json.loads(agent)
    assert (options["view"], options["history"], options["actions_per_turn"]) == ("full", 2, 1)


@pytest.mark.extras
def test_a_terminal_shows_a_progress_bar_with_the_loss_curve(service: Service) -> None:
    service.script = ("running", "running", "succeeded")
    service.steps_per_poll = 10
    ours, theirs = pty.openpty()
    words = shlex.split("finetune start data.jsonl --model gpt-4o-mini --poll-interval 0.3")
    with subprocess.Popen(
        [sys.executable, "-m", "assay", *words],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as program:
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
    assert program.returncode == 0
    text = shown.decode("utf-8", "replace")
    assert "10/20" in text
    assert "loss 0.200 █▄▃▂" in text


@pytest.mark.extras
def test_the_python_functions_match_the_commands(service: Service) -> None:
    plan = assay.finetune_plan("data.jsonl", model="gpt-4o-mini", epochs=[1, 2])
    jobs = assay.finetune_start(plan)
    done = assay.finetune_wait(*(job.id for job in jobs), poll_interval=0)
    assert [job.succeeded for job in done] == [True, True]
    assert assay.finetune_status(done[0].result_model or "") == done[0]
    again = assay.finetune_plan("data.jsonl", model="gpt-4o-mini")
    assert again.seconds(again.jobs[0]) is not None
    assert assay.finetune_test("latest").problem is None
    assert len(assay.finetune_events()) == 23
