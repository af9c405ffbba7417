"""The closed loop: a teacher plays, a student learns from it, and both sit the same exam.

    from assay.loop import LoopConfig, Notebook, run_stages

What each stage does is given from outside; here is what a loop is, in which order, and what
need not be done again.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .config import LoopConfig
    from .stages import Notebook, Stage, StageDone, StageEvent, done_before, run_stages

__all__ = [
    "LoopConfig",
    "Notebook",
    "Stage",
    "StageDone",
    "StageEvent",
    "done_before",
    "run_stages",
]

__getattr__, __dir__ = _lazy_names(__name__)
