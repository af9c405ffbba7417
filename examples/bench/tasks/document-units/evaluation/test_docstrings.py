import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ast
import re

import pytest
from program import functions, shown

PUBLIC = ["celsius", "kilometres", "duration", "size"]
SAMPLES = {
    "celsius(-40)": "-40.0\n",
    "kilometres(1, 3)": "1.609\n",
    "duration(90061)": "'1 d 1 h 1 min 1 s'\n",
    "size(2_500_000)": "'2.5 MB'\n",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_function_says_what_it_does_and_names_its_parameters(name):
    function = functions()[name]
    text = ast.get_docstring(function) or ""
    assert len(re.findall(r"\w+", text)) >= 5
    for parameter in function.args.args:
        assert re.search(rf"\b{parameter.arg}\b", text), f"{parameter.arg} is not explained"


def test_all_are_documented_and_do_what_they_did():
    known = functions()
    assert all(ast.get_docstring(known[name]) for name in PUBLIC)
    answers = shown(["from units import *", *SAMPLES])
    assert answers == [["", None], *([text, None] for text in SAMPLES.values())]
