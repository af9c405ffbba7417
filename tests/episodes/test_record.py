"""The record of a run: its experiments, and the settings that make a new version."""

from dataclasses import replace
from typing import Any

import pytest

from assay.agents.options import AgentOptions
from assay.crafter import DIFFICULTIES
from assay.episodes.arms import make_arms
from assay.episodes.config import RunConfig
from assay.runs.prepare import make_run_record

CONFIG = RunConfig(models=("builtin/random", "builtin/expert"))


def fingerprint(config: RunConfig, model: str = "builtin/expert") -> str | None:
    experiments = make_run_record(config, make_arms(config, {}), "run", "assay run").experiments
    return {experiment.model: experiment.fingerprint for experiment in experiments}[model]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("models", ("builtin/expert",)),
        ("name", "mine"),
        ("episodes", 3),
        ("seed", 3),
        ("baselines", False),
        ("until_decided", "reward"),
        ("min_effect", 0.5),
    ],
)
def test_choice_and_number_of_worlds_do_not_change_the_version(name: str, value: Any) -> None:
    chosen: dict[str, Any] = {"until_decided": "reward"} if name == "min_effect" else {}
    before = replace(CONFIG, **chosen)
    assert fingerprint(replace(before, **{name: value})) == fingerprint(CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_turns", 3),
        ("difficulty", DIFFICULTIES["hard"]),
        ("agent", AgentOptions(history=3)),
        ("step_limit", 3),
        ("token_limit", 3),
        ("time_limit", 3.0),
    ],
)
def test_settings_of_agent_world_and_limits_change_the_version(name: str, value: Any) -> None:
    assert fingerprint(replace(CONFIG, **{name: value})) != fingerprint(CONFIG)


def test_another_model_has_another_fingerprint() -> None:
    assert fingerprint(CONFIG, "builtin/random") != fingerprint(CONFIG, "builtin/expert")
