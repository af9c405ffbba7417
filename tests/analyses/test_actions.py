"""Shares of actions and waste, on steps made by hand."""

import pytest

from assay.analyses.actions import analyse_actions
from assay.errors import UsageError

from .facts import facts

NONE = {
    "unknown_actions": 0,
    "no_effect_actions": 0,
    "asleep_actions": 0,
    "malformed_replies": 0,
}


def test_action_shares_and_transitions_are_counted() -> None:
    (model,) = analyse_actions(
        [
            facts("a", 1, actions=["do", "do", "noop", "do"]),
            facts("a", 2, actions=["noop", "noop"]),
        ]
    ).models
    # Each episode counts alike: (3/4 + 0) / 2.
    assert model.shares["do"].point == 0.375
    assert model.following == {"do": {"do": 0.5, "noop": 0.5}, "noop": {"do": 0.5, "noop": 0.5}}
    assert model.steps == 6


def test_waste_is_reported_by_four_kinds_and_by_tenths_of_the_episode() -> None:
    actions, reasons = ["do"] * 20, ["blocked", "asleep", *[None] * 17, "blocked"]
    waste = NONE | {"actions_asked": 20, "no_effect_actions": 2, "asleep_actions": 1}
    (model,) = analyse_actions(
        [facts("a", 1, actions=actions, no_effect=reasons, **waste)]  # type: ignore[arg-type]
    ).models
    assert model.waste["no effect"].point == 0.1
    assert model.waste["asleep"].point == 0.05
    assert model.waste["malformed reply"].point == 0
    assert dict(model.reasons) == {"blocked": 1}
    # Two steps in each tenth, of which one was wasted in the first and in the last.
    rates = [rate.share.point for rate in model.over["no effect"]]
    assert rates == [0.5, *[0] * 8, 0.5]
    assert sum(rates) / 10 == model.waste["no effect"].point


def test_action_sequences_are_compared_with_chance() -> None:
    way = ["noop"] * 97 + ["move_up", "do", "place_table"]
    episodes = [
        facts("a", seed, actions=way, achievements={"place_table": 100}) for seed in range(3)
    ]
    (run,) = analyse_actions(episodes).leading
    assert run.actions == ("move_up", "do", "place_table")
    assert (run.played, run.unlocks) == (3, 3)
    assert run.lift == pytest.approx(98)


def test_sequences_of_wasted_actions_are_listed() -> None:
    found = analyse_actions(
        [facts(actions=["do"] * 4 + ["noop"], no_effect=["nothing_there"] * 4 + [None])]
    )
    assert [(run.actions, run.wasted) for run in found.wasting] == [(("do",) * 3, 6)]


def test_actions_without_steps_are_an_error() -> None:
    with pytest.raises(UsageError, match="have no steps: their program recorded none"):
        analyse_actions([facts()])
