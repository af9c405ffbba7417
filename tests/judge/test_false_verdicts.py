"""No sentence is wrong because of how the data came about; docs/design/verdicts.md lists them.

Each test makes a comparison that once said something false, and reads what it says now.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay.api.comparison import read_experiments, read_results, register_comparison_plan
from assay.api.training_runs import analysis
from assay.core.settings import to_stored
from assay.crafter.difficulty import DIFFICULTIES
from assay.errors import UsageError
from assay.judge.comparison import compare
from assay.judge.results import Comparison
from assay.judge.subjects import Subject
from assay.judge.versions import over_time
from assay.report import numbers
from assay.report.comparison.document import comparison_document
from assay.report.comparison.sentences import answer_questions, verdict_word
from assay.report.over_time import over_time_document
from assay.report.terminal import TerminalReport, render_text
from assay.stats.intervals import Interval
from assay.types import TrialState, Verdict

from .subjects import look, subject, trial

LOW = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
HIGH = [4.0, 5, 4, 6, 3, 6, 7, 5, 5, 6]
TWENTY: dict[str, Any] = {"max_turns": 20, "agent": {"temperature": 0.0}, "difficulty": {}}


def said(comparison: Comparison) -> list[str]:
    [contrast] = comparison.decisive
    return [answer for _, answer in answer_questions(comparison, contrast)]


def page(comparison: Comparison) -> str:
    return " ".join(render_text(TerminalReport(comparison_document(comparison)), 100).split())


def results(path: Path, achievements: Sequence[float | None], **entry: Any) -> str:
    """A results file with one model, and the option that names it."""
    about = {"name": path.stem, "seeds": list(range(42, 42 + len(achievements)))}
    path.write_text(
        json.dumps({**about, "metrics": {"achievements": list(achievements)}, **entry})
    )
    return str(path)


# D1: settings are compared before numbers.


def test_other_limits_forbid_a_verdict_unless_they_are_what_is_compared() -> None:
    sixty = {**TWENTY, "max_turns": 60}
    both = [subject("a", LOW, facts=TWENTY), subject("b", HIGH, facts=sixty)]
    found = compare(both)
    assert found.decisive[0].verdict is Verdict.UNKNOWN
    first, *_, settle = said(found)
    assert first.startswith("Not comparable: max_turns is 20 for a and 60 for b.")
    assert "--allow-different max_turns" in settle
    allowed = compare(both, allow_different=["max_turns"])
    assert allowed.decisive[0].verdict is Verdict.BETTER
    assert "where max_turns is 20 for a and 60 for b" in said(allowed)[0]
    with pytest.raises(UsageError, match="unknown setting of the task 'max_truns'"):
        compare(both, allow_different=["max_truns"])


def test_settings_within_a_table_of_a_file_are_of_the_task_too() -> None:
    own = [
        subject(name, values, facts={"config": {"max_turns": turns}})
        for name, values, turns in (("a", LOW, 20), ("b", HIGH, 60))
    ]
    assert said(compare(own))[0].startswith(
        "Not comparable: max_turns is 20 for a and 60 for b"
    )


def test_what_differs_on_the_side_of_the_subject_is_listed_and_judged() -> None:
    warm = {**TWENTY, "agent": {"temperature": 0.7}}
    both = [
        subject("a", LOW, facts=TWENTY, model="small", commit="c0ffee"),
        subject("b", HIGH, facts=warm, model="large", commit="beef"),
    ]
    found = compare(both)
    assert found.decisive[0].verdict is Verdict.BETTER
    text = page(found)
    assert "model: small -> large; commit: c0ffee -> beef; temperature: 0.0 -> 0.7" in text


def test_versions_of_other_difficulty_are_not_called_worse_over_time() -> None:
    hard = [
        trial("h", seed, task="crafter/hard", achievements=value)
        for seed, value in enumerate(LOW)
    ]
    series = over_time(
        [
            subject("e", HIGH, version="v1.0", series="s"),
            subject("h", trials=hard, version="v1.1", series="s"),
        ]
    )
    change = series.rows[1].change
    assert change is not None
    assert (change.verdict, verdict_word(change)) == (Verdict.UNKNOWN, "not comparable")
    text = " ".join(render_text(TerminalReport(over_time_document(series)), 100).split())
    assert "v1.1 has a different task from the previous version (difficulty)" in text


def test_arms_of_an_analysis_with_another_curriculum_are_not_compared(tmp_path: Path) -> None:
    names = []
    for arm, curriculum in (("control", "none"), ("candidate", "staged")):
        for seed in (1, 2, 3):
            path = tmp_path / f"{arm}{seed}.json"
            values = [{"step": at, "r": at / 7 + seed / 9} for at in range(5)]
            path.write_text(
                json.dumps(
                    {
                        "seed": seed,
                        "configuration": {"curriculum": curriculum},
                        "points": values,
                    }
                )
            )
            names.append(str(path))
    found, _ = analysis(control=names[:3], candidate=names[3:], metric="r")
    assert found.verdict is Verdict.UNKNOWN
    assert found.sentence.startswith("Not comparable: curriculum is none for the control")
    allowed, _ = analysis(
        control=names[:3], candidate=names[3:], metric="r", allow_different=["curriculum"]
    )
    assert not allowed.sentence.startswith("Not comparable")


def test_arms_of_an_analysis_with_other_steps_are_not_compared(tmp_path: Path) -> None:
    def arm(name: str, *ends: int) -> list[str]:
        """Runs of 100 steps, as they say; the metric of each has its last point at an end."""
        files = [tmp_path / f"{name}{seed}.json" for seed in range(len(ends))]
        for seed, (file, end) in enumerate(zip(files, ends, strict=True)):
            points = [{"step": at, "r": at / 7 + seed / 9} for at in range(0, end + 1, 10)]
            whole = {"seed": seed, "configuration": {"total_steps": 100}, "points": points}
            file.write_text(json.dumps(whole))
        return [str(file) for file in files]

    control = arm("control", 100, 100, 100)
    shorter, _ = analysis(control=control, candidate=arm("short", 50, 50, 50), metric="r")
    assert shorter.sentence.startswith("Not comparable: total_steps is 100 for the control, 50")
    late, _ = analysis(control=control, candidate=arm("late", 100, 90, 100), metric="r")
    assert not late.sentence.startswith("Not comparable")


def test_settings_that_one_side_did_not_record_are_said_to_be_unknown() -> None:
    found = compare([subject("a", LOW, facts=TWENTY), subject("b", HIGH)])
    assert "The settings of b are not recorded" in page(found)
    assert "Nothing says that both were given the same task." in said(found)[3]


# D2: a world is a task and a seed, in files too.


def test_results_files_do_not_pair_worlds_of_other_difficulty(tmp_path: Path) -> None:
    files = [
        results(tmp_path / f"{name}.json", LOW, episodes=[{"difficulty": name}] * len(LOW))
        for name in ("easy", "hard")
    ]
    found = compare(read_results(*files))
    assert not found.decisive[0].paired
    assert said(found)[0].startswith("Not comparable: difficulty is easy for easy and hard")


# D3 and D4: shares.


def successes(*counts: tuple[int, int]) -> list[Subject]:
    return [
        subject(
            name,
            trials=[trial(name, seed, success=float(seed < won)) for seed in range(n)],
        )
        for name, (won, n) in zip("ab", counts, strict=True)
    ]


def test_five_equal_successes_do_not_show_that_nothing_matters() -> None:
    own = {"duration_s": 1.0}
    both = [
        subject(
            name,
            trials=[
                trial(name, seed, success=1.0, also=own if name == "a" else {})
                for seed in range(5)
            ],
        )
        for name in "ab"
    ]
    found = compare(both, metrics=["success"], min_effect=0.05).decisive[0]
    assert found.verdict is Verdict.UNDECIDED
    assert found.tests is not None
    assert found.tests.equivalence_p is not None
    assert found.tests.equivalence_p > 0.05


@pytest.mark.extras
def test_equivalence_of_shares_keeps_its_level_where_the_difference_is_the_margin() -> None:
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(200):
        lost = rng.random(15) < 0.2
        b = subject(
            "b", trials=[trial("b", at, success=float(not no)) for at, no in enumerate(lost)]
        )
        a = subject("a", trials=[trial("a", at, success=1.0, duration_s=1) for at in range(15)])
        [found] = compare([a, b], metrics=["success"], min_effect=0.2).decisive
        wrong += found.verdict is Verdict.NO_DIFFERENCE
    assert wrong <= 20


def test_a_few_equal_counts_do_not_show_that_nothing_matters() -> None:
    """A tenth of an achievement is one in ten worlds, which five worlds may well not show."""
    own = {"reward": 1.0}
    few = [subject("a", [3.0] * 5), subject("b", [3.0] * 5, extra=own)]
    [found] = compare(few, metrics=["achievements"], min_effect=0.1).decisive
    assert found.verdict is Verdict.UNDECIDED
    many = [subject("a", [3.0] * 60), subject("b", [3.0] * 60, extra=own)]
    [shown] = compare(many, metrics=["achievements"], min_effect=2).decisive
    assert shown.verdict is Verdict.NO_DIFFERENCE


def test_no_interval_of_a_share_is_without_width_or_outside_of_what_is_possible() -> None:
    found = compare(successes((0, 5), (5, 5)), metrics=["success"])
    [contrast] = found.decisive
    for interval in (contrast.mean_baseline, contrast.mean_candidate, contrast.difference):
        assert interval.low < interval.high
        assert interval.low >= -1
        assert interval.high <= 1
    assert contrast.tests is not None
    assert contrast.tests.t.name == "McNemar's exact test"
    rows = {row.subject: row.success for row in found.instances}
    assert rows["a"] == contrast.mean_baseline
    assert rows["a"].high == pytest.approx(1 - 0.025 ** (1 / 5))


def test_counts_keep_within_their_bounds() -> None:
    found = compare([subject("a", [0.0, 0, 3]), subject("b", [22.0, 22, 19])]).decisive[0]
    assert found.mean_baseline.low == 0
    assert found.mean_candidate.high == 22
    assert found.difference.low >= -22
    assert found.difference.high <= 22


def test_equal_values_have_no_interval_of_no_width() -> None:
    both = [
        subject(name, trials=[trial(name, at, speed=value) for at in range(8)])
        for name, value in (("a", 2.5), ("b", 3.5))
    ]
    found = compare(both)
    [contrast] = found.decisive
    for interval in (contrast.mean_baseline, contrast.difference):
        assert not interval.known
    assert "All differences are equal, so their spread is not known" in said(found)[2]
    assert "interval" not in said(found)[2]


def test_what_is_too_large_to_add_up_is_refused_before_anything_overflows() -> None:
    big = [
        subject(name, trials=[trial(name, at, x=1e308 + at) for at in range(4)])
        for name in "ab"
    ]
    with pytest.raises(UsageError, match=r"a value of size 1e\+308 is too large to compare"):
        compare(big)


# D5: a plan speaks of new worlds, and names them.


def test_a_plan_names_the_next_unplayed_seeds_and_they_are_judged_alone() -> None:
    mixed = [value + gap for value, gap in zip(LOW, [2, -1] * 5, strict=True)]
    config = {**TWENTY, "max_turns": 60, "difficulty": to_stored(DIFFICULTIES["hard"])}
    both = [
        subject("a", LOW, facts=config, model="builtin/noop"),
        subject("b", mixed, facts=config, model="builtin/random"),
    ]
    found = compare(both)
    [contrast] = found.decisive
    assert contrast.settle is not None
    count = contrast.settle.trials
    settle = said(found)[3]
    assert f"About {count:,} new pairs" in settle
    assert (
        f"'assay run --models builtin/noop builtin/random --seed 11 --episodes {count}"
        " --no-baselines --max-turns 60 --difficulty hard'" in settle
    )
    assert f"'assay compare latest --seeds 11-{10 + count}'" in settle
    later = [
        replace(own, trials=(*own.trials, *subject(own.name, HIGH, first_seed=11).trials))
        for own in both
    ]
    alone = compare(later, seeds=(11, 20)).decisive[0]
    assert [row.pair for row in alone.pairs] == [
        f"crafter/easy {seed}" for seed in range(11, 21)
    ]
    with pytest.raises(UsageError, match="it has seeds 1 to 20"):
        compare(later, seeds=(99, 100))


# D6: who loses the harder worlds looks better.


def test_lost_trials_are_said_with_their_bounds_and_settle_nothing() -> None:
    rng = np.random.default_rng(3)
    ease = rng.normal(6, 3, 60)
    a = [float(np.clip(round(value), 0, 22)) for value in ease]
    kept = set(np.argsort(-ease)[:25].tolist())
    b = [
        trial("b", seed, achievements=a[seed - 1] + (2.0 if seed % 3 else 1.0))
        if seed - 1 in kept
        else trial("b", seed, state=TrialState.INFRASTRUCTURE)
        for seed in range(1, 61)
    ]
    found = compare([subject("a", a), subject("b", trials=b)])
    [contrast] = found.decisive
    assert contrast.verdict is Verdict.UNKNOWN
    lost = contrast.losses
    assert lost is not None
    assert (lost.candidate, lost.of_candidate, lost.baseline) == (35, 60, 0)
    assert lost.lowest.point < 0 < lost.highest.point
    assert not lost.holds
    first, *_, settle = said(found)
    assert first.startswith(
        "Could not be judged: 35 of 60 trials of b and 0 of 60 of a have no achievements."
        " Depending on their values, the difference is -"
    )
    assert settle.startswith("Run the lost trials again")


def test_lost_trials_of_both_sides_count_however_few_they_are() -> None:
    lost = trial("b", 99, state=TrialState.INFRASTRUCTURE)
    gone = trial("a", 99, state=TrialState.INFRASTRUCTURE)
    both = [
        subject("a", LOW * 2 + [1], trials=[gone]),
        subject("b", HIGH * 2 + [3], trials=[lost]),
    ]
    [contrast] = compare(both).decisive
    assert (contrast.withheld, contrast.verdict) == (True, Verdict.UNKNOWN)
    most = [subject("a", LOW * 2 + [1]), subject("b", HIGH * 2 + [3], trials=[lost])]
    assert compare(most).decisive[0].losses is not None


def test_worlds_that_one_side_lacks_do_not_make_it_better() -> None:
    """Whoever has only shared worlds is compared with its partners: it may have lost others."""
    rng = np.random.default_rng(1)
    ease = rng.normal(6, 3, 60).round().clip(0)
    best = np.argsort(-ease)[:25].tolist()
    a = subject("a", ease.tolist())
    b = [trial("b", at + 1, achievements=ease[at] - at % 2) for at in best]
    [contrast] = compare([a, subject("b", trials=b)]).decisive
    assert (contrast.paired, contrast.n_baseline) == (True, 25)
    assert contrast.verdict is Verdict.WORSE
    some = [trial("b", at + 1, achievements=ease[at] + 1) for at in range(25)]
    assert compare([a, subject("b", trials=some)]).decisive[0].paired
    own = [trial("b", 100 + at, achievements=6.0 + at % 3) for at in range(5)]
    [hidden] = compare([a, subject("b", trials=[*b, *own])]).decisive
    assert hidden.paired
    assert hidden.verdict is Verdict.WORSE


# D7: death is an end, and the time is that of the event.


def test_forty_percent_of_success_have_no_median_time(tmp_path: Path) -> None:
    file = tmp_path / "km.json"
    entry = {
        "achievements": [0] * 6 + [4] * 4,
        "instances": ["world"] * 10,
        "durations": [1.0] * 6 + [10.0] * 4,
        "success": [False] * 6 + [True] * 4,
    }
    entries = [{"name": name, **entry} for name in "ab"]
    entries[1]["durations"] = [2.0] * 6 + [9.0] * 4
    file.write_text(json.dumps({"experiments": entries}))
    row = compare(read_experiments(file)).instances[0]
    assert (row.successes, row.n, row.median_time) == (4, 10, None)
    assert row.mean_time is not None
    assert row.mean_time.point == pytest.approx(10)


def test_time_to_success_is_that_of_the_step_that_made_it_one() -> None:
    def played(name: str, steps: tuple[int, ...]) -> Subject:
        own = [
            replace(
                trial(name, seed, achievements=len(steps), steps=500),
                unlock_steps=tuple(step + seed for step in steps),
            )
            for seed in range(6)
        ]
        return subject(name, trials=own)

    fast, slow = compare(
        [played("a", (5, 9, 20, 30)), played("b", (50, 90, 200, 300))]
    ).instances
    assert (fast.unit, fast.median_time, slow.median_time) == ("steps", 22, 202)
    assert slow.p_value is not None
    assert slow.p_value < 0.05


# D8: two shared seeds do not throw away the rest.


def test_all_worlds_are_used_where_few_are_shared() -> None:
    rng = np.random.default_rng(8)
    a = rng.normal(0, 1, 60).tolist()
    b = rng.normal(0.8, 1, 60).tolist()
    found = compare([subject("a", a), subject("b", b, first_seed=59)])
    [contrast] = found.decisive
    assert (contrast.n_baseline, contrast.n_candidate) == (60, 60)
    assert contrast.units.partly_shared == 2
    assert contrast.verdict is Verdict.BETTER
    assert "60 against 60 worlds, 2 worlds in common" in said(found)[0]
    few = compare([subject("a", [2.0, 3.0, 9.0]), subject("b", [4.0, 5.1, 9.0], first_seed=2)])
    assert few.decisive[0].verdict is Verdict.UNDECIDED


def test_all_worlds_are_used_where_several_tasks_have_them_in_equal_proportions() -> None:
    rng = np.random.default_rng(2)

    def played(name: str, up: float, counts: dict[str, range]) -> Subject:
        own = [
            trial(name, seed, task=task, reward=float(rng.normal(up)))
            for task, seeds in counts.items()
            for seed in seeds
        ]
        return subject(name, trials=own)

    one = played("a", 0.0, {"x": range(20), "y": range(20)})
    other = played("b", 1.5, {"x": range(19, 39), "y": range(19, 39)})
    [contrast] = compare([one, other]).decisive
    assert (contrast.n_baseline, contrast.units.partly_shared) == (40, 2)
    assert contrast.verdict is Verdict.BETTER
    uneven = played("b", 1.5, {"x": range(19, 39), "y": range(18, 22)})
    [pairs] = compare([one, uneven]).decisive
    assert (pairs.paired, pairs.n_baseline) == (True, 3)


# D9: looks are not lost in files.


def decided_run() -> list[Subject]:
    config = {
        **TWENTY,
        "models": ["a", "b"],
        "until_decided": "achievements",
        "episodes": 30,
        "seed": 1,
        "min_effect": None,
    }
    about: dict[str, Any] = {"facts": config, "run_id": "r"}
    return [subject("a", LOW, model="a", **about), subject("b", HIGH, model="b", **about)]


def test_a_file_of_a_run_that_stopped_when_decided_keeps_its_looks(tmp_path: Path) -> None:
    stored = compare(decided_run()).decisive[0]
    assert stored.look is not None
    assert stored.look.decision == "better"
    assert stored.difference.half_width > stored.naive.half_width
    from assay.store.experiments_file import write_experiments_file

    write_experiments_file(tmp_path / "e.json", decided_run())
    exported = compare(read_experiments(tmp_path / "e.json")).decisive[0]
    assert exported.difference == stored.difference
    file = tmp_path / "run.json"
    config = dict(decided_run()[0].facts)
    models = {
        own.name: {
            "name": own.name,
            "seeds": [one.seed for one in own.trials],
            "metrics": {"achievements": [one.values["achievements"] for one in own.trials]},
        }
        for own in decided_run()
    }
    file.write_text(
        json.dumps(
            {
                "format": "assay-results/1",
                "run": {"id": "r"},
                "config": config,
                "models": models,
            }
        )
    )
    read = compare(read_results(f"{file}#a", f"{file}#b")).decisive[0]
    assert read.difference == stored.difference
    assert read.look is not None


def test_looks_hold_over_time_and_are_told_of_in_other_metrics_and_turned_around() -> None:
    series = [
        replace(own, series="s", version=f"v1.{at}") for at, own in enumerate(decided_run())
    ]
    change = over_time(series).rows[1].change
    assert change is not None
    assert change.look is not None
    reward = [
        subject(name, trials=[trial(name, at, reward=value) for at, value in enumerate(own)])
        for name, own in (("a", LOW), ("b", HIGH))
    ]
    looked = replace(reward[1], looks=(look("a", "better"),))
    for both in ([reward[0], looked], [looked, reward[0]]):
        found = compare(both)
        assert any("b stopped by looks at another" in note for note in found.notes)
        assert "A run stopped by looks at another comparison" in said(found)[3]


# D10: replicates of a world count once.


def test_replicates_of_a_world_count_once_in_shares_and_scores(tmp_path: Path) -> None:
    unlocked = {f"unlocked/{name}": 1.0 for name in _achievements()}

    def plays(name: str, times: int) -> Subject:
        own = [
            trial(name, seed, replicate=at, achievements=5.0 + seed, also=unlocked)
            for seed in range(5)
            for at in range(times)
        ]
        return subject(name, trials=own)

    found = compare([plays("a", 10), plays("b", 1)])
    many = found.instances[0]
    assert (many.n, many.successes) == (50, 50)
    assert many.success.low < 0.9
    scores = {row.subject: row.interval for row in found.scores}
    assert scores["a"].low == pytest.approx(scores["b"].low, abs=2)


def _achievements() -> tuple[str, ...]:
    from assay.crafter.rules import ACHIEVEMENTS

    return ACHIEVEMENTS


# D11: one interval of the score, wide enough, and a difference of two.


def test_the_score_of_run_and_compare_is_one_and_two_have_a_difference() -> None:
    from assay.report.run_summary import summarize
    from tests.report.rows import episode

    names = _achievements()
    rows = [
        episode("m", seed, achievements=dict.fromkeys(names[: 3 + seed % 4], 1))
        for seed in range(8)
    ]
    [summary] = summarize(rows, {"m": 8})
    trials = [
        trial(
            "m",
            row.seed,
            task=str(row.difficulty),
            achievements=float(len(row.achievements)),
            also={f"unlocked/{name}": float(name in row.achievements) for name in names},
        )
        for row in rows
    ]
    other = [
        replace(one, trial_id=f"o {one.seed}", seed=(one.seed or 0) + 50) for one in trials
    ]
    found = compare([subject("m", trials=trials), subject("o", trials=other)])
    assert found.scores[0].interval == summary.score_interval
    [gap] = found.score_gaps
    assert gap.interval.low < 0 < gap.interval.high
    assert "Difference in Crafter score from m" in page(found)


# D12: pairing hurts only where the interval of the correlation says so.


def test_a_few_pairs_are_not_told_that_pairing_hurts() -> None:
    against = sorted(LOW, reverse=True)
    few = compare([subject("a", [1.0, 2, 3, 4, 5]), subject("b", [5.0, 3, 4, 1, 2.5])])
    assert "Pairing hurts" not in page(few)
    many = compare([subject("a", sorted(LOW)), subject("b", against)])
    assert "Pairing hurts here (correlation -0.9" in page(many)


# D13: nothing is settled that was chosen by its result.


def test_a_plain_verdict_says_on_what_it_counts_and_settles_nothing() -> None:
    metrics = {f"m{at}": float(at) for at in range(100)}
    both = [subject(name, own, extra=metrics) for name, own in (("a", LOW), ("b", HIGH))]
    settle = said(compare(both, metrics=["achievements"]))[3]
    assert settle.startswith(
        "It is decided at the 95 % level, provided that achievements (one of 101 metrics here)"
        " and these trials were chosen before anybody saw a result. Where there is no"
        " real difference, 1 in 20 comparisons still finds one."
    )
    for text in (settle, page(compare(both, metrics=["achievements"]))):
        assert "ettled" not in text
        assert "Nothing more is needed" not in text
    looked = [both[0], replace(both[1], looks=(look("a", "better"),))]
    assert said(compare(looked))[3].startswith("Settled at the 95 % level: the run was set up")


# D14: no advice names what is not there.


def test_the_note_on_skewness_names_no_method_that_no_option_chooses() -> None:
    gaps = [0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 0.2, 0.1, 0.3, 9.0]
    skewed = [value + gap for value, gap in zip(LOW, gaps, strict=True)]
    sure = said(compare([subject("a", LOW), subject("b", skewed)]))[2]
    assert "are skewed" in sure
    assert "at a level of about 95 %" in sure
    assert "held the truth in 82 to 93 % of cases" in sure
    assert "studentised" not in sure


# D15: rounding claims nothing.


def test_a_bound_below_zero_keeps_its_sign_and_a_share_below_one_is_not_all() -> None:
    interval = Interval(0.02, -0.00034, 0.04)
    assert numbers.mean_cell("invalid_rate", interval, signed=True).detail == "[-0.0%, +4.0%]"
    assert numbers.format_difference("reward", -0.0004, like=1.0) == "-0.00"
    assert numbers.format_relative_change(-0.0003) == "-0.0 %"
    assert numbers.share_text(0.9967) == "> 99"
    assert numbers.share_cell(Interval(1.0, 0.931, 1.0)).detail == "[93, 100]"
    assert numbers.p_text(0.0497) == "p = 0.0497"


# D16: copies are named, and pairs by place too.


def test_ten_copies_of_five_trials_are_five(tmp_path: Path) -> None:
    file = tmp_path / "copies.json"
    entries = [
        {"name": name, "achievements": own * 10, "instances": ["w"] * 50}
        for name, own in (("a", [1, 4, 2, 5, 3]), ("b", [2, 5, 4, 6, 3]))
    ]
    file.write_text(json.dumps({"experiments": entries}))
    found = compare(read_experiments(file))
    assert found.decisive[0].n_baseline == 5
    text = page(found)
    assert "The 50 trials of a are 10 copies of the same 5" in text
    assert "have no seeds: the first trial on an instance is paired with the first" in text


def test_copies_under_seeds_of_their_own_are_named_and_what_a_task_always_gives_is_not() -> (
    None
):
    own = [subject(name, values * 8) for name, values in (("a", LOW), ("b", HIGH))]
    found = compare(own)
    assert found.decisive[0].n_baseline == len(LOW)
    assert "are 8 copies of the same 10, whatever their seeds" in found.notes[0]
    sure = [
        trial("c", seed, task=task, achievements=value)
        for seed in range(9)
        for task, value in (("x", 1.0), ("y", 4.0), ("z", 2.0))
    ]
    assert compare([subject("c", trials=sure), subject("b", HIGH)]).subjects[0].results == 27
    assert compare(successes((2, 6), (3, 6)), metrics=["success"]).subjects[0].results == 6


def test_a_file_beside_its_copy_is_the_same(tmp_path: Path) -> None:
    files = [results(tmp_path / f"{name}.json", LOW) for name in ("one", "two")]
    found = compare(read_results(*files), min_effect=1)
    assert found.decisive[0].verdict is Verdict.UNDECIDED
    assert said(found)[0].startswith("The same: every number of both is the same")
    twice = compare([subject("a", LOW), replace(subject("a", LOW), id="b", name="b")])
    assert "10 of the trials stand on both sides: they are the same ones" in said(twice)[0]


def test_a_trial_under_another_seed_that_took_the_same_microseconds_is_a_copy() -> None:
    own = [
        trial("a", seed, achievements=value, duration_s=0.0123456 + value)
        for seed, value in enumerate([1.0, 2, 3, 1, 2, 3])
    ]
    found = compare([subject("a", trials=own), subject("b", HIGH)], metrics=["achievements"])
    assert found.subjects[0].results == 3
    assert any(
        "are equal to the last digit to one under another seed" in n for n in found.notes
    )


def test_curves_that_are_copies_under_other_seeds_are_named(tmp_path: Path) -> None:
    names = []
    for at, shift in enumerate((0.1, 0.2, 0.2, 0.5, 0.6, 0.7)):
        path = tmp_path / f"r{at}.json"
        points = [{"step": step, "r": step / 7 + shift} for step in range(5)]
        path.write_text(json.dumps({"seed": at, "points": points}))
        names.append(str(path))
    found, _ = analysis(control=names[:3], candidate=names[3:], metric="r")
    assert found.verdict is Verdict.UNKNOWN
    assert f"{names[2]} is a copy of {names[1]}" in found.sentence


# D19: one family on a page.


def test_answers_and_all_pairs_share_one_correction() -> None:
    rng = np.random.default_rng(1)
    found = compare([subject(name, rng.normal(0, 1, 12).tolist()) for name in "abcdef"])
    assert found.standings is not None
    assert found.family == len(found.standings.pairs) == 15
    adjusted = {
        (pair.baseline, pair.candidate): pair.tests.p_adjusted
        for pair in found.standings.pairs
        if pair.tests
    }
    for contrast in found.decisive:
        assert contrast.tests is not None
        assert contrast.tests.p_adjusted == adjusted[contrast.baseline, contrast.candidate]


# D20: what a metric leaves out is said.


def test_a_metric_that_some_episodes_lack_says_what_it_conditions_on() -> None:
    own = [
        trial(name, seed, achievements=1.0, also={"speed": seed / 10} if seed % 2 else {})
        for name in "ab"
        for seed in range(8)
    ]
    both = [subject("a", trials=own[:8]), subject("b", trials=own[8:])]
    assert "speed is missing in some trials that completed" in page(
        compare(both, metrics=["speed"])
    )
    assert math.isfinite(compare(both, metrics=["speed"]).decisive[0].difference.point)


# What was planned before is settled; the rest is not.


def test_only_what_kept_to_a_plan_registered_before_is_settled(tmp_path: Path) -> None:
    from tests.store.sessions import START, make_run, make_sessions
    from tests.store.stores import fill

    store, plan = tmp_path / "t.duckdb", tmp_path / "plan.toml"
    plan.write_text('metric = "reward"\nn = 5\n')
    early = make_run("early", ("a", "b"), created_at=START)
    fill(store, early, make_sessions(early, 5))
    names = ("a v1.0", "b v1.0")
    unknown = assay.compare(*names, database=store, plan=plan)
    assert not unknown.planned
    assert unknown.notes[0].startswith("Deviation from the plan: the plan was never registered")
    kept, first = register_comparison_plan(plan, database=store)
    assert first
    assert len(kept.seen) == 2
    before = assay.compare(*names, database=store, plan=plan)
    assert "2 of the experiments were in the store when the plan was" in before.notes[0]
    later = make_run("later", ("a", "b"), fingerprint="f2", created_at=START + 3600)
    fill(store, later, make_sessions(later, 5))
    after = assay.compare("later", database=store, plan=plan)
    assert after.planned
    assert (after.setup.primary, after.notes[0]) == (
        "reward",
        f"It kept to its plan, {kept.hash}.",
    )
    short = assay.compare("later", database=store, plan=plan, seeds=(42, 44), level=0.9)
    assert [note for note in short.notes if note.startswith("Deviation")][:2] == [
        "Deviation from the plan: level: the plan says 0.95, the comparison did 0.9.",
        "Deviation from the plan: n: the plan says 5, there are 3.",
    ]


def test_a_planned_verdict_is_settled_and_a_more_sensitive_metric_is_named() -> None:
    finer = [subject(name, own) for name, own in (("a", LOW), ("b", HIGH))]
    planned = replace(compare(finer), planned=True)
    assert said(planned)[3].startswith("Settled at the 95 % level: it was planned before")
    both = [
        subject(
            name,
            trials=[
                trial(
                    name,
                    at,
                    achievements=value,
                    also={"time_management": value / 30 + at % 2 / 99},
                )
                for at, value in enumerate(own)
            ],
        )
        for name, own in (("a", LOW), ("b", [4.0, 2, 3, 6, 3, 6, 4, 5, 5, 3]))
    ]
    slow = [
        replace(one, values={**one.values, "time_management": 0.1 + at / 999})
        for at, one in enumerate(both[0].trials)
    ]
    fast = [
        replace(one, values={**one.values, "time_management": 0.2 + at / 888})
        for at, one in enumerate(both[1].trials)
    ]
    found = compare(
        [replace(both[0], trials=tuple(slow)), replace(both[1], trials=tuple(fast))]
    )
    assert "The most sensitive here is time_management: about" in page(found)
    assert "Choose it before the next trials, not for these." in page(found)


def test_every_test_that_the_page_of_verdicts_names_is_there() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(test_\w+)`", (root / "docs/design/verdicts.md").read_text("utf-8"))
    assert len(named) > 20
    tests = "".join(
        path.read_text("utf-8")
        for folder in ("judge", "stats", "training")
        for path in (root / "tests" / folder).glob("test_*.py")
    )
    assert [name for name in named if f"def {name}(" not in tests] == []
