"""HTTP and WebSockets as uvicorn speaks them, with limits to what is not yet a body.

uvicorn bounds neither with its fast parser: a client could send header lines without end,
before a body or after it, or one byte a minute.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["MAX_HEAD", "BoundedHttp", "QuietWebSocket"]

MAX_HEAD: Final = 64 * 1024
"""Bytes of a head, and of what surrounds the pieces of a body."""
HEAD_SECONDS: Final = 15.0


class BoundedHttp(HttpToolsProtocol):
    """Closes connections whose headers, before a body or after it, do not come to an end."""

    _in_head = False
    _head_size = 0
    _around_body = 0
    """Bytes since the last one of a body, which are sizes of pieces and trailers."""
    _moved_on = True
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
        self._moved_on = True
        self._stop_clock()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._moved_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Nothing more belongs to this request."""
        self._moved_on = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Close the connection when the head is too long, or what follows a body."""
        self._moved_on = False
        super().data_received(data)
        self._around_body = (
            0 if self._moved_on or self._in_head else self._around_body + len(data)
        )
        if self._around_body > MAX_HEAD:
            self.transport.abort()
            return
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


class QuietWebSocket(WebSocketsSansIOProtocol):
    """Closes a connection whose text is no UTF-8 without a word in the log."""

    def send_receive_event_to_app(self) -> None:
        """Hand on a message, if it is what it says."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()
