"""A store: its file, and what was journaled for it and is not in it yet.

Before the file is opened, the sessions that tracers have ended, or left when their process
died, are moved into it. So nobody who asks a store has to know that they were waiting.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from assay.errors import StoreError

from .file import StoreFile
from .leftovers import take_in

__all__ = ["Store"]


class Store(StoreFile):
    """One database file, with all sessions that have ended."""

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that cannot change anything; the file must be there."""
        self._take_in()
        with super().reading() as connection:
            yield connection

    def _take_in(self) -> None:
        # What cannot be stored now stays in its journal, and keeps nobody from the rest.
        with suppress(StoreError, OSError):
            take_in(self.path)

    @contextmanager
    def writing(self, *, beside: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that may write; the file is made if it is missing."""
        self._take_in()
        with super().writing(beside=beside) as connection:
            yield connection
