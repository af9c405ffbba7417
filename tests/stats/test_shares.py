"""Shares and their differences against SciPy, and over all outcomes there can be."""

import itertools

import numpy as np
import pytest
from scipy import stats as reference

from assay.errors import UsageError
from assay.stats.intervals import Side, wilson
from assay.stats.shares import (
    exact_share,
    fisher_exact,
    share_difference,
    share_equivalence,
    share_test,
)


@pytest.mark.parametrize("trials", [1, 2, 5, 17])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_the_exact_interval_agrees_with_scipy(trials: int, level: float) -> None:
    for successes in range(trials + 1):
        found = exact_share(successes, trials, level)
        expected = reference.binomtest(successes, trials).proportion_ci(level, "exact")
        assert found == pytest.approx((successes / trials, *expected), abs=1e-9)


def test_nothing_of_ten_and_all_of_ten_by_hand() -> None:
    # The bound p solves (1 - p)^10 = 0.025.
    assert exact_share(0, 10) == pytest.approx((0, 0, 1 - 0.025**0.1))
    assert exact_share(10, 10) == pytest.approx((1, 0.025**0.1, 1))


def test_the_exact_interval_never_falls_below_its_level_and_wilson_does() -> None:
    shares = np.linspace(0.01, 0.99, 99)
    weights = reference.binom.pmf(np.arange(16), 15, shares[:, None])

    def coverage(found: list[tuple[float, float, float]]) -> np.ndarray:
        bounds = np.array(found)
        inside = (bounds[:, 1] <= shares[:, None]) & (shares[:, None] <= bounds[:, 2])
        return np.asarray((weights * inside).sum(axis=1))

    exact = coverage([exact_share(k, 15) for k in range(16)])
    score = coverage([wilson(k, 15) for k in range(16)])
    assert exact.min() >= 0.95
    assert score.min() < 0.95
    assert abs(score.mean() - 0.95) < abs(exact.mean() - 0.95)


def pairs(won: int, lost: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes of n pairs, of which b won and lost so many."""
    b = np.array([1] * won + [0] * (n - won), float)
    a = np.array([0] * won + [1] * lost + [0] * (n - won - lost), float)
    return a, b


def ones(successes: int, trials: int) -> list[int]:
    return [1] * successes + [0] * (trials - successes)


def test_the_interval_of_pairs_by_hand() -> None:
    # Bonett and Price: shares of 4/12 and 2/12 with one pair more of each kind.
    half = reference.t.ppf(0.975, 9) * np.sqrt((6 / 12 - (2 / 12) ** 2) / 12) + 0.5 / 12
    expected = (0.2, 2 / 12 - half, 2 / 12 + half)
    assert share_difference(*pairs(3, 1, 10), paired=True) == pytest.approx(expected)


def test_the_unpaired_interval_is_newcombes_from_exact_bounds() -> None:
    (p, low_a, high_a), (q, low_b, high_b) = exact_share(2, 9), exact_share(7, 12)
    expected = (
        q - p,
        q - p - np.hypot(q - low_b, high_a - p),
        q - p + np.hypot(high_b - q, p - low_a),
    )
    assert share_difference(ones(2, 9), ones(7, 12), paired=False) == pytest.approx(expected)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("a", "b"), list(itertools.product([0, 5], repeat=2)))
def test_equal_outcomes_have_an_interval_with_width_within_the_range(
    a: int, b: int, paired: bool
) -> None:
    found = share_difference(ones(a, 5), ones(b, 5), paired=paired)
    assert found.high - found.low > 0.4
    assert -1 <= found.low <= found.point <= found.high <= 1


def test_one_pair_leaves_all_open() -> None:
    assert share_difference([0], [1], paired=True) == (1, -1, 1)
    assert share_test([0], [1], paired=True).p_value == 1


@pytest.mark.parametrize("n", [5, 12])
def test_no_shares_of_pairs_are_held_less_than_94_percent(n: int) -> None:
    tables = [(won, lost) for won in range(n + 1) for lost in range(n + 1 - won)]
    bounds = np.array([share_difference(*pairs(*table, n), paired=True) for table in tables])
    counts = [(won, lost, n - won - lost) for won, lost in tables]
    for p, q in itertools.product(np.linspace(0, 1, 11), repeat=2):
        if p + q <= 1 + 1e-9:
            chances = [p, q, max(0.0, 1 - p - q)]
            weights = reference.multinomial.pmf(counts, n, np.array(chances) / sum(chances))
            inside = (bounds[:, 1] <= p - q + 1e-9) & (p - q - 1e-9 <= bounds[:, 2])
            assert weights[inside].sum() >= 0.945


def test_mcnemars_test_is_a_sign_test_of_the_pairs_that_differ() -> None:
    for won, lost in itertools.product(range(6), repeat=2):
        if won + lost:
            for side in Side:
                found = share_test(*pairs(won, lost, 14), paired=True, side=side)
                expected = reference.binomtest(won, won + lost, alternative=side.value).pvalue
                assert found.p_value == pytest.approx(expected)
                assert found.statistic == pytest.approx((won - lost) / 14)
    assert share_test([1, 0], [1, 0], paired=True).p_value == 1


def test_fishers_test_agrees_with_scipy() -> None:
    for k, m in itertools.product(range(8), range(12)):
        for side in Side:
            found = share_test(ones(k, 7), ones(m, 11), paired=False, side=side)
            table = [[m, 11 - m], [k, 7 - k]]
            expected = reference.fisher_exact(table, alternative=side.value).pvalue
            assert found.p_value == pytest.approx(expected, abs=1e-12)


def test_losses_of_two_subjects_by_hand() -> None:
    # None of 2 and 2 of 2: one of the six ways to share out two losses over four trials.
    assert fisher_exact(0, 2, 2, 2, side="greater") == pytest.approx(1 / 6)
    assert fisher_exact(0, 2, 2, 2) == pytest.approx(1 / 3)


def test_five_equal_outcomes_are_no_proof_of_equality() -> None:
    for paired in (True, False):
        found = share_equivalence([1] * 5, [1] * 5, paired=paired, margin=0.05)
        assert not found.equivalent
        assert found.p_value > 0.05
    many = share_equivalence([1] * 70, [1] * 70, paired=True, margin=0.05)
    assert many.equivalent
    assert many.interval.high < 0.05
    assert share_equivalence([1] * 32, [1] * 32, paired=True, margin=0.1).equivalent
    assert not share_equivalence([1] * 31, [1] * 31, paired=True, margin=0.1).equivalent


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_lies_within_the_margin_exactly_if_equivalent(paired: bool) -> None:
    for won, lost in [(0, 0), (1, 2), (4, 3), (9, 0), (3, 3)]:
        a, b = pairs(won, lost, 40)
        for margin in (0.1, 0.17, 0.2, 0.3):
            found = share_equivalence(a, b, paired=paired, margin=margin)
            inside = -margin < found.interval.low and found.interval.high < margin
            assert found.equivalent == inside == (found.p_value < 0.05)


@pytest.mark.parametrize(("n", "margin"), [(20, 0.2), (20, 0.3), (40, 0.1)])
def test_a_difference_of_the_margin_is_called_none_in_at_most_5_percent(
    n: int, margin: float
) -> None:
    tables = [(won, lost) for won in range(n + 1) for lost in range(n + 1 - won) if won < n / 2]
    small = [
        (won, lost, n - won - lost)
        for won, lost in tables
        if share_equivalence(*pairs(won, lost, n), paired=True, margin=margin).equivalent
    ]
    assert small
    for rest in np.linspace(0, (1 - margin) / 2, 8):
        chances = [margin + rest, rest, 1 - margin - 2 * rest]
        assert reference.multinomial.pmf(small, n, chances).sum() <= 0.05


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_what_is_no_share_is_refused(successes: int, trials: int) -> None:
    with pytest.raises(UsageError, match=f"{successes} of {trials} is no share"):
        exact_share(successes, trials)


def test_values_between_are_no_outcomes() -> None:
    with pytest.raises(UsageError, match=r"are 0 or 1, and one is 0\.5"):
        share_difference([0, 0.5], [1, 1], paired=True)
    with pytest.raises(UsageError, match="2 outcomes cannot be paired with 1"):
        share_test([0, 1], [1], paired=True)
