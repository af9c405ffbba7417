"""How the help of a command is laid out: paragraphs wrap once, at the width there is."""

import re
from typing import TYPE_CHECKING, Any

from cyclopts.help import DefaultFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

__all__ = ["HelpFormatter"]


class HelpFormatter(DefaultFormatter):
    """As Cyclopts has it, with the line ends of the source taken out of paragraphs."""

    def __call__(
        self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel"
    ) -> None:
        """Print one panel of options or commands."""
        entries = [_shown(entry) for entry in panel.entries]
        title = "Options" if str(panel.title) == "Parameters" else panel.title
        super().__call__(console, options, panel.copy(entries=entries, title=title))

    def render_description(
        self, console: "Console", options: "ConsoleOptions", description: Any
    ) -> None:
        """Print what a command does."""
        _unwrap(description)
        super().render_description(console, options, description)


def _shown(entry: "HelpEntry") -> "HelpEntry":
    _unwrap(entry.description)
    default = {"True": "on", "False": None, '""': None}.get(str(entry.default), entry.default)
    if default is not None:
        default = default.removesuffix(".0")
    return entry.copy(default=default)


def _unwrap(description: Any) -> None:
    """Join the lines of each paragraph; lines that are indented, such as examples, stay."""
    text = getattr(description, "primary_renderable", None)
    plain = getattr(text, "plain", None)
    if plain is not None:
        from rich.text import Text

        description.primary_renderable = Text(re.sub(r"(?<=\S)\n(?=\S)", " ", plain))
