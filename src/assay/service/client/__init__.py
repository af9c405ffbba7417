"""One interface to worlds, in process or over HTTP."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .http import HttpClient
    from .local import LocalClient
    from .protocol import WorldClient

__all__ = ["HttpClient", "LocalClient", "WorldClient"]

_HOME = {"HttpClient": "http", "LocalClient": "local", "WorldClient": "protocol"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
