import os
import sys

sys.path.insert(0, os.getcwd())

from decimal import Decimal

from bill import split

CENT = Decimal("0.01")


def test_no_two_shares_differ_by_more_than_a_cent():
    for cents in range(0, 300, 7):
        for people in range(1, 15):
            shares = split(cents * CENT, people)
            assert max(shares) - min(shares) <= CENT
            assert sum(shares) == cents * CENT


def test_the_larger_shares_come_first():
    assert split(Decimal("1.00"), 7) == [CENT * 15] * 2 + [CENT * 14] * 5
    assert split(Decimal("0.05"), 3) == [CENT * 2, CENT * 2, CENT]


def test_less_than_a_cent_each():
    assert split(Decimal("0.02"), 4) == [CENT, CENT, 0, 0]
