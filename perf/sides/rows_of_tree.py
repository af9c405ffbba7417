"""One of the two trees of `python -m perf --against`: measures rows when it is asked to.

It is run by its path with another tree's `perf` and `assay` on the path, so it uses only what
every tree has: `perf.topics.TOPICS`, the rows and sides in them, and `WARMUP`. A line of JSON
comes in, `{"row": name, "round": number}`, and one goes out, `{"value": …}` or
`{"problem": …}`.
"""

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    # Sides may print; only answers go where answers are read.
    answers, sys.stdout = sys.stdout, sys.stderr
    import assay
    from perf.measure import WARMUP
    from perf.topics import TOPICS

    if not Path(str(assay.__file__)).resolve().is_relative_to(Path.cwd().resolve()):
        sys.exit(f"{assay.__file__} was imported, which is not of the tree {Path.cwd()}")
    rows = {row.name: (topic, topic.sides[row.ours]) for topic in TOPICS for row in topic.rows}
    warm: set[str] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["row"]
        answer: dict[str, Any]
        try:
            topic, side = rows[name]
            if topic.warmup and name not in warm:
                side(WARMUP)
            warm.add(name)
            answer = {"value": side(asked["round"])}
        except Exception as error:  # whatever it is, the other rows can still be measured
            answer = {"problem": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
