"""Frequencies of hooks, on firings made by hand."""

import numpy as np
import pytest

from assay.analyses.episodes import EpisodeFacts, analysis_document
from assay.analyses.hooks import analyse_hooks
from assay.errors import UsageError
from assay.stats.shares import exact_share
from assay.store.load import HookFiring

from .facts import facts


def test_firings_are_counted_by_model_turn_action_and_cooccurrence() -> None:
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


def test_without_a_firing_the_error_names_the_hooks_option() -> None:
    with pytest.raises(UsageError, match=r"no hook fired in these 1 episodes.*--hooks FILE"):
        analyse_hooks([facts()])


def finding(counts: dict[str, dict[str, int]], n: int) -> str:
    """The finding about models whose hooks fire in the first episodes, so many of n."""
    episodes: list[EpisodeFacts] = [
        facts(model, seed, hooks=[HookFiring(name, 1, 1) for name, k in of.items() if seed < k])
        for model, of in counts.items()
        for seed in range(n)
    ]
    (text,) = analysis_document(analyse_hooks(episodes)).summary
    return str(text)


def test_two_of_ten_against_none_do_not_tell_models_apart() -> None:
    """It was said from a gap of a fifth on, of the largest gap of all hooks, without a test."""
    text = finding({"a": {"hard": 2, "x": 9}, "b": {"x": 9}}, 10)
    assert text.endswith("No hook is shown to tell models apart.")
    text = finding({"a": {"hard": 9, "x": 9}, "b": {"x": 9}}, 10)
    assert "hard tells models apart: it fires in 90% of the episodes of a and 0%" in text


@pytest.mark.parametrize("n", [5, 20])
def test_equal_models_are_told_apart_in_one_of_twenty_sets_at_most(n: int) -> None:
    """With five hooks it was said in 99.7 % of sets of 5 episodes and in 62 % of sets of 20."""
    rng, said, sets = np.random.default_rng(n), 0, 60
    for _ in range(sets):
        counts = rng.binomial(n, 0.4, (2, 5)) + 0
        of = [{f"h{k}": int(count) for k, count in enumerate(row)} for row in counts]
        said += "tells models apart" in finding({"a": {"h": 1, **of[0]}, "b": of[1]}, n)
    assert said <= 0.05 * sets + 3 * (0.05 * 0.95 * sets) ** 0.5


def test_episodes_that_repeat_a_world_count_once() -> None:
    episodes = [
        facts(model, seed, replicate=again, hooks=[HookFiring("x", 1, 1)] * (model == "a"))
        for model in ("a", "b")
        for seed in range(3)
        for again in range(5)
    ]
    (text,) = analysis_document(analyse_hooks(episodes)).summary
    assert str(text).endswith("No hook is shown to tell models apart.")
