"""A small part of each proof that no other test runs; all of them: `make prove-statistics`."""

import pytest

from prove.statistics import PARTS


@pytest.mark.extras
@pytest.mark.parametrize(
    "part", ["differences", "shares", "partial", "chosen", "units", "ranges"]
)
def test_a_few_sets_of_each_proof_miss_no_target(part: str) -> None:
    assert PARTS[part](300).missed == ()
