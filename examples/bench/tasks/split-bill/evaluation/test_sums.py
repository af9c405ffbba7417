import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from decimal import Decimal

from program import split, split_all


def test_the_shares_sum_up_whatever_the_bill():
    bills = [
        (Decimal(cents) / 100, people) for cents in range(1, 400) for people in range(1, 12)
    ]
    for (total, people), shares in zip(bills, split_all(bills)):
        assert len(shares) == people
        assert sum(shares) == total


def test_a_bill_that_is_large():
    shares = split(Decimal("98765432109876.54"), 7)
    assert sum(shares) == Decimal("98765432109876.54")
    assert all(share == share.quantize(Decimal("0.01")) for share in shares)
