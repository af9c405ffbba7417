"""RunningService the service of worlds."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from assay._http.hosting import (
    HostSettings,
    Server,
    address_of,
    in_thread,
    listening,
    make_server,
)
from assay._http.refusal import MAX_BODY
from assay.crafter import warmup

from .app import make_app
from .worlds import DEFAULT_IDLE_TIMEOUT, DEFAULT_INSTANCES, Worlds

__all__ = ["DEFAULT_PORT", "RunningService", "ServiceSettings", "run", "running"]

DEFAULT_PORT: Final = 8901


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(HostSettings):
    """How to serve."""

    port: int = DEFAULT_PORT
    max_instances: int = DEFAULT_INSTANCES
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    """Seconds after which an instance that nobody asked for is forgotten."""
    seed: int = field(default_factory=lambda: secrets.randbelow(2**31))
    """Of the generator from which worlds are drawn that nobody chose."""
    token: str | None = field(default=None, repr=False)
    """What clients must send, if anything."""


@dataclass(frozen=True)
class RunningService:
    """A service that can be asked."""

    address: str
    """For example http://127.0.0.1:8901"""
    settings: ServiceSettings


def run(
    settings: ServiceSettings,
    announce: Callable[[RunningService], None],
    prepare: Callable[[], object] = warmup,
) -> None:
    """Serve until SIGINT or SIGTERM.

    `prepare` is called once the address is ours, for what takes long, and `announce` when
    clients can connect.
    """
    with _listening(settings) as (server, listener, service):
        prepare()
        server.announce = lambda: announce(service)
        server.run([listener])


@contextlib.contextmanager
def running(settings: ServiceSettings) -> Iterator[RunningService]:
    """Serve in a thread, for as long as the block takes."""
    with _listening(settings) as (server, listener, service):
        warmup()
        with in_thread(server, listener):
            yield service


@contextlib.contextmanager
def _listening(
    settings: ServiceSettings,
) -> Iterator[tuple[Server, socket.socket, RunningService]]:
    with listening(settings.host, settings.port) as listener:
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
        server = make_server(app, websocket_bytes=MAX_BODY)
        yield server, listener, RunningService(address_of(settings.host, listener), settings)
