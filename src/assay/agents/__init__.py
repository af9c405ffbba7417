"""Who talks to models: the ReAct agent, what it reads and says, and the built-in chat models.

Names are loaded when first used, so that asking for an option does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .builtin import BUILTIN_MODELS, BuiltinModel, make_builtin
    from .feedback import MARKER, observation_in, results_in
    from .options import AgentOptions
    from .react import ReactAgent
    from .reading import Decision

__all__ = [
    "BUILTIN_MODELS",
    "MARKER",
    "AgentOptions",
    "BuiltinModel",
    "Decision",
    "ReactAgent",
    "make_builtin",
    "observation_in",
    "results_in",
]

__getattr__, __dir__ = _lazy_names(__name__)
