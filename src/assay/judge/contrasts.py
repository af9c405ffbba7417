"""Contrasts: one subject against another in one metric, and the resulting verdicts.

A candidate is better or worse if the t test of the difference, adjusted for the number of
candidates, is below alpha; the interval comes from the same test. Both depend on the tasks, see
`matching`. If all differences are equal, the spread cannot be estimated, and the exact
resampling test is used instead. If a smallest difference that matters is given, two one-sided
tests may conclude that there is no relevant difference; this verdict takes precedence. There is
no verdict if the tasks differed, if both sides are the same trials, or if there are so few
units that the exact test of the design could not reject whatever the data. For a run with
`--until-decided` the stored decision is used: a new test would ignore the interim analyses.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from assay.core.canonical_json import derive_id
from assay.errors import UsageError
from assay.judge.design import design_differences, same_trials
from assay.judge.looks import last_look
from assay.judge.matching import Matched, bounded, match, resamples
from assay.judge.outcomes import Direction, outcome_of
from assay.judge.results import DIFFERENT, Contrast, Effects, Setup, TaskRule, Tests
from assay.judge.subjects import Subject
from assay.stats.bounded import bounded_tost
from assay.stats.clusters import world_share_difference, world_share_test
from assay.stats.differences import (
    paired_difference,
    pairing,
    relative_change,
    unpaired_difference,
)
from assay.stats.effects import (
    cliffs_delta,
    cohens_d,
    cohens_dz,
    hedges_g,
    probability_of_improvement,
)
from assay.stats.estimates import Estimate, pair_differences
from assay.stats.intervals import Interval, Method, Side, skewness_note
from assay.stats.multiplicity import Correction, after_verdict, benjamini_hochberg, holm
from assay.stats.shares import share_difference, share_equivalence, share_test
from assay.stats.significance import (
    FEWEST_EQUIVALENT,
    Design,
    TestResult,
    least_p_value,
    mann_whitney_test,
    open_equivalence_test,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    smallest_n,
    welch_t_test,
    wilcoxon_test,
)
from assay.types import Verdict

_NEUTRAL = (Verdict.HIGHER, Verdict.LOWER)
_MANY = 100
"""So many units are enough for every test; the number of their orders is too large."""
_SAME = 1e-9
"""Numbers are equal if they differ by less than this fraction of the largest."""


def contrast(
    baseline: Subject,
    candidate: Subject,
    metric: str,
    setup: Setup,
    *,
    streams: Sequence[np.random.Generator] | None = None,
) -> Contrast:
    """Compare a candidate with a baseline in one metric; the verdict is set by `decided`.

    `streams` are two generators, one for the interval of the difference and one for its tests.
    By default both are one generator seeded from the seed, the subjects and the metric.
    """
    matched = match(baseline, candidate, metric, setup.tasks)
    a, b = matched.baseline, matched.candidate
    estimate = matched.estimate() if matched.grouped or matched.units.partly_shared else None
    if streams is None:
        streams = [_generator(setup.seed, baseline, candidate, metric)] * 2
    difference = _difference(matched, estimate, setup, streams[0])
    enough = min(map(len, matched.independent()[:2])) > 1
    spread_known = enough and _spread_known(matched, estimate)
    look = last_look(baseline, candidate, metric)
    mean_baseline = matched.mean(setup.level, candidate=False)
    return Contrast(
        baseline=baseline.id,
        candidate=candidate.id,
        metric=metric,
        outcome=outcome_of(metric, setup.outcomes),
        paired=matched.paired,
        n_baseline=len(a),
        n_candidate=len(b),
        mean_baseline=mean_baseline,
        mean_candidate=matched.mean(setup.level, candidate=True),
        difference=difference if look is None else Interval(look.estimate, look.low, look.high),
        naive=difference,
        relative=_relative(matched, mean_baseline, setup.level),
        verdict=Verdict.UNDECIDED,
        tests=_tests(matched, estimate, setup, metric, streams[1]) if enough else None,
        effects=_effects(matched, setup.level) if spread_known else None,
        pairing=pairing(a, b)
        if matched.paired and len(a) > 3 and spread_known and estimate is None
        else None,
        skewness=_skewness(matched),
        left_out_baseline=matched.left_out_baseline,
        left_out_candidate=matched.left_out_candidate,
        units=matched.units,
        design=design_differences(
            baseline,
            candidate,
            # If tasks are a sample, each subject may have different ones.
            setup.allow_different
            | ({"tasks"} if matched.units.rule is TaskRule.SAMPLE else set()),
        ),
        same=same_trials(baseline, candidate),
        shrunken=after_verdict(matched.estimate(), setup.level) if spread_known else None,
        pairs=matched.rows,
        look=look,
        standardised=_standardised(matched, setup.level) if spread_known else None,
    )


def decided(contrasts: Sequence[Contrast], setup: Setup) -> tuple[Contrast, ...]:
    """Return the contrasts of one metric with adjusted p values and verdicts."""
    tested = [contrast.tests for contrast in contrasts if contrast.tests is not None]
    p_values = iter(_adjusted([tests.p_value for tests in tested], setup))
    margins = [tests.equivalence_p for tests in tested if tests.equivalence_p is not None]
    equivalences = iter(_adjusted(margins, setup))
    judged = []
    for contrast in contrasts:
        if contrast.tests is not None:
            tests = replace(contrast.tests, p_adjusted=next(p_values))
            if tests.equivalence_p is not None:
                tests = replace(tests, equivalence_p=next(equivalences))
            contrast = replace(contrast, tests=tests)
        fewest = _too_few(contrast, setup.alpha / len(contrasts), setup.side)
        verdict = Verdict.UNDECIDED if fewest else _verdict(contrast, setup.alpha)
        shrunken = contrast.shrunken if verdict in DIFFERENT else None
        judged.append(replace(contrast, verdict=verdict, shrunken=shrunken, fewest=fewest))
    return tuple(judged)


def interval_verdict(difference: Interval) -> Verdict:
    """Return the verdict of a single interval, for a metric without a better direction."""
    if not difference.known:
        return Verdict.UNKNOWN
    if difference.low > 0:
        return Verdict.HIGHER
    return Verdict.LOWER if difference.high < 0 else Verdict.UNDECIDED


def _too_few(contrast: Contrast, alpha: float, side: Side) -> int | None:
    """Return the number of units that a verdict takes if there are fewer, or None."""
    n_a, n_b, paired, _ = contrast.unit_counts
    if contrast.confounds or contrast.same is not None or contrast.look is not None:
        return None
    if min(n_a, n_b) > _MANY or least_p_value(n_a, None if paired else n_b, side) < alpha:
        return None
    return smallest_n(Design.PAIRS if paired else Design.GROUPS, 1 - alpha, side)


def _adjusted(p_values: Sequence[float], setup: Setup) -> list[float]:
    if not p_values:
        return []
    adjust = holm if setup.correction is Correction.HOLM else benjamini_hochberg
    return [float(p_value) for p_value in adjust(p_values)]


def _verdict(contrast: Contrast, alpha: float) -> Verdict:
    if contrast.confounds:
        return Verdict.UNKNOWN
    if contrast.look is not None:
        known = {verdict.value: verdict for verdict in Verdict}
        found = known.get(contrast.look.decision or "", Verdict.UNDECIDED)
        neutral = contrast.outcome.direction is Direction.NEITHER
        if found in ((Verdict.BETTER, Verdict.WORSE) if neutral else _NEUTRAL):
            return _directed(contrast)
        return found
    tests = contrast.tests
    if tests is None or contrast.same is not None:
        return Verdict.UNDECIDED
    if tests.equivalence_p is not None and tests.equivalence_p < alpha:
        return Verdict.NO_DIFFERENCE
    if tests.p_adjusted >= alpha or contrast.difference.point == 0:
        return Verdict.UNDECIDED
    return _directed(contrast)


def _directed(contrast: Contrast) -> Verdict:
    """Return the verdict that the two differ, in the direction of the metric if it has one."""
    more = contrast.difference.point > 0
    if contrast.outcome.direction is Direction.NEITHER:
        return Verdict.HIGHER if more else Verdict.LOWER
    return Verdict.BETTER if more is not contrast.lower_is_better else Verdict.WORSE


def _generator(
    seed: int, baseline: Subject, candidate: Subject, metric: str
) -> np.random.Generator:
    # A separate stream, so that results do not depend on the other subjects in the comparison.
    stream = int(derive_id("compare", baseline.id, candidate.id, metric), 16)
    return np.random.default_rng([seed, stream])


def _difference(
    matched: Matched, estimate: Estimate | None, setup: Setup, rng: np.random.Generator
) -> Interval:
    if estimate is not None:
        if setup.method not in (Method.AUTO, Method.T):
            raise UsageError(
                f"method {setup.method.value!r} takes worlds of one task that both played or"
                f" none did, and these are of {matched.units.tasks} with"
                f" {matched.units.partly_shared} in common; leave method out"
            )
        if not matched.shares:
            return _within(matched, estimate, setup)
    if matched.world_shares:
        return world_share_difference(
            matched.baseline,
            matched.candidate,
            matched.plays_baseline,
            matched.plays_candidate,
            paired=matched.paired,
            level=setup.level,
            side=setup.side,
        )
    if matched.shares:
        return share_difference(
            matched.baseline,
            matched.candidate,
            paired=matched.paired,
            level=setup.level,
            side=setup.side,
        )
    if setup.method in (Method.AUTO, Method.T):
        return _within(matched, matched.estimate(), setup)
    find = paired_difference if matched.paired else unpaired_difference
    return find(
        matched.baseline,
        matched.candidate,
        level=setup.level,
        method=setup.method,
        side=setup.side,
        rng=rng,
        n_resamples=setup.n_resamples or 10_000,
    )


def _within(matched: Matched, estimate: Estimate, setup: Setup) -> Interval:
    """Return the interval of a difference, clipped to differences that are possible."""
    most = matched.scale.high - matched.scale.low
    return bounded(estimate, setup.level, low=-most, high=most, side=setup.side)


def _relative(matched: Matched, mean_baseline: Interval, level: float) -> Interval | None:
    change = relative_change(
        matched.baseline, matched.candidate, paired=matched.paired, level=level
    )
    if matched.grouped or matched.units.partly_shared:
        clear = mean_baseline.low > 0 or mean_baseline.high < 0
        return Interval(change.point, math.nan, math.nan) if clear else None
    return change if math.isfinite(change.low) and math.isfinite(change.high) else None


def _tests(
    matched: Matched,
    estimate: Estimate | None,
    setup: Setup,
    metric: str,
    rng: np.random.Generator,
) -> Tests:
    a, b, paired = matched.independent()
    side, draws = setup.side, setup.n_resamples or resamples(len(a) + len(b))
    if paired:
        rank, gaps = wilcoxon_test(a, b, side=side), pair_differences(a, b)
        resampling = sign_flip_test(gaps, side=side, rng=rng, n_resamples=draws)
    else:
        rank = mann_whitney_test(a, b, side=side)
        resampling = permutation_test(a, b, side=side, rng=rng, n_resamples=draws)
    t = _t_test(matched, estimate, side)
    known = _spread_known(matched, estimate)
    equivalence = _equivalence(matched, estimate, setup) if metric == setup.primary else None
    p_value = t.p_value if known else resampling.p_value
    return Tests(
        t=t,
        resampling=resampling,
        rank=rank,
        p_value=p_value,
        p_adjusted=p_value,
        spread_known=known,
        equivalence_p=equivalence and equivalence[0],
        equivalence_needs=equivalence and equivalence[1],
    )


def _t_test(matched: Matched, estimate: Estimate | None, side: Side) -> TestResult:
    a, b = matched.baseline, matched.candidate
    if matched.world_shares:
        plays = matched.plays_baseline, matched.plays_candidate
        return world_share_test(a, b, *plays, paired=matched.paired, side=side)
    if matched.shares:
        return share_test(a, b, paired=matched.paired, side=side)
    test = paired_t_test if matched.paired else welch_t_test
    plain = test(a, b, side=side)
    if estimate is None:
        return plain
    how = {
        TaskRule.SAMPLE: "clustered by task",
        TaskRule.FIXED: "stratified by task",
        TaskRule.WORLDS: "clustered by world",
    }[matched.units.rule]
    return TestResult(
        f"{plain.name} {how}",
        estimate.point / estimate.error if estimate.error else math.nan,
        estimate.p_value(side=side),
        plain.n,
        exact=False,
    )


def _equivalence(
    matched: Matched, estimate: Estimate | None, setup: Setup
) -> tuple[float, int] | None:
    """Return the p value of equivalence, and about how many units it takes to show it.

    With a range, the bounds of betting use the range: data that do not vary are no evidence
    that others would not. Without one, differences rarer and larger than those seen cannot be
    excluded, and it takes 20 units and the rule of three.
    """
    margin = setup.min_effect
    if margin is None:
        return None
    if matched.shares:
        found = share_equivalence(
            matched.baseline,
            matched.candidate,
            paired=matched.paired,
            margin=margin,
            level=setup.level,
        )
        return found.p_value, 0
    a, b, paired = matched.independent()
    grouped = 0.0
    if estimate is not None and _spread_known(matched, estimate):
        grouped = max(
            estimate.p_value(-margin, Side.GREATER), estimate.p_value(margin, Side.LESS)
        )
    if matched.scale.known_ends:
        n = min(len(a), len(b))
        most = matched.scale.high - matched.scale.low
        gaps = pair_differences(a[:n], b[:n])
        p_value = bounded_tost(gaps, -most, most, margin, setup.level).p_value
        return max(p_value, grouped), math.ceil(-math.log(setup.alpha) * most / margin)
    if not _spread_known(matched, estimate):
        return 1.0, FEWEST_EQUIVALENT
    test, needed = open_equivalence_test(a, b, paired=paired, margin=margin, level=setup.level)
    return max(test.p_value, grouped), needed


def _effects(matched: Matched, level: float) -> Effects:
    a, b, paired = matched.baseline, matched.candidate, matched.paired
    sizes = [
        cohens_d(a, b, paired=paired, level=level),
        hedges_g(a, b, paired=paired, level=level),
        cliffs_delta(a, b, paired=paired, level=level),
        probability_of_improvement(a, b, paired=paired, level=level),
    ]
    if matched.grouped:
        # The bounds of effect sizes assume independent worlds.
        sizes = [Interval(size.point, math.nan, math.nan) for size in sizes]
    d, g, delta, improvement = sizes
    return Effects(d=d, g=g, delta=delta, improvement=improvement)


def _standardised(matched: Matched, level: float) -> Interval | None:
    """Return the standardised difference of the tested units; sample sizes depend on it."""
    a, b, paired = matched.independent()
    find = cohens_dz if paired else cohens_d
    size = find(a, b, level=level)
    return size if math.isfinite(size.point) else None


def _skewness(matched: Matched) -> str | None:
    a, b, paired = matched.independent()
    note = skewness_note(pair_differences(a, b)) if matched.paired and paired else None
    # The rest of the note suggests a method that comparisons have no option for.
    return note and note.partition("; method")[0]


def _spread_known(matched: Matched, estimate: Estimate | None) -> bool:
    """Return whether the values from which a t test estimates the spread differ.

    An exact test of proportions needs no spread.
    """
    if matched.shares or matched.world_shares:
        return True
    a, b = matched.baseline, matched.candidate
    scale = max(np.abs(a).max(), np.abs(b).max())
    if estimate is not None:
        return bool(matched.estimate(floor=False).error > _SAME * scale)
    spreads = [np.ptp(pair_differences(a, b))] if matched.paired else [np.ptp(a), np.ptp(b)]
    # Equal decimal fractions can differ in their last bits after subtraction.
    return bool(max(spreads) > _SAME * scale)
