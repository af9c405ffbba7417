"""A setting is declared once; options, keys and files follow from its declaration."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from assay.agents.options import AgentOptions
from assay.cli.options import build_options
from assay.core.secrets import Secret
from assay.core.settings import Configuration, Counts, Setting, list_settings, section
from assay.core.values import flag, key, value_type, whole
from assay.episodes.arms import make_arms
from assay.episodes.config import UNLOGGED, RunConfig
from assay.errors import UsageError
from assay.runs.configuration import format_template, list_differences, resolve
from assay.runs.prepare import make_run_record

READ: list[Any] = []


@value_type("anything")
def noted(value: Any) -> Any:
    READ.append(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Small(Configuration):
    """Settings that have nothing to do with a game."""

    tasks: int = Setting(
        3, whole(1, 9), Counts.SAMPLE, at="bench old.jobs", group="What"
    ).about("Tasks to solve")
    patch: str = Setting("none", noted, at="bench").about("What is put in first")
    network: bool = Setting(
        False, flag, Counts.NOTHING, at="box", group="Where", variable="BOX_NETWORK"
    ).about("Let tasks reach the network")
    token: Secret | None = Setting(
        None, key, Counts.NOTHING, at="box", secret="BOX_TOKEN"
    ).about("A key of the box")


@dataclass(frozen=True, slots=True)
class LaterAgent(AgentOptions):
    """Agent options with one more setting."""

    thoughts: int = Setting(0, whole(0, 9), added=True).about("How often it thinks twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Later(RunConfig):
    """Run settings of a later version."""

    lives: int = Setting(1, whole(1, 9), at="experiment", added=True).about("Lives of a player")
    agent: LaterAgent = section(LaterAgent, Counts.VERSION, group="How models are asked")


def fingerprints(config: RunConfig) -> list[str]:
    return [
        experiment.fingerprint
        for experiment in make_run_record(
            config, make_arms(config, {}), "run-1", ""
        ).experiments
    ]


def test_new_setting_changes_the_fingerprint_only_if_not_default() -> None:
    old = RunConfig(episodes=5, max_turns=7)
    same = Later(episodes=5, max_turns=7)
    assert same.identity() == old.identity()
    assert same.stored() == old.stored()
    assert fingerprints(same) == fingerprints(old)
    assert list_differences(Later, old.stored(), same.stored()) == []
    other = Later(episodes=5, max_turns=7, lives=3)
    assert fingerprints(other) != fingerprints(old)
    assert list_differences(Later, old.stored(), other.stored()) == ["lives: none -> 3"]
    thinks = Later(episodes=5, max_turns=7, agent=LaterAgent(thoughts=2))
    assert fingerprints(thinks) != fingerprints(old)
    assert list_differences(Later, old.stored(), thinks.stored()) == [
        "agent.thoughts: none -> 2"
    ]


def test_run_recorded_before_a_setting_existed_resumes_with_its_default() -> None:
    stored = RunConfig(episodes=5).stored()
    assert resolve(Later, {}, stored=stored, environment={}).config == Later(episodes=5)
    stored = Later(lives=3, agent=LaterAgent(thoughts=2)).stored()
    again = resolve(Later, {}, stored=stored, environment={}).config
    assert (again.lives, again.agent.thoughts) == (3, 2)


def test_declared_setting_has_an_option_a_key_and_a_line_in_a_new_file(tmp_path: Path) -> None:
    assert {"lives", "thoughts"} <= set(get_type_hints(build_options(Later)))
    text = format_template(Later, "# Later.")
    assert "# Lives of a player (from 1 to 9).\n#lives = 1\n" in text
    file = tmp_path / "later.toml"
    file.write_text("[experiment]\nlives = 2\n[agent]\nthoughts = 4\n")
    done = resolve(Later, {}, file, environment={})
    assert (done.config.lives, done.config.agent.thoughts) == (2, 4)
    assert done.sources["lives"] == f"{file} [experiment] lives"


def test_other_kinds_of_runs_declare_their_own_settings(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text("[old]\njobs = 4\n[box]\nnetwork = true\n")
    done = resolve(Small, {"patch": "a"}, file, environment={})
    assert done.config == Small(tasks=4, patch="a", network=True)
    assert done.config.stored() == {"tasks": 4, "patch": "a", "network": True}
    assert done.config.stored(Counts.VERSION) == {"patch": "a"}
    assert done.config.identity() == {"tasks": 4, "patch": "a"}
    file.write_text("[box]\ntasks = 4\n")
    with pytest.raises(UsageError, match=r"in \[box\].*'tasks' belongs below \[bench\]"):
        resolve(Small, {}, file, environment={})
    assert tomllib.loads(format_template(Small, "# Small.")) == {"bench": {}, "box": {}}


def test_a_secret_has_no_option_and_is_not_stored() -> None:
    assert set(get_type_hints(build_options(Small))) == {"tasks", "patch", "network"}
    assert "token" not in Small(token=Secret("x")).stored()
    with pytest.raises(UsageError, match=r"^token: this value is not allowed"):
        Small(token="two words")  # type: ignore[arg-type]


def test_setting_with_a_variable_is_read_from_the_environment() -> None:
    with pytest.raises(UsageError, match=r"^BOX_NETWORK: 'yes' is not allowed; give true"):
        resolve(Small, {}, environment={"BOX_NETWORK": "yes"})


def test_a_value_is_read_once() -> None:
    READ.clear()
    resolve(Small, {"patch": "given"}, environment={})
    assert READ == ["given"]
    Small(patch="made")
    assert READ == ["given", "made"]


def test_none_is_only_for_settings_that_may_be_none() -> None:
    assert Small(token=None).token is None
    with pytest.raises(UsageError, match=r"^tasks: None is not allowed; give a whole number"):
        Small(tasks=None)  # type: ignore[arg-type]


def test_section_is_a_separate_configuration() -> None:
    with pytest.raises(UsageError, match=r"^agent: .* is not allowed; give an object of"):
        RunConfig(agent={"history": 3})  # type: ignore[arg-type]


def test_settings_inherit_the_group_of_the_previous_setting() -> None:
    assert [setting.group for setting in list_settings(Small).values()] == [
        "What",
        "What",
        *["Where"] * 2,
    ]


def test_changelog_ignores_paths_other_models_and_speed() -> None:
    assert {
        *("models", "name", "baselines", "hooks", "hook_hashes", "database", "traces_dir"),
        *("service_url", "service_timeout", "concurrent_models", "max_concurrent_models"),
        *("max_concurrent_episodes", "save_traces", "save_detailed_results", "budget", "price"),
        *("agents", "agent_hashes", "arms", "call_patience", "executor", "workers"),
        "ray_address",
        *("max_connections", "cache", "metrics_from", "metrics_hash", "openai_api_key"),
    } == UNLOGGED
