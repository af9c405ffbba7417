"""The rules of a comparison one by one, each against numbers worked out by other means."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import scipy.stats

from assay.crafter.rules import ACHIEVEMENTS
from assay.errors import UsageError
from assay.judge.comparison import check_choices, compare
from assay.judge.describe import instances, passes
from assay.judge.design import (
    Change,
    design_differences,
    same_trials,
    settings_differences,
    without_copies,
)
from assay.judge.looks import last_look, looked_before
from assay.judge.matching import match, mean_of, mean_of_values
from assay.judge.missing import with_losses
from assay.judge.outcomes import Scale, scale_of
from assay.judge.plans import ComparisonPlan, StoredPlan, plan_deviations
from assay.judge.results import Contrast, Setup, TaskRule, Units
from assay.judge.subjects import Subject, TrialOutcome
from assay.judge.versions import over_time
from assay.report.run_summary import rank_models
from assay.stats.clusters import stratified_estimate
from assay.stats.differences import paired_difference, unpaired_difference
from assay.stats.estimates import mean_estimate
from assay.stats.intervals import Interval, skewness_note, t_interval
from assay.stats.sequential import SequentialDesign, looks
from assay.stats.survival import incidence_test
from assay.types import TrialState, Verdict
from tests.report.rows import episode

from .subjects import look, subject, trial

LOW = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
HIGH = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]
SETUP = Setup(metrics=("achievements",), baseline="a", level=0.95)


def only(*subjects: Subject, **choices: Any) -> Contrast:
    [found] = compare(subjects, **choices).decisive
    return found


# What differs.


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param({"max_turns": 2}, {"max_turns": 3}, [("max_turns", "2", "3")], id="plain"),
        pytest.param(
            {"agent": {"history": 8}},
            {"agent": {"history": 1}},
            [("history", "8", "1")],
            id="of the agent",
        ),
        pytest.param(
            {"rules": {"zombies": 1}},
            {"rules": {"zombies": 2}},
            [("rules", "zombies 1", "zombies 2")],
            id="one number of a table",
        ),
        pytest.param(
            {"rules": {"cows": 5, "zombies": 1}},
            {"rules": {"cows": 6, "zombies": 2}},
            [("rules", "cows 5, zombies 1", "cows 6, zombies 2")],
            id="two of a table",
        ),
        pytest.param(
            {"rules": dict.fromkeys("abc", 1)},
            {"rules": dict.fromkeys("abc", 2)},
            [("rules", "a 1, b 1, c 1", "a 2, b 2, c 2")],
            id="three",
        ),
        pytest.param(
            {"rules": dict.fromkeys("abcd", 1)},
            {"rules": dict.fromkeys("abcd", 2)},
            [("rules", "a 1, b 1, c 1, …", "a 2, b 2, c 2, …")],
            id="more than are shown",
        ),
        pytest.param({"max_turns": 2}, {"step_limit": 9}, [], id="what one did not record"),
        pytest.param(
            {"max_turns": 2},
            {"max_turns": 2, "step_limit": 9},
            [("step_limit", "none", "9")],
            id="what a whole configuration leaves out",
        ),
        pytest.param({"seed": 1, "workers": 2}, {"seed": 2, "workers": 3}, [], id="aside"),
        pytest.param({"seed": 1}, {}, [], id="aside, and only one recorded it"),
    ],
)
def test_settings_that_differ_are_told_in_short(
    before: dict[str, Any], after: dict[str, Any], said: list[tuple[str, str, str]]
) -> None:
    found = settings_differences(before, after)
    assert [(one.name, one.baseline, one.candidate) for one in found] == said


def test_the_task_side_comes_first_and_only_what_is_allowed_is() -> None:
    before = {"view": "full", "max_turns": 1, "step_limit": 5}
    after = {"view": "short", "max_turns": 2, "step_limit": 6}
    found = settings_differences(before, after, ["step_limit"], [Change("model", "x", "y")])
    marks = {one.name: (one.task, one.allowed, one.confounds) for one in found}
    assert list(marks)[2:] == ["model", "view"]
    assert marks == {
        "max_turns": (True, False, True),
        "step_limit": (True, True, False),
        "model": (False, False, False),
        "view": (False, False, False),
    }


def test_tasks_apart_are_named_and_shared_ones_are_not() -> None:
    def plays(name: str, *tasks: str) -> Subject:
        return subject(
            name, trials=[trial(name, 1, task=task, achievements=1.0) for task in tasks]
        )

    [found] = design_differences(plays("a", "crafter/easy"), plays("b", "crafter/hard"))
    assert found[:4] == ("difficulty", "easy", "hard", True)
    [found] = design_differences(plays("a", "maze"), plays("b", "crafter/hard"))
    assert found[:3] == ("tasks", "maze", "hard")
    shared = plays("a", "crafter/easy", "crafter/hard"), plays("b", "crafter/hard")
    assert design_differences(*shared) == ()
    assert design_differences(plays("a", "crafter/easy"), subject("b")) == ()


def test_what_plays_is_compared_where_both_say_it() -> None:
    def who(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str]]:
        both = subject("a", LOW, **first), subject("b", LOW, **second)
        return [one[:3] for one in design_differences(*both)]

    assert who({"model": "m"}, {"model": "n"}) == [("model", "m", "n")]
    assert who({"commit": "c"}, {}) == []
    assert who({"commit": "c"}, {"commit": "d"}) == [("commit", "c", "d")]


# What was lost.


def lossy(name: str, values: Sequence[float | None], **about: Any) -> Subject:
    trials = [
        trial(name, seed, state=TrialState.INFRASTRUCTURE)
        if value is None
        else trial(name, seed, achievements=value)
        for seed, value in enumerate(values, 1)
    ]
    return subject(name, trials=trials, **about)


def filled(values: Sequence[float | None], with_what: float) -> list[float]:
    return [with_what if value is None else value for value in values]


@pytest.mark.parametrize("family", [1, 4])
def test_bounds_take_lost_trials_at_the_ends_and_share_the_error(family: int) -> None:
    b: list[float | None] = [None, *HIGH[1:-1], None]
    both = subject("a", LOW), lossy("b", b)
    losses = with_losses(only(*both), *both, SETUP, family).losses
    assert losses is not None
    assert losses[:4] == (0, 10, 2, 10)
    most = float(len(ACHIEVEMENTS))
    for edge, value in ((losses.lowest, 0.0), (losses.highest, most)):
        gaps = [after - before for before, after in zip(LOW, filled(b, value), strict=True)]
        assert edge == pytest.approx(t_interval(gaps, level=1 - 0.05 / family))
    assert losses.known_ends
    assert losses.p_value == pytest.approx(0.4736842105263158)


def test_few_losses_on_both_sides_say_nothing_and_unlisted_ones_count() -> None:
    many = [float(at % 7) for at in range(100)]
    kept = subject("a", many), lossy("b", [None, *(value + 1 for value in many[1:])])
    few = only(*kept).losses
    assert few is not None
    assert (few.baseline, few.candidate) == (0, 1)
    unlisted = replace(kept[0], facts={"without_result": 6})
    losses = with_losses(only(*kept), unlisted, kept[1], SETUP).losses
    assert losses is not None
    assert (losses.baseline, losses.of_baseline) == (6, 106)
    assert (losses.candidate, losses.of_candidate) == (1, 100)


def test_a_verdict_holds_only_if_both_ends_give_it() -> None:
    above = [value + 9 + at % 3 for at, value in enumerate(LOW)]
    little = [*above[:-1], None]
    both = subject("a", LOW), lossy("b", little)
    found = only(*both)
    assert found.losses is not None
    assert (found.verdict, found.losses.holds) == (Verdict.BETTER, True)
    assert not found.withheld
    assert found.difference[1:] == (found.losses.lowest.low, found.losses.highest.high)
    much = [*(value - 6 for value in above[:-4]), *[None] * 4]
    both = subject("a", LOW), lossy("b", much)
    found = only(*both)
    assert found.losses is not None
    assert (found.verdict, found.losses.holds) == (Verdict.UNKNOWN, False)
    assert found.withheld


def test_a_metric_without_ends_has_a_tipping_point() -> None:
    def own(name: str, values: Sequence[float]) -> Subject:
        trials = [trial(name, at, reward=value) for at, value in enumerate(values, 1)]
        return subject(name, trials=trials)

    a, whole = own("a", LOW), own("b", HIGH)
    lost = [replace(one, state=TrialState.FAILURE, values={}) for one in whole.trials[:2]]
    b = replace(whole, trials=(*lost, *whole.trials[2:]))
    found = only(a, b, metrics=["reward"])
    losses = found.losses
    assert losses is not None
    assert (losses.known_ends, losses.holds, found.withheld) == (False, False, True)
    assert losses.tipping is not None
    mean = sum(HIGH[2:]) / len(HIGH[2:])
    for by, verdict in ((0.98, Verdict.BETTER), (1.02, Verdict.UNDECIDED)):
        filled = [mean - by * losses.tipping] * 2
        assert only(a, own("b", [*filled, *HIGH[2:]]), metrics=["reward"]).verdict is verdict


# Looks.


def stopped(name: str, values: Sequence[float], **facts: Any) -> Subject:
    about = {"until_decided": "achievements", "models": ["m", "n", "o"], "episodes": 10}
    model = {"a": "m", "b": "n", "c": "o"}[name]
    return subject(
        name, values, first_seed=5, model=model, run_id="r", facts=about | {"seed": 5} | facts
    )


def test_looks_that_a_file_does_not_have_are_made_again() -> None:
    both = stopped("a", LOW), stopped("b", HIGH)
    found = last_look(*both, "achievements")
    gaps = [after - before for before, after in zip(LOW, HIGH, strict=True)]
    design = SequentialDesign(most=10, comparisons=2, ends=(0.0, 22.0))
    made = looks(gaps, design, ended=True)
    assert found is not None
    assert (found.look, found.pairs, found.decision) == (
        len(made),
        made[-1].pairs,
        made[-1].decision,
    )
    assert (found.estimate, found.low, found.high) == made[-1].interval
    assert (found.experiment_id, found.baseline_id) == ("b", "a")
    assert found.design == design.stored() | {"level": design.level}
    turned = last_look(both[1], both[0], "achievements")
    assert turned is not None
    assert (turned.estimate, turned.low, turned.high) == (
        -found.estimate,
        -found.high,
        -found.low,
    )
    assert turned.decision == Verdict.WORSE


def test_worlds_before_after_and_without_a_value_are_no_part_of_looks() -> None:
    early = trial("b", 4, achievements=90.0)
    late = trial("b", 15, achievements=90.0)
    own = stopped("b", HIGH)
    more = replace(own, trials=(early, *own.trials, late))
    assert last_look(stopped("a", LOW), more, "achievements") == last_look(
        stopped("a", LOW), own, "achievements"
    )
    lost = replace(own, trials=own.trials[:-1])
    found = last_look(stopped("a", LOW), lost, "achievements")
    assert found is not None
    assert found.pairs <= 9


@pytest.mark.parametrize(
    "facts",
    [
        {"until_decided": "reward"},
        {"models": "m"},
        {"models": []},
        {"models": ["n", "m"]},
        {"models": ["m", "o"]},
        {"episodes": "ten"},
        {"seed": None},
        {"episodes": 1},
    ],
    ids=str,
)
def test_looks_that_cannot_be_known_are_none(facts: dict[str, Any]) -> None:
    assert last_look(stopped("a", LOW), stopped("b", HIGH, **facts), "achievements") is None


def test_looks_are_those_of_one_run_and_of_its_first_model() -> None:
    for other in ("q", "s"):
        apart = replace(stopped("a", LOW), run_id=other)
        assert last_look(apart, stopped("b", HIGH), "achievements") is None
    unknown = replace(stopped("a", LOW), run_id=None), replace(stopped("b", HIGH), run_id=None)
    assert last_look(*unknown, "achievements") is None
    assert last_look(stopped("b", LOW), stopped("c", HIGH), "achievements") is None
    again = replace(stopped("b", HIGH), model="m")
    assert last_look(stopped("a", LOW), again, "achievements") is None


def test_stored_looks_come_first_and_the_last_of_them_counts() -> None:
    stored = [look("a", None, 1), look("a", "better", 2, pairs=9), look("x", "worse", 7)]
    found = last_look(subject("a", LOW), subject("b", HIGH, looks=stored), "achievements")
    assert found is stored[1]
    named = looked_before(
        only(subject("a", LOW), subject("b", HIGH)),
        *[
            subject("a", LOW, facts={"until_decided": "reward"}),
            subject("b", HIGH, looks=[look("x", None)]),
        ],
    )
    assert named == ["a", "b"]


# What values can be.


@pytest.mark.parametrize(
    ("metric", "values", "scale"),
    [
        ("success", [0, 1], Scale(0, 1, 1, share=True)),
        ("unlocked/eat_cow", [1], Scale(0, 1, 1, share=True)),
        ("mine", [0.0, 1.0], Scale(0, 1, 1, share=True)),
        ("success", [0.5, 1.0], Scale(0, 1)),
        ("mine", [0.5], Scale()),
        ("reward", [0.0, 1.0], Scale()),
        ("invalid_rate", [0.2, 1.0], Scale(0, 1)),
        ("invalid_rate", [0.0, 0.2], Scale(0, 1)),
        ("invalid_rate", [1.2], Scale()),
        ("invalid_rate", [-0.1], Scale()),
        ("invalid_rate", [-1.0, 1.0], Scale()),
        ("cost_usd", [0.5], Scale(0, math.inf)),
        ("cost_usd", [-0.5], Scale()),
        ("steps", [3, 4], Scale(0, math.inf, 1)),
        ("steps", [3.5], Scale(0, math.inf)),
        ("achievements", [3, 22], Scale(0, len(ACHIEVEMENTS), 1)),
        ("achievements", [3, 23], Scale(0, math.inf, 1)),
        ("achievements", [2.5], Scale(0, len(ACHIEVEMENTS))),
    ],
)
def test_what_values_a_metric_can_have(metric: str, values: list[float], scale: Scale) -> None:
    assert scale_of(metric, values) == scale
    assert scale.known_ends == (math.isfinite(scale.low) and math.isfinite(scale.high))


def test_the_step_of_averaged_worlds_is_one_world() -> None:
    twice = [
        trial("a", seed, replicate=at, achievements=4.0) for seed in range(6) for at in (0, 1)
    ]
    estimate = mean_estimate([4.0] * 6, step=1.0)
    found = mean_of(twice, "achievements", 0.95)
    assert found == pytest.approx(estimate.interval(0.95, low=0, high=len(ACHIEVEMENTS)))


def test_equal_values_have_no_bounds_but_for_what_was_never_there() -> None:
    def of(metric: str, value: float) -> Interval:
        trials = [trial("a", seed, also={metric: value}) for seed in range(4)]
        return mean_of(trials, metric, 0.95)

    assert of("cost_usd", 0.0) == (0.0, 0.0, 0.0)
    for metric, value in (("cost_usd", 1.0), ("reward", 0.0), ("reward", 1.0)):
        point, low, high = of(metric, value)
        assert (point, math.isnan(low), math.isnan(high)) == (value, True, True)


# Plans.


def registered(*seen: str) -> StoredPlan:
    return StoredPlan(hash="h", plan={}, created_at=datetime(2026, 1, 1), seen=seen)


def kept_to(plan: ComparisonPlan, *subjects: Subject, **choices: Any) -> list[str]:
    return plan_deviations(plan, compare(subjects, **choices), registered())


def test_a_comparison_keeps_to_its_plan_or_says_in_what_not() -> None:
    both = subject("a", LOW, source="store"), subject("b", HIGH, source="store")
    plan = ComparisonPlan(metric="achievements", n=10)
    assert kept_to(plan, *both) == []
    assert kept_to(replace(plan, n=9), *both) == ["n: the plan says 9, there are 10"]
    assert kept_to(replace(plan, level=0.9), *both) == [
        "level: the plan says 0.9, the comparison did 0.95"
    ]
    assert kept_to(replace(plan, min_effect=2.0), *both) == [
        "min_effect: the plan says 2.0, the comparison did None"
    ]
    apart = (
        subject("a", LOW, source="store"),
        subject("b", HIGH[:8], first_seed=100, source="store"),
    )
    assert kept_to(plan, *apart) == ["n: the plan says 10, there are 8 and 10"]


def test_experiments_that_were_seen_or_come_from_files_speak_against_a_plan() -> None:
    both = subject("a", LOW, source="store"), subject("z", HIGH, source="a.json")
    seen = registered("a", "z")
    plan = ComparisonPlan(metric="achievements", n=10)
    early, files = plan_deviations(plan, compare(both), seen)
    assert early == "1 of the experiments were in the store when the plan was registered: a"
    assert files.startswith("1 experiments come from files")


# Who is judged, and by what.


def test_baselines_are_judged_only_where_too_few_others_are() -> None:
    idle, random = (subject(name, LOW, baseline=True) for name in ("idle", "random"))
    one, two = subject("one", HIGH), subject("two", HIGH)

    def judged(*subjects: Subject, **choices: Any) -> list[str]:
        found = compare(subjects, **choices)
        return [facts.subject.id for facts in found.subjects if facts.judged]

    assert judged(idle, random, one, two) == ["one", "two"]
    assert judged(idle, random, one) == ["random", "one"]
    assert judged(idle, random, one, two, baseline="idle") == ["idle", "one", "two"]
    assert judged(idle, random) == ["idle", "random"]


def test_a_baseline_without_a_metric_is_left_out_unless_nobody_would_be_left() -> None:
    has, also = (
        subject("a", LOW, extra={"mine": 0.25}),
        subject("b", HIGH, extra={"mine": 0.75}),
    )
    lacks = subject("idle", LOW, baseline=True)
    found = compare([has, also, lacks], metrics=["mine"])
    assert found.left_out == {"idle": "idle has no mine"}
    with pytest.raises(UsageError, match="'idle': unknown metric 'mine'"):
        compare([has, lacks], metrics=["mine"])


@pytest.mark.parametrize(
    "choices",
    [
        {"level": 0.49},
        {"level": 1.0},
        {"min_effect": 0.0},
        {"min_effect": -1.0},
        {"min_effect": math.inf},
        {"enough": math.nan},
        {"enough": math.inf},
        {"seed": -1},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        check_choices(**({"level": 0.95} | choices))


def test_the_ends_of_what_can_be_meant_are_taken() -> None:
    check_choices(0.5, 1e-9, -3.0, 0)
    check_choices(0.999, None)


# What is promised.


def contrast_of(
    n: int, other: int | None = None, *, paired: bool = True, units: Units | None = None
) -> Contrast:
    found = only(
        subject("a", [float(at % 5) for at in range(n)]),
        subject(
            "b",
            [float(at % 4) + at % 3 for at in range(other or n)],
            first_seed=1 if paired else 1000,
        ),
    )
    return replace(found, skewness=None, units=units or found.units)


@pytest.mark.parametrize(
    ("found", "promised"),
    [
        (contrast_of(5), True),
        (contrast_of(4), False),
        (replace(contrast_of(9), skewness="skewed"), False),
        (contrast_of(5, 15, paired=False), True),
        (contrast_of(5, 16, paired=False), False),
        (contrast_of(9, units=Units(TaskRule.FIXED, 4, 9, 1)), True),
        (contrast_of(9, units=Units(TaskRule.FIXED, 5, 9, 1)), False),
        (contrast_of(20, units=Units(TaskRule.SAMPLE, 9, 20, 1)), False),
        (contrast_of(20, units=Units(TaskRule.SAMPLE, 10, 20, 1)), True),
        (contrast_of(20, units=Units(TaskRule.SAMPLE, 11, 20, 1)), True),
    ],
)
def test_an_interval_is_promised_in_the_cells_that_were_measured(
    found: Contrast, promised: bool
) -> None:
    assert found.promised is promised


@pytest.mark.parametrize(
    ("successes", "paired", "promised"),
    [((1, 9), True, True), ((1, 8), False, True), ((0, 10), False, False)],
)
def test_shares_far_apart_are_promised_for_pairs_alone(
    successes: tuple[int, int], paired: bool, promised: bool
) -> None:
    sides = []
    for name, count in zip("ab", successes, strict=True):
        first = 1 if paired or name == "a" else 100
        sides.append(
            subject(
                name,
                trials=[trial(name, first + at, success=float(at < count)) for at in range(10)],
            )
        )
    assert replace(only(*sides, metrics=["success"]), skewness=None).promised is promised


# Times.


def timed(name: str, ends: Sequence[tuple[float, bool]], first_seed: int = 1) -> Subject:
    trials = [
        trial(name, seed, success=float(reached), steps=time)
        for seed, (time, reached) in enumerate(ends, first_seed)
    ]
    # Unlock steps tell that a step is known.
    own = [replace(one, unlock_steps=(int(one.values["steps"]),)) for one in trials]
    return subject(name, trials=own)


ENDS_A = [(9.0, True), (12.0, False), (7.0, True), (12.0, False), (10.0, True), (12.0, False)]
ENDS_B = [(4.0, True), (6.0, True), (5.0, True), (12.0, False), (3.0, True), (8.0, True)]


@pytest.mark.parametrize("first_seed", [1, 50], ids=["pairs", "apart"])
def test_times_to_success_are_tested_in_pairs_where_all_worlds_are_shared(
    first_seed: int,
) -> None:
    rows = instances([timed("a", ENDS_A), timed("b", ENDS_B, first_seed)], 3, 0.95)
    expected = incidence_test(
        *zip(*ENDS_A, strict=True), *zip(*ENDS_B, strict=True), paired=first_seed == 1
    )
    assert [row.unit for row in rows] == ["steps", "steps"]
    assert rows[0].p_value is None
    assert rows[1].p_value == pytest.approx(expected.p_value, abs=0.02)
    assert [row.horizon for row in rows] == [12.0, 12.0]
    assert rows[1].median_time == 5.0


def test_times_are_not_paired_where_one_side_has_fewer_worlds() -> None:
    rows = instances([timed("a", ENDS_A), timed("b", ENDS_B[:4])], 3, 0.95)
    expected = incidence_test(
        *zip(*ENDS_A, strict=True), *zip(*ENDS_B[:4], strict=True), paired=False
    )
    assert rows[1].p_value == pytest.approx(expected.p_value, abs=0.02)


def test_times_of_episodes_without_a_world_are_tested_as_apart() -> None:
    def nameless(name: str, ends: Sequence[tuple[float, bool]]) -> Subject:
        own = timed(name, ends)
        return replace(own, trials=tuple(replace(one, pair=None) for one in own.trials))

    rows = instances([nameless("a", ENDS_A), nameless("b", ENDS_B)], 3, 0.95)
    expected = incidence_test(
        *zip(*ENDS_A, strict=True), *zip(*ENDS_B, strict=True), paired=False
    )
    assert rows[1].p_value == pytest.approx(expected.p_value, abs=0.02)


# Copies.


def copied(values: Sequence[float], seeds: Sequence[int | None]) -> Subject:
    trials = [
        TrialOutcome(trial_id=f"t{at}", pair=None, seed=seed, values={"reward": value})
        for at, (value, seed) in enumerate(zip(values, seeds, strict=True))
    ]
    return subject("a", trials=trials)


def test_a_list_that_begins_again_is_counted_once() -> None:
    four = [1.25, 2.5, 3.75, 5.0]
    kept, said = without_copies(copied(four * 2, [None] * 8))
    assert len(kept.trials) == 4
    assert said == [
        "The 8 trials of a are 2 copies of the same 4, without seeds: they are counted as 4."
    ]
    kept, said = without_copies(copied(four[:3] * 3, [None] * 9))
    assert (len(kept.trials), "3 copies of the same 3" in said[0]) == (3, True)
    eight = [at + 0.25 for at in range(8)]
    kept, said = without_copies(copied(eight * 2, range(16)))
    assert (len(kept.trials), "whatever their seeds" in said[0]) == (8, True)


def test_what_repeats_by_chance_or_by_seed_is_kept() -> None:
    for values, seeds in (
        ([1.0, 2.0] * 2, [None] * 4),
        ([1.0] * 8, [None] * 8),
        ([1.25, 2.5, 3.75] * 2, [1, 2, 3] * 2),
        ([1.25, 2.5, 3.75, 5.0] * 2, [1] * 8),
        ([1.25, 2.5, 3.75, 1.25, 2.5, 3.5], [None] * 6),
        ([1.25, 2.5, 3.75] * 2, [None] * 6),
        ([1.25, 2.5, 3.75, 5.0] * 2, range(8)),
    ):
        kept, said = without_copies(copied(values, list(seeds)))
        assert (len(kept.trials), said) == (len(values), [])


def test_the_same_trial_and_the_same_fine_time_count_once() -> None:
    one = subject("a", LOW)
    kept, said = without_copies(replace(one, trials=(*one.trials, one.trials[0])))
    assert (kept.trials, said) == (
        one.trials,
        ["1 trials of a are there twice; each counts once."],
    )
    for time, left in ((1.23456, 1), (1.2345, 2)):
        both = [trial("a", seed, reward=1.5, duration_s=time) for seed in (1, 2)]
        assert len(without_copies(subject("a", trials=both))[0].trials) == left


@pytest.mark.parametrize(
    ("times", "left"),
    [([1.23456, 1.23456, 2.34567, None], 3), ([1.23456] * 4 + [None], 2)],
)
def test_trials_without_a_time_hide_no_copies(times: list[float | None], left: int) -> None:
    trials = [
        trial("a", seed, reward=1.5, also={} if time is None else {"duration_s": time})
        for seed, time in enumerate(times)
    ]
    assert len(without_copies(subject("a", trials=trials))[0].trials) == left


def test_two_subjects_that_are_the_same_are_named() -> None:
    a = subject("a", LOW)
    assert "10 of the trials stand on both sides" in (same_trials(a, a) or "")
    alike = subject("b", LOW)
    assert "every number of both is the same" in (same_trials(a, alike) or "")
    assert same_trials(a, subject("b", [*LOW[:-1], 9.0])) is None
    assert same_trials(a, subject("b", LOW[:-1])) is None
    assert same_trials(subject("a", [1.0]), subject("b", [1.0])) is None


# Attempts.


def test_pass_at_k_is_given_up_to_the_fewest_attempts() -> None:
    def attempts(name: str, *done: str, task: str = "crafter/easy") -> Subject:
        return subject(
            name,
            trials=[
                trial(name, seed, task=task, replicate=at, success=float(mark == "x"))
                for seed, marks in enumerate(done)
                for at, mark in enumerate(marks)
            ],
        )

    rows = passes([attempts("a", "x-x", "--x", "xxx")], 3, 0.95)
    assert [(row.k, row.worlds, row.attempts) for row in rows] == [
        (1, 3, 3),
        (2, 3, 3),
        (3, 3, 3),
    ]
    assert [row.pass_any.point for row in rows] == pytest.approx(
        [2 / 3, (1 + 2 / 3 + 1) / 3, 1.0]
    )
    assert [row.pass_all.point for row in rows] == pytest.approx(
        [2 / 3, (1 / 3 + 0 + 1) / 3, 1 / 3]
    )
    assert passes([attempts("a", "x", "-x")], 3, 0.95) == ()


# Proportions of tasks.


def tasks_of(name: str, easy: Sequence[int], hard: Sequence[int]) -> Subject:
    return subject(
        name,
        trials=[
            trial(name, seed, task=task, achievements=float(seed % 5) + (task == "hard"))
            for task, seeds in (("easy", easy), ("hard", hard))
            for seed in seeds
        ],
    )


@pytest.mark.parametrize(
    ("easy", "hard", "told"), [(4, 4, False), (4, 8, True), (8, 4, True), (2, 2, False)]
)
def test_tasks_in_other_proportions_are_told_whatever_their_numbers(
    easy: int, hard: int, told: bool
) -> None:
    a = tasks_of("a", range(2), range(2))
    b = tasks_of("b", range(100, 100 + easy), range(200, 200 + hard))
    assert any("in other proportions" in note for note in compare([a, b]).notes) is told


@pytest.mark.parametrize(("more", "used"), [((4, 4), 4), ((4, 8), 0), ((8, 4), 0)])
def test_worlds_that_are_shared_in_part_are_all_used_if_tasks_are_alike(
    more: tuple[int, int], used: int
) -> None:
    shared = range(2), range(2)
    a = tasks_of("a", *([*own, *range(10, 12)] for own in shared))
    b = tasks_of(
        "b",
        *([*own, *range(20, 20 + count - 2)] for own, count in zip(shared, more, strict=True)),
    )
    assert only(a, b).units.partly_shared == used


# How a difference is counted.


def test_one_world_in_common_makes_no_pairs() -> None:
    assert not match(subject("a", [2.0]), subject("b", HIGH), "achievements").paired
    assert match(subject("a", [2.0, 3.0]), subject("b", HIGH), "achievements").paired


def test_a_chosen_method_takes_the_pairs() -> None:
    found = only(subject("a", LOW), subject("b", HIGH), method="percentile").difference
    rng = np.random.default_rng(0)
    pairs = paired_difference(LOW, HIGH, method="percentile", rng=rng)
    apart = unpaired_difference(LOW, HIGH, method="percentile", rng=rng)
    assert found.high - found.low == pytest.approx(pairs.high - pairs.low, abs=0.15)
    assert apart.high - apart.low > 1.8 * (pairs.high - pairs.low)


def test_shares_are_tested_exactly_whatever_their_spread() -> None:
    sides = [
        subject(name, trials=[trial(name, seed, success=value) for seed in range(8)])
        for name, value in (("a", 0.0), ("b", 1.0))
    ]
    tests = only(*sides, metrics=["success"]).tests
    assert tests is not None
    assert (tests.spread_known, tests.p_value) == (True, tests.t.p_value)


def test_fixed_tasks_lend_a_mean_only_the_spread_within_them() -> None:
    values = {"easy": [1.0, 2.0, 1.5, 2.5], "hard": [11.0, 12.0, 11.5, 12.5]}
    trials = [
        trial("a", seed, task=task, reward=value)
        for task, own in values.items()
        for seed, value in enumerate(own)
    ]
    fixed = mean_of(trials, "reward", 0.95, TaskRule.FIXED)
    labels = [task for task, own in values.items() for _ in own]
    expected = stratified_estimate([one.values["reward"] for one in trials], labels)
    assert fixed.point == expected.point == 6.75
    half = scipy.stats.t.ppf(0.975, expected.freedom) * expected.error
    assert (fixed.low, fixed.high) == pytest.approx((6.75 - half, 6.75 + half))


def test_values_of_worlds_of_their_own_have_the_usual_interval() -> None:
    found = mean_of_values([1.5, 2.5, 4.0, 3.0], "reward", 0.95)
    usual = t_interval([1.5, 2.5, 4.0, 3.0])
    assert (found.low, found.high) == pytest.approx((usual.low, usual.high))


def test_seeds_that_nobody_played_are_named() -> None:
    with pytest.raises(UsageError, match="a seed from 20 to 30; it has seeds 1 to 10"):
        compare([subject("a", LOW), subject("b", HIGH)], seeds=(20, 30))


def test_models_of_a_run_are_ranked_in_pairs_of_worlds() -> None:
    low = [1.0, 5.0, 9.0, 13.0, 4.0, 8.0]
    rewards = {"a": low, "b": [value + 1 + at % 2 / 2 for at, value in enumerate(low)]}
    episodes = [
        episode(model, number, reward=value)
        for model, own in rewards.items()
        for number, value in enumerate(own)
    ]
    [contrast] = rank_models(episodes)[0].contrasts
    assert (contrast.paired, contrast.n_baseline, contrast.verdict) == (True, 6, Verdict.BETTER)


def test_skewed_differences_are_told_without_a_method_that_no_option_chooses() -> None:
    high = [
        value + gap for value, gap in zip(LOW, [1, 1, 1, 1, 1, 1, 1, 1, 1, 15], strict=True)
    ]
    told = only(subject("a", LOW), subject("b", high)).skewness
    assert told == (skewness_note([*[1.0] * 9, 15.0]) or "").partition("; method")[0] != ""


def test_versions_are_compared_with_the_first_and_looks_of_a_merged_one_are_gone() -> None:
    first = subject("e1", LOW, version="v1")
    looks = [look("e1", "better")]
    more = subject("e3", HIGH, first_seed=40, version="v2", run_id="r")
    second = subject("e2", HIGH, version="v2", looks=looks, run_id="r")
    alone = over_time([first, second])
    assert alone.setup.baseline == "e1"
    changes = [found.rows[1].change for found in (alone, over_time([first, second, more]))]
    assert [change is not None and change.look is not None for change in changes] == [
        True,
        False,
    ]
