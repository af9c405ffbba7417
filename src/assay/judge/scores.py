"""The Crafter score of each subject, with its interval and at an equal number of episodes."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from assay._util.canonical import derived_id
from assay.crafter.rules import ACHIEVEMENTS
from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.describing import UNLOCKED
from assay.judge.facts import ScoreRow
from assay.stats.score import crafter_score_interval, expected_score_at
from assay.types import TrialState

__all__ = ["scores"]

_NAMES = tuple(f"{UNLOCKED}{name}" for name in ACHIEVEMENTS)


def scores(subjects: Sequence[Subject], level: float, seed: int) -> tuple[ScoreRow, ...]:
    """The scores of those subjects whose episodes say what they unlocked.

    The score grows with the number of episodes, so each is also given at the smallest number
    that any of them has: the mean over all choices of so many of its episodes.
    """
    found = {subject.id: _unlocked(subject.trials) for subject in subjects}
    found = {one: table for one, table in found.items() if len(table) > 1}
    at = min(map(len, found.values()), default=0)
    return tuple(_row(one, table, at, level, seed) for one, table in found.items())


def _row(
    subject: str, unlocked_E_A: NDArray[np.bool_], at: int, level: float, seed: int
) -> ScoreRow:
    rng = np.random.default_rng([seed, int(derived_id("score", subject), 16)])
    estimate = crafter_score_interval(unlocked_E_A, level=level, rng=rng)
    return ScoreRow(
        subject=subject,
        n=len(unlocked_E_A),
        interval=estimate.interval,
        corrected=estimate.corrected,
        at=at,
        matched=expected_score_at(unlocked_E_A, at, rng=rng),
    )


def _unlocked(trials: Sequence[TrialOutcome]) -> NDArray[np.bool_]:
    """Shape (E, A): which of the A achievements each of E episodes unlocked."""
    rows = [
        [trial.values[name] >= 0.5 for name in _NAMES]
        for trial in trials
        if trial.state is TrialState.RESULT and _complete(trial)
    ]
    return np.array(rows, bool).reshape(len(rows), len(_NAMES))


def _complete(trial: TrialOutcome) -> bool:
    return all(math.isfinite(trial.values.get(name, math.nan)) for name in _NAMES)
