"""User and gymnasium environments: their declarations and their errors."""

from contextlib import chdir
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from assay.api.comparison import compare, read_results
from assay.api.run_preparation import prepare
from assay.api.runs import run_prepared
from assay.api.traces import verify
from assay.cli import main
from assay.episodes.config import RunConfig
from assay.episodes.environments import compute_digest
from assay.episodes.prepare import UserObjects
from assay.errors import UsageError
from assay.runs.control import Stop
from assay.runs.events import CallbackObserver, Event, TrialProgress
from assay.runs.spending import compute_spending
from tests.runs.tables import rows

from .own_things import AGENTS, BANDIT, CountedModel, count_calls, errors_of, play_in

pytestmark = pytest.mark.usefixtures("compiled_engine")

DATABASE = "crafter_multi_model_traces.duckdb"


def forward(seen: Any) -> str:
    return "go"


class Walk:
    """Five steps, and each costs something."""

    actions = ("go", "wait")
    outcomes: ClassVar = {"cost": "lower", "distance": "higher"}

    def reset(self, seed: int) -> tuple[dict[str, int], dict[str, Any]]:
        self.distance, self.cost = 0, float(seed % 3)
        return {"at": 0}, {}

    def step(self, action: str) -> tuple[Any, ...]:
        self.distance += action == "go"
        self.cost += 2.0 if action == "go" else 0.5
        return {"at": self.distance}, 1, False, self.distance >= 5, {}

    def text(self, observation: dict[str, int]) -> str:
        return f"You are at {observation['at']}."


def waiting(seen: dict[str, int]) -> list[str]:
    return ["wait", "go"]


@pytest.mark.extras
def test_declared_outcomes_of_an_environment_are_stored_with_direction(tmp_path: Path) -> None:
    result = play_in(
        tmp_path, environment=Walk, agents={"go": forward, "wait": waiting}, episodes=6
    )
    assert {row.stop_reason for row in result.episodes} == {"length"}
    earned = [result.outcomes[row.session_id] for row in result.episodes if row.model == "go"]
    assert [outcomes["cost"] for outcomes in earned] == [
        10 + seed % 3 for seed in range(42, 48)
    ]
    assert {outcomes["distance"] for outcomes in earned} == {5.0}
    assert "achievements" not in earned[0]
    with chdir(tmp_path):
        verified = verify(environment=Walk)
        assert {found.finding for found in verified} == {"same"}
        nowhere = verify()
        assert {found.finding for found in nowhere} == {"unverifiable"}
        assert "pass the class again: environment=Walk" in str(nowhere[0].reason)
        verdicts = {
            contrast.metric: contrast.verdict
            for metric in ("cost", "distance")
            for contrast in compare("latest", metrics=[metric]).contrasts
        }
    assert verdicts["cost"] == "worse"


def test_prompt_contains_text_rules_and_actions_of_the_environment(tmp_path: Path) -> None:
    model = CountedModel()
    result = play_in(tmp_path, environment=Walk, models=[model], episodes=1)
    assert [(row.state, row.steps) for row in result.episodes] == [("result", 5)]
    prompt = "\n".join(message.text for message in model.requests[-1].messages)
    assert "Five steps, and each costs something." in prompt
    assert "The actions are: go, wait." in prompt
    assert "You are at 4." in prompt
    assert "Crafter" not in prompt


class Steps:
    """The return value of `step` depends on the number of the action."""

    actions = ("three", "nan", "words", "four", "strange", "raises")

    def reset(self, seed: int) -> int:
        return seed

    def step(self, action: str) -> Any:
        if action == "raises":
            raise RuntimeError("the floor is gone")
        given: dict[str, Any] = {
            "three": (0, 1, True),
            "nan": (0, float("nan"), False),
            "words": (0, "much", False),
            "four": (0, 1, False, False),
            "strange": (object(), 1, True),
        }
        return given[action]


def test_invalid_step_result_is_a_failure_with_the_expected_format(tmp_path: Path) -> None:
    agents = {name: (lambda seen, name=name: name) for name in Steps.actions}
    result = play_in(tmp_path, environment=Steps, agents=agents, episodes=1)
    errors = {name: errors_of(result, name)[0] for name in Steps.actions}
    assert errors["three"] == errors["strange"] == ""
    assert errors["nan"] == "Steps: reward is nan; give a finite number"
    assert errors["words"] == "Steps: reward is 'much'; give a finite number"
    assert errors["four"].startswith(
        "Steps.step returned a tuple of 4; return observation, reward and"
    )
    assert "test_environments.py" in errors["raises"]
    assert errors["raises"].endswith("RuntimeError: the floor is gone")
    with chdir(tmp_path):
        found = {
            verified.finding
            for row in result.episodes
            if row.model == "strange"
            for verified in verify(row.session_id, environment=Steps)
        }
    assert found == {"unverifiable"}


class NoStep:
    def reset(self, seed: int) -> int:
        return seed


class Sideways(Walk):
    outcomes: ClassVar = {"cost": "sideways"}


class Unready(Walk):
    def reset(self, seed: int) -> Any:
        raise OSError("no board")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (NoStep, "environment 'NoStep' has no method step"),
        (Sideways, "outcomes['cost'] is 'sideways'; give 'higher' or 'lower'"),
        (Unready, "environment 'Unready' cannot be started: OSError: no board"),
        ("bandit.py:Maze", "bandit.py has no class 'Maze'; it has Bandit"),
        ("maze.py:Maze", "cannot read 'maze.py': the file does not exist"),
        ("Bandit", "environment 'Bandit' is not allowed; give a Python file and a class"),
        ("gymnasium:CartPol-v1", "Did you mean: `CartPole`?"),
    ],
)
def test_invalid_environment_is_rejected_before_the_run_starts(
    tmp_path: Path, environment: Any, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        play_in(tmp_path, environment=environment, agents={"go": forward})
    assert message in str(refused.value)
    assert not (tmp_path / DATABASE).exists()


@pytest.mark.parametrize(
    ("environment", "model", "message"),
    [
        ("bandit.py:Bandit", "builtin/forager", "can play only Crafter"),
        ("gymnasium:CartPole-v1", "counted", "cannot play"),
    ],
)
def test_model_that_cannot_play_the_environment_is_rejected(
    tmp_path: Path, environment: str, model: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        play_in(tmp_path, environment=environment, models=[CountedModel(model)])


def test_actions_of_a_box_are_kept_as_numbers_and_verified(tmp_path: Path) -> None:
    result = play_in(
        tmp_path,
        environment="gymnasium:Pendulum-v1",
        agents={"push": lambda seen: [float(-seen[2])]},
        baselines=True,
        episodes=2,
        max_turns=7,
    )
    assert {(row.model, row.state, row.steps) for row in result.episodes} == {
        ("push", "result", 7),
        ("builtin/random", "result", 7),
    }
    with chdir(tmp_path):
        assert {found.finding for found in verify()} == {"same"}


class Pairs(gymnasium.Env[Any, Any]):
    """Actions are a number and a direction."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,))
    action_space = gymnasium.spaces.Tuple(
        [gymnasium.spaces.Discrete(3, start=1), gymnasium.spaces.Box(-1, 1, (2,))]
    )

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.at = np.zeros(1, np.float32)
        return self.at, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        number, (across, _) = action
        self.at = self.at + np.float32(number * across)
        return self.at, 1.0, False, False, {}


gymnasium.register(
    "assay-tests/Pairs-v0", entry_point=lambda **_: Pairs(), disable_env_checker=True
)


def test_actions_made_of_several_parts_are_kept_and_verified(tmp_path: Path) -> None:
    result = play_in(
        tmp_path,
        environment="gymnasium:assay-tests/Pairs-v0",
        agents={"mine": lambda seen: (2, np.array([0.5, 0], np.float32))},
        baselines=True,
        episodes=1,
        max_turns=3,
    )
    assert [row.error_message for row in result.episodes] == [None, None]
    with chdir(tmp_path):
        assert {found.finding for found in verify()} == {"same"}


def test_action_of_the_wrong_shape_is_a_failure_of_the_agent(tmp_path: Path) -> None:
    answers = {"three": [1, 2, 3], "none": None, "words": "up", "table": {"a": 1}}
    result = play_in(
        tmp_path,
        environment="gymnasium:Pendulum-v1",
        agents={name: (lambda seen, answer=answer: answer) for name, answer in answers.items()},
        episodes=1,
        max_turns=3,
    )
    errors = {name: errors_of(result, name)[0] for name in answers}
    assert errors["three"] == (
        "three returned [1, 2, 3]: an action must be in Box(-2.0, 2.0, (1,), float32)"
    )
    for name in answers:
        assert errors[name].startswith(f"{name} returned ")


def test_user_hooks_see_other_environments_and_crafter_hooks_do_not(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOK, "utf-8")
    chosen: dict[str, Any] = {"environment": "bandit.py:Bandit", "agents": ["agents.py:left"]}
    play_in(tmp_path, hooks=["hooks.py"], episodes=1, **chosen)
    stored = rows(tmp_path / DATABASE, "hook_results")
    assert [(row["hook_name"], row["step"]) for row in stored] == [
        ("pulls", step) for step in range(1, 11)
    ]


HOOK = """
from assay.metrics import BaseHook, HookRecord, hook


@hook
class Pulls(BaseHook):
    def on_step(self, seen):
        assert not seen.inventory
        yield HookRecord(name="pulls", code="P", priority=1, step=seen.step.index)
"""


def test_crafter_difficulty_is_rejected_for_other_environments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="difficulty applies only to Crafter"):
        play_in(tmp_path, environment=Walk, agents={"go": forward}, difficulty="hard")


def interrupted(folder: Path, turns: int, **settings: Any) -> dict[str, Any]:
    """Stop a run of the counted model after so many turns; return the settings for a resume."""
    stop, seen = Stop(), 0

    def listen(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, TrialProgress)
        if seen == turns:
            stop.request()

    chosen = {"models": ["counted"], "episodes": 2, "baselines": False, **settings}
    own = UserObjects(models={"counted": CountedModel(cost_usd=0.5)})
    with chdir(folder):
        first = run_prepared(
            prepare(chosen, own=own), observer=CallbackObserver(listen), stop=stop, own=own
        )
    assert first.interrupted
    return chosen


def test_nondeterministic_environment_restarts_episodes_and_is_unverifiable(
    tmp_path: Path,
) -> None:
    uncertain = BANDIT.replace("actions =", "deterministic = False\n    actions =")
    (tmp_path / "bandit.py").write_text(
        uncertain.replace("random.Random(seed)", "random.Random()"), "utf-8"
    )
    # An episode has ten turns: eight turns of both and an open one cannot end any.
    chosen = interrupted(tmp_path, 8, environment="bandit.py:Bandit")
    assert chosen == interrupted(tmp_path, 7, environment="bandit.py:Bandit")
    before = count_calls(tmp_path)
    assert 15 <= before < 20
    own = UserObjects(models={"counted": CountedModel()})
    with chdir(tmp_path):
        prepared = prepare(chosen, own=own)
        assert prepared.resumed is not None
        # Calls paid for twice stay in the cost. A kill may have hit a call that was counted
        # and not yet answered; the price of such a call is not known before its answer.
        assert 0.5 * (before - 2) <= compute_spending(prepared) <= 0.5 * before
        result = run_prepared(prepared, own=own)
        assert {row.state for row in result.episodes} == {"result"}
        # Every started episode is repeated from its start.
        assert count_calls(tmp_path) == before + 20
        reasons = {str(found.reason) for found in verify()}
    assert reasons == {"bandit.py:Bandit is declared as not deterministic"}


def test_changed_environment_file_is_another_configuration_and_unverifiable(
    tmp_path: Path,
) -> None:
    play_in(tmp_path, environment="bandit.py:Bandit", agents=["agents.py:left"], episodes=1)
    chosen = interrupted(tmp_path, 5, environment="bandit.py:Bandit")
    (tmp_path / "bandit.py").write_text(BANDIT + "\n# changed\n", "utf-8")
    own = UserObjects(models={"counted": CountedModel()})
    with chdir(tmp_path):
        assert prepare(chosen, own=own).resumed is None
        (unfinished,) = Path(f"{DATABASE}.journal").iterdir()
        with pytest.raises(UsageError, match="another configuration: environment_hash: "):
            prepare({}, own=own, resume=unfinished.name)
        (found,) = verify()
    assert found.finding == "unverifiable"
    assert "bandit.py:Bandit has changed since" in str(found.reason)


def test_tables_of_other_environments_have_no_crafter_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bandit.py").write_text(BANDIT, "utf-8")
    (tmp_path / "agents.py").write_text(AGENTS, "utf-8")
    chosen = ("--environment", "bandit.py:Bandit", "--agents", "agents.py:left")
    with chdir(tmp_path):
        assert main(["run", *chosen, "--episodes", "2"]) == 0
        shown = capsys.readouterr()
        for word in ("Crafter", "chieve", "effect", "Asleep", "replay best"):
            assert word not in shown.out
        assert "regret" in shown.out
        assert "achievements" not in shown.err
        assert main(["traces", "list"]) == 0
        assert "regret" in capsys.readouterr().out
        assert main(["traces", "show", "best"]) == 0
        assert "chieve" not in capsys.readouterr().out
        assert main(["experiments", "list"]) == 0
        assert "mean: reward" in capsys.readouterr().out
        assert main(["experiments", "log", "left in Bandit"]) == 0
        assert "reward" in capsys.readouterr().out
        assert main(["experiments", "show", "left in Bandit"]) == 0
        shown = capsys.readouterr()
    assert "agent    agents.py:left, file " in shown.out
    assert "world    bandit.py:Bandit, file " in shown.out
    stored = rows(tmp_path / DATABASE, "outcomes")
    assert not {row["metric"] for row in stored} & {"achievements", "time_management"}
    (results,) = (tmp_path / "traces_multi_model").glob("multi_model_results_*.json")
    text = results.read_text("utf-8")
    for key in ("difficulty", "achievements", "asleep", "no_effect", "unlocked", "human"):
        assert key not in text
    assert read_results(f"{results}#left")[0].trials[0].task is None


def test_digests_distinguish_observations_and_are_none_for_unsupported_ones() -> None:
    shown = [1, 1.0, True, "1", None, [1], {"a": 1}, {"a": [1, 2]}, b"1"]
    digests = [compute_digest(value) for value in shown]
    assert len({*digests}) == len(shown)
    assert compute_digest({"a": 1, "b": 2}) == compute_digest({"b": 2, "a": 1})
    assert compute_digest(object()) is None


def test_interim_analyses_use_reward_unless_another_outcome_is_chosen() -> None:
    def decided_by(outcome: str) -> str | None:
        chosen = {"agents": ("a.b:c", "a.b:d"), "environment": "gymnasium:CartPole-v1"}
        return RunConfig(**chosen, until_decided=outcome).until_decided  # type: ignore[arg-type]

    assert decided_by("achievements") == "reward"
    assert decided_by("steps") == "steps"
    with pytest.raises(
        UsageError, match="time_management does not exist in gymnasium:CartPole"
    ):
        decided_by("time_management")
