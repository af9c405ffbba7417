"""Calls `cheapest` of the repository in a process of its own."""

import json
import sys

from assay_grading import run_program

PROGRAM = """
import json, sys
from route import cheapest
grid, start, goal = json.load(sys.stdin)
print(json.dumps(cheapest(grid, tuple(start), tuple(goal))))
"""


def timed(grid, start, goal):
    """The answer, and the processor time that it took."""
    given = json.dumps([grid, start, goal])
    end = run_program([sys.executable, "-c", PROGRAM], stdin=given, timeout=60)
    assert end.exit_code == 0, end.stderr
    answer = json.loads(end.stdout)
    if answer is not None:
        cost, fields = answer
        answer = cost, [tuple(field) for field in fields]
    return answer, end.cpu_s


def cheapest(grid, start, goal):
    return timed(grid, start, goal)[0]
