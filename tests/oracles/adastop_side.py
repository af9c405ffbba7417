"""What AdaStop decides about batches of scores: JSON in, JSON out.

In: {"batches": [{agent: scores of the batch}, ...], "seed": number}. An agent whose
comparisons are all decided gets no more batches, as in AdaStop's tutorial.
"""

import json
import sys
from typing import Any

import numpy as np
from adastop import MultipleAgentsComparator


def answer(asked: Any) -> Any:
    batches = asked["batches"]
    names, size = list(batches[0]), len(next(iter(batches[0].values())))
    comparator = MultipleAgentsComparator(
        n=size, K=len(batches), B=10_000, alpha=0.05, seed=asked["seed"]
    )
    scores: dict[str, Any] = {name: np.array([]) for name in names}
    for batch in batches:
        open_ = (
            set(range(len(names)))
            if comparator.current_comparisons is None
            else {int(i) for i in np.ravel(comparator.current_comparisons)}
        )
        for number, name in enumerate(names):
            if number in open_:
                scores[name] = np.concatenate([scores[name], batch[name]])
        comparator.partial_compare(scores, verbose=False)
        if comparator.is_finished:
            break
    return {
        "decisions": [
            [names[a], names[b], comparator.decisions[str(np.array([a, b]))]]
            for a, b in comparator.comparisons.tolist()
        ],
        "runs": {name: len(each) for name, each in scores.items()},
    }


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
