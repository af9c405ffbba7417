"""Numbers of analyses and variance reports."""

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from assay.errors import UsageError
from assay.report.files import render_csv
from assay.report.terminal import TerminalReport
from assay.report.training_analysis import analysis_document
from assay.report.training_variance import variance_document
from assay.stats.variance import relative_standard_error
from assay.store.training_runs import TrainingRun, make_curve
from assay.training.analysis import Analysis, analyse
from assay.training.analysis_settings import make_settings, make_summary
from assay.training.design import Design
from assay.training.gather import LoadedRun, RunSet, SkippedRun
from assay.training.variance import VarianceSettings, analyse_variance
from tests.training.made import METRIC

CONTROL = [1.0, 1.3, 0.9, 1.6, 1.1, 0.8]
CANDIDATE = [1.2, 1.6, 1.0, 1.7, 1.5, 1.1]


def flat(values: Sequence[float], arm: str) -> tuple[LoadedRun, ...]:
    """Return constant runs, whose area is their value."""
    found = []
    for seed, value in enumerate(values):
        curve = make_curve([0, 50, 100], [value] * 3)
        run = TrainingRun(id=f"{arm}{seed}", seed=seed, curves={METRIC: curve})
        found.append(LoadedRun(run.id, run, curve))
    return tuple(found)


def design(
    paired: bool = True, a: Sequence[float] = CONTROL, b: Sequence[float] = CANDIDATE
) -> Design:
    seeds = tuple(range(len(a))) if paired else ()
    return Design(paired, flat(a, "c"), flat(b, "t"), seeds)


def found(paired: bool = True, **given: Any) -> Analysis:
    return analyse(design(paired), make_settings(given, {}))


def test_a_paired_difference_and_its_tests_match_scipy() -> None:
    it = found(ttest=True)
    theirs = stats.ttest_rel(CANDIDATE, CONTROL)
    assert it.difference == pytest.approx(
        (np.mean(CANDIDATE) - np.mean(CONTROL), *theirs.confidence_interval(0.95))
    )
    by_name = {test.name: test for test in it.tests}
    assert by_name["paired t test"].p_value == pytest.approx(theirs.pvalue)
    assert by_name["sign-flip test"].p_value == 2 / 2**6
    assert by_name["sign-flip test"].exact
    assert it.pairing is not None
    assert it.pairing.correlation.point == pytest.approx(np.corrcoef(CONTROL, CANDIDATE)[0, 1])
    assert it.verdict == "higher"
    assert dict(it.normality)["differences"].p_value == pytest.approx(
        stats.shapiro(np.subtract(CANDIDATE, CONTROL)).pvalue
    )


def test_an_unpaired_difference_uses_welchs_test() -> None:
    it = found(paired=False, ttest=True)
    theirs = stats.ttest_ind(CANDIDATE, CONTROL, equal_var=False)
    assert it.difference[1:] == pytest.approx(theirs.confidence_interval(0.95))
    assert {test.name for test in it.tests} == {"permutation test", "Welch's t test"}
    assert it.pairing is None
    assert it.verdict == "undecided"
    assert "does not prove that both are equal" in it.sentence


def test_without_t_tests_only_the_exact_test_is_reported() -> None:
    assert [test.name for test in found().tests] == ["sign-flip test"]


@pytest.mark.parametrize("method", ["studentised", "bca", "percentile"])
def test_the_same_seed_gives_the_same_numbers(method: str) -> None:
    first, again, other = (found(method=method, seed=seed) for seed in (7, 7, 8))
    assert first.difference == again.difference
    assert np.array_equal(first.estimates_B, again.estimates_B)
    assert not np.array_equal(first.estimates_B, other.estimates_B)


def test_a_one_sided_test_has_one_bound() -> None:
    it = found(side="greater")
    assert math.isinf(it.difference.high)
    assert it.difference.low > found().difference.low
    assert "above" in it.sentence


def power_of(trials: float, effect: float, *, paired: bool) -> float:
    """Return the power of a two-sided t-test at 5 %, by SciPy's noncentral t."""
    freedom = trials - 1 if paired else 2 * trials - 2
    shift = effect * math.sqrt(trials if paired else trials / 2)
    edge = stats.t.ppf(0.975, freedom)
    return float(stats.nct.sf(edge, freedom, shift) + stats.nct.cdf(-edge, freedom, shift))


def test_planned_sample_sizes_match_the_noncentral_t() -> None:
    it = found(power=True, target_effect_size=0.1, target_power=0.9)
    assert it.planning is not None
    sd = float(np.std(np.subtract(CANDIDATE, CONTROL), ddof=1))
    plain = it.planning.needed.plain
    assert power_of(plain, 0.1 / sd, paired=True) == pytest.approx(0.9, abs=1e-6)
    assert it.planning.needed.low is not None
    assert it.planning.needed.high is not None
    assert it.planning.needed.low < plain < it.planning.needed.high
    assert 0 < it.planning.achieved < 0.9
    assert it.planning.detectable > 0.1


def test_too_few_pairs_for_an_exact_test_are_noted() -> None:
    it = analyse(design(a=CONTROL[:3], b=CANDIDATE[:3]), make_settings({}, {}))
    assert it.sentence.startswith("Too few pairs for a verdict (3; at least 6): ")
    assert it.sentence.endswith(", assuming normal differences.")


def test_too_few_bootstrap_resamples_are_noted() -> None:
    assert any("too short below 30" in note for note in found(method="bca").notes)


def test_equal_values_are_analysed_without_an_interval() -> None:
    it = analyse(design(a=[2.0] * 4, b=[2.0] * 4), make_settings({"power": True}, {}))
    assert it.difference.point == 0.0
    assert not it.difference.known
    assert it.tests[0].p_value == 1.0
    assert it.verdict == "undecided"
    assert it.sentence.startswith(
        "Too few pairs for a verdict (4; at least 6): +0 (no interval"
    )
    assert "there is no interval; check that the runs are not copies" in it.notes[0]
    assert analysis_document(it).values()["difference"]["point"] == 0.0
    drawn = analyse(design(a=[2.0] * 4, b=[2.0] * 4), make_settings({"method": "bca"}, {}))
    assert drawn.difference == (0.0, 0.0, 0.0)
    assert any("the interval has no width" in note for note in drawn.notes)


def test_pairs_with_equal_differences_are_judged_by_the_exact_test() -> None:
    few, many = (
        analyse(design(a=[3.0] * n, b=[5.0] * n), make_settings({}, {})) for n in (4, 7)
    )
    assert (few.verdict, many.verdict) == ("undecided", "higher")
    assert "no interval, because nothing varies, 4 pairs" in few.sentence
    assert many.sentence.startswith("The candidate is higher than the control by +2 (no")


def test_values_of_0_or_1_are_proportions_with_exact_tests() -> None:
    a, b = [0.0, 0, 1, 0, 0, 1, 0], [1.0, 0, 1, 1, 1, 1, 1]
    it = analyse(design(paired=False, a=a, b=b), make_settings({"side": "greater"}, {}))
    assert it.contrast.tests is not None
    assert it.contrast.tests.t.name == "Fisher's exact test"
    assert it.verdict == "undecided"
    assert it.sentence.endswith("; p = 0.0513, Fisher's exact test.")
    assert it.notes == ()
    ones = analyse(design(a=[1.0] * 4, b=[1.0] * 4), make_settings({}, {}))
    assert ones.difference.low == pytest.approx(-0.8334431210760611)
    assert ones.difference.high == -ones.difference.low


def test_values_too_small_to_square_are_an_error() -> None:
    with pytest.raises(UsageError, match="too small to compute with"):
        analyse(design(a=[1e-200, 2e-200], b=[3e-200, 4e-200]), make_settings({}, {}))


def test_a_control_mean_near_zero_has_no_relative_change() -> None:
    it = analyse(
        design(a=[-1.0, 1.0, 0.5, -0.4], b=[2.0, 3.0, 2.5, 2.2]), make_settings({}, {})
    )
    assert not it.relative.known
    assert "not clear of 0" in (it.relative_note or "")


@pytest.mark.parametrize("paired", [True, False])
def test_one_run_is_rejected_and_excluded_runs_are_named(paired: bool) -> None:
    left = (SkippedRun("gone", "no such file"),)
    design = Design(paired, flat([1.0], "c"), flat([2.0], "t"), (0,), left)
    with pytest.raises(UsageError, match=r"needs two.*gone: no such file"):
        analyse(design, make_settings({}, {}))


def test_runs_that_never_reach_a_threshold_are_censored_at_the_earliest_end() -> None:
    spec = {"type": "time_to_threshold", "threshold": 1.05}
    result = analyse(design(), make_settings({}, spec))
    ends = [float(side.curve.steps_P[-1]) for side in result.design.control]
    assert result.control_R[0] == ends[0] > result.control_R[1:].min()
    assert np.isfinite([*result.control_R, *result.candidate_R]).all()
    assert result.notes[0].startswith(
        "4 of 12 runs never reach 1.05: their time is counted as step 100"
    )
    assert [test.name for test in result.tests][-1].startswith("log-rank test")
    with pytest.raises(UsageError, match="no run reaches 1e"):
        analyse(design(), make_settings({}, {**spec, "threshold": 1e9}))


def test_a_window_not_covered_by_a_run_is_rejected_with_its_name() -> None:
    with pytest.raises(UsageError, match="run 'c0'"):
        analyse(design(), make_settings({}, {"step_min": 50.0, "step_max": 500.0}))


def test_the_radial_plot_shows_five_summaries_of_both_arms() -> None:
    axes = found().radial
    assert [axis.name.split()[0] for axis in axes] == ["AUC", "last", "final", "slope", "steps"]
    assert axes[0].control == pytest.approx(np.mean(CONTROL))
    assert axes[2].candidate == pytest.approx(np.mean(CANDIDATE))
    assert [axis.lower_is_better for axis in axes] == [False] * 4 + [True]


def test_every_csv_row_has_its_provenance() -> None:
    import csv
    import io

    rows = list(
        csv.DictReader(
            io.StringIO(render_csv(analysis_document(found(seed=3), ["n: another"])))
        )
    )
    assert {row["kind"] for row in rows} >= {
        *("run", "mean", "difference", "test", "effect", "pairing", "normality"),
        *("verdict", "deviation"),
    }
    runs = [row for row in rows if row["kind"] == "run"]
    assert [float(row["value"]) for row in runs] == pytest.approx(CONTROL + CANDIDATE)
    assert [row["pair"] for row in runs] == [*"123456", *"123456"]
    for row in rows:
        assert (row["generator_seed"], row["metric"]) == ("3", METRIC)
        assert row["analysed_by_numpy"]
        assert None not in row
    (difference,) = [row for row in rows if row["name"] == "candidate - control"]
    assert float(difference["low"]) == pytest.approx(found().difference.low)


def test_no_csv_cell_is_a_formula() -> None:
    it = design()
    nasty = LoadedRun("=cmd()", it.control[0].run, it.control[0].curve)
    it = Design(True, (nasty, *it.control[1:]), it.candidate, it.seeds)
    text = render_csv(analysis_document(analyse(it, make_settings({}, {}))))
    assert ",=cmd" not in text
    assert "'=cmd()" in text


def variances(values: Sequence[float], **more: Any) -> Any:
    """Report the variance of runs that rise to given values: area and slope."""
    runs = []
    for at, value in enumerate(values):
        curve = make_curve([0, 100], [0.0, value])
        runs.append(LoadedRun(f"r{at}", TrainingRun(id=f"r{at}"), curve))
    return analyse_variance(runs, VarianceSettings(auc=make_summary({}), **more))


def test_the_simple_rule_is_reported_next_to_the_required_numbers_of_runs() -> None:
    auc, slope = variances([1.0, 1.01, 1.4, 0.8, 1.2, 0.9], threshold=0.1)
    assert auc.rule_n == slope.rule_n == 2
    assert auc.mean == pytest.approx(0.875 * np.mean([1.0, 1.01, 1.4, 0.8, 1.2, 0.9]))
    cv = auc.sd / auc.mean
    assert auc.error.point == pytest.approx(cv / math.sqrt(6))
    assert auc.precision.trials == math.ceil((cv / 0.1) ** 2)
    assert auc.precision.low <= auc.precision.trials <= auc.precision.high
    assert auc.two_arms.low < auc.two_arms.trials < auc.two_arms.high
    assert auc.paired.trials < auc.two_arms.trials
    assert dict(auc.rule)[6] == pytest.approx(cv)


def test_the_number_of_runs_to_detect_a_difference_matches_the_noncentral_t() -> None:
    auc, _ = variances([1.0, 1.01, 1.4, 0.8, 1.2, 0.9], threshold=0.1, correlation=0.8)
    d = 0.1 * auc.mean / auc.sd
    assert power_of(auc.two_arms.plain, d, paired=False) == pytest.approx(0.8, abs=1e-6)
    within = d / math.sqrt(2 * (1 - 0.8))
    assert power_of(auc.paired.plain, within, paired=True) == pytest.approx(0.8, abs=1e-6)


def test_a_mean_near_zero_has_no_relative_error_and_a_note() -> None:
    auc, _ = variances([1.0, -1.0, 0.5, -0.6])
    assert auc.precision is None
    assert "not clearly different from zero" in auc.note


def test_equal_runs_need_only_two() -> None:
    auc, _ = variances([2.0] * 4)
    assert (auc.rule_n, auc.precision.trials, auc.error.point) == (2, 2, 0.0)
    assert "no variation" in auc.note


def test_one_run_has_no_spread() -> None:
    with pytest.raises(UsageError, match="a variance needs two"):
        variances([1.0])


def test_an_unbounded_standard_error_is_printed_without_infinity() -> None:
    both = variances([1.0, 1.9])
    settings = VarianceSettings(auc=make_summary({}))
    text = io.StringIO()
    Console(file=text, width=120).print(
        TerminalReport(variance_document(RunSet(METRIC, (), ()), both, settings))
    )
    assert text.getvalue().count("% or more)") == 2
    assert "inf" not in text.getvalue()


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf])
def test_a_threshold_must_be_a_proportion_above_zero(threshold: float) -> None:
    with pytest.raises(UsageError, match="finite number above 0"):
        VarianceSettings(auc=make_summary({}), threshold=threshold)


def test_the_bounds_of_a_relative_error_match_the_noncentral_t() -> None:
    values = np.random.default_rng(5).normal(1.0, 0.2, 12)
    low, high = relative_standard_error(values, level=0.9)[1:]
    t = values.mean() / (values.std(ddof=1) / math.sqrt(12))
    assert stats.nct.cdf(t, 11, 1 / low) == pytest.approx(0.05, abs=1e-6)
    assert stats.nct.cdf(t, 11, 1 / high) == pytest.approx(0.95, abs=1e-6)


def test_the_relative_error_of_extreme_samples_is_defined() -> None:
    assert relative_standard_error([2.0, 2.0]) == (0.0, 0.0, 0.0)
    assert math.isnan(relative_standard_error([3.0]).point)
    assert math.isnan(relative_standard_error([-1.0, 1.0]).point)
    assert math.isinf(relative_standard_error([-1.0, 1.2]).high)


def test_the_bounds_of_a_relative_error_have_their_coverage() -> None:
    rng = np.random.default_rng(11)
    true = 0.2 / math.sqrt(8)
    held = 0
    for values in rng.normal(1.0, 0.2, (400, 8)):
        interval = relative_standard_error(values)
        held += interval.low <= true <= interval.high
    assert 0.92 < held / 400 < 0.98
