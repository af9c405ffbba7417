"""Means and differences of scores that a judge gave, corrected by labels of a few trials.

A judge, such as a language model that grades answers, errs, and may err in favour of one side.
People label some trials, drawn at random from each side. The correction is made by side, so it
holds whatever the judge prefers; only its precision depends on how well the judge agrees.
"""

import math
from typing import NamedTuple

import numpy as np

from assay.errors import UsageError
from assay.stats.estimates import Estimate, Floats, Sample, combined, least_error, mean_estimate
from assay.stats.intervals import Interval, as_sample, check_level, check_share

FEWEST_LABELS = 20
"""Fewer labels of a side do not show how far its judge can be trusted: no verdict."""
_LEAST_YOUDEN = 0.2


class JudgedSide(NamedTuple):
    """Scores of one side's trials by a judge, and labels of some of them."""

    labels: Sample
    """True scores of the labelled trials."""
    judged: Sample
    """The judge's scores of the labelled trials, in the same order."""
    rest: Sample
    """The judge's scores of all other trials."""


def corrected_mean(side: JudgedSide, *, step: float = 0.0) -> Estimate:
    """Return the mean true score of one side's trials, from labels and the judge's scores.

    PPI++: Angelopoulos, Duchi and Zrnic, "PPI++: efficient prediction-powered inference", 2023:
    the mean of the labels, plus lambda times how much higher the judge scored the other trials.
    lambda minimises the variance, from 0 (the judge is ignored) to 1. For few labels it is
    estimated for each fifth of them from the other labels, and Student's t replaces the normal
    quantile.
    Without other trials it is the mean of the labels. A judge that errs in none of the labelled
    trials may err in others: with `step`, 1 for scores of 0 and 1, the error is at least what
    one disagreement implies (see `mean_estimate`). Without it, 84 to 91 % of the intervals from
    10 to 20 labels of a nearly perfect judge hold the truth.
    """
    labels, judged, rest = _checked(side)
    n = len(labels)
    if n < 2:
        return Estimate(float(labels.mean()), math.nan, math.nan)
    if not len(rest):
        return mean_estimate(labels, step=step)
    folds = np.arange(n) % min(5, n)
    lambdas = np.empty(n)
    for fold in range(int(folds.max()) + 1):
        lambdas[folds == fold] = _tuned(labels[folds != fold], judged[folds != fold], len(rest))
    residuals = labels - lambdas * judged
    weight = float(lambdas.mean())
    point = float(residuals.mean()) + weight * float(rest.mean())
    error = least_error(float(residuals.std(ddof=1)) / math.sqrt(n), n, step)
    parts = [(error, float(n - 1))]
    if len(rest) > 1:
        parts.append(
            (weight * float(rest.std(ddof=1)) / math.sqrt(len(rest)), float(len(rest) - 1))
        )
    return combined(point, parts)


def corrected_difference(a: JudgedSide, b: JudgedSide, *, step: float = 0.0) -> Estimate:
    """Return the difference of the mean true scores, `b` minus `a`, each corrected by itself.

    PPI++ by side (Angelopoulos, Duchi and Zrnic, 2023, see `corrected_mean`), with the errors
    and degrees of freedom of both as in Welch's test. Pairs are treated as independent, which
    is conservative if scores of a pair agree.
    """
    first, second = (corrected_mean(side, step=step) for side in (a, b))
    return combined(second.point - first.point, [first[1:], second[1:]])


class Accuracy(NamedTuple):
    """Labels of a yes-or-no judge, from other trials than those it is used for."""

    true_positives: int
    positives: int
    true_negatives: int
    negatives: int

    @property
    def youden(self) -> float:
        """Sensitivity + specificity - 1: 0 if the judge is no better than chance."""
        return self.true_positives / self.positives + self.true_negatives / self.negatives - 1


def rogan_gladen(passed: int, trials: int, accuracy: Accuracy, level: float = 0.95) -> Interval:
    """Return the true proportion of passes, from a yes-or-no judge of known accuracy.

    Rogan and Gladen, "Estimating prevalence from the results of a screening test", 1978, with
    the interval of Lang and Reiczigel, "Confidence limits for prevalence of disease adjusted
    for estimated sensitivity and specificity", 2014, which allows for the labels being few.

    Raises:
        UsageError: The judge's sensitivity + specificity - 1 is below 0.2, so that its answers
            say next to nothing.
    """
    check_level(level)
    check_share(passed, trials)
    check_share(accuracy.true_positives, accuracy.positives)
    check_share(accuracy.true_negatives, accuracy.negatives)
    if accuracy.youden < _LEAST_YOUDEN:
        raise UsageError(
            f"the judge's sensitivity + specificity - 1 is {accuracy.youden:.2f}, below"
            f" {_LEAST_YOUDEN}: its scores cannot be corrected; use another judge"
        )
    from scipy.special import ndtri

    specificity = accuracy.true_negatives / accuracy.negatives
    point = (passed / trials + specificity - 1) / accuracy.youden
    z = float(ndtri((1 + level) / 2))
    n, yes, no = trials + z * z, accuracy.positives + 2, accuracy.negatives + 2
    apparent = (passed + z * z / 2) / n
    sure, unsure = (accuracy.true_positives + 1) / yes, (accuracy.true_negatives + 1) / no
    youden = sure + unsure - 1
    middle = (apparent + unsure - 1) / youden
    parts = [sure * (1 - sure) / yes, unsure * (1 - unsure) / no]
    middle_moved = middle + 2 * z * z * (middle * parts[0] - (1 - middle) * parts[1])
    variance = apparent * (1 - apparent) / n
    variance += middle**2 * parts[0] + (1 - middle) ** 2 * parts[1]
    half = z * math.sqrt(variance) / youden
    inside = [min(1.0, max(0.0, x)) for x in (point, middle_moved - half, middle_moved + half)]
    return Interval(inside[0], min(inside[0], inside[1]), max(inside[0], inside[2]))


def _checked(side: JudgedSide) -> tuple[Floats, Floats, Floats]:
    labels, judged = as_sample(side.labels, "the labels"), as_sample(side.judged, "the scores")
    if len(labels) != len(judged):
        raise UsageError(f"{len(labels)} labels of {len(judged)} scores; give one label each")
    return labels, judged, as_sample(side.rest, "the other scores", least=0)


def _tuned(labels: Floats, judged: Floats, others: int) -> float:
    """Return the lambda with the smallest variance; 0 if the judge's scores do not vary."""
    if len(labels) < 2 or judged.min() == judged.max():
        return 0.0
    covariance, variance = np.cov(judged, labels)[0, 1], judged.var(ddof=1)
    return float(np.clip(covariance / (variance * (1 + len(labels) / others)), 0, 1))
