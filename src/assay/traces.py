"""Public import path for the database of sessions.

The definitions are in `assay.store`.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.store.store import Store as Store
    from assay.store.store import ingest_leftovers as ingest_leftovers
    from assay.store.tracer import SessionTracer as SessionTracer

__getattr__, __dir__ = _lazy_names(__name__)
