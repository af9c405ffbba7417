"""How often hooks fire, on firings made by hand."""

import pytest

from assay.analyses.hooks import analyse_hooks
from assay.errors import UsageError
from assay.stats.shares import exact_share
from assay.store.load import HookFiring

from .facts import facts


def test_firings_are_counted_by_model_turn_action_and_company() -> None:
    actions = ["noop", "do", "do", "sleep"] * 5
    episodes = [
        facts(
            "a",
            1,
            turns=10,
            actions=actions,
            hooks=[HookFiring("x", 1, 2), HookFiring("x", 1, 3), HookFiring("y", 10, None)],
        ),
        facts("a", 2, turns=10, actions=actions, hooks=[HookFiring("x", 2, 4)]),
        facts("a", 3, turns=5, actions=actions[:10]),
        facts("b", 1, turns=10, actions=actions),
    ]
    found = analyse_hooks(episodes)
    assert [(hook.name, hook.firings) for hook in found.hooks] == [("x", 3), ("y", 1)]
    first, _ = found.hooks
    a, b = first.models
    assert a.fired == exact_share(2, 3)
    assert a.per_episode.point == 1
    assert a.turns_per_firing == 25 / 3
    assert (a.first_step, a.typical_step) == (4, 3)
    assert (b.fired.point, b.first_step, b.turns_per_firing) == (0, None, None)
    # Two firings in the first turn of one of three episodes.
    assert (a.by_turn[0].first, a.by_turn[0].last) == (1, 1)
    assert a.by_turn[0].rate.point == pytest.approx(2 / 3)
    assert a.by_turn[-1].episodes == 2
    assert dict(first.actions) == {"do": 2 / 3, "sleep": 1 / 3}
    shares = {(pair.given, pair.other): pair.share for pair in found.together}
    assert shares == {("x", "y"): 0.5, ("y", "x"): 1}


def test_without_a_firing_it_says_who_has_hooks() -> None:
    with pytest.raises(UsageError, match=r"no hook fired in these 1 episodes.*--hooks FILE"):
        analyse_hooks([facts()])
