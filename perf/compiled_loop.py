"""A game played to its end without returning to Python: an entry of the engine's own kind.

Must be imported before the engine is loaded. An entry more changes what the engine's cache
folder holds, so this is only for processes with a cache folder of their own.
"""

from assay.crafter.engine.entries import advance
from assay.crafter.engine.jit import entry
from assay.crafter.engine.layout import RUNNING, STATUS, state, uint8_at

__all__ = ["play"]


@entry
def play(address: int, actions: int, count: int) -> int:
    """Carry out up to `count` actions until the world ends; how many were carried out."""
    s = state(address)
    action = uint8_at(actions, count)
    done = 0
    while done < count and s.scalars[STATUS] == RUNNING:
        advance(s, action[done])
        done += 1
    return done
