import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from program import cheapest


def test_without_a_route_the_answer_is_none():
    assert cheapest([[1, None, 1], [1, None, 1]], (0, 0), (0, 2)) is None
    assert cheapest([[5]], (0, 0), (0, 0)) == (0, [(0, 0)])


def test_a_start_that_is_walled_in():
    assert cheapest([[1, None], [None, 1]], (0, 0), (1, 1)) is None
