"""What a sandbox adds to a command, beside a bare bubblewrap of the same command."""

import asyncio
import atexit
import shutil
import subprocess
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Final

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import Command, Mount, ResourceLimits, SandboxSpec
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.host_checks import isolation_arguments

from .measure import Row, Topic, size
from .processes import PeerFailed

__all__ = ["BUBBLEWRAP_SIDES", "LONG", "SHORT"]

BUBBLEWRAP_SIDES: Final = ("sandbox", "bwrap")
_BARE: Final = "a bare bwrap of it"
_ROOT: Final = (
    *(
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/bin",
        "/bin",
        "--symlink",
        "usr/lib",
        "/lib",
    ),
    *(
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ),
)
_TRUE: Final = ("true",)
_LONG: Final = (
    *("python3", "-c"),
    "import pathlib, time\n"
    f"end = time.monotonic() + {size(5, 1)}\n"
    "while time.monotonic() < end:\n"
    "    pathlib.Path('file').write_text('x' * 10_000)\n"
    "    time.sleep(0.01)\n",
)
"""A task of 5 s that writes files, so that there is something to watch."""


@cache
def _make_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="assay-perf-sandbox-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _make_backend() -> BubblewrapBackend:
    backend = BubblewrapBackend()
    try:
        backend.enforcement(ResourceLimits())
    except SandboxUnavailable as error:
        raise PeerFailed(str(error)) from error
    return backend


def _time_in_sandbox(turn: int, *, argv: tuple[str, ...], times: int) -> float:
    """Seconds for each command, all of them in one sandbox that is open."""
    del turn
    backend = _make_backend()

    async def main() -> float:
        given = SandboxSpec(mounts=(Mount(_make_folder(), "/app/repo", writable=True),))
        async with backend.open(given) as sandbox:
            started = time.perf_counter()
            for _ in range(times):
                end = await sandbox.run(Command(argv=argv, timeout_s=60))
                if end.exit_code != 0:
                    raise PeerFailed(f"it ended with {end.exit_code}: {end.output[-200:]!r}")
            return (time.perf_counter() - started) / times

    return asyncio.run(main())


def _time_in_bubblewrap(turn: int, *, argv: tuple[str, ...], times: int) -> float:
    """Seconds for each process of bubblewrap with the same namespaces, and nothing watched."""
    del turn
    found = shutil.which("bwrap")
    if found is None:
        raise PeerFailed("bubblewrap is not installed")
    bind = ("--bind", str(_make_folder()), "/app/repo", "--chdir", "/app/repo")
    options = isolation_arguments(found)
    path = ("--setenv", "PATH", "/usr/bin")
    command = [found, *options, *_ROOT, *bind, *path, "--", *argv]
    started = time.perf_counter()
    for _ in range(times):
        subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - started) / times


LONG: Final = Topic(
    name="sandbox",
    unit="command",
    sides={
        "sandbox": partial(_time_in_sandbox, argv=_LONG, times=1),
        "bwrap": partial(_time_in_bubblewrap, argv=_LONG, times=1),
    },
    rows=(
        Row(
            name="sandbox-task",
            what="a command of 5 s in a sandbox",
            ours="sandbox",
            peer="bwrap",
            against=_BARE,
            cost="times its wall time",
            peer_unit="command",
            most=1.5,
        ),
    ),
    notes=(
        "Wall time of `Sandbox.run`, with all limits and measurements, compared with a "
        "subprocess of bubblewrap with the same namespaces and no limits. The sandbox is "
        "open "
        "already.",
    ),
    warmup=False,
)

SHORT: Final = Topic(
    name="sandbox-short",
    unit="command",
    sides={
        "sandbox": partial(_time_in_sandbox, argv=_TRUE, times=size(20, 2)),
        "bwrap": partial(_time_in_bubblewrap, argv=_TRUE, times=size(20, 2)),
    },
    rows=(
        Row(
            name="sandbox-true",
            what="true in a sandbox",
            ours="sandbox",
            peer="bwrap",
            against=_BARE,
            cost="times its wall time",
            peer_unit="command",
        ),
    ),
    notes=(),
)
