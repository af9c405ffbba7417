"""Pictures in a terminal: each character shows two pixels, one above the other."""

from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

__all__ = ["Pixels"]

_UPPER_HALF = "▀"


class Pixels:
    """A picture (height, width, 3) that Rich can print; an odd last row is left out."""

    def __init__(self, picture: NDArray[np.uint8]) -> None:
        height, width, _ = picture.shape
        self._width = width
        # (height / 2, width, 6): the colours of the upper and of the lower pixel.
        pairs = picture[: height // 2 * 2].reshape(-1, 2, width, 3).swapaxes(1, 2)
        self._rows: list[list[list[int]]] = pairs.reshape(-1, width, 6).tolist()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one segment for each run of equal characters."""
        for row in self._rows:
            for colours, run in groupby(row):
                yield Segment(_UPPER_HALF * sum(1 for _ in run), _style(*colours))
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width, which cannot change."""
        return Measurement(self._width, self._width)


@lru_cache(maxsize=65536)
def _style(r: int, g: int, b: int, below_r: int, below_g: int, below_b: int) -> Style:
    return Style(
        color=Color.from_rgb(r, g, b), bgcolor=Color.from_rgb(below_r, below_g, below_b)
    )
