"""Bounds of z and t: published constants, and how often data without an effect passes them."""

import math

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.look_bounds import (
    BrownianWalk,
    Spending,
    cumulative_spending,
    t_bounds,
    z_bounds,
)

FIVE = [0.2, 0.4, 0.6, 0.8, 1.0]
EACH = tuple(range(5, 31))


@pytest.mark.parametrize(
    ("kind", "looks", "alpha", "published"),
    [
        (Spending.POCOCK, 1, 0.05, 1.960),
        (Spending.POCOCK, 2, 0.05, 2.178),
        (Spending.POCOCK, 5, 0.05, 2.413),
        (Spending.POCOCK, 5, 0.01, 2.986),
        (Spending.OBRIEN_FLEMING, 2, 0.05, 1.977),
        (Spending.OBRIEN_FLEMING, 5, 0.05, 2.040),
        (Spending.OBRIEN_FLEMING, 4, 0.01, 2.609),
    ],
)
def test_the_classical_constants_are_those_of_jennison_and_turnbull(
    kind: Spending, looks: int, alpha: float, published: float
) -> None:
    def passed(constant: float) -> float:
        """How often |z| passes C, or C sqrt(looks / look), at looks at equal distances."""
        walk = BrownianWalk()
        shares = [look / looks for look in range(1, looks + 1)]
        grown = [1.0 if kind is Spending.POCOCK else share**-0.5 for share in shares]
        return math.fsum(
            walk.step(share, constant * factor)
            for share, factor in zip(shares, grown, strict=True)
        )

    assert passed(published + 6e-4) < alpha < passed(published - 6e-4)


@pytest.mark.parametrize(
    ("kind", "published"),
    [
        (Spending.OBRIEN_FLEMING, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        (Spending.POCOCK, [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]),
    ],
)
def test_the_bounds_of_lan_and_demets_are_the_published_ones(
    kind: Spending, published: list[float]
) -> None:
    assert z_bounds(kind, FIVE) == pytest.approx(published, abs=2e-4)


@pytest.mark.parametrize("kind", Spending)
def test_all_of_the_error_is_spent_at_the_end_and_ever_more_on_the_way(kind: Spending) -> None:
    spent = cumulative_spending(kind, np.linspace(0.01, 1, 100), 0.03)
    assert spent[-1] == pytest.approx(0.03)
    assert np.all(np.diff(spent) > 0)


def test_one_look_is_the_test_without_looks() -> None:
    assert z_bounds(Spending.POCOCK, [1.0])[0] == pytest.approx(1.959964, abs=1e-6)
    assert t_bounds(Spending.POCOCK, (30,))[0] == pytest.approx(2.045230, abs=1e-6)


def test_bounds_of_t_come_near_those_of_z_as_values_get_many() -> None:
    counts = tuple(range(170, 201))
    z = z_bounds(Spending.OBRIEN_FLEMING, [count / 200 for count in counts])
    t = t_bounds(Spending.OBRIEN_FLEMING, counts)
    assert np.all(t > z)
    assert t == pytest.approx(z, rel=0.02)


@pytest.mark.parametrize("kind", Spending)
def test_exact_bounds_of_t_are_passed_as_often_as_they_say(kind: Spending) -> None:
    """Also look by look: what was spent by then is what the spending function allows."""
    sets, most = 40_000, EACH[-1]
    values = np.random.default_rng(7).standard_normal((sets, most))
    n = np.array(EACH)
    sums = values.cumsum(axis=1)[:, n - 1]
    squares = (values**2).cumsum(axis=1)[:, n - 1]
    t = np.abs(sums) * np.sqrt((n - 1) / (n * (squares - sums**2 / n)))
    passed = np.maximum.accumulate(t > t_bounds(kind, EACH), axis=1).mean(axis=0)
    allowed = cumulative_spending(kind, n / most)
    assert np.all(np.abs(passed - allowed) <= 3.5 * np.sqrt(allowed / sets) + 1e-9)


def test_two_looks_agree_with_integration_by_hand() -> None:
    """The chance to pass at the second look only, by sampling the first with certainty."""
    first, second = t_bounds(Spending.POCOCK, (4, 5), 0.1)
    values = np.random.default_rng(3).standard_normal((400_000, 5))

    def t(n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        some = values[:, :n]
        return np.abs(some.mean(axis=1)) / (some.std(axis=1, ddof=1) / math.sqrt(n))

    early = t(4) > first
    late = ~early & (t(5) > second)
    spent = cumulative_spending(Spending.POCOCK, [0.8, 1.0], 0.1)
    assert early.mean() == pytest.approx(spent[0], abs=0.0015)
    assert late.mean() == pytest.approx(spent[1] - spent[0], abs=0.0006)


def test_looks_that_may_spend_nothing_have_no_bound() -> None:
    bounds = t_bounds(Spending.OBRIEN_FLEMING, tuple(range(5, 201)))
    assert np.isinf(bounds[:10]).all()
    assert np.isfinite(bounds[30:]).all()
    assert np.all(np.diff(bounds[30:]) < 0)


def test_a_thousand_values_have_fewer_looks_and_bounds_that_go_on_smoothly() -> None:
    counts = (*range(150, 201), *range(202, 1000, 7), 1000)
    bounds = t_bounds(Spending.POCOCK, counts)
    assert abs(bounds[51] - bounds[50]) < 0.02
    assert np.all(np.diff(bounds[51:]) < 0)
    assert bounds[-1] == pytest.approx(2.618, abs=0.01)


@pytest.mark.parametrize("shares", [[], [0.0, 1.0], [0.5, 0.5], [0.5, 1.2], [math.nan]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(UsageError, match="shares of the data"):
        z_bounds(Spending.POCOCK, shares)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_an_alpha_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError, match="alpha"):
        cumulative_spending(Spending.POCOCK, FIVE, alpha)


@pytest.mark.parametrize("counts", [(2, 3), (300, 301)])
def test_looks_that_cannot_be_followed_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="look after"):
        t_bounds(Spending.POCOCK, counts)
