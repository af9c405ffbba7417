"""No verdict where even the exact test of the most extreme data could not reject."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from assay.judge.comparison import compare
from assay.types import Verdict
from tests.training.made import level_of, make_run, store_with

from .subjects import command, subject, trial

GAPS = [2.0, 2.1, 1.9, 2.05, 2.2, 1.95, 2.15]


def pairs(n: int, names: Sequence[str] = "ab", *, paired: bool = True) -> list:
    return [
        subject(
            name,
            trials=[
                trial(name, at if paired else 100 * place + at, reward=at + place * GAPS[at])
                for at in range(n)
            ],
        )
        for place, name in enumerate(names)
    ]


def test_two_pairs_never_say_yes(tmp_path: Path) -> None:
    files = []
    for name, up in (("a", 0.0), ("b", 1.0)):
        file = tmp_path / f"{name}.json"
        about = {"name": name, "seeds": [1, 2], "metrics": {"reward": [1 + up, 2.01 + up]}}
        file.write_text(json.dumps(about))
        files.append(str(file))
    said = command("compare", "--baseline", files[0], "--improved", files[1])
    assert "Too few pairs for a verdict (2; at least 6)." in said
    assert "b: too few pairs. Difference in reward +1.00" in said
    assert "Yes" not in said
    assert "Effect size" not in said


@pytest.mark.parametrize(
    ("alpha", "paired", "fewest"), [(0.05, True, 6), (0.01, True, 8), (0.05, False, 4)]
)
def test_the_fewest_are_those_of_the_exact_test(
    alpha: float, paired: bool, fewest: int
) -> None:
    [found] = compare(pairs(3, paired=paired), level=1 - alpha).decisive
    assert found.fewest == fewest


def test_five_pairs_have_a_difference_an_interval_and_an_effect_size() -> None:
    from assay.report.comparison.sentences import answer_questions

    found = compare(pairs(5))
    first, much, sure, _ = (answer for _, answer in answer_questions(found, found.decisive[0]))
    assert first == "Too few pairs for a verdict (5; at least 6)."
    assert "Effect size: +" in much
    assert sure.startswith(
        "Assuming normal differences, the 95 % interval of the difference is"
    )
    assert compare(pairs(6)).decisive[0].verdict is Verdict.BETTER


def test_the_correction_for_several_candidates_takes_more_pairs() -> None:
    assert {c.fewest for c in compare(pairs(6, "abc")).decisive} == {7}
    assert {c.fewest for c in compare(pairs(7, "abc")).decisive} == {None}
    assert compare(pairs(6), level=0.99).decisive[0].fewest == 8


def test_two_groups_of_three_have_no_verdict() -> None:
    [few] = compare(pairs(3, paired=False)).decisive
    assert few.too_few == "Too few trials for a verdict (3 and 3; at least 4 each)"
    assert compare(pairs(4, paired=False)).decisive[0].fewest is None


@pytest.mark.parametrize("method", ["t", "percentile", "bca", "studentised"])
def test_no_method_of_an_analysis_decides_five_pairs(tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(11)
    runs = []
    for seed in range(5):
        level = level_of(seed)
        gain = 0.3 + 0.1 * float(rng.normal())
        runs.append(make_run(f"old{seed}", seed, level, series="old"))
        runs.append(make_run(f"new{seed}", seed, level + gain, series="new"))
    store_with(tmp_path / "t.duckdb", runs)
    said = command(
        "analysis",
        "--database",
        str(tmp_path / "t.duckdb"),
        "--bootstrap.method",
        method,
        *("--control", "old", "--candidate", "new", "--pair-by-seed"),
    )
    assert "Too few pairs for a verdict (5; at least 6): +0." in said
    assert "The candidate is higher" not in said
