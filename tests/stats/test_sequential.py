"""Designs, looks and decisions, and a small version of the proof of their error."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.stats.sequential import Boundary, LookResult, SequentialDesign, decide, looks
from assay.types import Verdict
from prove.looks import looks as prove_looks
from prove.looks import stops


def values(count: int, effect: float = 0.0, seed: int = 1) -> list[float]:
    return list(np.random.default_rng(seed).normal(effect, 1.0, count))


def first_decision(
    data: Sequence[float] | NDArray[np.float64],
    design: SequentialDesign,
    *,
    ended: bool = False,
) -> LookResult | None:
    """Return the look that decided, or None if none did."""
    found = looks(data, design, ended=ended)
    return found[-1] if found and found[-1].decision is not None else None


@pytest.mark.parametrize("kind", Boundary)
def test_looking_as_data_comes_gives_what_a_scan_of_all_of_it_gives(kind: Boundary) -> None:
    design = SequentialDesign(kind=kind, most=60)
    found = set()
    for seed in range(6):
        data = values(60, effect=[0.0, 0.6][seed % 2], seed=seed)
        live = next(
            look
            for look in (decide(data[:n], design) for n in range(5, 61))
            if look.decision is not None
        )
        assert first_decision(data, design) == live == looks(data, design)[-1]
        # What comes after a decision changes nothing.
        assert first_decision([*data[: live.pairs], *[-50.0] * 5], design) == live
        found.add(live.decision)
    assert found == {Verdict.BETTER, Verdict.UNDECIDED}


def test_better_and_worse_follow_the_side_and_what_is_good() -> None:
    data = values(30, effect=2.0)
    down = [-value for value in data]
    assert _said(data) is Verdict.BETTER
    assert _said(down) is Verdict.WORSE
    assert _said(data, lower_is_better=True) is Verdict.WORSE
    assert _said(down, lower_is_better=True) is Verdict.BETTER


def _said(data: list[float], **more: object) -> Verdict | None:
    found = first_decision(data, SequentialDesign.of({"most": len(data), **more}))
    return found.decision if found else None


def test_no_difference_is_concluded_only_where_a_smallest_effect_was_given() -> None:
    data = values(60)
    found = first_decision(data, SequentialDesign(most=60, min_effect=0.8))
    assert found is not None
    assert found.decision is Verdict.NO_DIFFERENCE
    assert found.pairs < 60
    assert -0.8 < found.interval.low < found.interval.high < 0.8
    plain = first_decision(data, SequentialDesign(most=60))
    assert plain is not None
    assert (plain.decision, plain.pairs) == (Verdict.UNDECIDED, 60)


def test_a_real_but_tiny_difference_is_none_that_matters() -> None:
    data = [0.1 + 0.001 * value for value in values(30)]
    assert _said(data, min_effect=0.5) is Verdict.NO_DIFFERENCE
    assert _said(data) is Verdict.BETTER


@pytest.mark.parametrize("kind", Boundary)
def test_intervals_of_all_looks_hold_together(kind: Boundary) -> None:
    design = SequentialDesign(kind=kind, most=30)
    n = np.arange(5, 31)
    sample = np.random.default_rng(4).normal(3.0, 2.0, (4_000, 30))
    means = sample.cumsum(axis=1)[:, 4:] / n
    spread = np.sqrt(((sample**2).cumsum(axis=1)[:, 4:] / n - means**2) * n / (n - 1))
    half = design.bounds(n.tolist()) * spread / np.sqrt(n)
    covered = (np.abs(means - 3.0) <= half).all(axis=1).mean()
    assert covered >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 4_000)
    for set_, look in ((0, 12), (1, 30)):
        interval = design.interval_at(sample[set_, :look])
        assert interval.high - interval.point == pytest.approx(half[set_, look - 5])


def test_more_candidates_make_wider_intervals() -> None:
    data = values(20)
    one = SequentialDesign(most=20).interval_at(data)
    three = SequentialDesign(most=20, comparisons=3).interval_at(data)
    assert three.half_width > one.half_width
    assert SequentialDesign(most=20, comparisons=2).level == pytest.approx(0.975)


def test_equal_differences_decide_once_a_coin_would_hardly_do_the_same() -> None:
    design = SequentialDesign(kind=Boundary.POCOCK, most=30)
    assert not design.interval_at([1.0] * 5).known
    found = first_decision([1.0] * 30, design)
    assert found is not None
    assert found.decision is Verdict.BETTER
    # The error of one pair more that did not differ.
    half = float(design.bounds([found.pairs])[0]) / (found.pairs + 1)
    assert found.interval == pytest.approx((1, 1 - half, 1 + half))
    assert 5 < found.pairs < 15
    zero = first_decision([0.0] * 30, design)
    assert zero is not None
    assert (zero.decision, zero.pairs) == (Verdict.UNDECIDED, 30)
    # Zeros are no evidence for the margin itself, but a range limits what they can hide.
    near = SequentialDesign(kind=Boundary.POCOCK, most=30, min_effect=1.0)
    for ends, decision in (
        (None, Verdict.UNDECIDED),
        ((0.0, 22.0), Verdict.UNDECIDED),
        ((0.0, 3.0), Verdict.NO_DIFFERENCE),
    ):
        found = first_decision([0.0] * 30, replace(near, ends=ends))
        assert found is not None
        assert found.decision is decision


def test_no_look_is_made_before_the_first() -> None:
    design = SequentialDesign(most=20)
    assert looks(values(4, effect=50.0), design) == ()
    assert not design.interval_at(values(4)).known
    assert [look.pairs for look in looks(values(8), design)] == [5, 6, 7, 8]


def test_pairs_that_will_not_come_end_it_undecided() -> None:
    design = SequentialDesign(most=50)
    some = looks(values(9), design, ended=True)
    assert (some[-1].pairs, some[-1].decision) == (9, Verdict.UNDECIDED)
    assert some[:-1] == looks(values(9), design)[:-1]
    few = first_decision(values(3), design, ended=True)
    assert few is not None
    assert (few.pairs, few.decision, few.interval.known) == (3, Verdict.UNDECIDED, False)
    none = first_decision([], design, ended=True)
    assert none is not None
    assert math.isnan(none.interval.point)


def test_a_design_comes_back_from_what_is_stored() -> None:
    design = SequentialDesign(kind=Boundary.POCOCK, most=77, comparisons=2, min_effect=0.5)
    assert SequentialDesign.of({**design.stored(), "metric": "reward"}) == design


def test_a_confidence_sequence_needs_no_largest_number() -> None:
    found = first_decision(values(90, effect=0.9), SequentialDesign(kind=Boundary.ANYTIME))
    assert found is not None
    assert found.decision is Verdict.BETTER
    assert first_decision(values(90), SequentialDesign(kind=Boundary.ANYTIME)) is None


def test_a_million_pairs_have_few_looks() -> None:
    assert len(SequentialDesign(most=1_000_000).counts(1_000_000)) < 1_200


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"most": 4}, "at most 4 pairs"),
        ({"most": 10, "first": 2}, "first look"),
        ({"most": 10, "alpha": 0.0}, "alpha"),
        ({"most": 10, "alpha": 0.5}, "alpha"),
        ({}, "largest number"),
        ({"most": 10, "comparisons": 0}, "comparisons"),
        ({"most": 10, "min_effect": -1.0}, "min effect"),
        ({"most": 10, "kind": "haybittle"}, "haybittle"),
    ],
)
def test_a_design_that_cannot_be_is_refused(bad: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        SequentialDesign.of(bad)


def test_numbers_that_are_none_and_too_many_pairs_are_refused() -> None:
    with pytest.raises(UsageError, match="finite"):
        decide([1.0, math.nan, 2.0, 3.0, 4.0], SequentialDesign(most=10))
    with pytest.raises(UsageError, match="11 pairs"):
        decide(values(11), SequentialDesign(most=10))


@pytest.mark.parametrize("kind", Boundary)
def test_the_proof_stops_where_looks_decide(kind: Boundary) -> None:
    design = SequentialDesign(kind=kind, most=30)
    sample = np.random.default_rng(8).normal(0.5, 1.0, (30, 30))
    bounds = design.bounds(range(1, 31))
    for set_, stopped in zip(sample, stops(sample, bounds).tolist(), strict=True):
        found = first_decision(set_, design)
        assert found is not None
        assert stopped == (0 if found.decision is Verdict.UNDECIDED else found.pairs)


@pytest.mark.extras
def test_the_proof_of_looks_meets_its_targets_with_fewer_sets() -> None:
    found = prove_looks(5_000)
    assert found.missed == ()
    assert found.text.count("\n| 5 to") == 18


def test_equal_outcomes_of_shares_are_no_proof_before_there_are_many() -> None:
    design = SequentialDesign(most=60, min_effect=0.1, shares=True)
    found = first_decision([0.0] * 60, design)
    assert found is not None
    assert found.decision is Verdict.NO_DIFFERENCE
    assert found.pairs > 40
    assert found.interval.low < 0 < found.interval.high
    few = SequentialDesign(most=30, min_effect=0.1, shares=True)
    assert first_decision([0.0] * 30, few).decision is Verdict.UNDECIDED  # type: ignore[union-attr]


def test_shares_that_differ_by_the_margin_are_seldom_called_equal() -> None:
    rng, wrong, sets = np.random.default_rng(4), 0, 150
    design = SequentialDesign(most=60, min_effect=0.2, shares=True)
    for _ in range(sets):
        found = first_decision(-(rng.random(60) < 0.2).astype(float), design)
        wrong += found is not None and found.decision is Verdict.NO_DIFFERENCE
    assert wrong / sets <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sets)


def test_a_design_of_shares_is_stored_and_any_other_as_before() -> None:
    shares, means = (SequentialDesign(most=9, shares=shares) for shares in (True, False))
    assert SequentialDesign.of(shares.stored()) == shares
    assert "shares" not in means.stored()
    assert SequentialDesign.of(means.stored()) == means
