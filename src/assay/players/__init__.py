"""Scripted players: policies that see a view, an episode of one, and turns of the forager.

Names are loaded when first used, so that asking for an option does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .episode import Moment, PolicyEpisode
    from .expert import ExpertPolicy, Goal
    from .forager import ForagerTurn, forage
    from .policies import POLICIES, NoopPolicy, Policy, RandomPolicy, make_policy

__all__ = [
    "POLICIES",
    "ExpertPolicy",
    "ForagerTurn",
    "Goal",
    "Moment",
    "NoopPolicy",
    "Policy",
    "PolicyEpisode",
    "RandomPolicy",
    "forage",
    "make_policy",
]

__getattr__, __dir__ = _lazy_names(__name__)
