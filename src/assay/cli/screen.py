"""Display of an episode while it is played or replayed: live, as plain lines, or not at all.

At most a few hundred frames are kept of an episode, regardless of its length. In a terminal
each character shows two pixels, one above the other.
"""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from assay.core.provenance import collect_provenance
from assay.crafter.players.episode import Moment
from assay.crafter.render import save_gif
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, MAX_ITEM, VIEW, VITALS
from assay.crafter.world import World
from assay.errors import OutputError

_UPPER_HALF = "▀"


class Pixels:
    """Image of shape (height, width, 3) that Rich can print; an odd last row is left out."""

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
                yield Segment(_UPPER_HALF * sum(1 for _ in run), _make_style(*colours))
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width, which is fixed."""
        return Measurement(self._width, self._width)


@lru_cache(maxsize=65536)
def _make_style(r: int, g: int, b: int, below_r: int, below_g: int, below_b: int) -> Style:
    return Style(
        color=Color.from_rgb(r, g, b), bgcolor=Color.from_rgb(below_r, below_g, below_b)
    )


_PANEL_WIDTH = 30
_CAPTION_LINES = 4
_MIN_CELL_SIZE, _MAX_CELL_SIZE = 4, 8
_VITAL_COLOURS = {"health": "red", "food": "yellow", "drink": "blue", "energy": "green"}


class ShowableEpisode(Protocol):
    """Episode that can be shown, either played or replayed."""

    world: World
    reward: float
    unlocked: dict[str, int]


class Screen:
    """Screen that shows nothing; base class of the others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, episode: ShowableEpisode, moment: Moment, caption: str = "") -> None:
        """Show the last step with a caption."""


class PlainScreen(Screen):
    """Screen that prints a line for each achievement."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, episode: ShowableEpisode, moment: Moment, caption: str = "") -> None:
        """Print the achievements that this step unlocked."""
        for name in moment.result.unlocked:
            self._console.print(
                f"step {moment.step:5}  {name}", markup=False, highlight=False, soft_wrap=True
            )


class LiveScreen(Screen):
    """Screen that draws the world, and next to it the inventory and the achievements."""

    def __init__(self, console: Console, title: str, fps: int) -> None:
        self._cell_size = _compute_cell_size(console)
        self._height = console.height - 2
        self._title = title
        self._pause = 1 / fps
        self._next = 0.0
        self._console = console
        self._last: RenderableType = ""
        # The alternate screen is redrawn in place; the normal one would flicker.
        self._live = Live(console=console, auto_refresh=False, screen=True)

    def __enter__(self) -> Self:
        self._next = time.monotonic()
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)
        self._console.print(self._last)

    def show(self, episode: ShowableEpisode, moment: Moment, caption: str = "") -> None:
        """Wait until the step is due, then draw it."""
        self._next += self._pause
        time.sleep(max(0.0, self._next - time.monotonic()))
        columns, rows = VIEW
        picture = episode.world.render(
            (columns * self._cell_size, (rows + 2) * self._cell_size)
        )
        world = Pixels(picture[: rows * self._cell_size])
        caption_lines = Text(caption, style="italic").wrap(self._console, _PANEL_WIDTH)
        panel = _build_panel(
            self._title, episode, moment, caption_lines[:_CAPTION_LINES], self._height
        )
        self._last = Columns([world, panel], padding=(0, 2))
        self._live.update(self._last, refresh=True)


def choose_screen(title: str, fps: int, *, live: bool, silent: bool) -> Screen:
    """Return the live screen if the terminal supports it, plain lines if not."""
    console = Console()
    if silent:
        return Screen()
    in_colour = console.color_system is not None and not console.no_color
    if (
        live
        and console.is_terminal
        and in_colour
        and _compute_cell_size(console) >= _MIN_CELL_SIZE
    ):
        return LiveScreen(console, title, fps)
    return PlainScreen(console)


def _compute_cell_size(console: Console) -> int:
    """Return the largest size of a cell, in pixels, at which everything fits."""
    columns, rows = VIEW
    wide = (console.width - _PANEL_WIDTH - 3) // columns
    high = (console.height - 2) * 2 // rows
    return min(wide, high, _MAX_CELL_SIZE)


def _build_panel(
    title: str, episode: ShowableEpisode, moment: Moment, caption: Sequence[Text], height: int
) -> RenderableType:
    view = episode.world.view()
    carried = [
        Text(f"{count} {name}")
        for name, count in view.inventory.items()
        if count and name not in VITALS
    ]
    lines = [
        Text(title, style="bold"),
        Text(f"step {moment.step}, reward {episode.reward:.1f}"),
        Text("asleep" if view.sleeping else ACTIONS[moment.action], style="dim"),
        *caption,
        Text(),
        *(_format_bar(name, view.inventory[name]) for name in VITALS),
        *([Text(), *carried] if carried else []),
        Text(),
        Text(f"{len(episode.unlocked)} of {len(ACHIEVEMENTS)} achievements", style="bold"),
    ]
    visible_count = max(1, height - len(lines))
    latest = list(episode.unlocked.items())[-visible_count:]
    lines += [Text(f"{step:5}  {name}", style="green") for name, step in latest]
    return Group(*lines)


def _format_bar(name: str, value: int) -> Text:
    return Text.assemble(
        f"{name:7}", ("█" * value, _VITAL_COLOURS[name]), ("░" * (MAX_ITEM - value), "dim")
    )


MAX_FRAMES = 200
_LINE_HEIGHT = 14
_MIN_CAPTION_WIDTH = 200


def add_caption(picture: NDArray[np.uint8], *lines: str) -> NDArray[np.uint8]:
    """Return the image with lines of text below it; narrow images are returned unchanged."""
    from PIL import Image, ImageDraw

    height, width, _ = picture.shape
    if width < _MIN_CAPTION_WIDTH:
        return picture
    framed = Image.new("RGB", (width, height + _LINE_HEIGHT * len(lines) + 4), "black")
    framed.paste(Image.fromarray(picture), (0, 0))
    for number, line in enumerate(lines):
        ImageDraw.Draw(framed).text((4, height + 1 + _LINE_HEIGHT * number), line, fill="white")
    return np.asarray(framed)


class Caption:
    """Text below a frame: the step, the action and the last unlocked achievements."""

    def __init__(self) -> None:
        self._lines = ("step 0", "")

    def update(self, step: int, action: str, unlocked: Sequence[str]) -> None:
        """Update the text for a step."""
        last = self._lines[1]
        if unlocked:
            last = f"unlocked {', '.join(unlocked)} in step {step}"
        self._lines = (f"step {step}: {action}", last)

    def draw_below(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the image with the text below it."""
        return add_caption(picture, *self._lines)


class Film:
    """Frames of an episode, limited in number.

    Each time the film is full, every other frame is dropped and the interval between frames
    doubles. The frames are therefore evenly spaced, and steps in between are not drawn.
    """

    def __init__(
        self, draw: Callable[[], NDArray[np.uint8]], max_frames: int = MAX_FRAMES
    ) -> None:
        self._draw = draw
        self._max_frames = max_frames
        self._frames = [draw()]
        self._stride = 1
        self._is_current = True

    def add_step(self, step: int) -> None:
        """Draw a frame if one is due at this step."""
        self._is_current = step % self._stride == 0
        if not self._is_current:
            return
        self._frames.append(self._draw())
        if len(self._frames) > self._max_frames:
            self._frames = self._frames[::2]
            self._stride *= 2

    def list_frames(self) -> list[NDArray[np.uint8]]:
        """Return the frames; the last one shows the current state of the world."""
        return self._frames if self._is_current else [*self._frames, self._draw()]

    def save(self, path: Path, *, fps: int) -> None:
        """Write a GIF with `fps` frames per second."""
        try:
            save_gif(self.list_frames(), path, fps=fps, comment=str(collect_provenance()))
        except OSError as error:
            raise OutputError(f"cannot write {str(path)!r}: {error}") from error
