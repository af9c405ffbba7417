"""What rliable makes of scores: JSON in, JSON out, in an environment that has it.

In: {"matrices": [...], "pairs": [[x, y], ...], "profiles": [[scores, taus], ...],
"interval": scores, "interval_pair": [x, y], "reps": number}; each part may be missing. The
draws of rliable come from NumPy's global state, which is seeded here.
"""

import json
import sys
from typing import Any

import numpy as np
from rliable import library, metrics


def aggregates(scores: Any) -> Any:
    return np.array(
        [
            metrics.aggregate_iqm(scores),
            metrics.aggregate_median(scores),
            metrics.aggregate_mean(scores),
            metrics.aggregate_optimality_gap(scores),
        ]
    )


def interval(scores: Any, function: Any, reps: int) -> Any:
    _, bounds = library.get_interval_estimates({"x": scores}, function, reps=reps)
    return bounds["x"].tolist()


def profile(scores: Any, taus: Any, by_run: bool) -> Any:
    kind = library.score_distributions if by_run else library.average_score_distributions
    return kind(np.array(scores), np.array(taus)).tolist()


def answer(asked: Any) -> Any:
    np.random.seed(1)
    found: dict[str, Any] = {
        "aggregates": [aggregates(np.array(m)).tolist() for m in asked.get("matrices", [])],
        "improvement": [
            float(metrics.probability_of_improvement(np.array(x), np.array(y)))
            for x, y in asked.get("pairs", [])
        ],
        "profiles": [
            [profile(scores, taus, by_run) for by_run in (True, False)]
            for scores, taus in asked.get("profiles", [])
        ],
    }
    reps = asked.get("reps", 2000)
    if "interval" in asked:
        found["interval"] = interval(np.array(asked["interval"]), aggregates, reps)
    if "interval_pair" in asked:
        pair = [np.array(side) for side in asked["interval_pair"]]

        def improvement(x: Any, y: Any) -> Any:
            return np.array([metrics.probability_of_improvement(x, y)])

        found["interval_pair"] = interval(pair, improvement, reps)
    return found


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
