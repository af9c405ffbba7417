"""Arms of a run: prompts of one model, several tasks, replicates of worlds."""

import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from assay.api.comparison import compare, show_experiment
from assay.api.traces import verify
from assay.episodes.config import RunConfig
from assay.errors import UsageError
from assay.runs.configuration import resolve
from tests.runs.tables import rows

from .own_things import EXECUTORS, CountedModel, count_calls, play_in

pytestmark = pytest.mark.usefixtures("compiled_engine")

DATABASE = "crafter_multi_model_traces.duckdb"
PROMPTS = """
[experiment]
episodes = 8
max_turns = 5
seed = 7

[[arms]]
label = "plain"
model = "builtin/forager"

[[arms]]
label = "short"
model = "builtin/forager"
prompt = "short.txt"
view = "short"
actions_per_turn = 1
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_two_prompts_of_one_model_are_one_run_and_one_verdict(
    tmp_path: Path, executor: str
) -> None:
    (tmp_path / "short.txt").write_text("Be brief.", "utf-8")
    (tmp_path / "arms.toml").write_text(PROMPTS, "utf-8")
    more: dict[str, Any] = {} if executor == "asyncio" else {"executor": executor}
    result = play_in(tmp_path, config="arms.toml", **more)
    assert {row.model: row.state for row in result.episodes} == {
        "plain": "result",
        "short": "result",
    }
    names = {row.session_id: row.model for row in result.episodes}
    messages = rows(tmp_path / DATABASE, "messages")
    brief = [row["session_id"] for row in messages if "Be brief." in (row["text"] or "")]
    assert {names[session] for session in brief} == {"short"}
    with chdir(tmp_path):
        (contrast,) = compare("latest", metrics=["steps"]).contrasts
        assert contrast.verdict == "lower"  # one action a turn makes fewer steps
        assert {found.name for found in contrast.design} == {
            *("actions_per_turn", "prompt", "view")
        }
        entry, _ = show_experiment("short")
    assert entry.arm["model"] == "builtin/forager"
    assert entry.arm["settings"] == {
        "actions_per_turn": 1,
        "prompt": "Be brief.",
        "view": "short",
    }


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([{"label": "mine"}], "an arm needs a model, an agent, or both"),
        ([{"model": "builtin/noop", "promt": "x"}], "unknown key in [[arms]] 'promt'"),
        ([{"model": "builtin/noop", "view": "wide"}], "'wide'"),
        ([{"model": "builtin/noop"}] * 2, "two arms of the run have the label 'builtin/noop'"),
        ([{"agent": "agents.py:lost"}], "agents.py has no 'lost'"),
        ("builtin/noop", "arms"),
    ],
)
def test_invalid_arm_is_rejected_before_the_run_starts(
    tmp_path: Path, arms: Any, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        play_in(tmp_path, arms=arms)
    assert message in str(refused.value)


def test_an_agent_with_a_model_adds_an_arm_for_each_model_and_one_without_adds_one(
    tmp_path: Path,
) -> None:
    models = [CountedModel("a"), CountedModel("b")]
    result = play_in(
        tmp_path,
        models=models,
        agents=["agents.py:left", "agents.py:Twice"],
        arms=[{"label": "warm", "model": "a", "agent": "agents.py:Twice", "temperature": 1.0}],
        baselines=True,
        episodes=1,
        max_turns=2,
    )
    arms = [row.model for row in result.episodes]
    assert arms[:6] == ["a", "b", "left", "Twice+a", "Twice+b", "warm"]
    assert arms[6:] == ["builtin/noop", "builtin/random"]
    assert {row.model: row.steps for row in result.episodes}["Twice+b"] == 3
    temperatures = [request.temperature for request in models[0].requests]
    assert temperatures == [0.0] * 6 + [1.0] * 4
    assert count_calls(tmp_path) == 2 * (2 + 4) + 4


def test_several_difficulties_and_replicates_are_tasks_and_worlds_of_one_experiment(
    tmp_path: Path,
) -> None:
    settings = {"episodes": 2, "max_turns": 2, "replicates": 2, "seed": 3}
    result = play_in(tmp_path, models=["builtin/noop"], difficulty=["easy", "hard"], **settings)
    (experiment,) = {row.experiment_id for row in result.episodes}
    played = [(row.difficulty, row.seed) for row in result.episodes]
    assert played == [
        *[("easy", 3)] * 2,
        *[("hard", 3)] * 2,
        *[("easy", 4)] * 2,
        *[("hard", 4)] * 2,
    ]
    assert len({row.session_id for row in result.episodes}) == 8
    stored = [row for row in rows(tmp_path / DATABASE, "outcomes") if row["metric"] == "reward"]
    worlds = {(row["task"], row["seed"], row["replicate"]) for row in stored}
    assert len(worlds) == 8
    assert {row["experiment_id"] for row in stored} == {experiment}
    with chdir(tmp_path):
        assert {found.finding for found in verify()} == {"same"}


def test_ids_and_identity_of_a_plain_run_are_stable() -> None:
    plain = RunConfig(models=("builtin/noop",))
    given = {"models": ["builtin/noop"], "replicates": 1, "difficulty": ["easy"], "arms": []}
    spelt = resolve(RunConfig, given, environment={}).config
    assert spelt.stored() == plain.stored()
    assert not {"agents", "arms", "environment", "replicates"} & plain.stored().keys()


def test_runs_package_imports_no_world_and_no_agent() -> None:
    code = (
        "import sys, assay.runs, assay.runs.run\n"
        "print([name for name in sys.modules if name.startswith(('assay.crafter.world', "
        "'assay.crafter.engine', "
        "'assay.crafter.service', 'assay.crafter.players', 'assay.agents'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
