import os
import sys

sys.path.insert(0, os.getcwd())

import doctest
import re

import pytest

PUBLIC = ["celsius", "kilometres", "duration", "size"]


def _examples():
    with open("README.md", encoding="utf-8") as stream:
        text = stream.read().replace("```", "\n")
    return doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_readme_has_an_example_of_it(name):
    calls = [example for example in _examples().examples if example.want]
    assert any(re.search(rf"\b{name}\(", example.source) for example in calls)


def test_the_examples_are_right():
    examples = _examples()
    results = doctest.DocTestRunner(verbose=False).run(examples, out=lambda text: None)
    assert results.attempted >= len(PUBLIC)
    assert results.failed == 0
