import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from program import merge


def test_bookings_that_touch_are_one():
    assert merge([(9, 10), (10, 11)]) == [(9, 11)]
    assert merge([(9, 10), (11, 12)]) == [(9, 10), (11, 12)]


def test_a_chain_of_them_is_one():
    assert merge([(8, 9), (9, 10), (10, 12), (14, 15)]) == [(8, 12), (14, 15)]
