"""Who plays: the ReAct agent for language models, scripted policies, and built-in models.

Names are loaded when first used, so that asking for an option does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .builtin import BUILTIN_MODELS, BuiltinModel, make_builtin
    from .episode import Episode, Moment
    from .expert import ExpertPolicy, Goal
    from .feedback import MARKER, Result, observation_in, results_in
    from .options import AgentOptions
    from .policies import POLICIES, NoopPolicy, Policy, RandomPolicy, make_policy
    from .react import Asked, MessageType, NewMessage, ReactAgent
    from .reading import Decision

__all__ = [
    "BUILTIN_MODELS",
    "MARKER",
    "POLICIES",
    "AgentOptions",
    "Asked",
    "BuiltinModel",
    "Decision",
    "Episode",
    "ExpertPolicy",
    "Goal",
    "MessageType",
    "Moment",
    "NewMessage",
    "NoopPolicy",
    "Policy",
    "RandomPolicy",
    "ReactAgent",
    "Result",
    "make_builtin",
    "make_policy",
    "observation_in",
    "results_in",
]

__getattr__ = _lazy_names(
    __name__,
    {
        "builtin": ("BUILTIN_MODELS", "BuiltinModel", "make_builtin"),
        "episode": ("Episode", "Moment"),
        "expert": ("ExpertPolicy", "Goal"),
        "feedback": ("MARKER", "Result", "observation_in", "results_in"),
        "options": ("AgentOptions",),
        "policies": ("POLICIES", "NoopPolicy", "Policy", "RandomPolicy", "make_policy"),
        "react": ("Asked", "MessageType", "NewMessage", "ReactAgent"),
        "reading": ("Decision",),
    },
)


def __dir__() -> list[str]:
    return __all__
