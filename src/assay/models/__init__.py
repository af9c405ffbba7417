"""Language models from outside: which there are, how they are asked, and what that costs.

Names are loaded when first used, so that a list of models needs no HTTP client.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .access import find_base_url, find_key
    from .budget import Budget, Reservation
    from .cache import CachedModel, ReplyCache
    from .client import RemoteModel
    from .cost import upper_bound
    from .pace import Pace, PaceChange
    from .pool import ModelPool
    from .registry import ModelEntry, Price, Provider, Registry
    from .retries import CallRetries
    from .rows import USER_ROWS_VARIABLE, load_registry, user_rows

__all__ = [
    "USER_ROWS_VARIABLE",
    "Budget",
    "CachedModel",
    "CallRetries",
    "ModelEntry",
    "ModelPool",
    "Pace",
    "PaceChange",
    "Price",
    "Provider",
    "Registry",
    "RemoteModel",
    "ReplyCache",
    "Reservation",
    "find_base_url",
    "find_key",
    "load_registry",
    "upper_bound",
    "user_rows",
]

__getattr__ = _lazy_names(
    __name__,
    {
        "access": ("find_base_url", "find_key"),
        "budget": ("Budget", "Reservation"),
        "cache": ("CachedModel", "ReplyCache"),
        "client": ("RemoteModel",),
        "cost": ("upper_bound",),
        "pace": ("Pace", "PaceChange"),
        "pool": ("ModelPool",),
        "registry": ("ModelEntry", "Price", "Provider", "Registry"),
        "retries": ("CallRetries",),
        "rows": ("USER_ROWS_VARIABLE", "load_registry", "user_rows"),
    },
)


def __dir__() -> list[str]:
    return __all__
