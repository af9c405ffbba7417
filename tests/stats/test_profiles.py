"""Performance profiles and sample-efficiency curves against numbers worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.aggregates import Aggregate, aggregate, aggregate_intervals
from assay.stats.profiles import ProfileKind, performance_profile, sample_efficiency

SCORES = {"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 5.0]}


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def test_the_profile_of_a_worked_example() -> None:
    found = performance_profile(SCORES, [-1, 0, 1, 2.5, 5], rng=generator())
    # Tasks weigh the same: of a 4 3 2 1 0 quarters are above, of b 2 2 1 1 0 halves.
    expected = [1, (0.75 + 1) / 2, (0.5 + 0.5) / 2, (0.25 + 0.5) / 2, 0]
    np.testing.assert_allclose(found.point, expected)
    # Means are 1.5 and 3.
    means = performance_profile(SCORES, [1, 1.5, 2, 3], kind=ProfileKind.TASKS, rng=generator())
    np.testing.assert_array_equal(means.point, [1, 0.5, 0.5, 0])


@pytest.mark.parametrize("kind", ProfileKind)
def test_a_profile_falls_and_its_band_holds_it(kind: ProfileKind) -> None:
    scores, taus = generator().gamma(2, size=(12, 8)), np.linspace(0, 6, 25)
    found = performance_profile(scores, taus, kind=kind, rng=generator(), n_resamples=500)
    for curve in found[1:]:
        assert (np.diff(curve) <= 1e-12).all()
        assert ((curve >= 0) & (curve <= 1 + 1e-12)).all()
    assert (found.low <= found.high).all()
    if kind is ProfileKind.RUNS:
        assert (found.low <= found.point + 1e-12).all()
        assert (found.high >= found.point - 1e-12).all()


def test_the_band_of_a_profile_is_that_of_a_share_of_its_runs() -> None:
    # One task: the resampled share above 0 is binomial(40, 1/4) / 40.
    scores = {"one": [1.0] * 10 + [-1.0] * 30}
    found = performance_profile(scores, [0], rng=generator(), n_resamples=20_000)
    assert found.point[0] == 0.25
    assert (found.low[0], found.high[0]) == (0.125, 0.4)


def test_the_same_generator_gives_the_same_band() -> None:
    scores = generator().normal(size=(10, 26))
    bands = [performance_profile(scores, [0.5, 2], rng=generator(seed)) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(bands[0], bands[1])
    assert not np.array_equal(bands[0], bands[2])


@pytest.mark.parametrize("which", Aggregate)
def test_a_sample_efficiency_curve_is_the_aggregate_at_every_step(which: Aggregate) -> None:
    scores = generator().normal(size=(6, 4, 3)) + np.arange(3)
    found = sample_efficiency([10, 20, 40], scores, which, rng=generator(2), n_resamples=300)
    np.testing.assert_array_equal(found.at, [10, 20, 40])
    for step in range(3):
        assert found.point[step] == aggregate(scores[:, :, step], which)
        alone = aggregate_intervals(
            scores[:, :, step], [which], rng=generator(2), n_resamples=300
        )[which]
        np.testing.assert_allclose((found.low[step], found.high[step]), alone[1:])


def test_tasks_of_a_sample_efficiency_curve_may_have_unequal_runs() -> None:
    scores = {"a": [[0, 1], [0, 3], [0, 5]], "b": [[0, 2], [0, 2]]}
    found = sample_efficiency(
        [1, 2], {k: np.array(v) for k, v in scores.items()}, rng=generator()
    )
    # A run of a counts 5/6 of a score and one of b 5/4; one score is cut at each end.
    np.testing.assert_allclose(found.point, [0, (2 * 7 / 3 + 3 * 2 / 3) / 3])
    assert (found.low[0], found.high[0]) == (0, 0)
    assert found.low[1] < found.high[1]


def test_one_run_of_a_task_gives_curves_and_no_bands() -> None:
    profile = performance_profile({"a": [1.0], "b": [1.0, 2.0]}, [0, 1.5], rng=generator())
    curve = sample_efficiency([1, 2], np.ones((1, 2, 2)), rng=generator())
    for found in (profile, curve):
        assert np.isfinite(found.point).all()
        assert np.isnan(found.low).all()
        assert np.isnan(found.high).all()


@pytest.mark.parametrize(
    ("taus", "words"),
    [([], "no values"), ([1, 0], "taus have to grow"), ([0, math.nan], "finite")],
    ids=str,
)
def test_scores_of_a_profile_that_make_no_sense_are_refused(taus: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        performance_profile(SCORES, taus, rng=generator())


@pytest.mark.parametrize(
    ("steps", "scores", "words"),
    [
        ([1, 1], np.ones((2, 2, 2)), "steps have to grow"),
        ([1, 2], np.ones((2, 2)), "runs x tasks x steps"),
        ([1, 2], np.ones((2, 2, 3)), "task '1' has scores of shape .* for 2 steps"),
        ([1, 2], {"a": np.ones(2)}, "task 'a'"),
        ([1, 2], {}, "have no task"),
    ],
    ids=["steps", "axes", "length", "a row", "nothing"],
)
def test_curves_that_do_not_fit_their_steps_are_refused(
    steps: Any, scores: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        sample_efficiency(steps, scores, rng=generator())
