from decimal import Decimal

from bill import split


def test_the_shares_of_three_sum_up():
    assert split(Decimal("10.00"), 3) == [Decimal("3.34"), Decimal("3.33"), Decimal("3.33")]
