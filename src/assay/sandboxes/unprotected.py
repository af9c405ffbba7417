"""No sandbox: commands run on this machine with the permissions of the user of assay.

Only for trusted agents and tasks. The only limit is time, for processes that stay in the group
of their command. Nothing is mounted: a command starts in the folder that would be its working
directory, and paths such as `/app/repo` do not exist.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from assay.core.files import remove_folder
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    Command,
    CommandEnd,
    Enforcement,
    ResourceLimits,
    Sandbox,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.procfs import BoundedOutput

_CHUNK: Final = 2**18
UNPROTECTED: Final = (
    "sandbox 'none' protects nothing: commands run on this machine as you, with your files, "
    "the network and no limits but time"
)


class UnprotectedBackend:
    """Runs commands without isolation; must be selected by name, and users are warned."""

    name = "none"

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """Return "none" for every limit."""
        return Enforcement(
            backend=self.name,
            memory="none",
            processes="none",
            cpus="none",
            disk="none",
            network="none",
        )

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Open the folder that would be mounted as the working directory."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        home = Path(tempfile.mkdtemp(prefix="assay-home-"))
        try:
            yield _UnprotectedSandbox(spec, self.enforcement(spec.limits), home)
        finally:
            remove_folder(home)


def find_workdir(spec: SandboxSpec) -> Path:
    """Return the folder of this machine that would be the working directory of a sandbox."""
    workdir = PurePosixPath(spec.workdir)
    candidates = [mount for mount in spec.mounts if workdir.is_relative_to(mount.target)]
    if not candidates:
        targets = ", ".join(mount.target for mount in spec.mounts) or "none given"
        raise SandboxUnavailable(
            f"without a sandbox, the working directory {spec.workdir} must be a mount: "
            f"{targets}"
        )
    nearest = max(candidates, key=lambda mount: len(mount.target))
    return nearest.source / workdir.relative_to(nearest.target)


class _UnprotectedSandbox:
    """Runs one command after another in the same folder."""

    def __init__(self, spec: SandboxSpec, enforcement: Enforcement, home: Path) -> None:
        self.enforcement = enforcement
        self._folder = find_workdir(spec)
        self._environment = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TMPDIR": str(home),
            **spec.environment,
        }
        self._turn = asyncio.Lock()

    async def run(self, command: Command) -> CommandEnd:
        """Run a command; its process group is dead afterwards."""
        async with self._turn:
            return await self._run(command)

    async def _run(self, command: Command) -> CommandEnd:
        started = time.monotonic()
        output = BoundedOutput()
        source, sink = os.pipe()
        os.set_blocking(source, False)
        loop = asyncio.get_running_loop()
        try:
            with tempfile.TemporaryFile() as given:
                given.write(command.stdin)
                given.seek(0)
                process = subprocess.Popen(
                    command.argv,
                    stdin=given,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    env={**self._environment, **command.environment},
                    start_new_session=True,
                )
        except (FileNotFoundError, PermissionError) as error:
            os.close(source)
            text = f"{command.argv[0]}: {error.strerror}\n".encode()
            return CommandEnd(exit_code=127, output=text, seconds=0.0)
        finally:
            os.close(sink)
        loop.add_reader(source, _read_available, source, output)
        try:
            # A separate thread, because any number of commands may run at once.
            with ThreadPoolExecutor(1) as thread:
                # Kept as a zombie, so that its pid cannot be reused before it is killed.
                ended = loop.run_in_executor(
                    thread, os.waitid, os.P_PID, process.pid, os.WEXITED | os.WNOWAIT
                )
                try:
                    await asyncio.wait({ended}, timeout=command.timeout_s)
                    timed_out = not ended.done()
                finally:
                    os.killpg(process.pid, signal.SIGKILL)
        finally:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            loop.remove_reader(source)
            while _read_available(source, output):
                pass
            os.close(source)
        code = process.returncode
        findings = []
        if output.dropped:
            cut = f"{output.dropped} bytes of its output are left out"
            findings.append(TrialFinding("output_cut", cut))
        return CommandEnd(
            exit_code=None if timed_out else code if code >= 0 else 128 - code,
            output=output.content(),
            seconds=time.monotonic() - started,
            timed_out=timed_out,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_memory_mb=usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 1024),
            findings=tuple(findings),
        )


def _read_available(source: int, output: BoundedOutput) -> bool:
    """Read available output; return whether there was any."""
    try:
        chunk = os.read(source, _CHUNK)
    except BlockingIOError:
        return False
    if not chunk:
        asyncio.get_running_loop().remove_reader(source)
    output.add(chunk)
    return bool(chunk)
