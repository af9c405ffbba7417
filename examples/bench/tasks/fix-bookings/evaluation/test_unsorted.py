import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import itertools

from program import called, free_hours, merge


def test_any_order_gives_the_same():
    bookings = [(8, 10), (9, 12), (14, 16), (15, 15.5)]
    for order in itertools.permutations(bookings):
        assert merge(list(order)) == [(8, 12), (14, 16)]


def test_the_list_of_the_caller_stays_as_it_was():
    bookings = [(14, 16), (8, 10), (9, 12)]
    merged, left = called("merge", bookings)
    assert merged == [(8, 12), (14, 16)]
    assert left == bookings


def test_free_hours_of_bookings_in_any_order():
    assert free_hours([(14, 16), (8, 10)], 8, 20) == [(10, 14), (16, 20)]
