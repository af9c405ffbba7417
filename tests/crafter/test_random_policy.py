"""A random policy matches the published baseline of the reference."""

import numpy as np
import pytest

from assay.crafter import ACHIEVEMENTS, Batch

EPISODES = 2000
BASELINE_EPISODES = 29_784
BASELINE_PERCENT = {
    "collect_drink": 9.32,
    "collect_sapling": 50.19,
    "collect_stone": 0.01,
    "collect_wood": 24.38,
    "defeat_skeleton": 0.02,
    "defeat_zombie": 0.14,
    "eat_cow": 0.38,
    "eat_plant": 0.01,
    "make_wood_pickaxe": 0.32,
    "make_wood_sword": 0.32,
    "place_plant": 44.61,
    "place_stone": 0.01,
    "place_table": 4.36,
    "wake_up": 93.60,
}
"""Success rates of the package's stored random runs; those not named are 0.00."""


@pytest.mark.extras
def test_random_policy_reproduces_the_published_rates() -> None:
    batch = Batch(range(1, EPISODES + 1))
    rng = np.random.default_rng(2021)
    unlocked = np.zeros(EPISODES, np.uint32)
    done = np.zeros(EPISODES, bool)
    while not done.all():
        step = batch.step(rng.integers(0, 17, EPISODES))
        unlocked |= step.unlocked
        done = step.done
    lengths = batch.steps
    rates = np.array([(unlocked >> bit & 1).mean() for bit in range(len(ACHIEVEMENTS))])
    score = np.exp(np.log1p(100 * rates).mean()) - 1
    assert 1.47 <= score <= 1.64
    assert abs(lengths.mean() - 167.9) <= 4
    for name, rate in zip(ACHIEVEMENTS, rates.tolist(), strict=True):
        # Zero in the table means fewer than one in twenty thousand.
        known = max(BASELINE_PERCENT.get(name, 0.0), 0.005) / 100
        spread = np.sqrt(known * (1 - known) * (1 / EPISODES + 1 / BASELINE_EPISODES))
        # 3.5 standard errors, and one episode more where the rate is near zero.
        assert abs(rate - known) <= 3.5 * spread + 1 / EPISODES, name
