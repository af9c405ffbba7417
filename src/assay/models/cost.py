"""What a call costs: at most, before it is made, and exactly, once its tokens are known.

The bound needs no tokenizer: no token is shorter than a byte.
"""

from typing import TYPE_CHECKING

from assay.errors import ModelRefused
from assay.types import ChatRequest, Usage

if TYPE_CHECKING:
    from .registry import Price

__all__ = ["cost", "upper_bound"]

_MESSAGE_MARGIN = 16
"""Tokens a provider adds around a message: its role, its ends, its name."""
_TOOL_MARGIN = 64
"""Tokens a provider adds around a tool, when it is written in a form of its own."""
_REQUEST_MARGIN = 256
"""Tokens a provider adds once: the start of the reply, and how tools are to be used."""
_MILLION = 1_000_000


def upper_bound(request: ChatRequest, price: "Price") -> float:
    """The most dollars a request can cost, however its text is cut into tokens.

    Raises:
        ModelRefused: It may be longer than what the price is for.
    """
    tools = request.tools.value
    tokens = (
        sum(len(message.encoded) + _MESSAGE_MARGIN for message in request.messages)
        + len(request.tools.encoded)
        + _TOOL_MARGIN * (len(tools) if isinstance(tools, list | tuple) else 1)
        + _REQUEST_MARGIN
    )
    if price.up_to is not None and tokens > price.up_to:
        raise ModelRefused(
            f"a request of up to {tokens} tokens has no known price: that of the registry is "
            f"for at most {price.up_to}; shorten the history, or give --price"
        )
    # Tokens that are kept for later cost more with some providers, and all of them may be.
    dearest = max(price.input, price.cached or 0.0, price.cache_write or 0.0)
    return (tokens * dearest + request.max_tokens * price.output) / _MILLION


def cost(usage: Usage, price: "Price") -> float | None:
    """The dollars that tokens cost; None for more of them than the price is for.

    Cached ones count as others where they have no price of their own.
    """
    if price.up_to is not None and usage.prompt > price.up_to:
        return None
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    dollars = fresh * price.input + usage.cached * cached + usage.completion * price.output
    return dollars / _MILLION
