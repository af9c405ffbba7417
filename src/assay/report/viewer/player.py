"""The episode player as values for a notebook: the same module, with the same data."""

from typing import Any, Final

from assay.report.viewer.episodes import episode_values, message_page
from assay.report.viewer.library import Library
from assay.report.viewer.modules import join_modules, page_modules, static_files
from assay.report.viewer.server import lights, sprites

_UNIT: Final = 16
_ALL: Final = 1_000_000


def player_values(library: Library, name: str, step: int = 0) -> dict[str, Any]:
    """Return what the player's model contains, for one episode."""
    episode = episode_values(library, name)
    recording = library.recording(episode["id"])
    steps = max(1000, -(-episode["steps"] // 1000) * 1000)
    return {
        "episode": episode,
        "messages": message_page(library, episode["id"], 0, _ALL)["messages"],
        "film": recording.film() if len(recording.frames) else b"",
        "map": b"",
        "sprites": sprites(_UNIT),
        "lights": lights(steps),
        "step": step,
        "playing": False,
        "speed": 8.0,
        "unit": _UNIT,
        "theme": "auto",
    }


def player_module() -> str:
    """Return the player and all that it imports as one module."""
    return join_modules(page_modules(), "player.js", keep_default=True)


def player_style() -> str:
    """Return the style sheet of the player."""
    return static_files().get("style.css", b"").decode()
