"""Numbers of an analysis match its first implementation, except that equal values and
proportions are handled better; on random curves they match `assay.stats`.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.stats.differences import paired_difference, unpaired_difference
from assay.stats.effects import cliffs_delta, cohens_d, hedges_g, probability_of_improvement
from assay.stats.intervals import Side, mean_interval
from assay.stats.significance import (
    least_p_value,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    welch_t_test,
)
from assay.training.analysis import analyse
from assay.training.analysis_settings import make_settings
from tests.training.analysis_cases import NUMBERS, Case, cases, make_design

CASES = {case.name: case for case in cases()}
STORED = json.loads(NUMBERS.read_text("utf-8"))

NO_INTERVAL = {"difference": (None, None)}
NO_MEANS = {"control": (None, None), "candidate": (None, None)}
BETTER: dict[str, dict[str, Any]] = {
    # All equal values: no interval instead of one without width; the exact test decides.
    "all equal, paired": {**NO_INTERVAL, **NO_MEANS, "effects": None},
    "all equal, unpaired": {**NO_INTERVAL, **NO_MEANS, "effects": None},
    "equal arms, paired": {**NO_INTERVAL, **NO_MEANS, "effects": None},
    "equal arms, unpaired": {**NO_INTERVAL, **NO_MEANS, "effects": None},
    "equal differences, paired": {**NO_INTERVAL, "effects": None, "verdict": "undecided"},
    "one arm equal, paired": {"control": (None, None)},
    "one arm equal, unpaired": {"control": (None, None)},
    # A bootstrap interval never decides alone.
    "4 paired 8 and 8": {"verdict": "undecided"},
    # Values that are 0 or 1: exact tests, and bounds between -1 and 1.
    "shares, two-sided, paired": {
        "difference": (-0.16976954367514246, 1.0),
        "verdict": "undecided",
        "test": ("McNemar's exact test", 0.125),
    },
    "shares, two-sided, unpaired": {
        "difference": (-0.03655220846674068, 0.8567380541335539),
        "verdict": "undecided",
        "test": ("Fisher's exact test", 0.10256410256410264),
    },
    "shares, greater, paired": {
        "difference": (-0.0547617678333972, None),
        "verdict": "undecided",
        "test": ("McNemar's exact test", 0.0625),
    },
    "shares, greater, unpaired": {
        "difference": (0.04047227955712129, None),
        "verdict": "undecided",
        "test": ("Fisher's exact test", 0.051282051282051315),
    },
}
"""Numbers that changed, with the new values: bounds, the word of the verdict, the t test."""
SHARE_MEANS = {
    "control": (0.036692566176085566, 0.7095791362626572),
    "candidate": (0.42127680295680486, 0.9963897031380994),
}


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two trees of values are not the same to 12 digits."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from differences(before.get(name), after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}.{at}")
    elif isinstance(before, float) and isinstance(after, float):
        if not math.isclose(before, after, rel_tol=1e-12, abs_tol=1e-13):
            yield f"{path}: {before} -> {after}"
    elif before != after:
        yield f"{path}: {before} -> {after}"


def is_decidable(case: Case, found: dict[str, Any]) -> bool:
    """Return whether the exact test can reject with so few runs, and the t test does."""
    side, alpha = Side(case.given.get("side", "two-sided")), case.given.get("alpha", 0.05)
    size = (len(case.control), None if case.paired else len(case.candidate))
    t_tests = [test["p_value"] for test in found["tests"] if "t test" in test["name"]]
    return least_p_value(*size, side) < alpha and all(p < alpha for p in t_tests)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_numbers_match_the_first_implementation(case: Case) -> None:
    found, stored = json.loads(json.dumps(case.numbers())), STORED[case.name]
    better = BETTER.get(case.name, {})
    if case.name.startswith("shares"):
        better = {**better, **SHARE_MEANS}
    if "verdict" in better:
        assert found["verdict"] == better["verdict"] != stored["verdict"]
        stored["verdict"] = found["verdict"]
    elif stored["verdict"] in ("higher", "lower") and not is_decidable(case, found):
        assert found["verdict"] == "undecided"
        stored["verdict"] = "undecided"
    for name in ("difference", "control", "candidate"):
        if name in better:
            bounds = dict(zip(("low", "high"), better[name], strict=True))
            assert bounds != {end: stored[name][end] for end in bounds}
            stored[name] |= bounds
    if "test" in better:
        test = found["tests"][1]
        assert (test["name"], test["exact"]) == (better["test"][0], True)
        assert test["p_value"] == pytest.approx(better["test"][1])
        stored["tests"][1] = test
    if "effects" in better:
        assert set(found["effects"].values()) == {None}
        stored["effects"] = found["effects"]
    assert list(differences(stored, found)) == []


def test_the_stored_cases_are_all_checked() -> None:
    assert STORED.keys() == CASES.keys()
    assert BETTER.keys() <= CASES.keys()


levels = st.floats(-5, 5).map(lambda value: round(value, 2))


@given(
    control=st.lists(levels, min_size=2, max_size=12),
    candidate=st.lists(levels, min_size=2, max_size=12),
    paired=st.booleans(),
    side=st.sampled_from(Side),
    alpha=st.sampled_from((0.01, 0.05, 0.2)),
    method=st.sampled_from(("auto", "t", "studentised", "bca", "percentile")),
    seed=st.integers(0, 3),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_numbers_of_random_curves_match_the_statistics_package(
    control: list[float],
    candidate: list[float],
    paired: bool,
    side: Side,
    alpha: float,
    method: str,
    seed: int,
) -> None:
    if paired:
        # Runs without a partner were excluded earlier.
        count = min(len(control), len(candidate))
        control, candidate = control[:count], candidate[:count]
    design = make_design(control, candidate, paired)
    chosen = {"method": method, "side": side, "alpha": alpha, "seed": seed, "ttest": True}
    found = analyse(design, make_settings({**chosen, "n_resamples": 200}, {"type": "final"}))
    a, b = found.control_R, found.candidate_R
    if set(a) | set(b) <= {0.0, 1.0}:
        return
    level, streams = 1 - alpha, np.random.SeedSequence(seed).spawn(3)
    compare = paired_difference if paired else unpaired_difference
    more: dict[str, Any] = {"side": side, "n_resamples": 200}
    rng = np.random.default_rng(streams[0])
    expected = compare(a, b, level=level, method=method, rng=rng, **more)
    gaps = [np.ptp(b - a)] if paired else [np.ptp(a), np.ptp(b)]
    if max(gaps) <= 1e-9 * max(np.abs(a).max(), np.abs(b).max()):
        assert method not in ("auto", "t") or not found.difference.known
        assert set(found.effects.values()) == {None}
        return
    assert found.difference == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)
    rng = np.random.default_rng(streams[1])
    resampled = (
        sign_flip_test(b - a, rng=rng, **more)
        if paired
        else permutation_test(a, b, rng=rng, **more)
    )
    t_test = (paired_t_test if paired else welch_t_test)(a, b, side=side)
    assert [test.name for test in found.tests] == [resampled.name, t_test.name]
    p_values = (resampled.p_value, t_test.p_value)
    assert [test.p_value for test in found.tests] == pytest.approx(p_values, rel=1e-9)
    sizes = [
        size(a, b, paired=paired, level=level)
        for size in (cohens_d, hedges_g, cliffs_delta, probability_of_improvement)
    ]
    for mine, theirs in zip(found.effects.values(), sizes, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12, nan_ok=True)
    for mean, arm in ((found.contrast.mean_baseline, a), (found.contrast.mean_candidate, b)):
        if np.ptp(arm) > 0:
            assert mean == pytest.approx(mean_interval(arm, level=level), rel=1e-9, abs=1e-12)
    word = "undecided"
    if not expected.known:
        word = "unknown"
    elif expected.low > 0 or expected.high < 0:
        # A bootstrap interval never decides alone, nor do fewer runs than the exact test needs.
        least = least_p_value(len(a), None if paired else len(b), side)
        if least < alpha and t_test.p_value < alpha:
            word = "higher" if expected.low > 0 else "lower"
    assert found.verdict == word
