"""What agents did, written down: a journal per session, then tables in one DuckDB file.

    from assay.traces import SessionTracer, Store

Names are loaded when first used, so that a journal is written without DuckDB.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .folder import RunFolder, RunHeld, unfinished_runs
    from .ingest import ensure_run, finish_run, ingest_session
    from .intake import JournalDamaged, SessionStored, StoringFailed, WriterEvent
    from .journal import Journal, read_journal
    from .leftovers import ingest_leftovers
    from .queries import (
        EpisodeRow,
        committed_sessions,
        episodes,
        resolve_experiment,
        resolve_run,
        resolve_session,
    )
    from .schema import RunStatus
    from .store import Store
    from .tracer import SessionTracer
    from .writer import Writer

__all__ = [
    "EpisodeRow",
    "Journal",
    "JournalDamaged",
    "RunFolder",
    "RunHeld",
    "RunStatus",
    "SessionStored",
    "SessionTracer",
    "Store",
    "StoringFailed",
    "Writer",
    "WriterEvent",
    "committed_sessions",
    "ensure_run",
    "episodes",
    "finish_run",
    "ingest_leftovers",
    "ingest_session",
    "read_journal",
    "resolve_experiment",
    "resolve_run",
    "resolve_session",
    "unfinished_runs",
]

__getattr__ = _lazy_names(
    __name__,
    {
        "folder": ("RunFolder", "RunHeld", "unfinished_runs"),
        "ingest": ("ensure_run", "finish_run", "ingest_session"),
        "intake": ("JournalDamaged", "SessionStored", "StoringFailed", "WriterEvent"),
        "journal": ("Journal", "read_journal"),
        "leftovers": ("ingest_leftovers",),
        "queries": (
            "EpisodeRow",
            "committed_sessions",
            "episodes",
            "resolve_experiment",
            "resolve_run",
            "resolve_session",
        ),
        "schema": ("RunStatus",),
        "store": ("Store",),
        "tracer": ("SessionTracer",),
        "writer": ("Writer",),
    },
)


def __dir__() -> list[str]:
    return __all__
