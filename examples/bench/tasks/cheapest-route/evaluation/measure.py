"""Metrics beside the score: how long a large map takes, and how long the program is."""

import json
import os
import sys
import time

sys.path[:0] = [os.getcwd(), os.path.dirname(os.path.abspath(__file__))]

from maps import random_map  # noqa: E402
from route import cheapest  # noqa: E402

grid = random_map(150, 11)
began = time.perf_counter()
answer = cheapest(grid, (0, 0), (149, 149))
seconds = time.perf_counter() - began
with open("route.py", encoding="utf-8") as stream:
    lines = sum(1 for line in stream if line.strip())

result = {
    "standard_metrics": {"reached_goal": float(bool(answer) and answer[1][-1] == (149, 149))},
    "custom_metrics": {"large_map_seconds": seconds, "lines_of_code": lines},
}
with open(os.environ["ASSAY_RESULT"], "w", encoding="utf-8") as stream:
    json.dump(result, stream)
