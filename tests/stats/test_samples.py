"""What is let in as a sample, and what is said about the rest."""

import math
from typing import Any

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.intervals import as_sample, check_level, check_resamples


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1, 2, 3], id="whole numbers"),
        pytest.param((1.0, 2.0, 3.0), id="a tuple"),
        pytest.param(np.array([1, 2, 3], np.int8), id="an array"),
        pytest.param(np.array([0, 1, 2, 3, 4])[1:4], id="a view"),
    ],
)
def test_numbers_become_one_flat_array_of_float64(values: Any) -> None:
    sample = as_sample(values)
    assert sample.dtype == np.float64
    assert sample.tolist() == [1, 2, 3]


def test_truth_values_count_as_zero_and_one() -> None:
    assert as_sample([True, False]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "least", "words"),
    [
        pytest.param([], 1, "no values were given as rewards; give 1 or more", id="nothing"),
        pytest.param([1], 2, "one value was given as rewards; give 2 or more", id="one"),
        pytest.param([1, 2], 5, "2 values were given as rewards; give 5 or more", id="few"),
        pytest.param([1, math.nan], 1, "number 2 is nan", id="nan"),
        pytest.param([-math.inf, 1], 1, "number 1 is -inf", id="infinite"),
        pytest.param([1, None], 1, "number 2 is nan", id="missing"),
        pytest.param(["a", "b"], 1, "no number", id="words"),
        pytest.param([[1], [1, 2]], 1, "no number", id="ragged"),
        pytest.param([[1, 2], [3, 4]], 1, "2 axes", id="a table"),
        pytest.param(3.0, 1, "0 axes", id="one number alone"),
    ],
)
def test_what_is_no_sample_is_refused_with_a_sentence(
    values: Any, least: int, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        as_sample(values, "rewards", least)


@pytest.mark.parametrize("level", [0, 1, 95, -0.1, math.nan])
def test_a_level_outside_zero_and_one_is_refused(level: float) -> None:
    with pytest.raises(UsageError, match="is not between 0 and 1"):
        check_level(level)


def test_too_few_resamples_are_refused() -> None:
    check_resamples(100)
    with pytest.raises(UsageError, match="99 resamples are too few"):
        check_resamples(99)
