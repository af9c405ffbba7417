"""Intervals of a mean against SciPy, hand-computed numbers, and their own promises."""

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats as reference

from assay.errors import UsageError
from assay.stats import intervals
from assay.stats.intervals import (
    Interval,
    Method,
    Side,
    bootstrap_means,
    mean_interval,
    skewness_note,
    t_interval,
)
from prove.intervals import DATA, SIZES, measure, plain_studentised

BOOTSTRAPS = [Method.PERCENTILE, Method.BCA, Method.STUDENTISED]
SKEWED = [0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.7, 0.8, 1.0, 1.1, 1.3, 1.7, 2.2, 3.5, 6.0]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("method", [Method.AUTO, Method.T, "auto", "t"])
def test_the_default_is_students_t_however_skewed_the_values(method: Method | str) -> None:
    assert mean_interval(SKEWED, method=method) == pytest.approx(t_interval(SKEWED))
    assert mean_interval(SKEWED) == mean_interval(SKEWED, method=method)


@pytest.mark.parametrize("side", [Side.GREATER, Side.LESS])
def test_a_one_sided_t_interval_agrees_with_scipy(side: Side) -> None:
    found = mean_interval(SKEWED, side=side, level=0.9)
    expected = reference.ttest_1samp(SKEWED, 0, alternative=str(side)).confidence_interval(0.9)
    assert found[1:] == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(("method", "name"), [("bca", "BCa"), ("percentile", "percentile")])
def test_the_bootstraps_agree_with_scipy(method: str, name: str, side: Side) -> None:
    found = mean_interval(SKEWED, method=method, side=side, rng=generator(), n_resamples=40_000)
    expected = reference.bootstrap(
        (SKEWED,),
        np.mean,
        method=name,
        alternative=str(side),
        n_resamples=40_000,
        rng=generator(1),
    ).confidence_interval
    # A tail of 2.5 % of 40,000 is known to 0.08 points: about 0.015 of these values.
    assert found[1:] == pytest.approx((expected.low, expected.high), abs=0.045)


def test_bca_follows_the_textbook_given_the_same_resamples() -> None:
    means = np.sort(bootstrap_means(SKEWED, generator(5), 1_999))
    mean, normal = np.mean(SKEWED), reference.norm
    # Sums of these values come in other orders; six digits tell a tie from a difference.
    away = np.round(means - mean, 6)
    share = ((away < 0).mean() + (away <= 0).mean()) / 2
    z0 = normal.ppf(share)
    jack = np.array([np.mean(np.delete(SKEWED, i)) for i in range(len(SKEWED))])
    pull = jack.mean() - jack
    a = (pull**3).sum() / (6 * (pull**2).sum() ** 1.5)
    expected = [
        np.quantile(means, normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))), method="weibull")
        for z in normal.ppf([0.025, 0.975])
    ]
    found = mean_interval(SKEWED, method="bca", rng=generator(5), n_resamples=1_999)
    assert found[1:] == pytest.approx(expected)
    # The form that applies z0 once, and with the wrong sign below the stroke, is another.
    wrong = normal.cdf(z0 + 1.96 / (1 - a * (1.96 - z0)))
    assert found.high != pytest.approx(np.quantile(means, wrong, method="weibull"), rel=1e-3)


def test_ties_with_the_mean_count_half_in_bca() -> None:
    # All 27 resamples of three values, by hand: 10 means below 1, 7 equal to it, 10 above.
    # So z0 is zero, and without skewness BCa is the percentile interval.
    means = [sum(values) for values in product([0, 1, 2], repeat=3)]
    assert (sum(m < 3 for m in means), means.count(3)) == (10, 7)
    values = [0.1, 0.2, 0.3] * 3
    bca = mean_interval(values, method="bca", rng=generator(), n_resamples=50_000)
    plain = mean_interval(values, method="percentile", rng=generator(), n_resamples=50_000)
    assert bca == pytest.approx(plain, abs=1e-3)


def test_the_studentised_interval_agrees_with_a_plain_loop() -> None:
    found = mean_interval(SKEWED, method="studentised", rng=generator(), n_resamples=40_000)
    loops = [plain_studentised(SKEWED, 1_999, random.Random(seed)) for seed in range(6)]
    lows, highs = [one.low for one in loops], [one.high for one in loops]
    for bound, several in ((found.low, lows), (found.high, highs)):
        error = float(np.std(several, ddof=1)) / math.sqrt(len(several))
        assert bound == pytest.approx(np.mean(several), abs=5 * error)


@pytest.mark.parametrize("method", list(Method))
def test_the_same_seed_gives_the_same_interval(method: Method) -> None:
    first, second = (mean_interval(SKEWED, method=method, rng=generator(7)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize(("times", "plus"), [(1e-6, 0.0), (1e200, 0.0), (3.0, -1e3)])
def test_an_interval_moves_and_grows_with_its_values(
    method: Method, times: float, plus: float
) -> None:
    before = mean_interval(SKEWED, method=method, rng=generator(), n_resamples=500)
    values = np.array(SKEWED) * times + plus
    after = mean_interval(values, method=method, rng=generator(), n_resamples=500)
    expected = [bound * times + plus for bound in before]
    assert after == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("side", list(Side))
def test_one_value_has_no_interval_and_equal_ones_have_one_of_no_width(
    method: Method, side: Side
) -> None:
    alone = mean_interval([2.5], method=method, side=side, rng=generator())
    assert alone.point == 2.5
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)
    low, high = {"greater": (0.1, math.inf), "less": (-math.inf, 0.1)}.get(side, (0.1, 0.1))
    equal = mean_interval([0.1] * 7, method=method, side=side, rng=generator())
    assert equal == Interval(0.1, low, high)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1.0, 2.0], id="two values"),
        pytest.param([1.0, 2.0, 4.0], id="three values"),
        pytest.param([0.0, 0.0, 0.0, 0.0, 1.0], id="many ties"),
    ],
)
def test_the_studentised_bootstrap_says_when_it_has_no_bound(values: list[float]) -> None:
    found = mean_interval(values, method="studentised", rng=generator())
    assert found.point == np.mean(values)
    assert not found.known
    assert mean_interval(values).known


def test_one_side_of_the_studentised_bootstrap_may_be_known_where_the_other_is_not() -> None:
    values = [0.0, 0.0, 0.0, 0.0, 1.0]
    found = mean_interval(values, method="studentised", side="greater", rng=generator())
    assert math.isfinite(found.low)
    assert found.high == math.inf
    assert not mean_interval(values, method="studentised", side="less", rng=generator()).known


def test_batches_do_not_change_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = intervals.resample(np.array(SKEWED), generator(), 1_000, squares=True)
    monkeypatch.setattr(intervals, "_BATCH", 100)
    parts = intervals.resample(np.array(SKEWED), generator(), 1_000, squares=True)
    assert np.array_equal(whole.means, parts.means)
    assert np.array_equal(whole.squares, parts.squares)


def test_resampled_means_have_the_mean_and_spread_they_should() -> None:
    means = bootstrap_means(SKEWED, generator(), 50_000)
    assert means.shape == (50_000,)
    assert means.mean() == pytest.approx(np.mean(SKEWED), abs=0.01)
    assert means.std() == pytest.approx(np.std(SKEWED) / math.sqrt(15), rel=0.02)


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        pytest.param([], {}, "no values", id="nothing"),
        pytest.param([1, math.nan], {}, "number 2 is nan", id="nan"),
        pytest.param([1, 2], {"method": "bca"}, "give rng=", id="no generator"),
        pytest.param([1, 2], {"method": "bcaa"}, "did you mean 'bca'", id="method"),
        pytest.param([1, 2], {"side": "more"}, "two-sided, greater, less", id="side"),
        pytest.param([1, 2], {"level": 95}, "level 95", id="level"),
        pytest.param(
            [1, 2],
            {"method": "bca", "rng": generator(), "n_resamples": 5},
            "5 resamples",
            id="resamples",
        ),
    ],
)
def test_what_makes_no_interval_is_refused(
    values: list[float], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        mean_interval(values, **options)


def test_the_note_names_skewed_values_and_the_alternative() -> None:
    note = skewness_note(SKEWED)
    assert note is not None
    assert "15 values" in note
    assert f"skewness {reference.skew(SKEWED, bias=False):.1f}" in note
    assert "'studentised'" in note
    assert skewness_note([-value for value in SKEWED]) is not None


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1.0], id="one"),
        pytest.param([1.0, 5.0], id="two"),
        pytest.param([3.0] * 20, id="all equal"),
        pytest.param([1.0, 2.0, 3.0, 4.0, 5.0], id="even"),
        pytest.param(list(reference.norm.ppf(np.linspace(0.02, 0.98, 49))), id="normal"),
        pytest.param(list(np.linspace(0, 1, 700) ** 2), id="enough of them"),
    ],
)
def test_other_values_get_no_note(values: list[float]) -> None:
    assert skewness_note(values) is None


def test_few_normal_and_many_skewed_samples_get_the_note() -> None:
    def share(samples: np.ndarray) -> float:
        return float(np.mean([skewness_note(sample) is not None for sample in samples]))

    assert share(generator().normal(size=(600, 15))) < 0.07
    assert share(generator().exponential(size=(600, 15))) > 0.4
    assert share(generator().lognormal(size=(600, 30))) > 0.8


@pytest.mark.parametrize(
    ("data", "n", "covered"),
    [
        pytest.param("normal", 5, [0.95, 0.838, 0.951], id="normal"),
        pytest.param("exponential", 10, [0.905, 0.867, 0.944], id="exponential"),
    ],
)
def test_coverage_is_that_of_the_table_in_the_documents(
    data: str, n: int, covered: list[float]
) -> None:
    sets = 800
    samples = DATA[data].draw(generator(3), (sets, n))
    for method, expected in zip(["auto", "percentile", "studentised"], covered, strict=True):
        rng, hits = generator(4), 0
        for sample in samples:
            found = mean_interval(sample, method=method, rng=rng, n_resamples=299)
            hits += found.low <= DATA[data].mean <= found.high
        error = math.sqrt(expected * (1 - expected) / sets)
        assert hits / sets == pytest.approx(expected, abs=3.5 * error + 0.005)


@pytest.mark.extras
@pytest.mark.parametrize("data", list(DATA))
@pytest.mark.parametrize("n", SIZES)
def test_every_cell_of_the_proof_holds_with_fewer_sets(data: str, n: int) -> None:
    found = measure(data, n, 1_000, resamples=499)
    assert found.coverage[Method.AUTO] == found.coverage[Method.T]
    assert found.width[Method.AUTO] == 1
    if data == "normal":
        assert found.coverage[Method.AUTO] >= 0.94 - 3 * math.sqrt(0.05 * 0.95 / 1_000)
    assert found.coverage[Method.STUDENTISED] >= found.coverage[Method.PERCENTILE]
    _, ours, plain = found.oracle
    # A hundred sets; about one in fifty is covered by one of the two alone.
    assert ours == pytest.approx(plain, abs=0.05)
