"""Scores of a judge, corrected by labels: whatever the judge prefers."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.estimates import mean_estimate
from assay.stats.judges import (
    Accuracy,
    JudgedSide,
    corrected_difference,
    corrected_mean,
    rogan_gladen,
)


def side(
    rng: np.random.Generator, labels: int, others: int, share: float, yes: float, no: float
) -> JudgedSide:
    """Trials of which `share` pass, judged with a sensitivity `yes` and a specificity `no`."""
    truth = rng.random(labels + others) < share
    judged = np.where(truth, rng.random(len(truth)) < yes, rng.random(len(truth)) >= no) * 1.0
    return JudgedSide(truth[:labels] * 1.0, judged[:labels], judged[labels:])


def slack(share: float, sets: int) -> float:
    return 3 * math.sqrt(share * (1 - share) / sets)


@pytest.mark.parametrize(("yes", "no"), [(0.9, 0.8), (0.98, 0.97), (0.5, 0.5)])
def test_means_and_differences_hold_though_the_judge_favours_one_side(
    yes: float, no: float
) -> None:
    rng, sets = np.random.default_rng(1), 400
    means = differences = judged = 0
    for _ in range(sets):
        a = side(rng, 40, 200, 0.5, yes, no)
        b = side(rng, 40, 200, 0.5, min(1, yes + 0.1), no - 0.3)
        mean = corrected_mean(a, step=1).interval()
        means += mean.low <= 0.5 <= mean.high
        difference = corrected_difference(a, b, step=1).interval()
        differences += difference.low <= 0 <= difference.high
        error = math.hypot(np.std(a.rest), np.std(b.rest)) / math.sqrt(200)
        judged += bool(abs(np.mean(b.rest) - np.mean(a.rest)) <= 1.96 * error)
    assert min(means, differences) / sets >= 0.94 - slack(0.94, sets)
    # The judge's own scores are far off.
    assert judged / sets < 0.3


def test_a_good_judge_saves_labels_and_a_useless_one_costs_nearly_nothing() -> None:
    rng = np.random.default_rng(2)
    good = [side(rng, 50, 500, 0.5, 0.95, 0.95) for _ in range(50)]
    useless = [side(rng, 50, 500, 0.5, 0.5, 0.5) for _ in range(50)]

    def ratio(sides: list[JudgedSide]) -> float:
        errors = [corrected_mean(one).error / mean_estimate(one.labels).error for one in sides]
        return float(np.mean(errors))

    assert ratio(good) < 0.6
    assert ratio(useless) < 1.05


def test_the_estimate_is_that_of_the_paper_where_lambda_is_known() -> None:
    """A perfect judge and very many other trials: lambda is 1 up to the clip of n / N."""
    rng = np.random.default_rng(3)
    truth = rng.normal(5, 1, 100_050)
    found = corrected_mean(JudgedSide(truth[:50], truth[:50], truth[50:]))
    assert found.point == pytest.approx(truth[50:].mean(), abs=0.001)
    labels, judged = np.array([1.0, 2, 3, 4]), np.array([2.0, 2, 2, 2])
    assert corrected_mean(JudgedSide(labels, judged, [2.0] * 9)) == pytest.approx(
        mean_estimate(labels)
    )


def test_labels_without_other_trials_are_a_plain_mean() -> None:
    labels = [1.0, 0.0, 1.0, 1.0]
    assert corrected_mean(JudgedSide(labels, labels, [])) == mean_estimate(labels)
    assert math.isnan(corrected_mean(JudgedSide([1.0], [1.0], [0.0])).error)


@pytest.mark.parametrize(
    ("share", "yes", "no"), [(0.5, 0.9, 0.8), (0.1, 0.9, 0.9), (0.02, 0.95, 0.98)]
)
@pytest.mark.parametrize("labels", [20, 100])
def test_the_corrected_share_keeps_its_coverage(
    share: float, yes: float, no: float, labels: int
) -> None:
    rng, sets = np.random.default_rng(labels), 1_000
    held = 0
    for _ in range(sets):
        accuracy = Accuracy(
            int(rng.binomial(labels, yes)), labels, int(rng.binomial(labels, no)), labels
        )
        passed = int(rng.binomial(100, share * yes + (1 - share) * (1 - no)))
        found = rogan_gladen(passed, 100, accuracy)
        held += found.low <= share <= found.high
    assert held / sets >= 0.95 - slack(0.95, sets)


def test_a_perfect_judge_with_very_many_labels_gives_the_interval_of_agresti_and_coull() -> (
    None
):
    many = 10**9
    found = rogan_gladen(30, 100, Accuracy(many, many, many, many))
    middle, n = (30 + 1.96**2 / 2) / (100 + 1.96**2), 100 + 1.96**2
    half = 1.96 * math.sqrt(middle * (1 - middle) / n)
    assert found == pytest.approx((0.3, middle - half, middle + half), abs=1e-4)


def test_a_judge_hardly_better_than_chance_is_refused() -> None:
    with pytest.raises(UsageError, match=r"specificity - 1 is 0.10, below 0.2"):
        rogan_gladen(5, 10, Accuracy(11, 20, 11, 20))
    with pytest.raises(UsageError, match="give one label each"):
        corrected_mean(JudgedSide([1.0, 0.0], [1.0], [1.0]))
