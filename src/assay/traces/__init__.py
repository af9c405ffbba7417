"""What agents did, written down: a journal per session, then tables in one DuckDB file.

    from assay.traces import SessionTracer, Store

Names are loaded when first used, so that a journal is written without DuckDB.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .leftovers import ingest_leftovers
    from .store import Store
    from .tracer import SessionTracer

__all__ = ["SessionTracer", "Store", "ingest_leftovers"]

__getattr__, __dir__ = _lazy_names(__name__)
