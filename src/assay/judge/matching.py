"""Which trial of one subject is compared with which of another.

Trials with the same `pair` text belong together. Those of one subject that share a pair are
averaged first: they share a world and are no independent evidence. A trial that failed or
ended by an infrastructure error has no value and is counted, never scored.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.experiments.subjects import Subject, TrialOutcome
from assay.judge.facts import LeftOut, PairRow
from assay.types import TrialState

__all__ = ["FEWEST_PAIRS", "Matched", "independent_values", "match", "trial_values"]

FEWEST_PAIRS = 2
"""With fewer pairs in common, two subjects are compared as independent samples."""


class Matched(NamedTuple):
    """The values of two sides that a comparison may use."""

    baseline: NDArray[np.float64]
    candidate: NDArray[np.float64]
    paired: bool
    """Whether value i of one side belongs to value i of the other."""
    rows: tuple[PairRow, ...]
    left_out_baseline: LeftOut
    left_out_candidate: LeftOut


class _Values(NamedTuple):
    by_pair: dict[str, list[float]]
    alone: list[float]
    """Of trials that have no partner anywhere."""


def match(baseline: Subject, candidate: Subject, metric: str) -> Matched:
    """Pair the trials of two subjects in one metric, or take them as independent samples."""
    a, b = _values(baseline.trials, metric), _values(candidate.trials, metric)
    common = [pair for pair in a.by_pair if pair in b.by_pair]
    if len(common) < FEWEST_PAIRS:
        return Matched(
            _independent(a),
            _independent(b),
            False,
            (),
            _left_out(baseline.trials, metric, 0),
            _left_out(candidate.trials, metric, 0),
        )
    rows = tuple(
        PairRow(pair, _mean(a.by_pair[pair]), _mean(b.by_pair[pair])) for pair in common
    )
    return Matched(
        np.array([row.baseline for row in rows]),
        np.array([row.candidate for row in rows]),
        True,
        rows,
        _left_out(baseline.trials, metric, _without_partner(a, common)),
        _left_out(candidate.trials, metric, _without_partner(b, common)),
    )


def trial_values(trials: Sequence[TrialOutcome], metric: str) -> list[float]:
    """The metric of every trial that ended as a result and has it."""
    values = (trial.values.get(metric) for trial in trials if trial.state is TrialState.RESULT)
    return [value for value in values if value is not None and math.isfinite(value)]


def independent_values(trials: Sequence[TrialOutcome], metric: str) -> NDArray[np.float64]:
    """The same, with the trials of one pair averaged, so that values are independent."""
    return _independent(_values(trials, metric))


def _values(trials: Sequence[TrialOutcome], metric: str) -> _Values:
    found = _Values({}, [])
    for trial in trials:
        value = trial.values.get(metric) if trial.state is TrialState.RESULT else None
        if value is None or not math.isfinite(value):
            continue
        if trial.pair is None:
            found.alone.append(value)
        else:
            found.by_pair.setdefault(trial.pair, []).append(value)
    return found


def _independent(values: _Values) -> NDArray[np.float64]:
    return np.array([*map(_mean, values.by_pair.values()), *values.alone], np.float64)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _without_partner(values: _Values, common: Sequence[str]) -> int:
    everybody = sum(map(len, values.by_pair.values())) + len(values.alone)
    return everybody - sum(len(values.by_pair[pair]) for pair in common)


def _left_out(trials: Sequence[TrialOutcome], metric: str, unpaired: int) -> LeftOut:
    states = [trial.state for trial in trials]
    results = states.count(TrialState.RESULT)
    return LeftOut(
        unpaired,
        states.count(TrialState.FAILURE),
        states.count(TrialState.INFRASTRUCTURE),
        results - len(trial_values(trials, metric)),
    )
