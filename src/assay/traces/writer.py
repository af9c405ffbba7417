"""The single writer: a thread that moves ended sessions from their journals into the store.

Whoever plays sessions is never held up by it. Sessions that end within a moment of each
other share one opening of the database.
"""

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .file import StoreFile
from .intake import EndedJournal, WriterEvent, store_journals
from .records import RunRecord

__all__ = ["Writer"]

_LINGER_S = 0.5
_BATCH = 64
_BATCH_BYTES = 32_000_000


class Writer:
    """Stores sessions in the background, from `start` until `close`."""

    def __init__(
        self,
        store: StoreFile,
        *,
        on_event: Callable[[WriterEvent], None],
        linger: float = _LINGER_S,
    ) -> None:
        """Make a writer that waits to be started.

        Args:
            store: where sessions go.
            on_event: told what became of each session, in the thread of the writer.
            linger: seconds that a session may wait for others to be stored with.
        """
        self._store = store
        self._on_event = on_event
        self._linger = linger
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

    def drain(self) -> None:
        """Wait until all that was submitted is stored or reported."""
        self._queue.put(None)
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0 or self._crash is not None)
        if self._crash is not None:
            raise self._crash

    def close(self) -> None:
        """Store what is left, then end the thread."""
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
                store_journals(self._store, batch, self._on_event)
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
