"""Replicates of a world never make an interval narrower than the worlds allow."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.judge.comparison import compare
from assay.types import Verdict

from .subjects import command, subject, trial


def played(name: str, shares: list[float], plays: int) -> list:
    return [
        trial(name, world, replicate=at, success=float(at < round(share * plays)))
        for world, share in enumerate(shares)
        for at in range(plays)
    ]


def test_ten_plays_of_five_worlds_are_five_worlds(tmp_path: Path) -> None:
    files = []
    for name, won in (("a", 1.0), ("b", 0.0)):
        file = tmp_path / f"{name}.json"
        seeds = [world for world in range(5) for _ in range(10)]
        about = {"name": name, "seeds": seeds, "metrics": {"success": [won] * 50}}
        file.write_text(json.dumps(about))
        files.append(str(file))
    values = command("compare", "--baseline", files[0], "--improved", files[1], "--json")
    found = json.loads(values)["contrasts"][0]
    assert found["difference"]["high"] > -0.6
    assert found["mean_candidate"]["high"] == pytest.approx(1 - 0.025 ** (1 / 5))
    assert found["verdict"] == "undecided"


def test_the_interval_and_the_verdict_come_from_one_test() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        both = []
        for name in "ab":
            shares = np.clip(rng.beta(0.6, 0.6, 8) + (name == "b") * 0.3, 0, 1)
            both.append(subject(name, trials=played(name, shares.tolist(), 5)))
        [found] = compare(both, metrics=["success"]).decisive
        apart = found.difference.low > 0 or found.difference.high < 0
        assert apart is (found.verdict in (Verdict.BETTER, Verdict.WORSE))


@pytest.mark.parametrize("worlds", [5, 10, 20])
def test_deterministic_replicates_keep_the_coverage_of_the_worlds(worlds: int) -> None:
    rng, held = np.random.default_rng(worlds), 0
    for _ in range(100):
        first, second = rng.random((2, worlds)) < [[0.8], [0.4]]
        both = [
            subject(name, trials=played(name, own.astype(float).tolist(), 10))
            for name, own in (("a", first), ("b", second))
        ]
        [found] = compare(both, metrics=["success"]).decisive
        held += found.same is not None or found.difference.low <= -0.4 <= found.difference.high
    assert held >= 90


def test_worlds_that_hardly_differ_have_a_p_value() -> None:
    shares = {"a": [0.5, 0.5, 0.0, 1.0, 0.5, 0.5], "b": [0.5, 0.5, 0.5, 0.5, 0.5, 1.0]}
    both = [subject(name, trials=played(name, own, 2)) for name, own in shares.items()]
    [found] = compare(both, metrics=["success"]).decisive
    assert found.tests is not None
    assert 0 < found.tests.p_value <= 1
