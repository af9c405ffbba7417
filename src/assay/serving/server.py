"""RunningModels the server of models."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assay._http.hosting import (
    HostSettings,
    Server,
    address_of,
    in_thread,
    listening,
    make_server,
)

from .answers import CuttableHttp
from .app import ModelApp, guarded
from .faults import Faults
from .limits import ServingLimits
from .model_table import ModelTable

__all__ = ["DEFAULT_PORT", "ModelServerSettings", "RunningModels", "run", "running"]

DEFAULT_PORT: Final = 8903
_CONNECTIONS: Final = 4096


@dataclass(frozen=True, kw_only=True)
class ModelServerSettings(HostSettings):
    """How to serve."""

    port: int = DEFAULT_PORT
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Further names, each with the built-in model that answers to it."""
    script: Path | None = None
    """The file of a model that runs shell commands one after another, as `scripted/STEM`."""
    faults: Faults = field(default_factory=Faults)
    limits: ServingLimits = field(default_factory=ServingLimits)
    api_key: str | None = field(default=None, repr=False)
    """What clients must send, if anything."""


@dataclass(frozen=True)
class RunningModels:
    """A server that can be asked."""

    address: str
    """For example http://127.0.0.1:8903"""
    settings: ModelServerSettings
    stats: Callable[[], dict[str, Any]] = field(repr=False)
    """The counts that /stats tells."""
    reset: Callable[[], None] = field(repr=False)
    """Counts from nothing, as /stats/reset does."""
    names: tuple[str, ...] = ()
    """The models it has."""

    @property
    def base_url(self) -> str:
        """What clients of the protocol call the base URL."""
        return f"{self.address}/v1"


def run(
    settings: ModelServerSettings,
    announce: Callable[[RunningModels], None],
    table: ModelTable | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; `announce` is called when clients can connect.

    Without a table the built-in models are served, under their names and the aliases.
    """
    with _listening(settings, table) as (server, listener, service):
        server.announce = lambda: announce(service)
        server.run([listener])


@contextlib.contextmanager
def running(
    settings: ModelServerSettings, table: ModelTable | None = None
) -> Iterator[RunningModels]:
    """Serve in a thread, for as long as the block takes."""
    with (
        _listening(settings, table) as (server, listener, service),
        in_thread(server, listener),
    ):
        yield service


@contextlib.contextmanager
def _listening(
    settings: ModelServerSettings, table: ModelTable | None
) -> Iterator[tuple[Server, socket.socket, RunningModels]]:
    models = table or ModelTable.builtin(settings.aliases, settings.script)
    app = ModelApp(models, settings.faults, settings.limits)
    entrance = guarded(
        app,
        host=settings.host,
        allowed_hosts=settings.allowed_hosts,
        key=settings.api_key,
    )
    with listening(settings.host, settings.port, backlog=_CONNECTIONS) as listener:
        server = make_server(entrance, http=CuttableHttp, connections=_CONNECTIONS)
        server.ending = app.close
        address = address_of(settings.host, listener)
        yield (
            server,
            listener,
            RunningModels(
                address, settings, app.stats.told, app.stats.reset, tuple(models.names)
            ),
        )
