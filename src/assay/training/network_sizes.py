"""Layer sizes shared by the networks and the computation of their capacity."""

from typing import Final

ATTRIBUTE: Final = 8
"""Length of the embedding of an attribute."""
FREQUENCIES: Final = 3
"""Frequencies of the position encoding, for each of two axes."""
FEATURES: Final = ATTRIBUTE + 4 * FREQUENCIES + 1
"""Features of a token: its attribute, position and value."""
LATENTS: Final = 8
LAYERS: Final = 2
HEADS: Final = 4
MEMORY: Final = 32
"""Number of earlier steps a transformer attends to."""
