"""Many comparisons, held against statsmodels and small cases worked by hand."""

import itertools

import numpy as np
import pytest

from assay.errors import UsageError
from assay.stats.multiplicity import benjamini_hochberg, holm, indistinguishable_groups, ranks
from tests.oracles.asking import ask_statsmodels, needs_oracles


def test_holm_multiplies_by_what_is_left() -> None:
    assert holm([0.03, 0.01, 0.04]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]).shape == (0,)


def test_benjamini_hochberg_multiplies_by_m_over_rank() -> None:
    assert benjamini_hochberg([0.03, 0.01, 0.2]) == pytest.approx([0.045, 0.03, 0.2])
    assert benjamini_hochberg([0.04, 0.03]) == pytest.approx([0.04, 0.04])


@pytest.mark.extras
@needs_oracles
def test_both_corrections_equal_statsmodels() -> None:
    rng = np.random.default_rng(4)
    sets = [np.round(rng.uniform(size=size) ** 3, 2).tolist() for size in (1, 2, 5, 40)]
    methods = {"holm": holm, "fdr_bh": benjamini_hochberg}
    for method, corrected in methods.items():
        answers = ask_statsmodels([("adjusted", [p, method]) for p in sets])
        for p, expected in zip(sets, answers, strict=True):
            assert corrected(p) == pytest.approx(expected)


def test_a_p_value_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="p-values"):
        holm([0.1, float("nan")])


def test_ranks_share_ties() -> None:
    assert ranks({"a": 3.0, "b": 5.0, "c": 3.0, "d": 1.0}) == {"a": 2, "b": 1, "c": 2, "d": 4}
    assert ranks({"a": 3.0, "b": 5.0}, higher_is_better=False) == {"a": 1, "b": 2}


def test_with_significance_a_rank_counts_those_shown_to_be_better() -> None:
    means = {"a": 5.0, "b": 4.0, "c": 3.0, "d": 1.0}
    assert ranks(means, significant=[("d", "a"), ("b", "d"), ("a", "c")]) == {
        "a": 1,
        "b": 1,
        "c": 2,
        "d": 3,
    }
    with pytest.raises(UsageError, match="is nan"):
        ranks({"a": float("nan")})


def test_groups_are_those_that_cannot_be_told_apart() -> None:
    apart = [("A", "C"), ("D", "A"), ("B", "D")]
    assert indistinguishable_groups("ABCD", apart) == (("A", "B"), ("B", "C"), ("C", "D"))
    assert indistinguishable_groups("ABC", []) == (("A", "B", "C"),)
    everything = itertools.combinations("ABC", 2)
    assert indistinguishable_groups("ABC", everything) == (("A",), ("B",), ("C",))
    assert indistinguishable_groups([], []) == ()


def test_two_share_a_group_exactly_if_they_do_not_differ() -> None:
    rng = np.random.default_rng(6)
    names = "ABCDEFG"
    for _ in range(50):
        apart = [pair for pair in itertools.combinations(names, 2) if rng.uniform() < 0.4]
        groups = indistinguishable_groups(names, apart)
        for pair in itertools.combinations(names, 2):
            shared = any(set(pair) <= set(group) for group in groups)
            assert shared == (pair not in apart)


def test_groups_refuse_names_they_do_not_know() -> None:
    with pytest.raises(UsageError, match="unknown model 'X'"):
        indistinguishable_groups("AB", [("A", "X")])
    with pytest.raises(UsageError, match="twice"):
        indistinguishable_groups("AA", [])
