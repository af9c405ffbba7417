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
from assay.types import ChatModel

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
    """Further names, each with the model that answers to it."""
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
    models: Mapping[str, ChatModel],
) -> None:
    """Serve models by name until SIGINT or SIGTERM; `announce` hears when it can be asked."""
    with _listening(settings, models) as (server, listener, service):
        server.announce = lambda: announce(service)
        server.run([listener])


@contextlib.contextmanager
def running(
    settings: ModelServerSettings, models: Mapping[str, ChatModel]
) -> Iterator[RunningModels]:
    """Serve models by name in a thread, for as long as the block takes."""
    with (
        _listening(settings, models) as (server, listener, service),
        in_thread(server, listener),
    ):
        yield service


@contextlib.contextmanager
def _listening(
    settings: ModelServerSettings, models: Mapping[str, ChatModel]
) -> Iterator[tuple[Server, socket.socket, RunningModels]]:
    table = ModelTable.with_aliases(models, settings.aliases, settings.script)
    app = ModelApp(table, settings.faults, settings.limits)
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
                address, settings, app.stats.told, app.stats.reset, tuple(table.names)
            ),
        )
