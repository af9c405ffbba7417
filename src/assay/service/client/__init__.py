"""One interface to worlds, in process or over HTTP."""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .http import HttpClient
    from .local import LocalClient
    from .protocol import WorldClient

__all__ = ["HttpClient", "LocalClient", "WorldClient"]

__getattr__, __dir__ = _lazy_names(__name__)
