"""Tokens and dollars, on calls made by hand."""

import math

import numpy as np
import pytest

from assay.analyses.costs import analyse_costs
from assay.analyses.episodes import EpisodeFacts
from assay.errors import UsageError
from assay.store.load import SessionCalls

from .facts import facts


def calls(prompt: list[int], cached: int = 0) -> SessionCalls:
    n = len(prompt)
    return SessionCalls(
        np.arange(1, n + 1),
        np.array(prompt),
        np.full(n, 10),
        np.full(n, cached),
        np.full(n, 4),
        np.full(n, 0.1),
    )


def episode(model: str, seed: int, unlocked: int, cost: float | None) -> EpisodeFacts:
    return facts(
        model,
        seed,
        unlocked=unlocked,
        turns=3,
        cost_usd=cost,
        prompt_tokens=600,
        cached_tokens=150,
        completion_tokens=30,
        reasoning_tokens=12,
        calls=calls([100, 200, 300], 50),
    )


def test_dollars_and_tokens_are_reported_per_achievement() -> None:
    found = analyse_costs(
        [episode("a", seed, unlocked, 0.5) for seed, unlocked in enumerate([2, 4, 3])]
    )
    (model,) = found.models
    assert (found.result, found.priced) == ("achievements", "cost_usd")
    assert model.cost_usd is not None
    assert model.cost_usd.point == 0.5
    assert model.cost_per_result is not None
    assert model.cost_per_result.point == pytest.approx(0.5 / 3)
    assert model.tokens_per_result.point == pytest.approx(630 / 3)
    points = {kind: tokens.point for kind, tokens in model.tokens.items()}
    assert points == {"fresh prompt": 450, "cached prompt": 150, "reasoning": 12, "answer": 18}
    assert [(turn.first, turn.prompt.point) for turn in model.by_turn] == [
        (1, 100),
        (2, 200),
        (3, 300),
    ]
    assert model.by_turn[0].cached == 0.5
    assert model.calls == 3


def test_a_model_on_the_frontier_is_not_both_more_expensive_and_worse() -> None:
    found = analyse_costs(
        [
            *(episode("cheap", seed, 2, 0.1) for seed in range(2)),
            *(episode("dear", seed, 9, 0.9) for seed in range(2)),
            *(episode("worse", seed, 8, 0.95) for seed in range(2)),
        ]
    )
    assert [model.group for model in found.models if model.on_frontier] == ["cheap", "dear"]


def test_models_without_a_price_have_no_cost_and_are_listed() -> None:
    found = analyse_costs([episode("a", 1, 2, None), episode("b", 1, 0, 0.2)])
    a, b = found.models
    assert (a.cost_usd, a.cost_per_result, a.unpriced) == (None, None, 1)
    assert "a: 1 of 1 episodes have calls whose price is not known" in found.basis.notes[0]
    assert b.cost_per_result is not None
    assert math.isnan(b.cost_per_result.point)


def test_episodes_without_cost_data_are_rejected() -> None:
    silent = facts(prompt_tokens=0, completion_tokens=0, cost_usd=None, duration_s=0.0)
    with pytest.raises(UsageError, match="say neither tokens, nor cost, nor time"):
        analyse_costs([silent])
