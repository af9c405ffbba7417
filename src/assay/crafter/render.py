"""Images of a `View`, with the same pixels as `Env.render` of the package `crafter` 1.8.3.

An image is a pure function of view, size and noise seed: drawing has no access to the world or
its random generator, so it never changes the game. This is the one difference from the
reference, which draws the noise of the night from the game's own generator.

By day the colour of a pixel depends on its cell alone, so every kind of cell is lit once and
then copied to its positions. By night the noise differs from pixel to pixel, so the assembled
image is lit as a whole. Textures are read from the installed reference package, which is never
imported. Below 18 pixels, where the reference fails, items do not fit and are left out.

`save_gif` writes several images as an animated GIF with a comment. It replaces an existing file
only when the new one is complete.
"""

import io
import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from assay.crafter.rules import ITEMS, MATERIALS, MAX_ITEM, OBJECTS, VIEW
from assay.crafter.view import View
from assay.errors import AssayError, UsageError

MIN_SIZE: Final = 9
"""Minimum width and height of an image: one pixel per cell."""

MAX_SIZE: Final = 4096
"""Maximum width and height of an image."""

_COLUMNS, _ROWS = VIEW
_ITEM_ROWS = -(-len(ITEMS) // _COLUMNS)
_COUNTS = itemgetter(*ITEMS)
_IDS = {name: number for number, name in enumerate(OBJECTS, len(MATERIALS))}
_PLAYER = _IDS["player"]
_ASLEEP = 0
_BEYOND_EDGE = 127
_BAND = 64
NIGHT = (0, 16, 64)
_SLEEP = (0, 0, 16)
SPRITES = {
    (_PLAYER, _ASLEEP): "player-sleep",
    **{
        (_IDS[name], way): f"{name}-{side}"
        for name in ("player", "arrow")
        for way, side in enumerate(("left", "right", "up", "down"), 1)
    },
    **{(_IDS[name], 0): name for name in ("cow", "zombie", "skeleton", "plant")},
    (_IDS["plant"], 1): "plant-ripe",
}


def render(
    view: View, size: int | tuple[int, int] = 64, *, noise_seed: int = 0
) -> NDArray[np.uint8]:
    """Draw what the player sees, with the inventory below it, as an array (height, width, 3).

    `size` is one number or (width, height). The noise of a night depends only on `noise_seed`
    and `view.step`.
    """
    width, height = _check_size(size)
    if type(noise_seed) is not int or not 0 <= noise_seed < 2**63:
        raise UsageError(f"noise_seed {noise_seed!r} is not allowed; give 0 to 2**63 - 1")
    unit = w, h = width // _COLUMNS, height // (_ROWS + _ITEM_ROWS)
    tiles, cells = _tiles(view, unit)
    if view.daylight < 0.5:
        # Colour planes first, then x before y: the order in which the reference draws noise.
        planes = np.ascontiguousarray(_place_tiles(tiles[:, 0].astype(np.uint8), cells).T)
        planes = _light_night(view, planes, noise_seed)
        scene = (_darken_for_sleep(planes) if view.sleeping else planes).T
    else:
        lit = _light(tiles[:, 0], tiles[:, 1], view.daylight)
        scene = _place_tiles(_darken_for_sleep(lit.T).T if view.sleeping else lit, cells)
    panel = _draw_inventory(unit, _COUNTS(view.inventory))
    top, left = (height - h * (_ROWS + _ITEM_ROWS)) // 2, (width - w * _COLUMNS) // 2
    middle, bottom, right = top + len(scene), top + len(scene) + len(panel), left + w * _COLUMNS
    picture = np.zeros((height, width, 3), np.uint8)
    picture[top:middle, left:right] = scene
    picture[middle:bottom, left:right] = panel
    return picture


def _check_size(size: object) -> tuple[int, int]:
    both = size if isinstance(size, tuple) else (size, size)
    # Exact type, because a bool is an int too.
    if len(both) == 2 and all(type(n) is int and MIN_SIZE <= n <= MAX_SIZE for n in both):
        return both
    raise UsageError(
        f"cannot draw a picture of size {size!r}; give a whole number or (width, height), "
        f"each from {MIN_SIZE} to {MAX_SIZE}"
    )


def _tiles(view: View, unit: tuple[int, int]) -> tuple[NDArray[np.uint16], NDArray[np.intp]]:
    """Return tiles for each kind of cell (kinds, 2, h, w, 3), and each cell's kind (7, 9)."""
    cells = view.materials.T.astype(np.intp)
    kinds = [draw_materials(unit)]
    xs, ys = view.objects.nonzero()
    for kind, (x, y) in enumerate(zip(xs.tolist(), ys.tolist(), strict=True), len(MATERIALS)):
        number = view.objects.item(x, y)
        asleep = view.sleeping and number == _PLAYER
        detail = _ASLEEP if asleep else view.details.item(x, y)
        kinds.append(draw_sprite(unit, view.materials.item(x, y), SPRITES[number, detail]))
        cells[y, x] = kind
    return np.concatenate(kinds), cells


def _place_tiles(tiles: NDArray[np.uint8], cells: NDArray[np.intp]) -> NDArray[np.uint8]:
    """Place tiles (kinds, h, w, 3) as indexed by `cells` (7, 9), into (7 * h, 9 * w, 3)."""
    _, h, w, _ = tiles.shape
    laid = tiles.take(cells, axis=0).swapaxes(1, 2)
    return laid.reshape(_ROWS * h, _COLUMNS * w, 3)


def _light(
    day: NDArray[np.uint8 | np.uint16], night_twice: NDArray[np.uint16], daylight: float
) -> NDArray[np.uint8]:
    """Mix day and night colours; halving the weight instead of the colour is exact."""
    mixed = np.multiply(day, daylight, dtype=np.float64)
    mixed += np.multiply(night_twice, (1 - daylight) / 2, dtype=np.float64)
    return mixed.astype(np.uint8)


def _light_night(view: View, planes: NDArray[np.uint8], noise_seed: int) -> NDArray[np.uint8]:
    """Light a scene (3, w, h) with dark noise that grows towards the borders."""
    generator = np.random.Generator(np.random.Philox(key=[noise_seed, view.step]))
    vignette = _vignette(*planes.shape[1:])
    lit = np.empty_like(planes)
    # A few columns at a time, because a large image is limited by memory bandwidth.
    for start in range(0, len(vignette), _BAND):
        band = slice(start, start + _BAND)
        day, mask = planes[:, band], 2 * (0.5 - view.daylight) * vignette[band]
        noisy = (1 - mask) * day
        noisy += mask * generator.uniform(32, 127, mask.shape)
        dark = _fade(noisy.astype(np.uint8), 0.4, NIGHT)
        lit[:, band] = _light(day, dark, view.daylight)
    return lit


def _darken_for_sleep(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return (_fade(planes, 0.0, _SLEEP) >> 1).astype(np.uint8)


def _fade(
    planes: NDArray[np.uint8], colour: float, tint: tuple[int, int, int]
) -> NDArray[np.uint16]:
    """Reduce the saturation of red, green and blue (3, ...) to `colour` and add a tint.

    The result is twice the mean of both, so that no half is lost before the final mix. The
    greys are those of Pillow (ITU-R 601-2 in 16 bits), exact in single precision.
    """
    red, green, blue = full = planes.astype(np.float32, order="C")
    grey = np.floor((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536)
    full -= grey
    full *= colour
    full += grey
    return full.astype(np.uint16) + np.reshape(np.array(tint, np.uint16), (3, *[1] * grey.ndim))


@lru_cache(maxsize=4)
def _vignette(width: int, height: int) -> NDArray[np.float64]:
    """Return the strength of the noise at each pixel (width, height): none in the middle."""
    xs, ys = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    return np.ascontiguousarray(1 - np.exp(-0.5 * (xs**2 + ys**2) / 0.5**2).T)


@lru_cache(maxsize=8)
def draw_materials(unit: tuple[int, int]) -> NDArray[np.uint16]:
    """Return all materials by day and by night (13, 2, h, w, 3)."""
    w, h = unit
    ground = np.full((len(MATERIALS), h, w, 3), _BEYOND_EDGE, np.uint8)
    for number, name in enumerate(MATERIALS[1:], 1):
        ground[number] = _resize_texture(name, w, h)[..., :3]
    return _stack_day_and_night(ground)


@lru_cache(maxsize=256)
def draw_sprite(unit: tuple[int, int], material: int, sprite: str) -> NDArray[np.uint16]:
    """Return a sprite on a material, by day and by night (1, 2, h, w, 3)."""
    ground = draw_materials(unit)[material, 0].astype(np.uint8)
    return _stack_day_and_night(_blend(ground, _resize_texture(sprite, *unit))[None])


def _stack_day_and_night(tiles: NDArray[np.uint8]) -> NDArray[np.uint16]:
    return np.stack([tiles, _fade(tiles.T, 0.4, NIGHT).T], axis=1)


@lru_cache(maxsize=64)
def _draw_inventory(unit: tuple[int, int], counts: tuple[int, ...]) -> NDArray[np.uint8]:
    """Draw the inventory (2 * h, 9 * w, 3) on black."""
    w, h = unit
    panel = np.zeros((_ITEM_ROWS, h, _COLUMNS, w, 3), np.uint8)
    for slot, (name, count) in enumerate(zip(ITEMS, counts, strict=True)):
        if count > 0:
            row, column = divmod(slot, _COLUMNS)
            panel[row, :, column] = draw_item(unit, name, count)
    return panel.reshape(_ITEM_ROWS * h, _COLUMNS * w, 3)


@lru_cache(maxsize=256)
def draw_item(unit: tuple[int, int], name: str, count: int) -> NDArray[np.uint8]:
    """Draw an item and its count (h, w, 3) on black."""
    w, h = unit
    tile = np.zeros((h, w, 3), np.uint8)
    number = str(count) if count <= MAX_ITEM else "unknown"
    for texture, start, share in ((name, 0.1, 0.8), (number, 0.4, 0.6)):
        wide, high = int(share * w), int(share * h)
        if wide and high:
            x, y = int(start * w), int(start * h)
            spot = tile[y : y + high, x : x + wide]
            spot[...] = _blend(spot, _resize_texture(texture, wide, high))
    return tile


def _blend(below: NDArray[np.uint8], texture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blend a texture (h, w, 4) over colours (h, w, 3)."""
    # Single precision and truncation, to match the reference to the last bit.
    share, shade, ground = (
        part.astype(np.float32) / 255 for part in (texture[..., 3:], texture[..., :3], below)
    )
    return (255 * (share * shade + (1 - share) * ground)).astype(np.uint8)


def _resize_texture(name: str, width: int, height: int) -> NDArray[np.uint8]:
    """Return a texture at this size (height, width, 4)."""
    return np.asarray(_load_texture(name).resize((width, height), Image.Resampling.NEAREST))


@lru_cache(maxsize=64)
def _load_texture(name: str) -> Image.Image:
    spec = find_spec("crafter")
    if spec is None or not spec.submodule_search_locations:
        raise AssayError(
            "pictures need the textures of the package 'crafter', which is not installed; "
            "run 'pip install crafter==1.8.3'"
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    with Image.open(folder / "assets" / f"{name}.png") as image:
        return image.convert("RGBA")


def save_gif(
    frames: Sequence[NDArray[np.uint8]],
    path: str | os.PathLike[str],
    *,
    fps: int = 10,
    comment: str,
) -> None:
    """Save frames (height, width, 3) as a looping GIF; each frame has up to 256 colours."""
    _check_frames(frames)
    # Viewers slow down animations above 50 frames per second.
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
    _write_atomically(data, Path(path))


def _check_frames(frames: Sequence[NDArray[np.uint8]]) -> None:
    if not len(frames):
        raise UsageError("no frames to save; give at least one")
    for number, frame in enumerate(frames):
        is_picture = frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
        if not is_picture or frame.shape != frames[0].shape:
            raise UsageError(
                f"frame {number} is {frame.dtype} {frame.shape}; all frames must be uint8 "
                "(height, width, 3) and of one size"
            )


def _write_atomically(data: io.BytesIO, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid4().hex}.tmp")
    try:
        draft.write_bytes(data.getbuffer())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def png_bytes(picture: NDArray[np.uint8]) -> bytes:
    """Return an image (height, width, 3) as PNG."""
    data = io.BytesIO()
    Image.fromarray(picture).save(data, "PNG")
    return data.getvalue()
