"""The Crafter world: exact, deterministic and fast.

    from assay.crafter import World
    world = World(seed=1)
    result = world.step("move_left")

Names are loaded when first used, so that asking for a rule does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .batch import Batch, BatchStep, BatchView
    from .difficulty import DIFFICULTIES, Difficulty
    from .engine.digest import DIGEST_VERSION
    from .rules import ACHIEVEMENTS, ACTIONS, ITEMS, MATERIALS, OBJECTS, NoEffect
    from .text import Observation, full_text, observe, parse, rules_text, short_text
    from .view import View
    from .world import Ended, StepResult, World, warmup

__all__ = [
    "ACHIEVEMENTS",
    "ACTIONS",
    "DIFFICULTIES",
    "DIGEST_VERSION",
    "ITEMS",
    "MATERIALS",
    "OBJECTS",
    "Batch",
    "BatchStep",
    "BatchView",
    "Difficulty",
    "Ended",
    "NoEffect",
    "Observation",
    "StepResult",
    "View",
    "World",
    "full_text",
    "observe",
    "parse",
    "rules_text",
    "short_text",
    "warmup",
]

__getattr__, __dir__ = _lazy_names(__name__)
