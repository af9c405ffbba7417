"""Language models from outside: which there are, how they are asked, and what that costs.

Names are loaded when first used, so that a list of models needs no HTTP client.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .access import find_base_url, find_key, is_address
    from .budget import Budget
    from .pace import PaceChange
    from .pool import ModelPool
    from .registry import ModelEntry, Price, Provider, Registry
    from .retries import CallRetries
    from .rows import load_registry, user_rows

__all__ = [
    "Budget",
    "CallRetries",
    "ModelEntry",
    "ModelPool",
    "PaceChange",
    "Price",
    "Provider",
    "Registry",
    "find_base_url",
    "find_key",
    "is_address",
    "load_registry",
    "user_rows",
]

__getattr__, __dir__ = _lazy_names(__name__)
