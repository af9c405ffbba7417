"""Sizes that an architecture counts with and its network is built from."""

from typing import Final

ATTRIBUTE: Final = 8
"""Numbers that stand for an attribute."""
FREQUENCIES: Final = 3
"""Of the waves that stand for a place, in each of two directions."""
FEATURES: Final = ATTRIBUTE + 4 * FREQUENCIES + 1
"""Numbers of a token: its attribute, place and value."""
LATENTS: Final = 8
LAYERS: Final = 2
HEADS: Final = 4
MEMORY: Final = 32
"""Steps that a transformer looks back."""
