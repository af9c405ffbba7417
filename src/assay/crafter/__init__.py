"""The Crafter world: exact, deterministic and fast.

    from assay.crafter import World
    world = World(seed=1)
    result = world.step("move_left")

Names are imported when first used, so that importing a rule does not load numba.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.crafter.batch import Batch, BatchStep, BatchView
    from assay.crafter.difficulty import DIFFICULTIES, Difficulty
    from assay.crafter.engine.digest import DIGEST_VERSION
    from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, ITEMS, MATERIALS, OBJECTS, NoEffect
    from assay.crafter.text.forms import full_text, parse, short_text
    from assay.crafter.text.guide import rules_text
    from assay.crafter.text.observation import Observation, observe
    from assay.crafter.view import View
    from assay.crafter.world import Ended, StepResult, World, warmup

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
