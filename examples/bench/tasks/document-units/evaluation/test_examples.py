import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import doctest
import re

import pytest
from program import shown, text_of

PUBLIC = ["celsius", "kilometres", "duration", "size"]


def _examples():
    return doctest.DocTestParser().get_examples(text_of("README.md").replace("```", "\n"))


@pytest.mark.parametrize("name", PUBLIC)
def test_the_readme_has_an_example_of_it(name):
    calls = [example for example in _examples() if example.want]
    assert any(re.search(rf"\b{name}\(", example.source) for example in calls)


def test_the_examples_are_right():
    examples = _examples()
    assert len(examples) >= len(PUBLIC)
    check = doctest.OutputChecker().check_output
    answers = shown([example.source for example in examples])
    for example, (printed, error) in zip(examples, answers, strict=True):
        if example.exc_msg is None:
            assert error is None
            assert check(example.want, printed, 0)
        else:
            assert check(example.exc_msg, error or "", 0)
