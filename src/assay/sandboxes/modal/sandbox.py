"""A Modal sandbox: commands run one after another on the same files, on a remote machine.

Commands are started by a shell of ours, which is root there. Processes that they leave running
are listed and killed.
"""

import asyncio
import io
import re
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from modal.container_process import ContainerProcess

from assay.core.aio import finish_despite_cancellation
from assay.core.text import printable
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    MIB,
    SHARED,
    Command,
    CommandEnd,
    Enforcement,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.folders import FILE_TOO_LARGE
from assay.sandboxes.modal.files import (
    Listing,
    export_changes,
    fetch_mount,
    put_mounts,
    write_broken_layer,
)
from assay.sandboxes.modal.names import BEGUN
from assay.sandboxes.modal.relay_host import relay_socket
from assay.sandboxes.modal.remote import Remote, convert_errors, drain, feed_stdin
from assay.sandboxes.procfs import BoundedOutput

_WRAPPED: Final = (
    'ulimit -c 0; ulimit -f "$1"; shift; exec 3>&2; '
    '"$@" 2>&1 3>&-; code=$?; times >&3; exit $code'
)
"""Combines output and errors in one stream, and prints the CPU times to the other."""
_T = TypeVar("_T")
_TIMES: Final = re.compile(r"(\d+)m([\d.]+)s")
_BLOCK: Final = 512
_LIST: Final = f"""\
round=0
until rm {BEGUN} 2>/dev/null || [ $round -eq 200 ]; do sleep 0.05; round=$((round + 1)); done
for folder in /proc/[0-9]*; do [ $folder = /proc/$$ ] || echo ${{folder#/proc/}}; done
"""
_REAP: Final = """\
user=$1
shift
ours=" $$ $* "
round=0
while [ $round -lt 100 ]; do
    alive=
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        case "$ours" in *" $pid "*) continue ;; esac
        read -r about <$folder/stat || continue
        state=${about##*) }
        case $state in Z*|X*) continue ;; esac
        alive=1
        [ $round -eq 0 ] && continue
        name=${about#*\\(}
        [ $round -eq 1 ] && echo "$pid ${name%)*}"
        kill -9 $pid
    done
    if [ $user -ne 0 ] && { [ -z "$alive" ] || [ $round -gt 0 ]; }; then
        setpriv --reuid=$user --regid=$user --clear-groups sh -c 'kill -9 -1'
    fi
    [ "$alive" ] || exit 0
    sleep 0.1
    round=$((round + 1))
done
echo "alive still"
"""
"""Kills all processes except ours; the first round only checks, so that ending ones can end.

All processes of a user are killed at once, including those that fork too fast to be listed."""
_KILL_TIMEOUT_S: Final = 60.0
"""Seconds that the streams of killed processes may take to end."""
_KEEP_ALIVE_S: Final = 120.0
"""Seconds between signs of use to Modal."""


class RemoteUser(NamedTuple):
    """The user that runs commands."""

    number: int = 0
    """Uid of the owner of writable mounts."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Variables of this user only, such as its home."""
    switch: tuple[str, ...] = ()
    """Command prefix that switches to this user; empty for root."""


async def list_processes(remote: Remote) -> tuple[str, ...]:
    """Return the pids of all processes of a new sandbox."""
    return tuple((await remote.call(_LIST)).decode().split())


class ModalSandbox:
    """Runs one command after another on the same files."""

    def __init__(
        self,
        spec: SandboxSpec,
        enforcement: Enforcement,
        remote: Remote,
        user: RemoteUser,
        *,
        own: Sequence[str],
        before: Listing,
    ) -> None:
        """Use a sandbox that has its files.

        Args:
            spec: Content of the sandbox.
            enforcement: How its limits are enforced.
            remote: The sandbox.
            user: The user that runs commands.
            own: Processes that existed before the first command.
            before: The files of its image.
        """
        self.enforcement = enforcement
        self._spec, self._remote, self._user = spec, remote, user
        self._own, self._before = own, before
        self._turn = asyncio.Lock()

    async def run(self, command: Command) -> CommandEnd:
        """Run a command, after all earlier ones."""
        async with self._turn:
            try:
                return await self._run(command)
            except BaseException:
                await finish_despite_cancellation(self._kill_all())
                raise

    async def export(self, target: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write all files that differ from the image to a tar file, without mounts."""
        async with self._turn:
            excluded = (*exclude, *(mount.target for mount in self._spec.mounts))
            limit = self._spec.limits.disk_mb
            try:
                await export_changes(
                    self._remote, self._before, target, exclude=excluded, disk_mb=limit
                )
            except SandboxUnavailable as error:
                if not await self._remote.is_broken(error):
                    raise
                write_broken_layer(target)

    async def fetch(self) -> None:
        """Copy the content of writable mounts back."""
        async with self._turn:
            for mount in self._spec.mounts:
                if mount.writable:
                    await fetch_mount(self._remote, mount, self._spec.limits.disk_mb)

    async def keep_alive(self) -> None:
        """Keep the sandbox in use between commands, because Modal ends idle ones."""
        while True:
            await asyncio.sleep(_KEEP_ALIVE_S)
            if not self._turn.locked():
                # If it has ended, the next command reports it.
                async with self._turn:
                    with suppress(SandboxUnavailable):
                        await self._remote.call("true")

    async def _run(self, command: Command) -> CommandEnd:
        output, times = BoundedOutput(), BoundedOutput()
        async with AsyncExitStack() as stack:
            async with self._share(command.timeout_s):
                started = time.monotonic()
                process = await self._start(command)
                ending = stack.enter_context(_task(process.wait.aio()))
                collecting = stack.enter_context(_task(_collect(process, output, times)))
                async with feed_stdin(process, io.BytesIO(command.stdin)):
                    await asyncio.wait({ending}, timeout=command.timeout_s)
                seconds, timed_out = time.monotonic() - started, not ending.done()
            remaining, findings = await self._clean_up()
            await asyncio.wait({collecting}, timeout=_KILL_TIMEOUT_S)
            if collecting.done():
                collecting.result()
            with convert_errors():
                code = None if timed_out else await ending
        if remaining and not timed_out:
            names = ", ".join(remaining)
            detail = f"{len(remaining)} still ran when it ended, and were killed: {names}"
            findings.append(TrialFinding("left_processes", detail))
        if code == FILE_TOO_LARGE:
            detail = f"it wrote up to the limit of {self._spec.limits.disk_mb} MB"
            findings.append(TrialFinding("disk_limit", detail))
        if output.dropped:
            detail = f"{output.dropped} bytes of its output are left out"
            findings.append(TrialFinding("output_cut", detail))
        return CommandEnd(
            exit_code=code,
            output=output.content(),
            seconds=seconds,
            timed_out=timed_out,
            cpu_s=_cpu_seconds(times.content()),
            findings=tuple(findings),
        )

    async def _start(self, command: Command) -> ContainerProcess[bytes]:
        blocks = self._spec.limits.disk_mb * MIB // _BLOCK
        return await self._remote.start(
            *("/bin/sh", "-c", _WRAPPED, "command", str(blocks)),
            *self._user.switch,
            *command.argv,
            timeout_s=command.timeout_s + _KILL_TIMEOUT_S,
            workdir=self._spec.workdir or None,
            environment={**self._user.environment, **command.environment},
        )

    @asynccontextmanager
    async def _share(self, timeout_s: float) -> AsyncIterator[None]:
        """Update the files that an agent shares with assay, and relay its sockets."""
        shared = [m for m in self._spec.mounts if m.target == SHARED and not m.writable]
        await put_mounts(self._remote, shared, self._user.number)
        async with AsyncExitStack() as stack:
            for mount in shared:
                for path in mount.source.iterdir():
                    if path.is_socket():
                        target = f"{mount.target}/{path.name}"
                        until = timeout_s + _KILL_TIMEOUT_S
                        relay = relay_socket(self._remote, path, target, until)
                        await stack.enter_async_context(relay)
            yield

    async def _clean_up(self) -> tuple[list[str], list[TrialFinding]]:
        """Kill what is left; return the names of the processes, and findings if that fails."""
        try:
            return await self._reap(), []
        except SandboxUnavailable as error:
            if not await self._remote.is_broken(error):
                raise
            text = "it removed the shell or its programs; what it left running is not known"
            return [], [TrialFinding("supervisor_killed", text)]

    async def _kill_all(self) -> None:
        """Kill everything, if the sandbox still exists."""
        with suppress(SandboxUnavailable):
            await self._reap()

    async def _reap(self) -> list[str]:
        """Kill all processes that commands left; return their names."""
        output = await self._remote.call(_REAP, str(self._user.number), *self._own)
        lines = output.decode(errors="replace").splitlines()
        return [printable(line.partition(" ")[2]) for line in lines]


async def _collect(
    process: ContainerProcess[bytes], output: BoundedOutput, times: BoundedOutput
) -> None:
    await asyncio.gather(drain(process.stdout, output.add), drain(process.stderr, times.add))


@contextmanager
def _task(work: Coroutine[Any, Any, _T]) -> "Iterator[asyncio.Task[_T]]":
    """Run work during the block, and cancel it at the end."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()


def _cpu_seconds(output: bytes) -> float:
    """Parse the CPU time of child processes from the last line of the shell's `times`."""
    lines = output.decode(errors="replace").strip().splitlines() or [""]
    found = _TIMES.findall(lines[-1])
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in found)
