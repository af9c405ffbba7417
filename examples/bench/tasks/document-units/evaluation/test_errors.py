import os
import sys

sys.path.insert(0, os.getcwd())

import inspect

import pytest
import units


@pytest.mark.parametrize("name", ["duration", "size"])
def test_a_docstring_says_that_the_function_raises(name):
    assert "ValueError" in (inspect.getdoc(getattr(units, name)) or "")


def test_the_readme_shows_an_error():
    with open("README.md", encoding="utf-8") as stream:
        text = stream.read()
    assert "Traceback (most recent call last):" in text
    assert "ValueError: a " in text
