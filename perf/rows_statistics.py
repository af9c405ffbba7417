"""Intervals by resampling: ours against rliable's, and against SciPy's bootstrap."""

import math
import time
from functools import cache, partial
from typing import Any, Final

import numpy as np

from assay.stats.aggregates import (
    ENOUGH_RUNS,
    Aggregate,
    aggregate_intervals,
    average_probability_of_improvement,
)
from assay.stats.intervals import Interval, Method, mean_interval

from .measure import WARMUP, Row, Side, Topic, size
from .peers.score_sets import TASKS, score_pair, score_set
from .processes import ORACLES_PYTHON, run_module

__all__ = ["BCA", "RLIABLE_SIDES", "TOPIC"]

_LIMIT: Final = 1200
_RESAMPLES: Final = size(50_000, 500)
_PAIR_RESAMPLES: Final = size(2_000, 100)
_PEER_RESAMPLES: Final = 5_000
"""A tenth: its time goes by their number, and it takes half a minute for all."""
_PEER_PAIR_RESAMPLES: Final = 200
_RUNS: Final = (5, 10, 100)
_PAIR_RUNS: Final = 100
_BCA_RESAMPLES: Final = size(10_000, 500)
_BCA_PAIRS: Final = 15
_BCA_TIMES: Final = size(20, 2)

_our_ends: Final[dict[str, Interval]] = {}
"""Our latest results, with which those of the peer are compared."""


def _make_generator(turn: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(turn - WARMUP))


def _time_iqm(turn: int, runs: int) -> float:
    scores, rng = score_set(runs), _make_generator(turn)
    started = time.process_time()
    found = aggregate_intervals(scores, [Aggregate.IQM], rng=rng, n_resamples=_RESAMPLES)
    seconds = (time.process_time() - started) / _RESAMPLES
    _our_ends[f"iqm {runs}"] = found[Aggregate.IQM]
    return seconds


def _time_improvement(turn: int) -> float:
    (better, worse), rng = score_pair(_PAIR_RUNS), _make_generator(turn)
    started = time.process_time()
    found = average_probability_of_improvement(
        worse, better, rng=rng, n_resamples=_PAIR_RESAMPLES
    )
    seconds = (time.process_time() - started) / _PAIR_RESAMPLES
    _our_ends["improvement"] = found
    return seconds


def _time_rliable(turn: int, runs: int, resamples: int, ours: str, *more: str) -> float:
    found = run_module(
        "perf.peers.rliable_intervals",
        *("--runs", str(runs), "--resamples", str(resamples), "--seed", str(turn), *more),
        python=ORACLES_PYTHON,
        timeout=_LIMIT,
    )
    # With fewer runs ours is Student's with the error of as many resamples, not percentiles.
    if runs >= ENOUGH_RUNS:
        _check_ends(_our_ends[ours], found, resamples)
    return found["seconds"]


def _check_ends(ours: Interval, peer: dict[str, float], resamples: int) -> None:
    """Check that both intervals agree within five Monte Carlo errors of the peer."""
    spread = (ours.high - ours.low) / 3.92
    density = math.exp(-(1.96**2) / 2) / math.sqrt(2 * math.pi)
    error = spread * math.sqrt(0.025 * 0.975 / resamples) / density
    if max(abs(ours.low - peer["low"]), abs(ours.high - peer["high"])) > 5 * error:
        raise AssertionError(f"the sides differ: {ours} and {peer}")


@cache
def _make_differences() -> Any:
    return np.random.Generator(np.random.PCG64(3)).gamma(2, size=_BCA_PAIRS) - 1


def _time_bca(turn: int) -> float:
    values, rng = _make_differences(), _make_generator(turn)
    started = time.process_time()
    for _ in range(_BCA_TIMES):
        mean_interval(values, method=Method.BCA, rng=rng, n_resamples=_BCA_RESAMPLES)
    return (time.process_time() - started) / _BCA_TIMES


def _time_scipy_bca(turn: int) -> float:
    from scipy.stats import bootstrap

    values, rng = (_make_differences(),), _make_generator(turn)
    started = time.process_time()
    for _ in range(_BCA_TIMES):
        bootstrap(
            values,
            np.mean,
            method="BCa",
            n_resamples=_BCA_RESAMPLES,
            vectorized=True,
            rng=rng,
        )
    return (time.process_time() - started) / _BCA_TIMES


def _make_sides() -> dict[str, Side]:
    sides: dict[str, Side] = {}
    for runs in _RUNS:
        key = f"iqm {runs}"
        sides[key] = partial(_time_iqm, runs=runs)
        sides[f"rliable {key}"] = partial(
            _time_rliable, runs=runs, resamples=_PEER_RESAMPLES, ours=key
        )
    sides["improvement"] = _time_improvement
    sides["rliable improvement"] = lambda turn: _time_rliable(
        turn, _PAIR_RUNS, _PEER_PAIR_RESAMPLES, "improvement", "--pair"
    )
    return sides


RLIABLE_SIDES: Final = (*(f"rliable iqm {runs}" for runs in _RUNS), "rliable improvement")
"""The sides that need rliable."""

TOPIC: Final = Topic(
    name="statistics",
    unit="resample",
    sides=_make_sides(),
    rows=(
        *(
            Row(
                name=f"iqm-{runs}",
                what=f"interval of the IQM, {TASKS} tasks, {runs} runs",
                ours=f"iqm {runs}",
                peer=f"rliable iqm {runs}",
                against="rliable 1.2.0",
                target=8 if runs == 100 else 50,
            )
            for runs in _RUNS
        ),
        Row(
            name="improvement",
            what=f"probability of improvement, {TASKS} tasks, {_PAIR_RUNS} runs",
            ours="improvement",
            peer="rliable improvement",
            against="rliable 1.2.0",
            target=30,
        ),
    ),
    notes=(
        f"CPU time for each resample of a stratified percentile interval: {_RESAMPLES:,} of "
        f"the IQM and {_PAIR_RESAMPLES:,} of the probability of improvement for ours, "
        f"{_PEER_RESAMPLES:,} and {_PEER_PAIR_RESAMPLES} for rliable, whose time goes by their "
        "number. rliable is in a fresh process, its imports are not counted. Both get the same "
        "scores, and the ends of the intervals have to agree within five Monte Carlo errors.",
    ),
    rounds_at_most=5,
    warmup=False,
)

BCA: Final = Topic(
    name="bca",
    unit="interval",
    sides={"bca": _time_bca, "scipy bca": _time_scipy_bca},
    rows=(
        Row(
            name="bca",
            what=f"BCa interval of a mean, {_BCA_PAIRS} pairs, 10,000 resamples",
            ours="bca",
            peer="scipy bca",
            against="scipy.stats.bootstrap, vectorised",
            target=1,
        ),
    ),
    notes=(
        f"CPU time for each interval of the mean of {_BCA_PAIRS} differences, of "
        f"{_BCA_TIMES} in a row; SciPy gets np.mean, which takes an axis.",
    ),
)
