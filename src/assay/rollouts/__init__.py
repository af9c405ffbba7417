"""The Crafter episode as a trial, and the run of many of them."""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .config import RunConfig
    from .episode import EpisodeAttempt
    from .play import play_all
    from .prepare import PreparedRun, prepare_run
    from .progress import EpisodeEnd, TurnProgress
    from .run import RunResult, execute
    from .spec import EpisodeLimits, EpisodeSettings, EpisodeSpec

__all__ = [
    "EpisodeAttempt",
    "EpisodeEnd",
    "EpisodeLimits",
    "EpisodeSettings",
    "EpisodeSpec",
    "PreparedRun",
    "RunConfig",
    "RunResult",
    "TurnProgress",
    "execute",
    "play_all",
    "prepare_run",
]

__getattr__, __dir__ = _lazy_names(__name__)
