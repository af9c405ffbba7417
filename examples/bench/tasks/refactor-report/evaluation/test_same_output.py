import os
import sys

sys.path.insert(0, os.getcwd())

import pytest
import report

ROWS = [
    {"name": "tea", "price": 2.5, "left": 3},
    {"name": 'milk, "fresh"', "price": None, "left": 10},
]
WRITTEN = {
    "text": (
        "name           price  left\n"
        "tea            2.50   3\n"
        'milk, "fresh"  -      10'
    ),
    "csv": 'name,price,left\ntea,2.50,3\n"milk, ""fresh""",-,10',
    "markdown": (
        "| name | price | left |\n|---|---|---|\n"
        '| tea | 2.50 | 3 |\n| milk, "fresh" | - | 10 |'
    ),
}
EMPTY = {"text": "", "csv": "", "markdown": "|  |\n||"}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_function_writes_what_it_wrote_through_write(name, monkeypatch):
    old = getattr(report, f"as_{name}")
    assert old(ROWS) == WRITTEN[name]
    assert old([]) == EMPTY[name]
    asked = []
    monkeypatch.setattr(report, "write", lambda *given, **named: asked.append((given, named)))
    old(ROWS)
    assert len(asked) == 1
