"""The seeds of a benchmark: a fixed list, so that two architectures have the same ones."""

from collections.abc import Sequence
from typing import Final

from assay.errors import UsageError

__all__ = ["DEFAULT_SEEDS", "SEEDS", "chosen_seeds"]

SEEDS: Final = (
    *(1072, 2043, 3014, 4085, 5156, 6227, 7298, 8369, 9440, 10511),
    *(11582, 12653, 13724, 14795, 15866, 16937, 18008, 19079, 20150, 21221),
    *(22292, 23363, 24434, 25505, 26576, 27647, 28718, 29789, 30860, 31931),
)
"""All there are; a set that is extended gets the next ones."""
DEFAULT_SEEDS: Final = 15
"""How many of them a launch has unless it says otherwise."""
_LAST: Final = 2**31 - 1


def chosen_seeds(given: Sequence[int] = ()) -> tuple[int, ...]:
    """The seeds that somebody means.

    Args:
        given: Nothing, for the first 15 of the list; one number up to 30, for so many of them;
            or the seeds themselves, at least two.

    Raises:
        UsageError: A seed comes twice or is out of range, or there are not so many.
    """
    if not given:
        return SEEDS[:DEFAULT_SEEDS]
    if len(given) == 1 and given[0] <= len(SEEDS):
        if given[0] < 1:
            raise UsageError(
                f"--seeds {given[0]} is no number of seeds; give 1 to {len(SEEDS)}"
            )
        return SEEDS[: given[0]]
    for seed in given:
        if not 0 <= seed <= _LAST:
            raise UsageError(
                f"seed {seed} is not allowed; give whole numbers from 0 to {_LAST}"
            )
        if given.count(seed) > 1:
            raise UsageError(f"seed {seed} is there twice; each run has a seed of its own")
    return tuple(given)
