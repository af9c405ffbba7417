"""Intervals of rliable on a set of scores: prints one JSON line and ends.

Runs in a separate environment, so it imports nothing but rliable, NumPy, the scores and
the standard library. Kind to the peer: imports and a first small run are not counted.
"""

import argparse
import json
import time
from typing import Any

import numpy as np
from rliable import library, metrics

from perf.peers.score_sets import score_pair, score_set


def iqm(scores: Any) -> Any:
    return np.array([metrics.aggregate_iqm(scores)])


def improvement(x: Any, y: Any) -> Any:
    return np.array([metrics.probability_of_improvement(x, y)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--resamples", type=int, required=True)
    parser.add_argument("--pair", action="store_true")
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    scores = score_pair(asked.runs) if asked.pair else score_set(asked.runs)
    function = improvement if asked.pair else iqm
    library.get_interval_estimates({"x": scores}, function, reps=20)
    # It draws from the global state, even if it is given a generator.
    np.random.seed(asked.seed)
    started = time.process_time()
    _, found = library.get_interval_estimates({"x": scores}, function, reps=asked.resamples)
    seconds = (time.process_time() - started) / asked.resamples
    low, high = found["x"][:, 0].tolist()
    print(json.dumps({"seconds": seconds, "low": low, "high": high}))


if __name__ == "__main__":
    main()
