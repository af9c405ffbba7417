import json
import pickle
import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.agents.options import AgentOptions
from assay.core.canonical_json import canonical_json, content_hash
from assay.core.secrets import Secret
from assay.crafter import DIFFICULTIES, Difficulty
from assay.episodes.arms import make_arms
from assay.episodes.config import BASELINES, DEFAULT_MODELS, SETTINGS, RunConfig
from assay.errors import UsageError
from assay.runs.configuration import list_differences, resolve
from assay.runs.prepare import make_run_record
from assay.store.location import DATABASE_VARIABLE

KEY = "sk-very-secret"


def resolved(**given: Any) -> RunConfig:
    return resolve(RunConfig, given, environment={}).config


def error_of(**given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        resolved(**given)
    return str(caught.value)


def test_defaults_are_the_documented_ones() -> None:
    config = resolved()
    assert config == RunConfig()
    assert config.models == DEFAULT_MODELS
    assert (config.episodes, config.max_turns, config.seed) == (10, 100, 42)
    assert config.difficulty == DIFFICULTIES["easy"]
    assert config.database == Path("crafter_multi_model_traces.duckdb")
    assert config.service_url is None
    assert (config.concurrent_models, config.max_concurrent_models) == (False, 3)
    assert config.max_concurrent_episodes == 1000
    assert config.agent == AgentOptions()


def test_every_setting_is_a_field_of_the_run_or_of_the_agent() -> None:
    derived = {"agent", "agent_hashes", "environment_hash", "hook_hashes", "metrics_hash"}
    own = {field.name for field in fields(RunConfig)} - derived
    assert own | {field.name for field in fields(AgentOptions)} == set(SETTINGS)


def test_configuration_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        RunConfig().episodes = 3  # type: ignore[misc]


def test_configuration_can_be_pickled() -> None:
    config = RunConfig(openai_api_key=Secret(KEY))
    assert pickle.loads(pickle.dumps(config)) == config


def test_sources_name_the_origin_of_each_value(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[experiment]\nepisodes = 5\nmax_turns = 7\n")
    done = resolve(RunConfig, {"episodes": 3, "seed": None}, file, environment={})
    assert (done.config.episodes, done.config.max_turns, done.config.seed) == (3, 7, 42)
    assert done.sources["episodes"] == "command line"
    assert done.sources["max_turns"] == f"{file} [experiment] max_turns"
    assert done.sources["seed"] == "default"
    assert set(done.sources) == set(SETTINGS)


def test_environment_names_the_database_unless_overridden(tmp_path: Path) -> None:
    environment = {DATABASE_VARIABLE: "env.duckdb"}
    done = resolve(RunConfig, {}, environment=environment)
    assert done.config.database == Path("env.duckdb")
    assert done.sources["database"] == "environment ASSAY_DATABASE"
    file = tmp_path / "a.toml"
    file.write_text('[services]\ndatabase_path = "file.duckdb"\n')
    assert resolve(RunConfig, {}, file, environment=environment).config.database == Path(
        "file.duckdb"
    )
    given = resolve(RunConfig, {"database": "mine.duckdb"}, file, environment=environment)
    assert given.config.database == Path("mine.duckdb")
    assert resolve(RunConfig, {}, environment={DATABASE_VARIABLE: ""}).config == RunConfig()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("episodes", 0),
        ("episodes", True),
        ("episodes", 2.5),
        ("episodes", "ten"),
        ("max_turns", -1),
        ("seed", 2**31),
        ("models", []),
        ("models", ["a", ""]),
        ("models", 3),
        ("name", "two\nlines"),
        ("name", "x" * 201),
        ("service_url", "localhost:8901"),
        ("service_url", "ftp://localhost"),
        ("service_url", "http://localhost:99999"),
        ("service_timeout", 0),
        ("service_timeout", float("nan")),
        ("service_timeout", float("inf")),
        ("concurrent_models", 1),
        ("max_concurrent_models", 0),
        ("max_concurrent_episodes", 0),
        ("database", ""),
        ("traces_dir", "a\0b"),
        ("history", 0),
        ("temperature", 2.5),
        ("max_tokens", 0),
        ("actions_per_turn", 51),
        ("view", "long"),
        ("view", ["full"]),
        ("step_limit", -1),
        ("token_limit", 1.5),
        ("time_limit", -0.5),
        ("time_limit", 10**400),
    ],
)
def test_invalid_value_is_reported_with_the_allowed_values(name: str, value: Any) -> None:
    message = error_of(**{name: value})
    setting = SETTINGS[name]
    assert message.startswith(f"{setting.option}: ")
    assert repr(value)[:40] in message
    assert f"give {setting.takes.allowed}" in message


def test_password_in_a_url_is_rejected_and_not_printed() -> None:
    message = error_of(service_url="http://me:secret@localhost")
    assert "'http://[redacted]@localhost' is not allowed" in message
    assert "secret" not in message


def test_duplicate_model_is_reported() -> None:
    assert "'a' is given twice" in error_of(models=["a", "b", "a"])


def test_one_model_can_be_given_as_a_string() -> None:
    assert resolved(models="gpt-4o-mini").models == ("gpt-4o-mini",)


def test_unknown_setting_is_an_error_with_a_suggestion() -> None:
    assert "did you mean 'episodes'?" in error_of(episode=3)


def test_configuration_made_in_python_is_validated() -> None:
    with pytest.raises(UsageError, match=r"^episodes: 0 is not allowed; give a whole number"):
        RunConfig(episodes=0)
    with pytest.raises(UsageError, match="is too large for 10 episodes"):
        RunConfig(seed=2**31 - 5)
    assert RunConfig(seed=2**31 - 10).seed == 2**31 - 10


def test_none_and_zero_override_values_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        '[services]\ncrafter_service_url = "http://localhost:8901/"\n'
        "[limits]\nstep_limit = 50\ntime_limit = 1\n[run]\nname = ' mine '\n"
    )
    config = resolve(RunConfig, {}, file, environment={}).config
    assert (config.service_url, config.step_limit) == ("http://localhost:8901", 50)
    assert (config.time_limit, config.name) == (1.0, "mine")
    taken_back = {"service_url": "", "step_limit": 0, "time_limit": 0, "name": ""}
    assert resolve(RunConfig, taken_back, file, environment={}).config == RunConfig()


def test_a_difficulty_is_a_name_or_a_table_of_numbers() -> None:
    assert resolved(difficulty="hard").difficulty == DIFFICULTIES["hard"]
    own = resolved(difficulty={"cow_chance": 0.5}).difficulty
    assert own == Difficulty(cow_chance=0.5)
    assert "did you mean 'medium'?" in error_of(difficulty="medum")
    assert "cow_chance = 2 is not allowed" in error_of(difficulty={"cow_chance": 2})


def test_agent_settings_have_the_bounds_of_the_agent() -> None:
    bounds: dict[str, Any] = {
        "history": (1, 100),
        "temperature": (0, 2),
        "actions_per_turn": (1, 50),
    }
    for name, (low, high) in {**bounds, "max_tokens": (1, 10**9)}.items():
        for bound in ({name: low}, {name: high}):
            assert resolved(**bound).agent == AgentOptions(**bound)
        for wrong in ({name: low - 1}, {name: high + 1}):
            assert (
                f"--{name.replace('_', '-')}: {wrong[name]} is not allowed; give"
                in error_of(**wrong)
            )
            with pytest.raises(
                UsageError, match=f"^{name}: {wrong[name]} is not allowed; give"
            ):
                AgentOptions(**wrong)
    for word in ("full", "short"):
        assert resolved(view=word).agent.view == word


def test_prompt_file_is_identified_by_its_text(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Play well.")
    config = resolved(prompt=prompt)
    assert config.agent.prompt == "Play well."
    prompt.write_text("Play better.")
    lines = list_differences(
        RunConfig, config.identity(), resolved(prompt=str(prompt)).identity()
    )
    assert lines == ["agent.prompt: Play well. -> Play better."]
    assert "cannot read" in error_of(prompt=tmp_path / "none.md")
    prompt.write_bytes(b"\xff\xfe")
    assert "not text in UTF-8" in error_of(prompt=prompt)


def test_hook_files_are_identified_by_their_content(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks.py"
    hooks.write_text("a = 1\n")
    moved = tmp_path / "moved.py"
    moved.write_text("a = 1\n")
    one = resolved(hooks=[hooks])
    assert one.hooks == (hooks,)
    assert one.identity() == resolved(hooks=str(moved)).identity()
    hooks.write_text("a = 2\n")
    assert list_differences(RunConfig, one.identity(), resolved(hooks=[hooks]).identity())
    assert "the file does not exist" in error_of(hooks=[tmp_path / "none.py"])
    assert "twice" in error_of(hooks=[hooks, hooks])


def test_baselines_are_added_unless_they_are_already_models() -> None:
    assert RunConfig(models=("a",)).added_baselines == BASELINES
    assert RunConfig(models=("builtin/random", "a")).added_baselines == ("builtin/noop",)
    assert RunConfig().added_baselines == ()
    assert RunConfig(models=("a",), baselines=False).added_baselines == ()


def test_a_key_is_neither_shown_nor_stored() -> None:
    config = resolved(openai_api_key=KEY)
    assert config.openai_api_key is not None
    assert config.openai_api_key.reveal() == KEY
    assert KEY not in f"{config!r} {config} {json.dumps(config.stored())}"
    assert KEY not in json.dumps(config.identity())
    assert KEY not in error_of(openai_api_key=f"{KEY} {KEY}")
    assert list_differences(RunConfig, config.stored(), RunConfig().stored()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("models", ("a",)),
        ("name", "mine"),
        ("episodes", 3),
        ("max_turns", 3),
        ("difficulty", DIFFICULTIES["hard"]),
        ("seed", 3),
        ("baselines", False),
        ("agent", AgentOptions(history=3)),
        ("step_limit", 3),
        ("token_limit", 3),
        ("time_limit", 3.0),
        ("openai_base_url", "http://localhost:1"),
    ],
)
def test_identity_contains_settings_that_affect_results(name: str, value: Any) -> None:
    assert list_differences(
        RunConfig, RunConfig().stored(), replace(RunConfig(), **{name: value}).stored()
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database", Path("other.duckdb")),
        ("service_url", "http://localhost:1"),
        ("service_timeout", 3.0),
        ("concurrent_models", True),
        ("max_concurrent_models", 2),
        ("max_concurrent_episodes", 2),
        ("executor", "processes"),
        ("workers", 2),
        ("traces_dir", Path("other")),
        ("save_traces", False),
        ("save_detailed_results", False),
    ],
)
def test_identity_excludes_settings_that_do_not_affect_results(name: str, value: Any) -> None:
    changed = replace(RunConfig(), **{name: value})
    assert changed.identity() == RunConfig().identity()
    assert changed.stored() != RunConfig().stored()


def test_difference_is_printed_in_readable_lines() -> None:
    old = RunConfig().stored()
    new = RunConfig(
        episodes=20, step_limit=5, difficulty=Difficulty(), agent=AgentOptions(view="short")
    ).stored()
    lines = list_differences(RunConfig, old, new)
    assert "episodes: 10 -> 20" in lines
    assert "step_limit: none -> 5" in lines
    assert "agent.view: full -> short" in lines
    assert "difficulty.tree_chance: 0.3 -> 0.2" in lines
    assert list_differences(RunConfig, old, json.loads(json.dumps(old))) == []


def test_difference_at_the_end_of_a_long_text_is_shown() -> None:
    one, other = (AgentOptions(prompt="x" * 100 + end) for end in "ab")
    lines = list_differences(
        RunConfig, RunConfig(agent=one).stored(), RunConfig(agent=other).stored()
    )
    assert lines == ["agent.prompt: changed"]


def test_stored_run_replaces_the_defaults(tmp_path: Path) -> None:
    prompt, hooks = tmp_path / "prompt.md", tmp_path / "hooks.py"
    prompt.write_text("Play well.")
    hooks.write_text("a = 1\n")
    config = resolved(
        models=["a"], episodes=3, prompt=prompt, hooks=[hooks], difficulty={"cow_chance": 0.5}
    )
    stored = json.loads(json.dumps(config.stored()))
    prompt.unlink()
    again = resolve(RunConfig, {}, stored=stored, environment={})
    assert again.config == config
    assert again.sources["episodes"] == "the run"
    other = resolve(RunConfig, {"episodes": 4}, stored=stored, environment={}).config
    assert list_differences(RunConfig, stored, other.stored()) == ["episodes: 3 -> 4"]
    hooks.write_text("a = 2\n")
    changed = resolve(RunConfig, {}, stored=stored, environment={}).config
    assert re.match("hook_hashes: ", list_differences(RunConfig, stored, changed.stored())[0])


def test_stored_run_uses_the_database_it_was_found_in() -> None:
    stored = RunConfig(database=Path("elsewhere.duckdb")).stored()
    found = resolve(
        RunConfig, {"database": "here.duckdb"}, stored=stored, environment={}
    ).config
    assert found.database == Path("here.duckdb")
    assert (
        resolve(RunConfig, {}, stored=stored, environment={}).config.database
        == RunConfig().database
    )


def test_setting_without_effect_gives_a_warning() -> None:
    alone = resolve(RunConfig, {"max_concurrent_models": 2}, environment={})
    assert "--concurrent-models" in alone.warnings[0]
    both = {"max_concurrent_models": 2, "concurrent_models": True}
    assert resolve(RunConfig, both, environment={}).warnings == ()


def test_errors_name_the_setting_in_python_and_the_option_on_the_command_line() -> None:
    with pytest.raises(UsageError, match=r"^--max-turns: 0 is not allowed"):
        resolve(RunConfig, {"max_turns": 0}, environment={})
    with pytest.raises(UsageError, match=r"^max_turns: 0 is not allowed"):
        resolve(RunConfig, {"max_turns": 0}, environment={}, source="assay.run")
    with pytest.raises(UsageError, match=r"^max_turns: 0 is not allowed"):
        assay.run(max_turns=0)
    assert resolve(RunConfig, {"seed": 1}, source="assay.run").sources["seed"] == "assay.run"


PROMPT, HOOKS, METRICS = "Play well.\n", "a = 1\n", "b = 2\n"
PLAYED_OTHERWISE = {
    **{"models": ["gpt-4o-mini", "builtin/expert"], "name": "mine", "episodes": 20},
    **{"until_decided": "reward", "min_effect": 0.5, "max_turns": 30, "difficulty": "hard"},
    **{"seed": 7, "baselines": False, "history": 3, "temperature": 1, "max_tokens": 50},
    **{"actions_per_turn": 2, "view": "short", "prompt": "p.md", "hooks": ["h.py"]},
    **{"step_limit": 9, "token_limit": 8, "time_limit": 7},
    "openai_base_url": "http://localhost:1/v1/",
}
STORED_ELSEWHERE = {
    **{"models": "a", "difficulty": {"cow_chance": 0.5}, "database": "x.duckdb"},
    **{"service_url": "http://localhost:8901", "budget": 2, "price": "0.15/0.60"},
    **{"metrics_from": "m.py", "cache": "c.sqlite", "max_connections": 4},
    **{"concurrent_models": True, "save_traces": False, "openai_api_key": "sk-x"},
}


@pytest.mark.parametrize(
    ("given", "identity", "stored", "fingerprints"),
    [
        (
            {},
            "417cac74489702c1f54c7bb1ac5b46dc",
            "6a565e8fa19ba8c81e2729f1e78682b0",
            {
                "builtin/noop": "7015fbb056576fa3aae6a95dfae74448",
                "builtin/random": "076838e1504bd8419f7445a5ca434089",
                "builtin/forager": "e246b029ef44f7f2bf98fa95aec988d9",
                "builtin/expert": "6bca94ff75909b1f8b9585e6f0d16ad6",
            },
        ),
        (
            PLAYED_OTHERWISE,
            "ce141dc98b538621d6f03f330ef3da2c",
            "0427772e16454420ee492e66251c195f",
            {
                "gpt-4o-mini": "dcab7202e30f7dfdb6de8d35f0a55784",
                "builtin/expert": "7ee31c737ca08d1e23f66d2e36368fad",
            },
        ),
        (
            STORED_ELSEWHERE,
            "3cc0bb80eeabd18355effded116e7162",
            "3886f7d3b1e56fc8a309947f2cdcd7de",
            {
                "a": "ae37eb5d41377be4ecaf6452b46ef921",
                "builtin/noop": "a475077bed1202668de38e258b530415",
                "builtin/random": "e9ede3199384de456221b595626128f4",
            },
        ),
    ],
    ids=["defaults", "played otherwise", "stored elsewhere"],
)
def test_runs_of_the_first_format_keep_their_identity_and_fingerprints(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: Any,
    identity: str,
    stored: str,
    fingerprints: dict[str, str],
) -> None:
    """Written by commit 557b711: a difference would restart runs, or make a new version."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("p.md", PROMPT), ("h.py", HOOKS), ("m.py", METRICS)):
        Path(name).write_text(text)
    config = resolved(**given)
    assert content_hash(canonical_json(config.identity())) == identity
    assert content_hash(canonical_json(config.stored())) == stored
    record = make_run_record(config, make_arms(config, {}), "run-1", "")
    assert {
        experiment.model: experiment.fingerprint for experiment in record.experiments
    } == fingerprints
