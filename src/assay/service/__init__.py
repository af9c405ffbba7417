"""The Crafter world over HTTP, and the client that the rest of assay plays through.

    from assay.service import HttpClient, LocalClient

Both clients do the same; only where the worlds are differs. Names are loaded when first
used, so that a client in process loads no HTTP.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .client.http import HttpClient
    from .client.local import LocalClient
    from .client.protocol import WorldClient
    from .server import RunningService, ServiceSettings, run, running

__all__ = [
    "HttpClient",
    "LocalClient",
    "RunningService",
    "ServiceSettings",
    "WorldClient",
    "run",
    "running",
]

__getattr__, __dir__ = _lazy_names(__name__)
