"""Comparisons of one side, as `assay analysis` makes them, and what they plan for a target."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.judge.contrasts import contrast, decided
from assay.judge.power import plan_for_target
from assay.judge.results import Contrast, Setup
from assay.stats.intervals import Method, Side
from assay.stats.significance import sign_flip_test
from assay.types import Verdict

from .subjects import subject, trial

LOW = [2.0, 3.5, 1.25, 4.0, 2.5, 3.0, 5.0]
HIGH = [2.5, 5.0, 3.0, 4.5, 2.0, 4.0, 6.5]


def found(low: list[float], high: list[float], *, paired: bool, **chosen: Any) -> Contrast:
    """Return the judged contrast of an own metric."""
    arms = [
        subject(
            name, trials=[trial(name, seed + at, mine=value) for at, value in enumerate(all_)]
        )
        for name, all_, seed in (("a", low, 0), ("b", high, 0 if paired else 100))
    ]
    streams = chosen.pop("streams", None)
    setup = Setup(metrics=("mine",), baseline="a", **{"level": 0.95, **chosen})
    return decided([contrast(arms[0], arms[1], "mine", setup, streams=streams)], setup)[0]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("side", "open_end"), [(Side.GREATER, "high"), (Side.LESS, "low")])
def test_one_side_has_the_bound_and_the_p_value_of_scipy(
    paired: bool, side: Side, open_end: str
) -> None:
    it = found(LOW, HIGH, paired=paired, side=side)
    assert it.tests is not None
    theirs = (
        stats.ttest_rel(HIGH, LOW, alternative=side.value)
        if paired
        else stats.ttest_ind(HIGH, LOW, equal_var=False, alternative=side.value)
    )
    assert it.tests.t.p_value == pytest.approx(theirs.pvalue)
    assert it.difference[1:] == pytest.approx(theirs.confidence_interval(0.95))
    assert math.isinf(getattr(it.difference, open_end))
    both = found(LOW, HIGH, paired=paired)
    assert both.tests is not None
    smaller = side is Side.GREATER
    for test, other in (
        (it.tests.resampling, both.tests.resampling),
        (it.tests.rank, both.tests.rank),
    ):
        assert (test.p_value < other.p_value) is smaller


def test_one_side_decides_where_both_do_not() -> None:
    low, high = LOW[:5], [value + 0.25 for value in HIGH[:5]]
    verdicts = [found(low, high, paired=True, side=side).verdict for side in Side]
    assert verdicts == [Verdict.UNDECIDED, Verdict.HIGHER, Verdict.UNDECIDED]


def test_a_neutral_verdict_is_higher_or_lower() -> None:
    up, down = found(LOW, HIGH, paired=True), found(HIGH, LOW, paired=True)
    assert (up.verdict, up.neutral_verdict) == (Verdict.HIGHER, Verdict.HIGHER)
    assert (down.verdict, down.neutral_verdict) == (Verdict.LOWER, Verdict.LOWER)
    # Of a cost the better one is lower.
    assert replace(up, verdict=Verdict.WORSE).neutral_verdict is Verdict.HIGHER
    undecided = found(LOW, LOW[::-1], paired=True)
    assert undecided.neutral_verdict is undecided.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("paired", [True, False])
def test_shares_have_one_bound_of_an_exact_method(paired: bool) -> None:
    zeros, ones = [0.0, 0, 1, 0, 0, 1, 0], [1.0, 0, 1, 1, 1, 1, 1]
    up = found(zeros, ones, paired=paired, side=Side.GREATER)
    down = found(ones, zeros, paired=paired, side=Side.LESS)
    both = found(zeros, ones, paired=paired, level=0.9)
    assert up.tests is not None
    assert up.difference.low == pytest.approx(both.difference.low)
    assert (up.difference.high, down.difference.low) == (math.inf, -math.inf)
    assert down.difference.high == pytest.approx(-up.difference.low)
    table = [[6, 1], [2, 5]]
    exact = 0.5**4 if paired else stats.fisher_exact(table, alternative="greater").pvalue
    assert up.tests.t.p_value == pytest.approx(exact)


def test_tasks_that_are_strata_are_compared_on_one_side() -> None:
    arms = [
        subject(
            name,
            trials=[
                trial(name, at, task=f"t{at % 2}", mine=value) for at, value in enumerate(all_)
            ],
        )
        for name, all_ in (("a", LOW[:6]), ("b", HIGH[:6]))
    ]
    setup = Setup(metrics=("mine",), baseline="a", level=0.95)
    one, both = (
        contrast(arms[0], arms[1], "mine", replace(setup, side=side))
        for side in (Side.GREATER, Side.TWO_SIDED)
    )
    assert one.tests is not None
    assert both.tests is not None
    assert one.tests.t.name == "paired t test stratified by task"
    assert one.tests.t.p_value == pytest.approx(both.tests.t.p_value / 2)
    assert both.difference.low < one.difference.low < one.difference.point
    assert math.isinf(one.difference.high)


def test_resamples_and_generators_are_those_that_are_given() -> None:
    rng = np.random.default_rng(7)
    many_a, many_b = rng.normal(0, 1, 30).tolist(), rng.normal(0.2, 1, 30).tolist()

    def drawn(seeds: tuple[int, int], count: int | None) -> Contrast:
        streams = [np.random.default_rng(seed) for seed in seeds]
        return found(
            many_a,
            many_b,
            paired=True,
            method=Method.PERCENTILE,
            n_resamples=count,
            streams=streams,
        )

    first, again, other = drawn((1, 2), 500), drawn((1, 2), 500), drawn((3, 2), 500)
    assert first.difference == again.difference != other.difference
    assert first.tests == again.tests == other.tests
    assert first.tests is not None
    own = sign_flip_test(
        np.subtract(many_b, many_a), rng=np.random.default_rng(2), n_resamples=500
    )
    assert first.tests.resampling.p_value == own.p_value
    assert drawn((1, 2), 600).difference != first.difference
    assert drawn((1, 2), None).difference == drawn((1, 2), 10_000).difference


@pytest.mark.parametrize("paired", [True, False])
def test_a_plan_for_a_target_is_that_of_the_noncentral_t(paired: bool) -> None:
    a, b = np.array(LOW), np.array(HIGH if paired else HIGH[:4])
    given: dict[str, Any] = {"paired": paired, "target": 0.8, "power": 0.9, "alpha": 0.05}
    plan = plan_for_target(a, b, side=Side.TWO_SIDED, **given)
    sd = (
        float(np.std(b - a, ddof=1))
        if paired
        else math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    )
    n = 7.0 if paired else 2 / (1 / 7 + 1 / 4)
    assert (plan.target, plan.power) == (0.8, 0.9)
    assert plan.sd == pytest.approx(sd)
    assert plan.needed.pilot_n == (7 if paired else 5)

    def power(trials: float, effect: float) -> float:
        freedom = trials - 1 if paired else 2 * trials - 2
        shift = effect / sd * math.sqrt(trials if paired else trials / 2)
        edge = stats.t.ppf(0.975, freedom)
        return float(stats.nct.sf(edge, freedom, shift) + stats.nct.cdf(-edge, freedom, shift))

    assert power(plan.needed.plain, 0.8) == pytest.approx(0.9, abs=1e-6)
    assert plan.achieved == pytest.approx(power(n, 0.8), abs=1e-6)
    assert power(n, plan.detectable) == pytest.approx(0.9, abs=1e-6)
    one = plan_for_target(a, b, side=Side.GREATER, **given)
    both = plan_for_target(a, b, side=Side.TWO_SIDED, **{**given, "alpha": 0.1})
    assert one == both
