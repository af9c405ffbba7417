"""The frames of an episode of unknown length, never more than a few hundred."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay._util.provenance import provenance
from assay.crafter.gif import save_gif
from assay.errors import OutputError

__all__ = ["Caption", "Film"]

MAX_FRAMES = 200
_LINE = 14
_NARROWEST = 200


def captioned(picture: NDArray[np.uint8], *lines: str) -> NDArray[np.uint8]:
    """A picture with lines of text below it; one too narrow for words stays as it is."""
    from PIL import Image, ImageDraw

    height, width, _ = picture.shape
    if width < _NARROWEST:
        return picture
    framed = Image.new("RGB", (width, height + _LINE * len(lines) + 4), "black")
    framed.paste(Image.fromarray(picture), (0, 0))
    for number, line in enumerate(lines):
        ImageDraw.Draw(framed).text((4, height + 1 + _LINE * number), line, fill="white")
    return np.asarray(framed)


class Caption:
    """What stands below a frame: the step, the action, and what was unlocked last."""

    def __init__(self) -> None:
        self._lines = ("step 0", "")

    def take(self, step: int, action: str, unlocked: Sequence[str]) -> None:
        """Note a step."""
        last = self._lines[1]
        if unlocked:
            last = f"unlocked {', '.join(unlocked)} in step {step}"
        self._lines = (f"step {step}: {action}", last)

    def under(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The picture with it."""
        return captioned(picture, *self._lines)


class Film:
    """Keeps every frame at first; each time it is full, it drops every other one.

    So the frames it holds are evenly spaced, and drawing stops where none is kept.
    """

    def __init__(
        self, draw: Callable[[], NDArray[np.uint8]], max_frames: int = MAX_FRAMES
    ) -> None:
        self._draw = draw
        self._max_frames = max_frames
        self._frames = [draw()]
        self._stride = 1
        self._is_current = True

    def offer(self, step: int) -> None:
        """Take a picture, if one is due at this step."""
        self._is_current = step % self._stride == 0
        if not self._is_current:
            return
        self._frames.append(self._draw())
        if len(self._frames) > self._max_frames:
            self._frames = self._frames[::2]
            self._stride *= 2

    def frames(self) -> list[NDArray[np.uint8]]:
        """Return the frames kept, the last of them as the world is now."""
        return self._frames if self._is_current else [*self._frames, self._draw()]

    def save(self, path: Path, *, fps: int) -> None:
        """Write a GIF that plays at `fps` frames a second."""
        try:
            save_gif(self.frames(), path, fps=fps, comment=str(provenance()))
        except OSError as error:
            raise OutputError(f"cannot write {str(path)!r}: {error}") from error
