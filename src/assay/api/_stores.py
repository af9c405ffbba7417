"""Traces of files and folders, as a store."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import UsageError
from assay.traces.opening import store_at

if TYPE_CHECKING:
    from assay.exchange.sources import DamagedSource
    from assay.traces.store import Store

__all__ = ["TraceStore", "traces_as_store"]


class TraceStore(NamedTuple):
    """Traces of files and folders, as a store."""

    store: "Store"
    damaged: "tuple[DamagedSource, ...]"
    """What could not be read."""


@contextmanager
def traces_as_store(paths: Sequence[Path]) -> Iterator[TraceStore]:
    """A store of the traces in files and folders, there as long as it is used.

    Raises:
        UsageError: A path does not exist, or none of them holds a trace.
    """
    from assay.exchange.imports import import_traces
    from assay.exchange.sources import trace_files

    files = trace_files(paths)
    with tempfile.TemporaryDirectory(prefix="assay-traces-") as folder:
        store = store_at(Path(folder, "traces.duckdb"))
        report = import_traces(store, files)
        if not report.added:
            reasons = [f"{where} {reason}" for where, reason in report.damaged]
            reasons += [f"{where} {reason}" for where, reason in report.skipped]
            told = f": {reasons[0]}" if reasons else ""
            raise UsageError(
                f"there are no traces in {', '.join(map(str, paths))}{told}; name a folder that"
                " 'assay run' or 'assay traces export' wrote, or another program's logs"
            )
        yield TraceStore(store, report.damaged)
