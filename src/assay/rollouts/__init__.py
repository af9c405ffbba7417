"""The episode as a kind of trial: in Crafter, or in an environment of the user's own."""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .arms import arm_options, arms_of
    from .config import RunConfig
    from .kind import EpisodeKind, EpisodeParts
    from .progress import EpisodeEnd, TurnProgress
    from .spec import EpisodeLimits, EpisodeSpec

__all__ = [
    "EpisodeEnd",
    "EpisodeKind",
    "EpisodeLimits",
    "EpisodeParts",
    "EpisodeSpec",
    "RunConfig",
    "TurnProgress",
    "arm_options",
    "arms_of",
]

__getattr__, __dir__ = _lazy_names(__name__)
