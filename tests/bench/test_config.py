"""The TOML file of a benchmark: every key is checked before the run starts."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from assay.bench.config import _KEYS, BenchConfig, TaskEntry, read_benchmark
from assay.errors import UsageError

from .runs import entry, toml
from .tasks import make_task

EVERY_KEY: dict[str, Any] = {
    "model": "gpt-6-luna",
    "rollouts": 3,
    "apply_overrides": True,
    "overrides": "mine.json",
    "environment_variables": {"LEVEL": "2"},
    "agent": "command",
    "command": "true",
    "label": "mine",
    "sandbox": "none",
    "timeout": 90,
    "setup_timeout": 10.5,
    "grading_timeout": 20,
    "token_limit": 1000,
    "cost_limit": 0.5,
    "max_turns": 7,
    "temperature": 0.5,
    "max_tokens": 100,
    "cpus": 0.5,
    "memory_mb": 64,
    "processes": 12,
    "disk_mb": 5,
    "network": False,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the commands; it contains a task."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    make_task(tmp_path / "task", {"overrides.json": "{}"})
    return tmp_path


def read(text: str, **top: Any) -> BenchConfig:
    return BenchConfig(**read_benchmark(toml(Path("bench.toml"), text, **top)))


def refused(text: str, **top: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(text, **top)
    return str(caught.value)


def test_every_key_of_a_task_is_read(folder: Path) -> None:
    (folder / "mine.json").write_text("{}")
    (task,) = read(entry("task", **EVERY_KEY)).tasks
    assert {"prepared_dir", *EVERY_KEY} == set(_KEYS) == {key.name for key in fields(TaskEntry)}
    for name, value in EVERY_KEY.items():
        assert getattr(task, name) == value, name
    assert task.limits == {
        "cpus": 0.5,
        "memory_mb": 64,
        "processes": 12,
        "disk_mb": 5,
        "network": False,
    }


def test_missing_keys_have_defaults() -> None:
    config = read(entry())
    (task,) = config.tasks
    assert (config.name, config.parallel, config.judge_votes) == ("bench", 1, 3)
    assert (task.rollouts, task.agent, task.sandbox) == (1, "react-coder", "bubblewrap")
    assert (task.apply_overrides, task.limits, task.timeout) == (None, {}, 1800)


def test_the_keys_of_the_file_are_read() -> None:
    config = read(entry(), name="my_benchmark", parallel=4, judge="gpt-6-luna", judge_votes=5)
    assert (config.name, config.parallel) == ("my_benchmark", 4)
    assert (config.judge, config.judge_votes) == ("gpt-6-luna", 5)
    assert config.models == ("gpt-6-luna",)


@pytest.mark.parametrize(
    ("text", "top", "said"),
    [
        (entry(modle="x"), {}, "task 1: unknown key 'modle'; did you mean 'model'?"),
        (entry(), {"paralel": 2}, "unknown key 'paralel'; did you mean 'parallel'?"),
        (entry(), {"rollouts": 3}, "'rollouts' belongs below [[tasks]] or [defaults]"),
        (f"[defaults]\nagnet = 'nop'\n{entry()}", {}, "[defaults]: unknown key 'agnet'"),
        (entry(parallel=3), {}, "task 1: unknown key 'parallel'"),
        (entry(rollouts=0), {}, "task 1: rollouts: 0 is not allowed"),
        (entry(rollouts=1.5), {}, "task 1: rollouts: 1.5 is not allowed"),
        (entry(rollouts="3"), {}, "task 1: rollouts: '3' is not allowed"),
        (entry(rollouts=True), {}, "task 1: rollouts: True is not allowed"),
        (entry(apply_overrides="yes"), {}, "task 1: apply_overrides: 'yes' is not allowed"),
        (entry(timeout=0), {}, "task 1: timeout: 0 is not allowed"),
        (entry(token_limit=0), {}, "task 1: token_limit: 0 is not allowed"),
        (entry(cost_limit=-1), {}, "task 1: cost_limit: -1 is not allowed"),
        (entry(memory_mb=1), {}, "task 1: memory_mb: 1 is not allowed"),
        (entry(model=5), {}, "task 1: model: 5 is not allowed"),
        (entry("nowhere"), {}, "task 1: prepared_dir: 'nowhere' not found"),
        (entry(overrides="no.json"), {}, "task 1: overrides: 'no.json' not found"),
        (entry(agent="command"), {}, "agent 'command' requires the key 'command'"),
        ("[[tasks]]\nmodel = 'x'\n", {}, "task 1 has no prepared_dir"),
        ("tasks = [3]\n", {}, "task 1 is not a table"),
        ("", {}, "has no tasks; add [[tasks]]"),
        (entry(), {"defaults": 3}, "defaults is not a table"),
        (entry(), {"parallel": 0}, "parallel"),
        (entry(), {"parallel": "4"}, "parallel"),
        (entry(), {"name": "../escape"}, "name: '../escape' is not allowed"),
        ("[[tasks]\n", {}, "not valid TOML"),
    ],
)
def test_wrong_key_or_value_is_reported_before_the_run_starts(
    text: str, top: dict[str, Any], said: str
) -> None:
    assert said in refused(text, **top)


def test_error_in_the_second_task_names_its_position() -> None:
    assert "task 2: rollouts: 0 is not allowed" in refused(entry() + entry(rollouts=0))


def test_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"benchmark file 'no\.toml' not found"):
        read_benchmark(Path("no.toml"))


@pytest.mark.parametrize(
    "variables",
    [
        {"OPENAI_API_KEY": "hunter2hunter2"},
        {"MY_TOKEN": "hunter2hunter2"},
        {"PLAIN": "sk-proj-hunter2hunter2hunter2hunter2hunter2"},
    ],
)
def test_secret_in_the_variables_is_rejected_and_not_printed(variables: dict[str, str]) -> None:
    said = refused(entry(environment_variables=variables))
    assert next(iter(variables)) in said
    assert "looks like a secret" in said
    assert "hunter2" not in said


def test_a_variable_must_be_a_text() -> None:
    assert "LEVEL is not a string" in refused(entry(environment_variables={"LEVEL": 3}))
    assert "'A B' is not a valid variable name" in refused(
        "[[tasks]]\nprepared_dir = 'task'\nenvironment_variables = { 'A B' = 'x' }\n"
    )


def test_timeout_sec_is_the_time_limit_of_the_agent() -> None:
    (task,) = read(entry(environment_variables={"TIMEOUT_SEC": "90"})).tasks
    assert task.timeout == 90
    said = refused(entry(timeout=80, environment_variables={"TIMEOUT_SEC": "90"}))
    assert "timeout is 80, but TIMEOUT_SEC is 90" in said
    said = refused(entry(environment_variables={"TIMEOUT_SEC": "soon"}))
    assert "TIMEOUT_SEC is 'soon'" in said


def test_timeout_sec_of_a_task_overrides_the_default() -> None:
    variable = entry(environment_variables={"TIMEOUT_SEC": "90"})
    config = read(f"[defaults]\ntimeout = 60\n{variable}{entry()}")
    assert [task.timeout for task in config.tasks] == [90, 60]


def test_defaults_apply_to_tasks_without_the_key() -> None:
    config = read(f"[defaults]\nagent = 'nop'\nrollouts = 2\n{entry()}{entry(rollouts=5)}")
    assert [(task.agent, task.rollouts) for task in config.tasks] == [("nop", 2), ("nop", 5)]


def test_paths_are_relative_to_the_working_directory_then_to_the_file(folder: Path) -> None:
    beside = folder / "configs"
    make_task(beside / "task")
    make_task(beside / "other")
    file = toml(beside / "bench.toml", entry("task") + entry("other"))
    tasks = read_benchmark(Path("configs/bench.toml"))["tasks"]
    assert [task["prepared_dir"] for task in tasks] == ["task", "configs/other"]
    assert read_benchmark(file)["tasks"][1]["prepared_dir"] == str(beside / "other")


def test_file_overrides_the_sandbox_backend_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_BACKEND", "none")
    config = read(entry() + entry(sandbox="bubblewrap"))
    assert [task.sandbox for task in config.tasks] == ["none", "bubblewrap"]
    assert any("protects nothing" in words for words in config.warnings())
    config = read(f"[defaults]\nsandbox = 'bubblewrap'\n{entry()}")
    assert [task.sandbox for task in config.tasks] == ["bubblewrap"]


def test_model_map_replaces_models_and_rejects_unknown_ones() -> None:
    file = toml(Path("bench.toml"), entry(model="gpt-4") + entry(model="other"))
    tasks = read_benchmark(file, model_map={"gpt-4": "gpt-6-luna"})["tasks"]
    assert [task["model"] for task in tasks] == ["gpt-6-luna", "other"]
    with pytest.raises(UsageError, match="unknown model in --model-map 'gpt-5'"):
        read_benchmark(file, model_map={"gpt-5": "gpt-6-luna"})


def test_agent_option_applies_to_every_task() -> None:
    file = toml(Path("bench.toml"), entry(agent="nop") + entry())
    tasks = read_benchmark(file, agent="oracle")["tasks"]
    assert [task["agent"] for task in tasks] == ["oracle", "oracle"]


def test_stored_configuration_is_read_back() -> None:
    config = read(entry(model="gpt-6-luna", rollouts=2, environment_variables={"A": "b"}))
    stored = json.loads(json.dumps(config.stored()))
    stored.pop("models", None)
    assert BenchConfig(**stored).tasks == config.tasks
