"""The catalogue of outcomes is complete and agrees with what trials produce."""

import math

import pytest

from assay.judge.outcomes import (
    LOWER_IS_BETTER,
    OUTCOMES,
    Direction,
    Outcome,
    Unit,
    outcome_of,
    scale_of,
)
from assay.metrics import SHIPPED
from assay.report import numbers


def test_every_entry_is_listed_by_its_name_and_has_a_meaning() -> None:
    assert all(name == outcome.name for name, outcome in OUTCOMES.items())
    assert all(outcome.meaning for outcome in OUTCOMES.values())
    assert all(outcome.low < outcome.high for outcome in OUTCOMES.values())
    assert set(SHIPPED) <= set(OUTCOMES)


def test_directions_of_shipped_outcomes() -> None:
    neither = {n for n, outcome in OUTCOMES.items() if outcome.direction is Direction.NEITHER}
    assert neither == {"steps", "turns"}
    assert {"cost_usd", "duration_s", "invalid_rate", "tokens"} == LOWER_IS_BETTER
    for name, metric in SHIPPED.items():
        assert (OUTCOMES[name].direction is Direction.HIGHER) is metric.higher_is_better


def test_costs_are_what_a_trial_used() -> None:
    used = {name for name, outcome in OUTCOMES.items() if outcome.is_cost}
    assert used == {"steps", "turns", "tokens", "cost_usd", "duration_s"}


def test_a_metric_outside_the_catalogue_has_no_range_and_no_unit() -> None:
    assert outcome_of("loss") == Outcome(name="loss", direction=Direction.NEITHER)
    assert scale_of("loss", [0.5, 2.0]).known_ends is False
    assert math.isinf(outcome_of("loss").high)
    assert outcome_of("unlocked/other_game").share


@pytest.mark.parametrize(
    ("metric", "number", "text", "changed", "label"),
    [
        ("cost_usd", 0.5, "$0.50", "+$0.50", "cost (dollars)"),
        ("cost_usd", -0.5, "-$0.50", "-$0.50", "cost (dollars)"),
        ("duration_s", 2.0, "2.00 s", "+2.00 s", "duration (s)"),
        ("invalid_rate", 0.25, "25.0%", "+25.0%", "invalid rate (%)"),
        ("reward", 2.0, "2.00", "+2.00", "reward"),
    ],
)
def test_numbers_have_the_unit_of_the_catalogue(
    metric: str, number: float, text: str, changed: str, label: str
) -> None:
    assert numbers.format_value(metric, number) == text
    assert numbers.format_difference(metric, number) == changed
    assert numbers.axis_label(metric) == label
    assert outcome_of(metric).unit in Unit
