"""Calls `split` of the repository in a process of its own."""

import json
import sys
from decimal import Decimal

from assay_grading import run_program

PROGRAM = """
import json, sys
from decimal import Decimal
from bill import split
for total, people in json.load(sys.stdin):
    try:
        print(json.dumps([str(share) for share in split(Decimal(total), people)]))
    except ValueError:
        print(json.dumps("ValueError"))
"""


def split_all(bills):
    """The shares of each bill, a pair of total and people; "ValueError" where it was raised."""
    given = json.dumps([(str(total), people) for total, people in bills])
    end = run_program([sys.executable, "-c", PROGRAM], stdin=given)
    assert end.exit_code == 0, end.stderr
    answers = [json.loads(line) for line in end.stdout.splitlines()]
    assert len(answers) == len(bills)
    return [
        answer if answer == "ValueError" else [Decimal(share) for share in answer]
        for answer in answers
    ]


def split(total, people):
    """The same for one bill."""
    return split_all([(total, people)])[0]
