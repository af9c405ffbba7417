"""The scores that both sides of the topic statistics get; imports nothing but NumPy."""

from typing import Any

import numpy as np

__all__ = ["TASKS", "score_pair", "score_set"]

TASKS = 26
"""As many as Atari 100k has games."""


def score_set(runs: int) -> Any:
    """Scores of runs x tasks: skewed, as those of Atari are, and other on each task."""
    random = np.random.Generator(np.random.PCG64(runs))
    return random.gamma(1, size=(runs, TASKS)) * random.gamma(1, size=TASKS)


def score_pair(runs: int) -> tuple[Any, Any]:
    """Two sets of scores, of which the first is the better one."""
    random = np.random.Generator(np.random.PCG64(runs))
    worse = random.gamma(1, size=(runs, TASKS))
    return random.gamma(1.3, size=(runs, TASKS)), worse
