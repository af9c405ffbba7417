"""What is left of an estimate that was chosen for its size."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from assay.errors import UsageError
from assay.stats.estimates import Estimate, mean_estimate
from assay.stats.multiplicity import after_verdict, plan_effect, shrunken_means
from assay.stats.power import power_of, trials_needed


@pytest.mark.parametrize("z", [2.0, 2.3, 3.0, 4.5])
def test_it_is_the_maximum_of_the_likelihood_given_a_rejection(z: float) -> None:
    bound = stats.norm.ppf(0.975)

    def cost(truth: float) -> float:
        chance = stats.norm.sf(bound - truth) + stats.norm.cdf(-bound - truth)
        return float(-stats.norm.logpdf(z - truth) + np.log(chance))

    best = optimize.minimize_scalar(cost, bounds=(0, z), method="bounded").x
    assert after_verdict(Estimate(z, 1.0, math.inf)) == pytest.approx(best, abs=1e-4)
    assert after_verdict(Estimate(-z, 1.0, math.inf)) == pytest.approx(-best, abs=1e-4)


def test_what_was_not_significant_or_is_certain_stays_as_it_is() -> None:
    assert after_verdict(Estimate(1.5, 1.0, math.inf)) == 1.5
    assert after_verdict(Estimate(2.0, 0.0, 3)) == 2.0
    assert after_verdict(Estimate(2.0, math.nan, math.nan)) == 2.0
    assert after_verdict(Estimate(50.0, 1.0, 30)) == pytest.approx(50, rel=1e-3)


@pytest.mark.parametrize("truth", [0.2, 0.3, 0.5])
def test_verdicts_no_longer_show_twice_the_difference(truth: float) -> None:
    rng = np.random.default_rng(1)
    found = [mean_estimate(values) for values in rng.normal(truth, 1, (1_500, 15))]
    chosen = [one for one in found if one.p_value() < 0.05]
    plain = np.mean([one.point for one in chosen])
    shrunk = np.mean([after_verdict(one) for one in chosen])
    assert plain > 1.35 * truth
    assert abs(shrunk - truth) < 0.5 * abs(plain - truth)


@pytest.mark.parametrize("paired", [True, False])
def test_the_best_of_eight_equal_models_is_hardly_above_the_others(paired: bool) -> None:
    rng, luck = np.random.default_rng(2), []
    for _ in range(200):
        world = 3 * rng.normal(size=15) if paired else 0
        values = world + rng.normal(size=(8, 15))
        middle = values.mean()
        means, found = values.mean(axis=1), shrunken_means(list(values), paired=paired)
        luck.append((means.max() - middle, found[means.argmax()] - middle))
    plain, shrunk = np.mean(luck, axis=0)
    assert plain > 0.3
    assert shrunk < 0.35 * plain


def test_a_model_far_ahead_stays_ahead() -> None:
    values = np.array([[0.0, 1, 2], [1, 2, 3], [50, 51, 52.5]])
    found = shrunken_means(list(values), paired=True)
    assert found == pytest.approx(values.mean(axis=1), rel=0.01, abs=0.05)
    equal = shrunken_means([[1.0, 1.0], [2.0, 2.0]], paired=False)
    assert equal == pytest.approx([1, 2])


def test_samples_that_cannot_be_set_side_by_side_are_refused() -> None:
    with pytest.raises(UsageError, match="1 samples"):
        shrunken_means([[1.0, 2.0]], paired=False)
    with pytest.raises(UsageError, match="in pairs as many values"):
        shrunken_means([[1.0, 2.0], [1.0, 2.0, 3.0]], paired=True)


def test_eight_pairs_without_a_difference_are_added() -> None:
    assert plan_effect(1.0, 8) == 0.5
    assert plan_effect(-2.0, 24) == -1.5
    with pytest.raises(UsageError, match="in 0 trials"):
        plan_effect(1.0, 0)


@pytest.mark.parametrize(("truth", "n"), [(0.3, 5), (0.2, 10), (0.5, 15)])
def test_a_plan_has_the_power_it_says(truth: float, n: int) -> None:
    rng, powers = np.random.default_rng(3), []
    for values in rng.normal(truth, 1, (150, n)):
        found = mean_estimate(values)
        if found.p_value() >= 0.05:
            sd = float(values.std(ddof=1))
            planned = trials_needed(plan_effect(found.point, n), sd, paired=True).trials
            powers.append(power_of(planned, truth, 1, paired=True))
    assert np.mean(powers) >= 0.8
