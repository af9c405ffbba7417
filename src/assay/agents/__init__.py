"""The ReAct agent, its prompts and its parser, the built-in chat models, and user agents.

Names are loaded when first used, so that importing options does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.agents.builtin import make_builtin
    from assay.agents.options import AgentOptions
    from assay.agents.react import ReactAgent

__all__ = [
    "AgentOptions",
    "ReactAgent",
    "make_builtin",
]

__getattr__, __dir__ = _lazy_names(__name__)
