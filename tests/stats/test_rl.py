"""Aggregates over runs and tasks against hand-computed numbers, SciPy and plain loops."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from assay.errors import UsageError
from assay.stats.aggregates import (
    Aggregate,
    aggregate,
    aggregate_difference,
    aggregate_intervals,
    average_probability_of_improvement,
    draw_counts,
    iqm,
    on_counts,
    optimality_gap,
    runs_note,
    task_mean,
    task_median,
    task_scores,
    wins_on_counts,
)
from assay.stats.intervals import Interval

UNEQUAL = {"easy": [1.0, 2.0, 3.0, 4.0], "hard": [0.0, 0.5], "odd": [10.0, 0.5, 1.5]}

runs = st.lists(st.floats(-100, 100).map(lambda x: round(x, 1)), min_size=2, max_size=7)
tasks = st.dictionaries(st.sampled_from("abcdef"), runs, min_size=1, max_size=5)


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def drawn(scores: Any, counts: np.ndarray) -> dict[str, np.ndarray]:
    """A resample written out, from one row of counts."""
    read = task_scores(scores)
    parts = np.split(counts, read.starts[1:])
    return {
        name: np.repeat(values, part)
        for name, values, part in zip(read.tasks, read.by_task(), parts, strict=True)
    }


def test_aggregates_of_a_worked_example() -> None:
    # In order 0 .5 | .5 1 1.5 2 3 | 4 10, of which easy counts 3/4, hard 3/2 and odd 1: two of
    # nine are cut at each end, one and a half of them before 0.5 of hard, and half of 3 stays.
    assert iqm(UNEQUAL) == pytest.approx((2 * 0.5 + 0.75 * 1 + 1.5 + 0.75 * 2 + 0.5 * 3) / 5)
    assert task_mean(UNEQUAL) == pytest.approx((2.5 + 0.25 + 4) / 3)
    assert task_median(UNEQUAL) == 2.5
    # Below 1: 0 and 0.5 of hard, 0.5 of odd.
    assert optimality_gap(UNEQUAL) == pytest.approx((0 + 1.5 / 2 + 0.5 / 3) / 3)
    assert optimality_gap(UNEQUAL, gamma=0) == 0


@given(tasks)
@settings(max_examples=30)
def test_the_iqm_of_equal_runs_is_scipys_trimmed_mean(scores: dict[str, list[float]]) -> None:
    fewest = min(map(len, scores.values()))
    equal = {name: each[:fewest] for name, each in scores.items()}
    pooled = np.concatenate([*equal.values()])
    assert iqm(equal) == pytest.approx(reference.trim_mean(pooled, 0.25), abs=1e-12)


def test_the_iqm_of_unequal_runs_weighs_tasks_alike() -> None:
    # Runs of a repeated as often as it takes are the same task with as many runs.
    scores = {"a": [1.0, 5.0], "b": [2.0, 3.0, 4.0, 7.0, 0.0, 6.0]}
    assert iqm(scores) == pytest.approx(iqm({"a": [1.0, 5.0] * 3, "b": scores["b"]}), abs=0.2)
    many = {name: np.repeat(each, 600) for name, each in scores.items()}
    assert iqm(many) == pytest.approx(iqm({**many, "a": np.repeat([1.0, 5.0], 1_800)}))


def test_a_matrix_has_a_row_for_each_run() -> None:
    matrix = generator().normal(size=(4, 3))
    by_task = {"x": matrix[:, 0], "y": matrix[:, 1], "z": matrix[:, 2]}
    for which in Aggregate:
        assert aggregate(matrix, which) == aggregate(by_task, which)
        assert aggregate(matrix.tolist(), which) == aggregate(by_task, which)


@given(tasks, st.sampled_from(Aggregate), st.integers(0, 99))
@settings(max_examples=50)
def test_an_aggregate_on_counts_is_that_of_the_resample_written_out(
    scores: dict[str, list[float]], which: Aggregate, seed: int
) -> None:
    read = task_scores(scores)
    ((counts,),) = draw_counts([read.sizes], generator(seed), 5)
    found = on_counts(read, which, 1.0)(counts)
    expected = [aggregate(drawn(scores, row), which) for row in counts]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(tasks, st.data(), st.integers(0, 99))
@settings(max_examples=20)
def test_wins_on_counts_are_those_of_mann_and_whitney(
    a: dict[str, list[float]], data: st.DataObject, seed: int
) -> None:
    b = {task: data.draw(runs) for task in a}
    first, second = task_scores(a).sorted_in_tasks(), task_scores(b)
    ((left, right),) = draw_counts([first.sizes, second.sizes], generator(seed), 3)
    found = wins_on_counts(first, second)(left, right)[:, 0]
    for value, row_a, row_b in zip(found, left, right, strict=True):
        ordered = {task: np.sort(each) for task, each in a.items()}
        old, new = drawn(ordered, row_a), drawn(b, row_b)
        each = [
            reference.mannwhitneyu(new[t], old[t], method="asymptotic").statistic
            / (len(new[t]) * len(old[t]))
            for t in a
        ]
        assert value == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("sizes", [[4, 4], [3, 1, 7, 3], [5000]], ids=str)
def test_resamples_have_as_many_runs_of_each_task(sizes: list[int]) -> None:
    pieces = list(draw_counts([np.array(sizes)], generator(), 40))
    counts = np.concatenate([piece for (piece,) in pieces])
    assert counts.shape == (40, sum(sizes))
    ends = np.cumsum(sizes)[:-1]
    for part, size in zip(np.split(counts, ends, axis=1), sizes, strict=True):
        assert (part.sum(axis=1) == size).all()


def test_every_run_is_drawn_as_often_as_the_others() -> None:
    sizes = np.array([3, 10, 3])
    counts = np.concatenate([piece for (piece,) in draw_counts([sizes], generator(), 20_000)])
    # Binomial of n draws at 1/n: mean 1, variance 1 - 1/n.
    spread = 1 - 1 / np.repeat(sizes, sizes)
    np.testing.assert_allclose(counts.mean(axis=0), 1, atol=5 * math.sqrt(1 / 20_000))
    np.testing.assert_allclose(counts.var(axis=0), spread, atol=0.06)
    together = np.corrcoef(counts.T)
    assert abs(together[:3, 3:]).max() < 0.04
    assert together[0, 1] == pytest.approx(-1 / 2, abs=0.03)


@pytest.mark.parametrize("which", Aggregate)
def test_an_interval_is_that_of_a_plain_loop(which: Aggregate) -> None:
    sizes = {"a": 10, "b": 12, "c": 12}
    scores = {name: generator(n).gamma(2, size=n) for name, n in sizes.items()}
    found = aggregate_intervals(scores, [which], rng=generator(), n_resamples=20_000)[which]
    random, values = generator(7), []
    for _ in range(1_000):
        again = {name: random.choice(each, len(each)) for name, each in scores.items()}
        values.append(aggregate(again, which))
    assert found.point == aggregate(scores, which)
    spread = float(np.std(values))
    # Five Monte Carlo errors of the 2.5 % quantile of a normal from 1,000 values.
    for end, expected in zip(found[1:], np.quantile(values, [0.025, 0.975]), strict=True):
        assert end == pytest.approx(expected, abs=5 * spread * 0.085)


def test_few_runs_have_students_interval_with_the_error_of_the_bootstrap() -> None:
    scores = generator(3).normal(size=(5, 8))
    found = aggregate_intervals(scores, [Aggregate.MEAN], rng=generator(), n_resamples=20_000)
    # Of a mean the error is known: that of the runs within tasks.
    error = math.sqrt(scores.var(axis=0, ddof=1).mean() / 40)
    half = reference.t.ppf(0.975, 8 * 4 / 2) * error
    assert found[Aggregate.MEAN].half_width == pytest.approx(half, rel=0.02)
    apart = aggregate_difference(
        scores, scores + 1, Aggregate.MEAN, paired=False, rng=generator(), n_resamples=20_000
    )
    assert apart == pytest.approx(
        (1, 1 - math.sqrt(2) * half, 1 + math.sqrt(2) * half), rel=0.02
    )


@pytest.mark.parametrize("runs_each", [2, 5])
def test_the_iqm_of_few_runs_keeps_its_level(runs_each: int) -> None:
    random, covered = generator(), 0
    for _ in range(300):
        scores = random.normal(size=(runs_each, 26))
        found = aggregate_intervals(scores, [Aggregate.IQM], rng=random, n_resamples=200)
        covered += found[Aggregate.IQM].low <= 0 <= found[Aggregate.IQM].high
    # Three Monte Carlo errors are 0.04; percentiles hold 83 and 91 %.
    assert covered / 300 >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / 300)


def test_the_same_generator_gives_the_same_intervals() -> None:
    scores = generator().normal(size=(10, 26))
    first = aggregate_intervals(scores, rng=generator(3), n_resamples=500)
    assert first == aggregate_intervals(scores, rng=generator(3), n_resamples=500)
    assert first != aggregate_intervals(scores, rng=generator(4), n_resamples=500)
    alone = aggregate_intervals(scores, [Aggregate.MEAN], rng=generator(3), n_resamples=500)
    assert alone[Aggregate.MEAN] == first[Aggregate.MEAN]


def test_the_interval_of_the_iqm_covers_the_truth_about_as_often_as_it_says() -> None:
    random, covered = generator(), 0
    for _ in range(200):
        scores = random.normal(size=(12, 5))
        found = aggregate_intervals(scores, [Aggregate.IQM], rng=random, n_resamples=400)
        covered += found[Aggregate.IQM].low <= 0 <= found[Aggregate.IQM].high
    assert 0.88 <= covered / 200 <= 0.99


def test_an_extreme_score_beyond_the_quarters_does_no_harm() -> None:
    scores = generator().normal(size=(10, 4))
    wild = scores.copy()
    wild[scores == scores.max()] = 1e300
    plain, found = (
        aggregate_intervals(each, [Aggregate.IQM], rng=generator(2), n_resamples=300)
        for each in (scores, wild)
    )
    np.testing.assert_allclose(found[Aggregate.IQM], plain[Aggregate.IQM], rtol=1e-12)


def test_one_run_of_a_task_gives_a_point_and_no_bounds() -> None:
    found = aggregate_intervals({"a": [1.0, 2.0], "b": [3.0]}, rng=generator())
    assert found[Aggregate.MEAN].point == 2.25
    assert not any(each.known for each in found.values())


def test_equal_runs_have_intervals_of_no_width() -> None:
    scores = {"a": [0.1] * 7, "b": [0.3] * 3}
    for found in aggregate_intervals(scores, rng=generator()).values():
        assert found.low == found.point == found.high
    assert average_probability_of_improvement(scores, scores, rng=generator()) == (0.5,) * 3


def test_a_paired_difference_takes_out_what_a_seed_does_to_both() -> None:
    random = generator()
    seeds = random.normal(0, 1, (12, 4))
    a, b = seeds + random.normal(0, 0.1, (2, 12, 4)) + [[[0.0]], [[0.3]]]
    found = {
        paired: aggregate_difference(a, b, paired=paired, rng=generator(), n_resamples=2_000)
        for paired in (True, False)
    }
    assert found[True].point == found[False].point == pytest.approx(iqm(b) - iqm(a))
    assert found[True].low > 0.1
    assert found[True].half_width < found[False].half_width / 3


def test_a_paired_difference_of_the_same_scores_is_exactly_zero() -> None:
    scores = generator().normal(size=(6, 3))
    for which in Aggregate:
        found = aggregate_difference(scores, scores, which, paired=True, rng=generator())
        assert found == Interval(0, 0, 0)


def test_a_paired_difference_is_that_of_a_plain_loop() -> None:
    random = generator(5)
    a, b = random.gamma(2, size=(2, 10, 3))
    found = aggregate_difference(a, b, paired=True, rng=generator(), n_resamples=20_000)
    values = []
    for _ in range(1_000):
        rows = random.integers(0, 10, (10, 3))
        values.append(iqm(b[rows, [0, 1, 2]]) - iqm(a[rows, [0, 1, 2]]))
    for end, expected in zip(found[1:], np.quantile(values, [0.025, 0.975]), strict=True):
        assert end == pytest.approx(expected, abs=5 * float(np.std(values)) * 0.085)


def test_the_probability_of_improvement_of_a_worked_example() -> None:
    # Task x: 3 beats both, 1 ties one of two: (2 + 0.5) / 4. Task y: one of two.
    a, b = {"x": [1.0, 2.0], "y": [5.0, 0.0]}, {"y": [1.0], "x": [3.0, 1.0]}
    found = average_probability_of_improvement(a, b, rng=generator())
    assert found.point == pytest.approx((2.5 / 4 + 0.5) / 2)
    assert not found.known
    back = average_probability_of_improvement(b, a, rng=generator())
    assert back.point == pytest.approx(1 - found.point)


def test_a_side_that_always_wins_has_probability_one() -> None:
    a = generator().uniform(size=(5, 3))
    assert average_probability_of_improvement(a, a + 2, rng=generator()) == (1, 1, 1)


def test_few_runs_are_said_to_be_few() -> None:
    assert runs_note(np.zeros((10, 2))) is None
    assert "a task has 4 runs" in str(runs_note({"a": [1.0] * 20, "b": [1.0] * 4}))
    assert "one run" in str(runs_note(np.zeros((1, 2))))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        pytest.param({}, "have no task", id="nothing"),
        pytest.param(np.empty((3, 0)), "have no task", id="no columns"),
        pytest.param({"a": []}, "scores of task 'a'", id="no runs"),
        pytest.param(np.empty((0, 3)), "scores of task '1'", id="no rows"),
        pytest.param({"a": [1.0, math.nan]}, "finite", id="nan"),
        pytest.param([1.0, 2.0], "no matrix", id="a row"),
        pytest.param([[1.0, 2.0], [1.0]], "give them by task", id="ragged"),
    ],
)
def test_what_are_no_scores_is_refused(scores: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        iqm(scores)
    with pytest.raises(UsageError, match=words):
        aggregate_intervals(scores, rng=generator())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"level": 95}, "level 95"),
        ({"n_resamples": 5}, "5 resamples"),
        ({"gamma": math.nan}, "gamma nan"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(more: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        aggregate_intervals([[1.0], [2.0]], rng=generator(), **more)


def test_sides_with_other_tasks_or_runs_are_refused() -> None:
    a, b = {"x": [1.0, 2.0]}, {"x": [1.0, 2.0], "y": [1.0, 2.0]}
    with pytest.raises(UsageError, match="task 'y' has scores on one side only"):
        average_probability_of_improvement(a, b, rng=generator())
    with pytest.raises(UsageError, match="2 runs on one side and 3 on the other"):
        aggregate_difference(a, {"x": [1.0, 2.0, 3.0]}, paired=True, rng=generator())
