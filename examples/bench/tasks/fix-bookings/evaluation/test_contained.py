import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from program import free_hours, merge


def test_a_booking_inside_another_does_not_shorten_it():
    assert merge([(9, 17), (10, 11)]) == [(9, 17)]


def test_several_inside_one():
    assert merge([(8, 18), (9, 10), (11, 12), (17, 19)]) == [(8, 19)]


def test_free_hours_know_of_it():
    assert free_hours([(9, 17), (10, 11), (12, 13)], 8, 20) == [(8, 9), (17, 20)]
