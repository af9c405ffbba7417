"""How many trials are open at once: few, so that they come to an end one after the other.

As many as calls may be in flight and a quarter more, so that there is always one to ask; at
least a few. Where nobody can say how many calls there may be, as many as the run allows.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["Answerer", "room_for"]

_FEWEST: Final = 16
_MORE: Final = 1.25


class Answerer(NamedTuple):
    """Who answers an arm: a provider, or this process."""

    name: str
    """Arms that share it share its calls."""
    calls: Callable[[], int]
    """How many may be in flight at this moment."""


def room_for(
    answerers: Mapping[str, Answerer],
) -> Callable[[str, Mapping[str, int]], bool]:
    """Whether another trial of an arm may start, given how many of each are begun."""

    def has_room(arm: str, begun: Mapping[str, int]) -> bool:
        asked = answerers.get(arm)
        if asked is None:
            return True
        beside = sum(
            count
            for other, count in begun.items()
            if other in answerers and answerers[other].name == asked.name
        )
        return beside < max(_FEWEST, _MORE * asked.calls())

    return has_room
