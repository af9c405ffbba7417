"""Several pictures as one moving GIF.

The file carries a comment that says what made it. It appears whole or not at all: what
stood at the path before stays until the new file is complete. Knows nothing of worlds.
"""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from assay.errors import UsageError

__all__ = ["save_gif"]


def save_gif(
    frames: Sequence[NDArray[np.uint8]],
    path: str | os.PathLike[str],
    *,
    fps: int = 10,
    comment: str,
) -> None:
    """Save frames (height, width, 3) as an endless GIF; a frame keeps up to 256 colours."""
    _check(frames)
    # Viewers slow down what is faster than 50 frames a second.
    if not 1 <= fps <= 50:
        raise UsageError(f"cannot show {fps!r} frames a second; give a number from 1 to 50")
    first, *rest = [Image.fromarray(frame) for frame in frames]
    data = io.BytesIO()
    first.save(
        data,
        "GIF",
        save_all=True,
        append_images=rest,
        duration=round(100 / fps) * 10,
        loop=0,
        comment=comment.encode(),
    )
    _write(data, Path(path))


def _check(frames: Sequence[NDArray[np.uint8]]) -> None:
    if not len(frames):
        raise UsageError("there are no frames to save; give at least one")
    for number, frame in enumerate(frames):
        is_picture = frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
        if not is_picture or frame.shape != frames[0].shape:
            raise UsageError(
                f"frame {number} is {frame.dtype} {frame.shape}; all frames must be uint8 "
                "(height, width, 3) and of one size"
            )


def _write(data: io.BytesIO, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid4().hex}.tmp")
    try:
        draft.write_bytes(data.getbuffer())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
