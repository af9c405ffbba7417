import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from decimal import Decimal

import pytest
from program import split


def test_a_refund_is_a_bill_with_the_sign_turned():
    for cents in (-1000, -7, -100, -1):
        total = Decimal(cents) / 100
        assert split(total, 3) == [-share for share in split(-total, 3)]
        assert sum(split(total, 3)) == total


@pytest.mark.parametrize(
    ("total", "people"), [("10.00", 0), ("10.00", -2), ("10.005", 2)], ids=str
)
def test_a_bill_that_cannot_be_split_is_an_error(total, people):
    assert split(Decimal(total), people) == "ValueError"
