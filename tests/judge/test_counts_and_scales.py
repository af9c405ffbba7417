"""Counts add up, and how large the numbers are does not change what is found."""

from dataclasses import replace

import numpy as np
import pytest

from assay.core.text import counted
from assay.crafter.rules import ACHIEVEMENTS
from assay.judge.caveats import empty_reason, left_out_words
from assay.judge.comparison import compare
from assay.judge.results import Contrast, LeftOut, TaskRule
from assay.judge.subjects import Subject
from assay.stats.clusters import clustered_difference_estimate
from assay.stats.power import minimum_detectable_effect, trials_needed
from assay.types import TrialState, Verdict

from .subjects import subject, trial

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
MORE = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]
UNLOCKS = [f"unlocked/{name}" for name in ACHIEVEMENTS]
FAILED, BROKEN = TrialState.FAILURE, TrialState.INFRASTRUCTURE


def ended(name: str, failures: int, errors: int) -> Subject:
    """A subject none of whose trials completed."""
    states = [FAILED] * failures + [BROKEN] * errors
    trials = [trial(name, seed, state=state) for seed, state in enumerate(states)]
    return subject(name, trials=trials)


@pytest.mark.parametrize(("failures", "errors"), [(1, 1), (3, 3), (2, 1), (1, 2), (3, 1)])
def test_who_never_completed_is_told_apart_from_who_has_no_numbers(
    failures: int, errors: int
) -> None:
    never = empty_reason(ended("b", failures, errors))
    assert counted(failures, "failure") in never
    assert counted(errors, "infrastructure error") in never
    completed = trial("b", 99)
    mute = replace(ended("b", failures, errors), trials=(completed, completed))
    assert empty_reason(mute) != never
    both = replace(mute, trials=(*ended("b", failures, errors).trials, completed))
    assert empty_reason(both) == empty_reason(mute)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (0, 1), (2, 2), (3, 1)])
def test_failures_of_either_side_call_for_care(first: int, second: int) -> None:
    both = [
        subject("a", BASE, trials=[trial("a", 50 + at, state=FAILED) for at in range(first)]),
        subject("b", MORE, trials=[trial("b", 50 + at, state=FAILED) for at in range(second)]),
    ]
    found = compare(both)
    [contrast] = found.decisive
    assert contrast.left_out_baseline == LeftOut(failures=first)
    assert contrast.left_out_candidate == LeftOut(failures=second)
    sides = (first > 0) + (second > 0)
    # That they are not used, of each side; and that they are not scored.
    assert len(found.notes) == (sides + 1 if sides else 0)
    assert (contrast.losses is not None) is (sides > 0)


def test_each_reason_for_not_using_a_trial_is_counted_by_itself() -> None:
    assert LeftOut() == (0, 0, 0, 0)
    assert left_out_words(LeftOut(), "a") is None
    for at in range(4):
        counts = [0] * 4
        counts[at] = 1234
        words = left_out_words(LeftOut(*counts), "a")
        assert words is not None
        assert words.count("1,234") == 1
        assert "," not in words.replace("1,234", "")
    assert (counted(0, "x"), counted(1, "x"), counted(2, "x")) == ("0 xs", "1 x", "2 xs")


def only(subjects: list[Subject], **choices: object) -> Contrast:
    [found] = compare(subjects, metrics=["achievements"], **choices).decisive
    return found


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 1e4, 1e7])
def test_the_unit_of_a_metric_does_not_change_the_verdict(paired: bool, scale: float) -> None:
    def both(by: float) -> list[Subject]:
        return [
            subject("a", [value * by for value in BASE]),
            subject("b", [value * by for value in MORE], first_seed=1 if paired else 100),
        ]

    plain, scaled = only(both(1.0)), only(both(scale))
    assert scaled.verdict is plain.verdict is Verdict.BETTER
    assert scaled.difference == pytest.approx(
        tuple(scale * bound for bound in plain.difference)
    )
    assert scaled.tests is not None
    assert plain.tests is not None
    assert scaled.tests.spread_known
    assert scaled.tests.p_value == pytest.approx(plain.tests.p_value)
    assert scaled.relative == pytest.approx(plain.relative)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e7])
def test_a_spread_is_none_if_it_is_tiny_beside_the_values(paired: bool, scale: float) -> None:
    for share, known in ((1e-11, False), (1e-6, True)):
        wave = [1 + share * (at % 2) for at in range(8)]
        found = only(
            [
                subject("a", [scale] * 8),
                subject("b", [2 * scale * one for one in wave], first_seed=1 if paired else 99),
            ]
        )
        assert found.tests is not None
        assert found.tests.spread_known == known
        assert (found.effects is not None) == known


@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e7])
def test_a_spread_over_tasks_is_none_if_it_is_tiny_beside_the_values(scale: float) -> None:
    for share, known in ((1e-11, False), (1e-6, True)):
        sides = [
            subject(
                name,
                trials=[
                    trial(
                        name,
                        seed,
                        task=f"t{task}",
                        achievements=scale * (1 + up * (1 + share * (seed % 2))),
                    )
                    for task in range(3)
                    for seed in range(4)
                ],
            )
            for name, up in (("a", 0), ("b", 1))
        ]
        found = only(sides)
        assert found.units.rule is TaskRule.FIXED
        assert found.tests is not None
        assert found.tests.spread_known == known


def test_a_plan_knows_how_few_two_tasks_are() -> None:
    rng = np.random.default_rng(2)
    values = {name: rng.normal(5, 1, (2, 6)) for name in "ab"}
    sides = [
        subject(
            name,
            trials=[
                trial(name, seed, task=f"t{task}", achievements=float(value))
                for task, row in enumerate(table)
                for seed, value in enumerate(row)
            ],
        )
        for name, table in values.items()
    ]
    found = only(sides, tasks="sample", min_effect=0.3)
    tasks = [f"t{task}" for task in range(2) for _ in range(6)]
    estimate = clustered_difference_estimate(
        values["a"].ravel(), values["b"].ravel(), tasks, None
    )
    sd = estimate.error * np.sqrt(2)
    needed = trials_needed(0.3, sd, pilot_n=2, paired=True, power=0.8, alpha=0.05, level=0.95)
    assert found.settle is not None
    assert found.settle.trials == 6 * max(needed.trials, 6)
    assert found.settle.low == (needed.low and 6 * needed.low)
    assert found.settle.high == (needed.high and 6 * needed.high)
    assert found.detectable == pytest.approx(
        minimum_detectable_effect(2, sd, paired=True, power=0.8, alpha=0.05)
    )


def test_what_is_drawn_is_the_same_in_every_version() -> None:
    noise = np.random.default_rng(4).normal(0.4, 1, (2, 30))
    unlocks = np.random.default_rng(5).random((8, len(ACHIEVEMENTS))) < 0.4
    sides = [
        subject(
            name,
            list(noise[at]),
            trials=[
                trial(
                    name, 500 + episode, also=dict(zip(UNLOCKS, map(float, row), strict=True))
                )
                for episode, row in enumerate(unlocks)
            ],
        )
        for at, name in enumerate("ab")
    ]
    found = compare(sides, metrics=["achievements"], seed=3)
    assert found.decisive[0].tests is not None
    assert found.decisive[0].tests.resampling.p_value == pytest.approx(0.6757324267573243)
    first, second = (row.interval for row in found.scores)
    # The bounds of scores are drawn from a seed of their own: equal episodes have equal ones.
    assert first == second == pytest.approx((30.475666, 16.183978, 52.616541))
