"""Power of the exact tests of proportions, beside sums over all outcomes."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.errors import UsageError
from assay.stats.power import (
    cheapest_allocation,
    fisher_power,
    mcnemar_power,
    power_of,
    share_trials_needed,
    trials_needed,
)
from assay.stats.shares import share_test


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_power_of_mcnemar_is_the_sum_over_all_outcomes(alpha: float) -> None:
    n, won, lost = 14, 0.55, 0.1
    total = 0.0
    for wins in range(n + 1):
        for losses in range(n + 1 - wins):
            if wins + losses and stats.binomtest(wins, wins + losses).pvalue < alpha:
                rest = n - wins - losses
                cells = [wins, losses, rest]
                total += stats.multinomial.pmf(cells, n, [won, lost, 1 - won - lost])
    assert mcnemar_power(n, won, lost, alpha=alpha) == pytest.approx(total)


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_power_of_fisher_is_the_sum_over_all_outcomes(alpha: float) -> None:
    n, a, b = 11, 0.2, 0.75
    total = sum(
        stats.binom.pmf(x, n, a) * stats.binom.pmf(y, n, b)
        for x in range(n + 1)
        for y in range(n + 1)
        if stats.fisher_exact([[x, n - x], [y, n - y]]).pvalue < alpha
    )
    assert fisher_power(n, a, b, alpha=alpha) == pytest.approx(total)


def test_few_pairs_cannot_reject() -> None:
    assert mcnemar_power(5, 1.0, 0.0) == 0
    assert mcnemar_power(6, 1.0, 0.0) == pytest.approx(1)
    assert fisher_power(3, 0.0, 1.0) == 0
    assert fisher_power(4, 0.0, 1.0) == pytest.approx(1)
    assert mcnemar_power(30, 0.0, 0.0) == 0


@pytest.mark.parametrize("paired", [True, False])
def test_from_the_planned_number_on_the_power_stays(paired: bool) -> None:
    pilot = [0, 1] * 10, [1, 1] * 10
    n = share_trials_needed(*pilot, 0.45, paired=paired, assurance=False).trials

    def power(trials: int) -> float:
        if paired:
            return mcnemar_power(trials, 0.475, 0.025)
        return fisher_power(trials, 0.525, 0.975)

    assert power(n - 1) < 0.8
    assert min(power(trials) for trials in range(n, n + 40)) >= 0.8


def test_the_approximation_joins_the_exact_power_from_below() -> None:
    for won, lost in ((0.2, 0.1), (0.4, 0.25)):
        assert -0.01 < mcnemar_power(201, won, lost) - mcnemar_power(200, won, lost) < 0.01
        assert abs(fisher_power(201, lost, won) - fisher_power(200, lost, won)) < 0.012


@pytest.mark.parametrize("paired", [True, False])
def test_a_plan_by_assurance_has_its_power_over_pilots(paired: bool) -> None:
    """Pilots of 20 and t tests gave 66 to 75 %."""
    rng, effect, base = np.random.default_rng(1), 0.3, 0.4
    power = []
    for _ in range(60):
        a = (rng.random(20) < base) * 1
        b = (rng.random(20) < base + effect) * 1
        n = share_trials_needed(a, b, effect, paired=paired).trials
        if paired:
            won, lost = (base + effect) * (1 - base), base * (1 - base - effect)
            power.append(mcnemar_power(n, won, lost))
        else:
            power.append(fisher_power(n, base, base + effect))
    assert np.mean(power) >= 0.8 - 3 * np.std(power) / math.sqrt(60)


def test_verdicts_are_found_as_often_as_the_power_says() -> None:
    rng, n = np.random.default_rng(8), 24
    a, b = rng.random((2, 800, n)) < np.array([0.3, 0.7])[:, None, None]
    for paired in (True, False):
        found = np.mean(
            [
                share_test(x * 1, y * 1, paired=paired).p_value < 0.05
                for x, y in zip(a, b, strict=True)
            ]
        )
        power = mcnemar_power(n, 0.49, 0.09) if paired else fisher_power(n, 0.3, 0.7)
        assert abs(found - power) < 3 * math.sqrt(power * (1 - power) / 800)


@pytest.mark.parametrize("pilot", [5, 10, 20])
def test_assurance_of_t_tests_is_the_mean_power_over_pilots(pilot: int) -> None:
    """Without it a plan from 10 pairs had a power of 75 % on average."""
    rng = np.random.default_rng(pilot)
    spreads = np.sqrt(rng.chisquare(pilot - 1, 400) / (pilot - 1))
    power = [
        power_of(
            trials_needed(0.5, sd, pilot_n=pilot, paired=True, assurance=True).trials,
            0.5,
            1.0,
            paired=True,
        )
        for sd in spreads
    ]
    assert np.mean(power) >= 0.8 - 3 * np.std(power) / math.sqrt(400)


def test_what_are_no_proportions_is_refused() -> None:
    with pytest.raises(UsageError, match="not proportions"):
        mcnemar_power(5, 0.9, 0.2)
    with pytest.raises(UsageError, match="not proportions"):
        fisher_power(5, 0.9, 1.2)
    with pytest.raises(UsageError, match="not a difference"):
        share_trials_needed([0, 1], [1, 1], 0.0, paired=True)
    with pytest.raises(UsageError, match="cannot be paired"):
        share_trials_needed([0, 1], [1], 0.2, paired=True)


def test_rollouts_are_cheaper_only_if_tasks_cost_or_are_few() -> None:
    """Without a cost of tasks one rollout is best: each further task brings both parts down."""
    free = cheapest_allocation(0.2, 0.3, 0.6)
    assert free is not None
    needed = trials_needed(0.2, math.hypot(0.3, 0.6), paired=True).trials
    assert free == (needed, 1, 2 * needed)
    costly = cheapest_allocation(0.2, 0.3, 0.6, task_cost=8.0)
    assert costly is not None
    # Cochran's optimum is sqrt(task cost / cost of two rollouts) * within / between = 4.
    assert costly.rollouts in (3, 4, 5)
    few = cheapest_allocation(0.2, 0.3, 0.6, most_tasks=30)
    assert few is not None
    assert few.tasks <= 30
    assert few.rollouts > 1
    assert cheapest_allocation(0.2, 0.3, 0.6, most_tasks=10) is None


def test_an_allocation_detects_its_effect() -> None:
    found = cheapest_allocation(0.3, 0.4, 1.0, task_cost=6.0)
    assert found is not None
    rng, sets = np.random.default_rng(9), 600
    means = rng.normal(0.3, 0.4, (sets, found.tasks))
    means += rng.normal(0, 1.0, (sets, found.tasks, found.rollouts)).mean(axis=2)
    rejected = np.mean([stats.ttest_1samp(row, 0).pvalue < 0.05 for row in means])
    assert abs(rejected - 0.8) < 3 * math.sqrt(0.16 / sets) + 0.02
