"""Verdicts of several comparisons at once, and of one interval by itself."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.judge.comparison import compare
from assay.judge.contrasts import interval_verdict
from assay.judge.results import Comparison
from assay.stats.intervals import Interval
from assay.stats.multiplicity import benjamini_hochberg, holm, plan_effect
from assay.stats.power import minimum_detectable_effect, trials_needed
from assay.types import Verdict

from .subjects import look, subject

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
EVEN = [1, -1, 2, -2, 1, -1, 3, -3, 1, -1]
"""Differences that show nothing."""


def shifted(*gaps: float) -> list[float]:
    return [value + gap for value, gap in zip(BASE, gaps, strict=True)]


SLIGHTLY = shifted(1, 0, 1, 0, 2, 0, 1, -1, 2, 1)
"""Better by itself with p = 0.045, and not among four candidates."""
CLEARLY = shifted(2, 1, 2, 1, 3, 1, 2, 1, 2, 2)


def judged(comparison: Comparison) -> dict[str, Verdict]:
    return {contrast.candidate: contrast.verdict for contrast in comparison.decisive}


def p_values(comparison: Comparison, *, adjusted: bool) -> list[float]:
    tests = [contrast.tests for contrast in comparison.decisive]
    return [t.p_adjusted if adjusted else t.p_value for t in tests if t is not None]


def test_a_verdict_goes_by_the_adjusted_p_value() -> None:
    base, slight = subject("a", BASE), subject("b", SLIGHTLY)
    others = [subject(name, shifted(*EVEN)) for name in "cde"]
    alone, among = compare([base, slight]), compare([base, slight, *others])
    assert stats.ttest_rel(SLIGHTLY, BASE).pvalue == pytest.approx(
        p_values(among, adjusted=False)[0]
    )
    assert p_values(among, adjusted=False)[0] < 0.05 < p_values(among, adjusted=True)[0]
    assert judged(alone) == {"b": Verdict.BETTER}
    assert judged(among)["b"] is Verdict.UNDECIDED


def test_holm_and_benjamini_hochberg_are_not_the_same() -> None:
    subjects = [
        subject("a", BASE),
        *(subject(name, SLIGHTLY) for name in "bcd"),
        subject("e", CLEARLY),
    ]
    by_holm, by_bh = (compare(subjects, level=0.85, correction=how) for how in ("holm", "bh"))
    assert by_holm.standings is not None
    raw = [pair.tests.p_value for pair in by_holm.standings.pairs if pair.tests]
    assert len(raw) == 10
    assert p_values(by_holm, adjusted=True) == pytest.approx(list(holm(raw))[:4])
    assert p_values(by_bh, adjusted=True) == pytest.approx(list(benjamini_hochberg(raw))[:4])
    assert judged(by_holm)["b"] is Verdict.UNDECIDED
    assert judged(by_bh)["b"] is Verdict.BETTER


def test_equivalence_is_adjusted_for_the_candidates_too() -> None:
    near = shifted(0.5, -0.5, 1, -1, 0.5, -0.5, 1, -1, 0.5, -0.5)
    alone = compare([subject("a", BASE), subject("b", near)], min_effect=7)
    three = compare(
        [subject("a", BASE), *(subject(name, near) for name in "bcd")], min_effect=7
    )
    [first] = alone.decisive
    assert first.tests is not None
    assert first.tests.equivalence_p is not None
    assert first.verdict is Verdict.NO_DIFFERENCE
    for contrast in three.decisive:
        assert contrast.tests is not None
        assert contrast.tests.equivalence_p is not None
        ratio = contrast.tests.equivalence_p / first.tests.equivalence_p
        # Holm's factors; pairs of candidates are equal, which has the smaller p value.
        assert 3 - 1e-9 < ratio < 6 + 1e-9
        assert contrast.verdict is Verdict.UNDECIDED


def test_a_plan_allows_for_all_pairs_on_the_page() -> None:
    rng = np.random.default_rng(2)
    noise = list(rng.normal(0.3, 1, 10))
    base, first = subject("a", BASE), subject("b", shifted(*noise))
    others = [subject(name, shifted(*EVEN)) for name in "cd"]
    alone, among = (
        compare([base, first]).decisive[0],
        compare([base, first, *others]).decisive[0],
    )
    sd = float(np.std(noise, ddof=1))
    effect = plan_effect(float(np.mean(noise)), 10)
    for contrast, family in ((alone, 1), (among, 6)):
        alpha = (1 - 0.95) / family
        needed = trials_needed(effect, sd, pilot_n=10, paired=True, alpha=alpha)
        assert contrast.settle is not None
        assert contrast.settle.trials == needed.trials
        assert (contrast.settle.low, contrast.settle.high) == (needed.low, needed.high)
        assert contrast.detectable == pytest.approx(
            minimum_detectable_effect(10, sd, paired=True, alpha=alpha)
        )
    assert alone.settle is not None
    assert among.settle is not None
    assert among.settle.trials > 1.2 * alone.settle.trials


def test_a_plan_for_independent_samples_takes_the_mean_of_both_variances() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, 8), rng.normal(0.4, 3, 12)
    [contrast] = compare(
        [subject("a", a.tolist()), subject("b", b.tolist(), first_seed=99)]
    ).decisive
    sd = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    needed = trials_needed(
        plan_effect(abs(b.mean() - a.mean()), 8), sd, pilot_n=8, paired=False
    )
    assert contrast.settle is not None
    assert contrast.settle.trials == needed.trials
    assert contrast.detectable == pytest.approx(minimum_detectable_effect(8, sd, paired=False))


def test_a_comparison_that_is_decided_has_no_plan() -> None:
    [contrast] = compare([subject("a", BASE), subject("b", CLEARLY)]).decisive
    assert contrast.settle is None
    assert contrast.detectable is not None


@pytest.mark.parametrize("decision", ["better", "worse", "no_difference", "undecided"])
def test_the_decision_of_a_run_is_the_verdict(decision: str) -> None:
    both = [subject("a", BASE), subject("b", BASE, looks=[look("a", decision)])]
    assert judged(compare(both)) == {"b": Verdict(decision)}


def test_a_run_that_has_not_ended_is_undecided() -> None:
    both = [subject("a", BASE), subject("b", CLEARLY, looks=[look("a", None)])]
    assert judged(compare(both)) == {"b": Verdict.UNDECIDED}


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 0.3, Verdict.HIGHER),
        (-0.3, -0.1, Verdict.LOWER),
        (-0.1, 0.1, Verdict.UNDECIDED),
        (0.0, 0.3, Verdict.UNDECIDED),
        (-0.3, 0.0, Verdict.UNDECIDED),
        (math.nan, math.nan, Verdict.UNKNOWN),
        (0.1, math.inf, Verdict.HIGHER),
    ],
)
def test_an_interval_by_itself_is_higher_lower_or_tells_nothing(
    low: float, high: float, verdict: Verdict
) -> None:
    assert interval_verdict(Interval(0.2, low, high)) is verdict
