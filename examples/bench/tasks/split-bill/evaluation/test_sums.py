import os
import sys

sys.path.insert(0, os.getcwd())

from decimal import Decimal

from bill import split


def test_the_shares_sum_up_whatever_the_bill():
    for cents in range(1, 400):
        for people in range(1, 12):
            shares = split(Decimal(cents) / 100, people)
            assert len(shares) == people
            assert sum(shares) == Decimal(cents) / 100


def test_a_bill_that_is_large():
    shares = split(Decimal("98765432109876.54"), 7)
    assert sum(shares) == Decimal("98765432109876.54")
    assert all(share == share.quantize(Decimal("0.01")) for share in shares)
