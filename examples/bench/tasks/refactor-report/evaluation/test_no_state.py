import os
import sys

sys.path.insert(0, os.getcwd())

import report

ROWS = [{"name": "tea", "price": 2.5}]


def _state():
    return {
        name: repr(value)
        for name, value in vars(report).items()
        if isinstance(value, (list, dict, set)) and not name.startswith("__")
    }


def test_a_report_leaves_nothing_behind():
    before = _state()
    for old in (report.as_text, report.as_csv, report.as_markdown):
        old(ROWS)
    assert _state() == before
    assert not hasattr(report, "LINES")
