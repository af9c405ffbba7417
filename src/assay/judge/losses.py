"""Trials that were lost, and what a comparison would say had they ended otherwise.

Who loses the harder worlds looks better in the rest. From a few percent on the difference is
given at its bounds: the lost trials of one side at the worst value and those of the other at
the best, and the other way round. A metric without known ends takes the extremes seen.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.judge.contrasts import contrast, decided
from assay.judge.facts import Contrast, Losses, Setup
from assay.judge.matching import trial_values
from assay.judge.scales import scale_of
from assay.judge.subjects import Subject, TrialOutcome
from assay.stats.losses import losses_matter
from assay.stats.shares import fisher_exact
from assay.types import TrialState

__all__ = ["with_losses"]


def with_losses(
    found: Contrast, baseline: Subject, candidate: Subject, setup: Setup, family: int = 1
) -> Contrast:
    """The contrast with its bounds, where enough trials were lost to matter.

    Args:
        found: The contrast, with its verdict.
        baseline: The subject of its baseline.
        candidate: The subject of its candidate.
        setup: How they were compared.
        family: Comparisons that share the error; the bounds divide it by their number.
    """
    counts = [(_lost(subject), _all(subject)) for subject in (baseline, candidate)]
    if not any(lost for lost, _ in counts) or found.same is not None:
        return found
    (lost_a, all_a), (lost_b, all_b) = counts
    if not losses_matter(lost_a, all_a, lost_b, all_b):
        return found
    low, high, known = _ends((baseline, candidate), found.metric)
    strict = replace(setup, level=1 - setup.alpha / family)
    edges = [
        decided(
            [
                contrast(
                    _filled(baseline, found.metric, first),
                    _filled(candidate, found.metric, second),
                    found.metric,
                    strict,
                )
            ],
            strict,
        )[0]
        for first, second in ((high, low), (low, high))
    ]
    return replace(
        found,
        losses=Losses(
            baseline=lost_a,
            of_baseline=all_a,
            candidate=lost_b,
            of_candidate=all_b,
            p_value=fisher_exact(lost_a, all_a, lost_b, all_b),
            lowest=edges[0].naive,
            highest=edges[1].naive,
            known_ends=known,
            holds=all(edge.verdict is found.verdict for edge in edges) and found.look is None,
        ),
    )


def _lost(subject: Subject) -> int:
    unlisted = subject.facts.get("without_result")
    listed = sum(trial.state is not TrialState.RESULT for trial in subject.trials)
    return listed + (unlisted if isinstance(unlisted, int) else 0)


def _all(subject: Subject) -> int:
    return _lost(subject) + sum(trial.state is TrialState.RESULT for trial in subject.trials)


def _ends(subjects: Sequence[Subject], metric: str) -> tuple[float, float, bool]:
    """The least and the greatest value a trial may have, and whether that is known."""
    values = [value for subject in subjects for value in trial_values(subject.trials, metric)]
    scale = scale_of(metric, values)
    if scale.known_ends:
        return scale.low, scale.high, True
    return min(values), max(values), False


def _filled(subject: Subject, metric: str, value: float) -> Subject:
    """The subject as if all its lost trials had come to this value."""
    unlisted = subject.facts.get("without_result")
    missing = [
        TrialOutcome(trial_id=f"{subject.id} lost {place}", pair=None, values={metric: value})
        for place in range(unlisted if isinstance(unlisted, int) else 0)
    ]
    trials = [
        trial
        if trial.state is TrialState.RESULT
        else replace(trial, state=TrialState.RESULT, values={metric: value})
        for trial in subject.trials
    ]
    return replace(subject, trials=(*trials, *missing), looks=(), facts={})
