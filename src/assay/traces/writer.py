"""The single writer: a thread that moves ended sessions from their journals into the store.

Whoever plays sessions is never held up by it. Sessions that end within a moment of each
other share one opening of the database.
"""

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from .file import StoreFile
from .intake import EndedJournal, WriterEvent, store_journals
from .records import RunRecord

__all__ = ["Writer"]

_LINGER_S = 0.5
_LOOK_S = 0.1
_FIRST_WORD_S, _WORD_EVERY_S = 2.0, 5.0
_BATCH = 64
_BATCH_BYTES = 32_000_000


class Writer:
    """Stores sessions in the background, from `start` until `close`."""

    def __init__(
        self,
        store: StoreFile,
        *,
        on_event: Callable[[WriterEvent], None],
        then: Callable[[duckdb.DuckDBPyConnection], object] = lambda connection: None,
        linger: float = _LINGER_S,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make a writer that waits to be started.

        Args:
            store: where sessions go.
            on_event: told what became of each session, in the thread of the writer.
            then: called while the store is open, after sessions were stored.
            linger: seconds that a session may wait for others to be stored with.
            given_up: whether nobody waits any longer; what is left stays in its journals.
        """
        self._given_up = given_up
        self._store = store
        self._on_event = on_event
        self._linger, self._then = linger, then
        self._queue: queue.SimpleQueue[EndedJournal | None] = queue.SimpleQueue()
        """None means: go on with what there is."""
        self._changed = threading.Condition()
        self._pending = 0
        self._crash: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._work, name="assay-writer", daemon=True)
        self._thread.start()

    def submit(self, run: RunRecord, journal: Path) -> None:
        """Hand over the journal of a session that has ended."""
        with self._changed:
            self._pending += 1
        self._queue.put(EndedJournal(run, journal))

    def drain(self, tell: Callable[[int], None] = lambda left: None) -> bool:
        """Wait until all that was submitted is stored or reported; False if it was given up.

        `tell` hears now and then how many sessions are left.
        """
        self._queue.put(None)
        due = time.monotonic() + _FIRST_WORD_S
        with self._changed:
            while self._pending and self._crash is None and not self._given_up():
                self._changed.wait(_LOOK_S)
                if time.monotonic() >= due and self._pending:
                    due = time.monotonic() + _WORD_EVERY_S
                    tell(self._pending)
        if self._crash is not None:
            raise self._crash
        return not self._pending

    def close(self) -> None:
        """Store what is left, unless that is given up, then end the thread."""
        if self._thread is None:
            return
        try:
            self.drain()
        finally:
            self._closing = True
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        try:
            while not self._closing:
                batch = self._collect()
                store_journals(
                    self._store,
                    batch,
                    self._on_event,
                    then=self._then,
                    given_up=self._given_up,
                )
                with self._changed:
                    self._pending -= len(batch)
                    self._changed.notify_all()
        except BaseException as error:
            # A fault of the program, not of a session: whoever waits raises it.
            with self._changed:
                self._crash = error
                self._changed.notify_all()

    def _collect(self) -> list[EndedJournal]:
        """Wait for a journal, then take those that come soon after it."""
        batch: list[EndedJournal] = []
        size = 0
        until = 0.0
        while len(batch) < _BATCH and size < _BATCH_BYTES:
            left = max(0.0, until - time.monotonic()) if batch else None
            try:
                ended = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if ended is None:
                break
            if not batch:
                until = time.monotonic() + self._linger
            batch.append(ended)
            size += _size(ended.journal)
        return batch


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
