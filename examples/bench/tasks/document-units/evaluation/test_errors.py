import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ast

import pytest
from program import functions, text_of


@pytest.mark.parametrize("name", ["duration", "size"])
def test_a_docstring_says_that_the_function_raises(name):
    assert "ValueError" in (ast.get_docstring(functions()[name]) or "")


def test_the_readme_shows_an_error():
    text = text_of("README.md")
    assert "Traceback (most recent call last):" in text
    assert "ValueError: a " in text
