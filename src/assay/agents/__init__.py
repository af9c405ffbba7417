"""Who plays: policies that choose an action from what a player can see."""

from assay.agents.episode import Episode, Moment
from assay.agents.expert import ExpertPolicy, Goal
from assay.agents.policies import POLICIES, NoopPolicy, Policy, RandomPolicy, make_policy

__all__ = [
    "POLICIES",
    "Episode",
    "ExpertPolicy",
    "Goal",
    "Moment",
    "NoopPolicy",
    "Policy",
    "RandomPolicy",
    "make_policy",
]
