"""Scripted policies that see a view and choose an action, and an episode of one.

Names are loaded when first used, so that asking for an option does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .episode import Moment, PolicyEpisode
    from .expert import ExpertPolicy, Goal
    from .policies import POLICIES, NoopPolicy, Policy, RandomPolicy, make_policy

__all__ = [
    "POLICIES",
    "ExpertPolicy",
    "Goal",
    "Moment",
    "NoopPolicy",
    "Policy",
    "PolicyEpisode",
    "RandomPolicy",
    "make_policy",
]

__getattr__, __dir__ = _lazy_names(__name__)
