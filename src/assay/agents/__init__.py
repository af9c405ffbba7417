"""Who plays: policies that choose an action from what a player can see."""

from assay.agents.episode import Episode, Moment
from assay.agents.policies import POLICIES, NoopPolicy, Policy, RandomPolicy, make_policy

__all__ = [
    "POLICIES",
    "Episode",
    "Moment",
    "NoopPolicy",
    "Policy",
    "RandomPolicy",
    "make_policy",
]
