"""The exact interval of a share against SciPy and its promise."""

import numpy as np
import pytest
from scipy import stats as reference

from assay.errors import UsageError
from assay.stats.intervals import wilson
from assay.stats.shares import exact_share


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


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_what_is_no_share_is_refused(successes: int, trials: int) -> None:
    with pytest.raises(UsageError, match=f"{successes} of {trials} is no share"):
        exact_share(successes, trials)
