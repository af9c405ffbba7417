"""What a part of the statistics proof gives back, and how it is printed."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Found", "markdown"]


class Found(NamedTuple):
    """What a part found."""

    text: str
    """Tables and sentences, as Markdown."""
    missed: tuple[str, ...] = ()
    """A sentence for each target that was missed."""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
