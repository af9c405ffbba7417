"""Hosting of ASGI applications with uvicorn: sockets, limits and orderly shutdown.

All servers of assay start and stop here. The HTTP and WebSocket protocols add limits that
uvicorn lacks with its fast parser: a client could send endless header lines, before a body or
after it, or one byte per minute.
"""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from assay.core.http import is_loopback
from assay.errors import UsageError

MAX_HEAD: Final = 64 * 1024
"""Maximum size of a request head, and of the data around the chunks of a body, in bytes."""
HEAD_SECONDS: Final = 15.0


class BoundedHttp(HttpToolsProtocol):
    """HTTP protocol that closes connections with endless headers or trailers."""

    _in_head = False
    _head_size = 0
    _around_body = 0
    """Bytes since the last byte of a body: chunk sizes and trailers."""
    _has_progress = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time limit of the first head."""
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start the time limit of the next head."""
        super().on_message_begin()
        self._in_head, self._head_size = True, 0
        self._start_deadline()

    def on_headers_complete(self) -> None:
        """Cancel the time limit when a head is complete."""
        self._in_head = False
        self._has_progress = True
        self._cancel_deadline()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Reset the count of bytes around a body."""
        self._has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Reset the count of bytes at the end of a request."""
        self._has_progress = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Close the connection if the headers or the chunk framing of a body are too long."""
        self._has_progress = False
        super().data_received(data)
        self._around_body = (
            0 if self._has_progress or self._in_head else self._around_body + len(data)
        )
        if self._around_body > MAX_HEAD:
            self.transport.abort()
            return
        if self._in_head and not self.transport.is_closing():
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self.send_400_response("The head of the request is too large.")

    def _start_deadline(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class QuietWebSocket(WebSocketsSansIOProtocol):
    """WebSocket protocol that closes connections with invalid UTF-8 without logging."""

    def send_receive_event_to_app(self) -> None:
        """Forward a message, or close the connection if its text is not UTF-8."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()


_CONNECTIONS: Final = 1000
_KEEP_ALIVE: Final = 75
_GRACE: Final = 5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """Address of a server, and the host names it accepts."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 picks a free port."""
    allowed_hosts: tuple[str, ...] = ()
    """Accepted host names in addition to `host` and loopback."""

    @property
    def is_local(self) -> bool:
        """Whether the server is reachable from this machine only."""
        return is_loopback(self.host)


class Server(uvicorn.Server):
    """uvicorn server that reports its start and end, and does not re-raise signals."""

    announce: Callable[[], None] = staticmethod(lambda: None)
    """Called when clients can connect."""
    ending: Callable[[], None] = staticmethod(lambda: None)
    """Called when shutdown begins, before open requests are waited for."""
    takes_signals = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then call `announce`."""
        await super().startup(sockets)
        self.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `ending`, then wait for open requests."""
        self.ending()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM, if enabled and in the main thread."""
        is_main = threading.current_thread() is threading.main_thread()
        if not (self.takes_signals and is_main):
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)


def make_server(
    app: Any,
    *,
    http: type[BoundedHttp] = BoundedHttp,
    connections: int = _CONNECTIONS,
    websocket_bytes: int | None = None,
) -> Server:
    """Create a server for `app`; WebSockets are disabled without a message limit."""
    websockets: dict[str, Any] = {"ws": "none"}
    if websocket_bytes is not None:
        websockets = {
            "ws": QuietWebSocket,
            "ws_max_size": websocket_bytes,
            "ws_per_message_deflate": False,
        }
    return Server(
        uvicorn.Config(
            app,
            http=http,
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=connections,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
            **websockets,
        )
    )


@contextlib.contextmanager
def serve_in_thread(server: Server, listener: socket.socket) -> Iterator[None]:
    """Serve in a thread while the block runs."""
    ready = threading.Event()
    server.announce = ready.set
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        while not ready.wait(0.05):
            if not thread.is_alive():
                raise RuntimeError("the service did not start")
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextlib.asynccontextmanager
async def serve_in_loop(server: Server, listener: socket.socket) -> AsyncIterator[None]:
    """Serve in the running event loop while the block runs, without signal handlers."""
    ready = asyncio.Event()
    server.announce, server.takes_signals = ready.set, False
    task = asyncio.create_task(server.serve([listener]))
    try:
        starting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if task.done():
            raise RuntimeError("the service did not start")
        yield
    finally:
        server.should_exit = True
        await task


def format_address(host: str, listener: socket.socket) -> str:
    """Return the URL of a host with the actual port of a socket."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


@contextlib.contextmanager
def open_listener(
    host: str, port: int, *, backlog: int = _CONNECTIONS
) -> Iterator[socket.socket]:
    """Yield a listening socket; port 0 picks a free one."""
    with contextlib.closing(_bind(host, port, backlog)) as listener:
        yield listener


@contextlib.contextmanager
def open_unix_listener(path: Path) -> Iterator[socket.socket]:
    """Yield a listening Unix socket; its file is removed at the end."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(str(path))
        try:
            listener.listen(_CONNECTIONS)
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _bind(host: str, port: int, backlog: int) -> socket.socket:
    if not host:  # an empty host would mean all addresses
        raise UsageError("the host is empty; give one, for example 127.0.0.1")
    try:
        address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(address[0], address[1], address[2])
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address[4])
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot serve on {host}:{port}: {reason}; "
            "choose another --host or --port (0 picks a free one)"
        ) from error
    return listener
