import os
import sys

sys.path.insert(0, os.getcwd())

import inspect
import re

import pytest
import units

PUBLIC = ["celsius", "kilometres", "duration", "size"]
SAMPLES = [
    (units.celsius, (-40,), -40.0),
    (units.kilometres, (1, 3), 1.609),
    (units.duration, (90061,), "1 d 1 h 1 min 1 s"),
    (units.size, (2_500_000,), "2.5 MB"),
]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_function_says_what_it_does_and_names_its_parameters(name):
    function = getattr(units, name)
    text = inspect.getdoc(function) or ""
    assert len(re.findall(r"\w+", text)) >= 5
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{parameter}\b", text), f"{parameter} is not explained"


def test_all_are_documented_and_do_what_they_did():
    assert all(inspect.getdoc(getattr(units, name)) for name in PUBLIC)
    for function, given, expected in SAMPLES:
        assert function(*given) == expected
