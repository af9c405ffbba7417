"""The order of subjects and models, and what it is worth."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from assay.judge.comparison import compare
from assay.judge.ranking import group_letters
from assay.report.run import describe_ranking
from assay.report.run_summary import rank_models
from assay.store.queries import EpisodeRow
from tests.report.rows import episode, failed

from .subjects import subject, trial

NOISE = np.random.default_rng(7).normal(0, 0.2, (3, 10))
WORLDS = np.random.default_rng(8).normal(5, 2, 10)


def rows(model: str, rewards: list[float], invalid: list[int], **but: Any) -> list[EpisodeRow]:
    """Episodes with so much reward, and so many invalid actions of a hundred."""
    return [
        episode(
            model,
            number,
            reward=reward,
            unknown_actions=wrong,
            no_effect_actions=0,
            asleep_actions=0,
            malformed_replies=0,
            **but,
        )
        for number, (reward, wrong) in enumerate(zip(rewards, invalid, strict=True))
    ]


FEW, MANY = [5, 6, 4, 5, 7, 5], [40, 42, 39, 41, 45, 40]
LOW, HIGH = [1.0, 2.0, 1.5, 2.5, 1.0, 2.0], [6.0, 7.5, 6.0, 7.0, 6.5, 7.0]


def test_the_lower_rate_of_invalid_actions_comes_first() -> None:
    reward, invalid = rank_models([*rows("bad", HIGH, MANY), *rows("good", LOW, FEW)])
    assert (reward.metric, invalid.metric) == ("reward", "invalid_rate")
    assert [(place.model, place.place) for place in reward.places] == [("bad", 1), ("good", 2)]
    assert [(place.model, place.place) for place in invalid.places] == [("good", 1), ("bad", 2)]
    assert invalid.places[0].mean.point < invalid.places[1].mean.point
    assert not any(place.shared for place in (*reward.places, *invalid.places))
    assert describe_ranking(invalid)[0].startswith("good is better than bad: ")


def test_models_that_cannot_be_told_apart_share_a_place() -> None:
    close = [value + gap for value, gap in zip(HIGH, [1, -1, 1, -1, 1, -0.5], strict=True)]
    reward, _ = rank_models([*rows("a", HIGH, FEW), *rows("b", close, FEW)])
    assert [(place.model, place.place, place.shared) for place in reward.places] == [
        ("b", 1, True),
        ("a", 1, True),
    ]


def test_models_are_compared_on_all_worlds_and_shared_ones_cancel() -> None:
    others = [*rows("b", HIGH, FEW), episode("b", 50, reward=99.0)]
    reward, _ = rank_models([*rows("a", LOW, FEW), episode("a", 51, reward=3.0), *others])
    [contrast] = reward.contrasts
    assert contrast.units.partly_shared == len(LOW)
    assert contrast.n_candidate == len(LOW) + 1
    gap = np.mean([*HIGH, 99.0]) - np.mean([*LOW, 3.0])
    assert contrast.difference.point == pytest.approx(gap)


def test_rows_of_reference_and_failures_are_not_ranked_beside_two_models() -> None:
    yard = rows("noop", LOW, MANY, baseline=True)
    reward, _ = rank_models([*rows("a", HIGH, FEW), *yard])
    assert [(place.model, place.baseline) for place in reward.places] == [
        ("a", False),
        ("noop", True),
    ]
    reward, _ = rank_models(
        [*rows("a", HIGH, FEW), *rows("b", LOW, FEW), failed("b", 77), *yard]
    )
    assert [place.model for place in reward.places] == ["a", "b"]
    assert reward.contrasts[0].n_candidate == len(LOW)


@pytest.mark.parametrize("lower", [False, True], ids=["more is better", "less is better"])
def test_standings_put_the_better_ones_first(lower: bool) -> None:
    metric = "invalid_rate" if lower else "reward"
    subjects = [
        subject(
            name,
            trials=[
                trial(name, seed, also={metric: float(world + up + noise)})
                for seed, (world, noise) in enumerate(zip(WORLDS, NOISE[at], strict=True))
            ],
        )
        for at, (name, up) in enumerate((("low", 0), ("high", 4), ("middle", 2)))
    ]
    found = compare(subjects, metrics=[metric]).standings
    assert found is not None
    order = ["low", "middle", "high"] if lower else ["high", "middle", "low"]
    assert [(one.subject, one.rank, one.shared) for one in found.order] == [
        (name, place, False) for place, name in enumerate(order, start=1)
    ]
    assert [one.groups for one in found.order] == ["a", "b", "c"]


def test_pairs_are_adjusted_for_all_of_them() -> None:
    subjects = [
        subject(name, list(WORLDS + up + NOISE[at] * 5))
        for at, (name, up) in enumerate((("a", 0), ("b", 0.5), ("c", 1)))
    ]
    found = compare(subjects).standings
    assert found is not None
    names = [(pair.baseline, pair.candidate) for pair in found.pairs]
    assert names == [("a", "b"), ("a", "c"), ("b", "c")]
    tests = [pair.tests for pair in found.pairs if pair.tests is not None]
    least = min(tests, key=lambda test: test.p_value)
    assert least.p_adjusted == pytest.approx(3 * least.p_value)
    assert all(pair.pairs == () for pair in found.pairs)


def test_many_groups_have_letters_of_their_own() -> None:
    names = [f"s{number:02d}" for number in range(54)]
    letters = list(group_letters(names, list(combinations(names, 2))).values())
    assert letters[:2] == ["a", "b"]
    assert letters[25:28] == ["z", "a2", "b2"]
    assert letters[51:] == ["z2", "a3", "b3"]
    assert group_letters(["x", "y", "z"], [("x", "z")]) == {"x": "a", "y": "ab", "z": "b"}


def test_two_subjects_have_no_standings() -> None:
    assert compare([subject("a", [1, 2, 3]), subject("b", [2, 3, 5])]).standings is None
