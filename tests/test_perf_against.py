"""`python -m perf --against COMMIT`: its verdicts, without measuring anything."""

from pathlib import Path

import pytest

from perf.against import Comparison, as_json
from perf.measure import Row, Topic
from tests.support import run_python

ROW = Row(name="turn", what="", ours="ours", peer="peer", against="")
TOPIC = Topic(name="turns", unit="turn", sides={}, rows=(ROW,), notes=())


@pytest.mark.parametrize(
    ("new", "old", "worse"),
    [
        pytest.param([2.0, 1.0, 1.0], [1.0, 1.0, 1.0], False, id="equal, one slow round"),
        pytest.param([1.0, 1.0, 1.0], [0.95, 0.95, 1.0], False, id="a little slower"),
        pytest.param([1.0, 1.0, 1.0], [0.99, 0.98, 0.97], True, id="slower in every round"),
        pytest.param([1.0, 1.0, 1.0], [0.89, 0.89, 1.5], True, id="slower by the median"),
        pytest.param([1.0, 1.0, 1.0], [2.0, 3.0, 4.0], False, id="quicker"),
    ],
)
def test_a_row_is_worse_by_its_median_or_its_range(
    new: list[float], old: list[float], worse: bool
) -> None:
    comparison = Comparison(TOPIC, ROW, new, old)
    assert comparison.worse is comparison.failed is worse
    assert as_json("old", [comparison])["passed"] is not worse


def test_an_unmeasured_row_fails() -> None:
    comparison = Comparison(TOPIC, ROW, [1.0], [], problem="KeyError: 'turn'")
    assert comparison.failed
    assert as_json("old", [comparison])["rows"][0]["ratios"] == []


@pytest.mark.extras
def test_a_missing_commit_is_named() -> None:
    done = run_python(
        "-m",
        "perf",
        "--against",
        "nowhere",
        "--only",
        "step",
        folder=Path(__file__).parents[1],
        expected=2,
    )
    assert "no tree of 'nowhere'" in done.errors
