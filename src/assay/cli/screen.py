"""How an episode is shown while it is played: live, as plain lines, or not at all."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from assay.cli.pixels import Pixels
from assay.crafter import ACHIEVEMENTS, ACTIONS, World
from assay.crafter.rules import MAX_ITEM, VIEW, VITALS
from assay.players import Moment

__all__ = ["LiveScreen", "PlainScreen", "Screen", "Shown", "choose_screen"]

_PANEL_WIDTH = 30
_CAPTION_LINES = 4
_MIN_UNIT, _MAX_UNIT = 4, 8
_COLOURS = {"health": "red", "food": "yellow", "drink": "blue", "energy": "green"}


class Shown(Protocol):
    """An episode that can be shown, whether it is played or played again."""

    world: World
    reward: float
    unlocked: dict[str, int]


class Screen:
    """Shows nothing; the others show what was played."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def show(self, episode: Shown, moment: Moment, caption: str = "") -> None:
        """Show the step that was just made, with words of one's own."""


class PlainScreen(Screen):
    """One line for each achievement."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, episode: Shown, moment: Moment, caption: str = "") -> None:
        """Print what this step unlocked."""
        for name in moment.result.unlocked:
            self._console.print(
                f"step {moment.step:5}  {name}", markup=False, highlight=False, soft_wrap=True
            )


class LiveScreen(Screen):
    """The world in pixels, beside it what the player has and what it achieved."""

    def __init__(self, console: Console, title: str, fps: int) -> None:
        self._unit = _unit(console)
        self._height = console.height - 2
        self._title = title
        self._pause = 1 / fps
        self._next = 0.0
        self._console = console
        self._last: RenderableType = ""
        # The alternate screen is painted over in place; the usual one would flicker.
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

    def show(self, episode: Shown, moment: Moment, caption: str = "") -> None:
        """Draw this step, not before it is due."""
        self._next += self._pause
        time.sleep(max(0.0, self._next - time.monotonic()))
        columns, rows = VIEW
        picture = episode.world.render((columns * self._unit, (rows + 2) * self._unit))
        world = Pixels(picture[: rows * self._unit])
        words = Text(caption, style="italic").wrap(self._console, _PANEL_WIDTH)
        panel = _panel(self._title, episode, moment, words[:_CAPTION_LINES], self._height)
        self._last = Columns([world, panel], padding=(0, 2))
        self._live.update(self._last, refresh=True)


def choose_screen(title: str, fps: int, *, live: bool, silent: bool) -> Screen:
    """Return the live screen where the terminal can show it, else plain lines."""
    console = Console()
    if silent:
        return Screen()
    in_colour = console.color_system is not None and not console.no_color
    if live and console.is_terminal and in_colour and _unit(console) >= _MIN_UNIT:
        return LiveScreen(console, title, fps)
    return PlainScreen(console)


def _unit(console: Console) -> int:
    """How many pixels wide and high a cell can be, so that everything fits."""
    columns, rows = VIEW
    wide = (console.width - _PANEL_WIDTH - 3) // columns
    high = (console.height - 2) * 2 // rows
    return min(wide, high, _MAX_UNIT)


def _panel(
    title: str, episode: Shown, moment: Moment, caption: Sequence[Text], height: int
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
        *(_bar(name, view.inventory[name]) for name in VITALS),
        *([Text(), *carried] if carried else []),
        Text(),
        Text(f"{len(episode.unlocked)} of {len(ACHIEVEMENTS)} achievements", style="bold"),
    ]
    room = max(1, height - len(lines))
    latest = list(episode.unlocked.items())[-room:]
    lines += [Text(f"{step:5}  {name}", style="green") for name, step in latest]
    return Group(*lines)


def _bar(name: str, value: int) -> Text:
    return Text.assemble(
        f"{name:7}", ("█" * value, _COLOURS[name]), ("░" * (MAX_ITEM - value), "dim")
    )
