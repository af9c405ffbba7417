import os
import sys

sys.path.insert(0, os.getcwd())

import pytest
import report

ROWS = [{"name": "tea", "price": 2.5}, {"name": "milk", "price": None}]


@pytest.mark.parametrize("name", ["text", "csv", "markdown"])
def test_every_format_is_written_by_its_name(name):
    assert report.write(ROWS, name) == getattr(report, f"as_{name}")(ROWS)


def test_an_unknown_format_is_an_error_that_has_the_known_names():
    with pytest.raises(ValueError, match="text") as raised:
        report.write(ROWS, "html")
    assert "csv" in str(raised.value)
    assert "markdown" in str(raised.value)


def test_a_format_that_is_added_can_be_used(monkeypatch):
    monkeypatch.setitem(report.FORMATS, "count", lambda header, rows: f"{header} {rows}")
    assert report.write(ROWS, "count") == "['name', 'price'] [['tea', '2.50'], ['milk', '-']]"


def test_how_a_value_is_shown_stands_in_one_place(monkeypatch):
    assert [report.shown(value) for value in (None, 1.0, 7, "x")] == ["-", "1.00", "7", "x"]
    monkeypatch.setattr(report, "shown", lambda value: "?")
    for name in ("text", "csv", "markdown"):
        assert "2.50" not in report.write(ROWS, name)
        assert "?" in report.write(ROWS, name)
