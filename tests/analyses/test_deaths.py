"""Causes of death and the last steps before it, on episodes with known results."""

import pytest

from assay.analyses.deaths import Ending, LastStep, analyse_deaths
from assay.errors import UsageError
from assay.stats.shares import exact_share

from .facts import facts


def moment(health: int, action: str = "noop", *, asleep: bool = False) -> LastStep:
    return LastStep(action, health, 9, 2, 9, asleep, night=True)


def test_causes_of_death_are_proportions_of_all_episodes() -> None:
    episodes = [
        facts("a", 1, stop_reason="died: zombie", steps=10),
        facts("a", 2, stop_reason="died: zombie", steps=30),
        facts("a", 3, stop_reason="died", steps=50),
        facts("a", 4, stop_reason="max_turns", steps=20),
    ]
    found = analyse_deaths(episodes, {})
    (model,) = found.models
    assert model.died == exact_share(3, 4)
    assert dict(model.causes) == {"zombie": exact_share(2, 4), "unknown": exact_share(1, 4)}
    assert model.median_step == 30
    # By hand: 1 of 4 dies at 10, one is censored at 20, then 1 of 2 and the last.
    assert model.steps == (10, 30, 50)
    assert model.shares == pytest.approx([1 / 4, 1 / 4 + 3 / 8, 1])
    assert (found.deaths, found.endings) == (3, 0)
    assert "0 of 3 deaths" in found.basis.notes[0]


def test_the_last_steps_are_averaged_by_cause_of_death() -> None:
    episodes = [facts("a", seed, stop_reason="died: zombie") for seed in (1, 2)]
    ends = {
        "a-1-0": Ending({}, (moment(7, asleep=True), moment(0))),
        "a-2-0": Ending({}, (moment(4), moment(2, "do"), moment(0, "do"))),
    }
    (dying,) = analyse_deaths(episodes, ends).dying
    assert dying.health == (4, 4.5, 0)
    assert (dying.asleep, dying.night) == (0.5, 1)
    assert dying.low == {"food": 0, "drink": 1, "energy": 0}
    assert dict(dying.actions) == {"noop": 0.6, "do": 0.4}


def test_an_environment_without_deaths_is_rejected() -> None:
    with pytest.raises(UsageError, match="nobody can die in these episodes: their task is X"):
        analyse_deaths([facts(task="X", achievements={})], {})
