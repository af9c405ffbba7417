"""The Crafter score against numbers worked out by hand."""

import math

import numpy as np
import pytest

from assay.stats import crafter_score


@pytest.mark.parametrize(
    ("rates", "score"),
    [
        pytest.param([0.0] * 22, 0.0, id="nothing"),
        pytest.param([1.0] * 22, 100.0, id="everything"),
        pytest.param([1.0] + [0.0] * 21, math.exp(math.log(101) / 22) - 1, id="one of them"),
        pytest.param([0.5] * 11 + [0.0] * 11, math.sqrt(51) - 1, id="half of half"),
    ],
)
def test_the_score_of_rates(rates: list[float], score: float) -> None:
    assert float(crafter_score(rates)) == pytest.approx(score, abs=1e-9)


def test_many_sets_of_rates_are_scored_at_once() -> None:
    rates_B_A = np.linspace(0, 1, 66).reshape(3, 22)
    scores = crafter_score(rates_B_A)
    assert scores.shape == (3,)
    assert scores[1] == pytest.approx(float(crafter_score(rates_B_A[1])))
