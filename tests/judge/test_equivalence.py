"""Data that show no difference are no proof that none matters."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.judge.comparison import compare
from assay.stats.sequential import SequentialDesign, decide, looks
from assay.types import Verdict

from .subjects import command, subject, trial


def files(folder: Path, gaps: list[float], metric: str = "reward", **more: object) -> list[str]:
    found = []
    for name, up in (("a", 0.0), ("b", 1.0)):
        file = folder / f"{name}.json"
        values = [0.1 + at * 0.37 % 0.7 + up * gap for at, gap in enumerate(gaps)]
        about = {"name": name, "seeds": [*range(len(gaps))], "metrics": {metric: values}}
        file.write_text(json.dumps({**about, **more}))
        found.append(str(file))
    return ["--baseline", found[0], "--improved", found[1]]


SMALL = [0.01 * (-1) ** at for at in range(15)]


def test_fifteen_pairs_without_a_gain_do_not_show_that_none_matters(tmp_path: Path) -> None:
    said = command("compare", *files(tmp_path, SMALL), "--min-effect", "0.5")
    assert "b: undecided" in said
    assert "cannot be shown with 15 pairs; about 20 pairs would." in said
    assert "no difference that matters" not in said


def test_without_a_range_it_is_assumed_that_nothing_rarer_is_larger(tmp_path: Path) -> None:
    said = command("compare", *files(tmp_path, SMALL * 2), "--min-effect", "0.5")
    assert "b: no difference that matters" in said
    assert "assuming no rarer, larger differences" in said
    assert "1 in 20 comparisons of normal values calls it none; of skewed values" in said
    assert "still finds one" not in said


def test_a_range_takes_as_many_pairs_as_it_can_hide_differences(tmp_path: Path) -> None:
    ranged = {"declared": {"share": {"better": "higher", "low": 0, "high": 1}}}
    few = files(tmp_path, SMALL, "share", **ranged)
    said = command("compare", *few, "--min-effect", "0.1")
    assert "cannot be shown with 15 pairs; about 30 pairs would." in said
    many = files(tmp_path, SMALL * 6, "share", **ranged)
    said = command("compare", *many, "--min-effect", "0.1")
    assert "b: no difference that matters" in said
    assert (
        "Where the real difference is 0.10, at most 1 in 20 comparisons calls it none" in said
    )


@pytest.mark.parametrize("n", [15, 30])
def test_rare_gains_as_large_as_the_margin_are_seldom_called_none(n: int) -> None:
    """A gain of 5 achievements in a tenth of the worlds is half an achievement."""
    rng, wrong = np.random.default_rng(n), 0
    for _ in range(40):
        gains = np.where(rng.random(n) < 0.1, 5.0, 0.0)
        both = [
            subject(
                name,
                trials=[
                    trial(name, at, achievements=4.0 + at % 3 + up * gain)
                    for at, gain in enumerate(gains)
                ],
            )
            for name, up in (("a", 0), ("b", 1))
        ]
        [found] = compare(both, metrics=["achievements"], min_effect=0.5).decisive
        wrong += found.verdict is Verdict.NO_DIFFERENCE
    assert wrong <= 5


def test_twelve_zeros_do_not_stop_a_run() -> None:
    design = SequentialDesign(most=30, min_effect=1.0, ends=(0.0, 22.0))
    assert decide([0.0] * 12, design).decision is None
    assert looks([0.0] * 30, design)[-1].decision is Verdict.UNDECIDED
    assert not decide([0.0] * 12, design).interval.known
