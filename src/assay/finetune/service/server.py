"""The server process of the local service."""

import contextlib
import fcntl
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from assay.core.hosting import (
    HostSettings,
    Server,
    format_address,
    make_server,
    open_listener,
    serve_in_thread,
)
from assay.errors import UsageError
from assay.finetune.service.app import FinetuneApp
from assay.finetune.service.chat import LocalModels
from assay.finetune.service.jobs import JobStore, UploadStore
from assay.finetune.service.worker import Worker
from assay.models.local_service import default_folder, users_file
from assay.models.serving.answers import AbortableHttp
from assay.models.serving.app import ModelApp, ModelTable, add_guard
from assay.models.serving.faults import Faults, ServingLimits

DEFAULT_PORT: Final = 8904
_MAX_CONNECTIONS: Final = 1024
_DEFAULT_QUOTA: Final = 10_000_000_000


@dataclass(frozen=True, kw_only=True)
class FinetuneServerSettings(HostSettings):
    """Settings of the local service."""

    port: int = DEFAULT_PORT
    folder: Path = field(default_factory=default_folder)
    quota: int = _DEFAULT_QUOTA
    """Maximum size of the folder in bytes."""
    constrained: bool = True
    """Whether tool calls are restricted to the schemas of their tools."""
    threads: int = 1
    """CPU threads for training and for answers. With more than one, weights are not
    reproducible to the last bit, and on a busy machine threads wait for each other."""
    api_key: str | None = field(default=None, repr=False)
    """Key that clients must send, if any."""
    ends_with: IO[bytes] | None = None
    """Read end of a pipe from the process that started the service. When the pipe closes, the
    service exits as soon as no process locks `users_file`."""


@dataclass(frozen=True)
class RunningFinetune:
    """A running service."""

    address: str
    settings: FinetuneServerSettings
    names: tuple[str, ...]
    """Names of its models."""

    @property
    def base_url(self) -> str:
        """Base URL for API clients."""
        return f"{self.address}/v1"


def run(settings: FinetuneServerSettings, announce: Callable[[RunningFinetune], None]) -> None:
    """Serve until SIGINT or SIGTERM; `announce` is called when clients can connect."""
    with _open_service(settings) as (server, listener, service):
        server.announce = lambda: announce(service)
        if settings.ends_with is not None:
            threading.Thread(
                target=_exit_when_unused,
                args=(server, settings.ends_with, users_file(settings.folder)),
                daemon=True,
            ).start()
        server.run([listener])


def _exit_when_unused(server: Server, stream: IO[bytes], users: Path) -> None:
    while stream.read(1):
        pass
    with users.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        server.should_exit = True
        # Kept locked until this process exits, so that no new client uses the service.
        threading.Event().wait()


@contextlib.contextmanager
def running(settings: FinetuneServerSettings) -> Iterator[RunningFinetune]:
    """Serve in a thread for the duration of the context."""
    with (
        _open_service(settings) as (server, listener, service),
        serve_in_thread(server, listener),
    ):
        yield service


@contextlib.contextmanager
def _open_service(
    settings: FinetuneServerSettings,
) -> Iterator[tuple[Server, socket.socket, RunningFinetune]]:
    from assay.finetune.local.bases import BASES

    rates = {name: base.defaults.learning_rate for name, base in BASES.items()}
    with (
        open_listener(settings.host, settings.port, backlog=_MAX_CONNECTIONS) as listener,
        _lock_folder(settings.folder),
    ):
        jobs = JobStore(settings.folder / "jobs")
        files = settings.folder / "files"
        uploads = UploadStore(files, home=settings.folder, quota=settings.quota)
        worker = Worker(jobs, files, settings.threads)
        models = LocalModels(
            rates, jobs, constrained=settings.constrained, threads=settings.threads
        )
        chat = ModelApp(ModelTable(models), Faults(), ServingLimits(), models.answer)
        guarded = add_guard(
            FinetuneApp(uploads, jobs, worker, rates, chat),
            host=settings.host,
            allowed_hosts=settings.allowed_hosts,
            key=settings.api_key,
            command="assay serve-finetune",
        )
        server = make_server(guarded, http=AbortableHttp, connections=_MAX_CONNECTIONS)
        server.ending = chat.close
        worker.start()
        try:
            address = format_address(settings.host, listener)
            yield server, listener, RunningFinetune(address, settings, tuple(models))
        finally:
            worker.close()
            models.close()


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder, because two services would train the same jobs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise UsageError(
            f"cannot store jobs in {str(folder)!r}: {error.strerror}; name another --folder"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"another service is using {str(folder)!r}; stop it, or name another --folder"
            ) from None
        yield
