"""Colours of groups, for figures and pages; importing them loads no drawing library."""

from typing import Final

COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A6D00"),
)
"""Colours in order; they are distinct for people with any colour vision."""
