"""HTTP as uvicorn speaks it, with a limit to how long and how slow a head may be.

uvicorn bounds neither with its fast parser: a client could send header lines without end,
or one byte a minute.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["MAX_HEAD", "BoundedHttp"]

MAX_HEAD: Final = 64 * 1024
HEAD_SECONDS: Final = 15.0


class BoundedHttp(HttpToolsProtocol):
    """Closes connections whose request line and headers do not come to an end."""

    _in_head = False
    _head_size = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Give the first head its time."""
        super().connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Give the next head its time."""
        super().on_message_begin()
        self._in_head, self._head_size = True, 0
        self._start_clock()

    def on_headers_complete(self) -> None:
        """The head has come to its end."""
        self._in_head = False
        self._stop_clock()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Close the connection when the head is too long."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self.send_400_response("The head of the request is too large.")

    def _start_clock(self) -> None:
        self._stop_clock()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
