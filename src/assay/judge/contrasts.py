"""One subject against another in one metric: the difference, its tests and its sizes.

Nothing is decided here: `verdicts` adjusts the p values of all comparisons and decides.
"""

import math
from dataclasses import replace

import numpy as np

from assay._util.canonical import derived_id
from assay.experiments.subjects import Look, Subject
from assay.judge.facts import Contrast, Effects, Setup, Tests, Verdict
from assay.judge.matching import Matched, match
from assay.stats.differences import paired_difference, relative_change, unpaired_difference
from assay.stats.effects import (
    cliffs_delta,
    cohens_d,
    hedges_g,
    probability_of_improvement,
)
from assay.stats.intervals import Interval, t_interval
from assay.stats.means import Side, skewness_note
from assay.stats.pairing import pairing
from assay.stats.significance import (
    equivalence_test,
    mann_whitney_test,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    welch_t_test,
    wilcoxon_test,
)
from assay.stats.two_samples import pair_differences

__all__ = ["contrast", "last_look"]

_MOST_DRAWS = 50_000_000
"""Values that a resampling test may draw; with very many trials it takes fewer resamples."""
_SAME = 1e-9
"""Numbers are equal if they differ by less than this share of the largest."""
_FLIPPED = {"better": "worse", "worse": "better"}


def contrast(baseline: Subject, candidate: Subject, metric: str, setup: Setup) -> Contrast:
    """Compare a candidate with a baseline in one metric; the verdict is still open."""
    matched = match(baseline, candidate, metric)
    a, b = matched.baseline, matched.candidate
    rng = _generator(setup.seed, baseline, candidate, metric)
    difference = _difference(matched, setup, rng)
    enough = min(len(a), len(b)) > 1
    look = last_look(baseline, candidate, metric)
    return Contrast(
        baseline=baseline.id,
        candidate=candidate.id,
        metric=metric,
        lower_is_better=metric in setup.lower_is_better,
        paired=matched.paired,
        n_baseline=len(a),
        n_candidate=len(b),
        mean_baseline=t_interval(a.tolist(), setup.level),
        mean_candidate=t_interval(b.tolist(), setup.level),
        difference=difference if look is None else _looked(look),
        naive=difference,
        relative=_relative(matched, setup),
        verdict=Verdict.UNDECIDED,
        tests=_tests(matched, setup, metric, rng) if enough else None,
        effects=_effects(matched, setup) if enough and _spread_known(matched) else None,
        pairing=pairing(a, b)
        if matched.paired and len(a) > 3 and _spread_known(matched)
        else None,
        skewness=skewness_note(pair_differences(a, b)) if matched.paired else None,
        left_out_baseline=matched.left_out_baseline,
        left_out_candidate=matched.left_out_candidate,
        pairs=matched.rows,
        look=look,
    )


def last_look(baseline: Subject, candidate: Subject, metric: str) -> Look | None:
    """The last look at these two in this metric, seen from the candidate; None: no looks."""
    for one, other, sign in ((baseline, candidate, 1), (candidate, baseline, -1)):
        looks = [
            look for look in other.looks if look.baseline_id == one.id and look.metric == metric
        ]
        if looks:
            last = max(looks, key=lambda look: look.look)
            return last if sign == 1 else _turned(last)
    return None


def _turned(look: Look) -> Look:
    return replace(
        look,
        estimate=-look.estimate,
        low=-look.high,
        high=-look.low,
        decision=_FLIPPED.get(look.decision or "", look.decision),
    )


def _looked(look: Look) -> Interval:
    return Interval(look.estimate, look.low, look.high)


def _generator(
    seed: int, baseline: Subject, candidate: Subject, metric: str
) -> np.random.Generator:
    # Its own stream, so that the numbers of two subjects do not depend on who else is there.
    stream = int(derived_id("compare", baseline.id, candidate.id, metric), 16)
    return np.random.default_rng([seed, stream])


def _difference(matched: Matched, setup: Setup, rng: np.random.Generator) -> Interval:
    find = paired_difference if matched.paired else unpaired_difference
    return find(
        matched.baseline, matched.candidate, level=setup.level, method=setup.method, rng=rng
    )


def _relative(matched: Matched, setup: Setup) -> Interval | None:
    found = relative_change(
        matched.baseline, matched.candidate, paired=matched.paired, level=setup.level
    )
    return found if math.isfinite(found.low) and math.isfinite(found.high) else None


def _tests(matched: Matched, setup: Setup, metric: str, rng: np.random.Generator) -> Tests:
    a, b = matched.baseline, matched.candidate
    draws = max(100, min(10_000, _MOST_DRAWS // (len(a) + len(b))))
    if matched.paired:
        t, rank = paired_t_test(a, b), wilcoxon_test(a, b)
        resampling = sign_flip_test(pair_differences(a, b), rng=rng, n_resamples=draws)
    else:
        t, rank = welch_t_test(a, b), mann_whitney_test(a, b)
        resampling = permutation_test(a, b, rng=rng, n_resamples=draws)
    known = _spread_known(matched)
    p_value = t.p_value if known else resampling.p_value
    return Tests(
        t=t,
        resampling=resampling,
        rank=rank,
        p_value=p_value,
        p_adjusted=p_value,
        spread_known=known,
        equivalence_p=_equivalence(matched, setup, rng) if metric == setup.primary else None,
    )


def _equivalence(matched: Matched, setup: Setup, rng: np.random.Generator) -> float | None:
    a, b, margin = matched.baseline, matched.candidate, setup.min_effect
    if margin is None:
        return None
    if _spread_known(matched):
        found = equivalence_test(a, b, paired=matched.paired, margin=margin, level=setup.level)
        return found.p_value
    # Without spread a t test is sure of anything; flipping signs is not.
    sides = ((a - margin, Side.GREATER), (a + margin, Side.LESS))
    if matched.paired:
        return max(
            sign_flip_test(pair_differences(c, b), side=side, rng=rng).p_value
            for c, side in sides
        )
    return max(permutation_test(c, b, side=side, rng=rng).p_value for c, side in sides)


def _effects(matched: Matched, setup: Setup) -> Effects:
    a, b, paired, level = matched.baseline, matched.candidate, matched.paired, setup.level
    return Effects(
        d=cohens_d(a, b, paired=paired, level=level),
        g=hedges_g(a, b, paired=paired, level=level),
        delta=cliffs_delta(a, b, paired=paired, level=level),
        improvement=probability_of_improvement(a, b, paired=paired, level=level),
    )


def _spread_known(matched: Matched) -> bool:
    """Whether the values that a t test takes its spread from are not all equal."""
    a, b = matched.baseline, matched.candidate
    scale = max(np.abs(a).max(), np.abs(b).max())
    spreads = [np.ptp(pair_differences(a, b))] if matched.paired else [np.ptp(a), np.ptp(b)]
    # Equal decimal fractions differ in their last bits once they are subtracted.
    return bool(max(spreads) > _SAME * scale)
