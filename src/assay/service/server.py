"""Running the service: the socket, uvicorn, and an orderly end."""

import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import uvicorn

from assay.crafter import warmup
from assay.errors import UsageError

from .app import make_app
from .guard import is_loopback
from .protocol import BoundedHttp
from .requests import MAX_BODY
from .worlds import DEFAULT_IDLE_TIMEOUT, DEFAULT_INSTANCES, Worlds

__all__ = ["DEFAULT_PORT", "Running", "Settings", "run", "running"]

DEFAULT_PORT: Final = 8901
_CONNECTIONS: Final = 1000
_KEEP_ALIVE: Final = 75
_GRACE: Final = 5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 picks a free one."""
    max_instances: int = DEFAULT_INSTANCES
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    """Seconds after which an instance that nobody asked for is forgotten."""
    seed: int = field(default_factory=lambda: secrets.randbelow(2**31))
    """Of the generator from which worlds are drawn that nobody chose."""
    token: str | None = field(default=None, repr=False)
    """What clients must send, if anything."""
    allowed_hosts: tuple[str, ...] = ()
    """Names the service answers to, besides its own and those of loopback."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


@dataclass(frozen=True)
class Running:
    """A service that can be asked."""

    address: str
    """For example http://127.0.0.1:8901"""
    settings: Settings


def run(
    settings: Settings,
    announce: Callable[[Running], None],
    prepare: Callable[[], object] = warmup,
) -> None:
    """Serve until SIGINT or SIGTERM.

    `prepare` is called once the address is ours, for what takes long, and `announce` when
    clients can connect.
    """
    with _listening(settings) as (server, sockets, service):
        prepare()
        server.announce = lambda: announce(service)
        server.run(sockets)


@contextlib.contextmanager
def running(settings: Settings) -> Iterator[Running]:
    """Serve in a thread, for as long as the block takes."""
    with _listening(settings) as (server, sockets, service):
        warmup()
        ready = threading.Event()
        server.announce = ready.set
        thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
        thread.start()
        try:
            while not ready.wait(0.05):
                if not thread.is_alive():
                    raise RuntimeError("the service did not start")
            yield service
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def _listening(
    settings: Settings,
) -> Iterator[tuple["_Server", list[socket.socket], Running]]:
    listener = _bind(settings.host, settings.port)
    with contextlib.closing(listener):
        worlds = Worlds(
            seed=settings.seed,
            max_instances=settings.max_instances,
            idle_timeout=settings.idle_timeout,
        )
        app = make_app(
            worlds,
            host=settings.host,
            allowed_hosts=settings.allowed_hosts,
            token=settings.token,
            sweep_seconds=min(30.0, max(0.1, settings.idle_timeout / 4)),
        )
        port = listener.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield _Server(_config(app)), [listener], Running(f"http://{host}:{port}", settings)


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="websockets-sansio",
        ws_max_size=MAX_BODY,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
    )


class _Server(uvicorn.Server):
    """Says when it can be reached, and ends without passing a signal on to the process."""

    announce: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
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


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def _bind(host: str, port: int) -> socket.socket:
    if not host:  # which would mean every address there is
        raise UsageError("the host is empty; give one, for example 127.0.0.1")
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(found[0], found[1], found[2])
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(found[4])
            listener.listen(_CONNECTIONS)
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
