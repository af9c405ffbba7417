"""Metrics beside the score: how long a large map takes, and how long the program is."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from assay_grading import run_program  # noqa: E402
from maps import random_map  # noqa: E402
from program import timed  # noqa: E402

answer, seconds = timed(random_map(150, 11), (0, 0), (149, 149))
source = run_program(["cat", "route.py"]).stdout
lines = sum(1 for line in source.splitlines() if line.strip())

result = {
    "standard_metrics": {"reached_goal": float(bool(answer) and answer[1][-1] == (149, 149))},
    "custom_metrics": {"large_map_seconds": seconds, "lines_of_code": lines},
}
with open(os.environ["ASSAY_RESULT"], "w", encoding="utf-8") as stream:
    json.dump(result, stream)
