"""Shared helpers of sandbox tests: running commands and finding leftovers."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from assay.core.aio import run_in_own_loop
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    Command,
    CommandEnd,
    Mount,
    ResourceLimits,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
)
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.docker.backend import DockerBackend
from assay.sandboxes.docker.engine import DockerEngine, engine_socket

T = TypeVar("T")
MECHANISMS = ("cgroup v2", "cgroup v1", "systemd scope", "watcher")
DOCKER = pytest.param("docker", marks=pytest.mark.docker)
WAYS = [*(pytest.param(name, marks=pytest.mark.bench) for name in MECHANISMS), DOCKER]
"""Every way in which limits are held."""
ANY_WAY = [pytest.param(None, id="bubblewrap", marks=pytest.mark.bench), DOCKER]
"""The sandboxes, each with the first way that works."""
MARK = f"mark-of-{os.getpid()}"
"""For command lines, so that their processes can be found; no other worker has it."""
SMALL = ResourceLimits(memory_mb=128, processes=24, disk_mb=32)


def usable(way: str | None) -> BubblewrapBackend | DockerBackend:
    """Return a backend that enforces limits this way, or skip the test."""
    backend = DockerBackend() if way == "docker" else BubblewrapBackend(way)
    try:
        backend.enforcement(ResourceLimits())
    except SandboxUnavailable as error:
        pytest.skip(f"{way or 'bubblewrap'} does not work here: {error}")
    return backend


def spec(repository: Path, limits: ResourceLimits = SMALL, *mounts: Mount) -> SandboxSpec:
    mine = Mount(repository, "/app/repo", writable=True)
    return SandboxSpec(mounts=(mine, *mounts), limits=limits)


def in_sandbox(
    backend: SandboxBackend, given: SandboxSpec, do: Callable[[Sandbox], Awaitable[T]]
) -> T:
    async def main() -> T:
        async with backend.open(given) as sandbox:
            return await do(sandbox)

    return asyncio.run(main())


def run(
    backend: SandboxBackend,
    given: SandboxSpec,
    *argv: str,
    timeout_s: float = 60.0,
    stdin: bytes = b"",
) -> CommandEnd:
    """Run one command in a new sandbox."""
    command = Command(argv=argv, timeout_s=timeout_s, stdin=stdin)
    return in_sandbox(backend, given, lambda sandbox: sandbox.run(command))


def found(end: CommandEnd) -> set[str]:
    return {finding.name for finding in end.findings}


def python(text: str) -> tuple[str, ...]:
    return ("/usr/bin/python3", "-c", text)


def leftovers(mark: str = "no such mark") -> list[str]:
    """Return leftovers: processes with this in their command line, folders, groups, zombies."""
    # What was killed needs a moment to die on a busy machine.
    until = time.monotonic() + 10
    while (found := marked(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    name = f"assay-*box-{os.getpid()}-*"
    found += [str(path) for path in Path(tempfile.gettempdir()).glob(name)]
    # Other tests remove groups meanwhile, which this passes over.
    for group, _, _ in os.walk("/sys/fs/cgroup"):
        found += [group] if Path(group).match(name) else []
    found += [f"container {container}" for container in containers(f"assay-box-{os.getpid()}-")]
    return found + [f"zombie {pid}" for pid in _zombies()]


def marked(mark: str) -> list[str]:
    """Return the processes that have this in their command line now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line and int(folder.name) != os.getpid():
            found.append(f"process {folder.name}: {line!r}")
    return found


def containers(prefix: str) -> list[str]:
    """Return the containers of a running engine, by name prefix."""

    async def ask() -> list[str]:
        async with DockerEngine.connect() as engine:
            listed = await engine.call("GET", "/containers/json", query={"all": "1"})
        names = [name.lstrip("/") for container in listed for name in container["Names"]]
        return [name for name in names if name.startswith(prefix)]

    return run_in_own_loop(ask) if os.path.exists(engine_socket()) else []


def _zombies() -> Iterator[str]:
    for file in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(OSError):  # of threads and processes that have ended meanwhile
            for pid in file.read_text().split():
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state == "Z":
                    yield pid


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))
