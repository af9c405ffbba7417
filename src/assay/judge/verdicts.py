"""Who is better: the rule, applied to all comparisons of a family at once.

A candidate is better or worse if the t test of the difference, adjusted for the number of
candidates, is below alpha; the interval beside it is of the same test. Where all differences
are equal there is no spread to judge by, and the exact resampling test takes its place. With
a smallest difference that matters, two one-sided tests may conclude that there is none; that
counts before the other two. Where a run went on until it was decided, the decision it stored
holds: a test made afresh would ignore that somebody looked before.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from assay.judge.facts import Contrast, Setup, Verdict
from assay.stats.many import Correction, benjamini_hochberg, holm

__all__ = ["decided"]


def decided(contrasts: Sequence[Contrast], setup: Setup) -> tuple[Contrast, ...]:
    """The contrasts of one metric with their p values adjusted, and their verdicts."""
    tested = [one.tests for one in contrasts if one.tests is not None]
    p_values = iter(_adjusted([tests.p_value for tests in tested], setup))
    margins = [tests.equivalence_p for tests in tested if tests.equivalence_p is not None]
    equivalences = iter(_adjusted(margins, setup))
    found = []
    for one in contrasts:
        if one.tests is not None:
            tests = replace(one.tests, p_adjusted=next(p_values))
            if tests.equivalence_p is not None:
                tests = replace(tests, equivalence_p=next(equivalences))
            one = replace(one, tests=tests)
        found.append(replace(one, verdict=_verdict(one, setup.alpha)))
    return tuple(found)


def _adjusted(p_values: Sequence[float], setup: Setup) -> list[float]:
    if not p_values:
        return []
    adjust = holm if setup.correction is Correction.HOLM else benjamini_hochberg
    return [float(p_value) for p_value in np.asarray(adjust(p_values))]


def _verdict(contrast: Contrast, alpha: float) -> Verdict:
    if contrast.look is not None:
        return _stored(contrast)
    tests = contrast.tests
    if tests is None:
        return Verdict.UNDECIDED
    if tests.equivalence_p is not None and tests.equivalence_p < alpha:
        return Verdict.NO_DIFFERENCE
    if tests.p_adjusted >= alpha or contrast.difference.point == 0:
        return Verdict.UNDECIDED
    more = contrast.difference.point > 0
    return Verdict.BETTER if more is not contrast.lower_is_better else Verdict.WORSE


def _stored(contrast: Contrast) -> Verdict:
    decision = contrast.look.decision if contrast.look is not None else None
    known = {verdict.value: verdict for verdict in Verdict}
    return known.get(decision or "", Verdict.UNDECIDED)
