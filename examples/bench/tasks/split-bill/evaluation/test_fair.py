import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from decimal import Decimal

from program import split, split_all

CENT = Decimal("0.01")


def test_no_two_shares_differ_by_more_than_a_cent():
    bills = [(cents * CENT, people) for cents in range(0, 300, 7) for people in range(1, 15)]
    for (total, _), shares in zip(bills, split_all(bills)):
        assert max(shares) - min(shares) <= CENT
        assert sum(shares) == total


def test_the_larger_shares_come_first():
    assert split(Decimal("1.00"), 7) == [CENT * 15] * 2 + [CENT * 14] * 5
    assert split(Decimal("0.05"), 3) == [CENT * 2, CENT * 2, CENT]


def test_less_than_a_cent_each():
    assert split(Decimal("0.02"), 4) == [CENT, CENT, 0, 0]
