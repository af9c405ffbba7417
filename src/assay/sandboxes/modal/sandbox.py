"""A sandbox of Modal: commands run one after another on the same files, on another machine.

Commands are started by a shell of ours, which is root there. What they leave running is found
among the processes of the sandbox, and killed.
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

from assay.core.aio import to_the_end
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
    write_broken,
)
from assay.sandboxes.modal.names import BEGUN
from assay.sandboxes.modal.relay_host import relayed
from assay.sandboxes.modal.remote import Remote, answering, drain, feeding
from assay.sandboxes.procfs import BoundedOutput

_WRAPPED: Final = (
    'ulimit -c 0; ulimit -f "$1"; shift; exec 3>&2; '
    '"$@" 2>&1 3>&-; code=$?; times >&3; exit $code'
)
"""Output and errors in one stream, and how long the processors worked in the other."""
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
"""Kills what is not ours; in a first round it only looks, so that what is ending may end.

All processes of a user are killed at once, those as well that fork too fast to be found.
"""
_PATIENCE_S: Final = 60.0
"""How long the streams of what is killed may take to end."""
_AWAKE_S: Final = 120.0
"""How often Modal is shown that a sandbox is in use."""


class RemoteUser(NamedTuple):
    """Who runs commands."""

    number: int = 0
    """Of whom the writable mounts are."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Variables that only this user has, such as a home."""
    switch: tuple[str, ...] = ()
    """What stands before a command so that it runs as this user; nothing for root."""


async def processes(remote: Remote) -> tuple[str, ...]:
    """The numbers of all processes of a sandbox that has just begun."""
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

        `own` are processes that were there before any command, `before` the files of its image.
        """
        self.enforcement = enforcement
        self._spec, self._remote, self._user = spec, remote, user
        self._own, self._before = own, before
        self._turn = asyncio.Lock()

    async def run(self, command: Command) -> CommandEnd:
        """Run a command, after those that were given before."""
        async with self._turn:
            try:
                return await self._run(command)
            except BaseException:
                await to_the_end(self._give_up())
                raise

    async def export(self, target: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write all files that differ from the image to a tar file, mounts left out."""
        async with self._turn:
            without = (*exclude, *(mount.target for mount in self._spec.mounts))
            limit = self._spec.limits.disk_mb
            try:
                await export_changes(
                    self._remote, self._before, target, exclude=without, disk_mb=limit
                )
            except SandboxUnavailable as error:
                if not await self._remote.is_broken(error):
                    raise
                write_broken(target)

    async def fetch(self) -> None:
        """Bring back what was written to mounts."""
        async with self._turn:
            for mount in self._spec.mounts:
                if mount.writable:
                    await fetch_mount(self._remote, mount, self._spec.limits.disk_mb)

    async def stay_awake(self) -> None:
        """Keep it in use while nobody runs a command, for Modal ends what is idle."""
        while True:
            await asyncio.sleep(_AWAKE_S)
            if not self._turn.locked():
                # Whether it is there any more is told by the next command.
                async with self._turn:
                    with suppress(SandboxUnavailable):
                        await self._remote.call("true")

    async def _run(self, command: Command) -> CommandEnd:
        output, said = BoundedOutput(), BoundedOutput()
        async with AsyncExitStack() as stack:
            async with self._sharing(command.timeout_s):
                started = time.monotonic()
                process = await self._start(command)
                ending = stack.enter_context(_task(process.wait.aio()))
                gathering = stack.enter_context(_task(_gather(process, output, said)))
                async with feeding(process, io.BytesIO(command.stdin)):
                    await asyncio.wait({ending}, timeout=command.timeout_s)
                seconds, timed_out = time.monotonic() - started, not ending.done()
            left, findings = await self._cleared()
            await asyncio.wait({gathering}, timeout=_PATIENCE_S)
            if gathering.done():
                gathering.result()
            with answering():
                code = None if timed_out else await ending
        if left and not timed_out:
            detail = f"{len(left)} still ran when it ended, and were killed: {', '.join(left)}"
            findings.append(TrialFinding("left_processes", detail))
        if code == FILE_TOO_LARGE:
            detail = f"it wrote up to the limit of {self._spec.limits.disk_mb} MB"
            findings.append(TrialFinding("disk_limit", detail))
        if output.dropped:
            detail = f"{output.dropped} bytes of its output are left out"
            findings.append(TrialFinding("output_cut", detail))
        return CommandEnd(
            exit_code=code,
            output=output.kept(),
            seconds=seconds,
            timed_out=timed_out,
            cpu_s=_cpu_seconds(said.kept()),
            findings=tuple(findings),
        )

    async def _start(self, command: Command) -> ContainerProcess[bytes]:
        blocks = self._spec.limits.disk_mb * MIB // _BLOCK
        return await self._remote.start(
            *("/bin/sh", "-c", _WRAPPED, "command", str(blocks)),
            *self._user.switch,
            *command.argv,
            timeout_s=command.timeout_s + _PATIENCE_S,
            workdir=self._spec.workdir or None,
            environment={**self._user.environment, **command.environment},
        )

    @asynccontextmanager
    async def _sharing(self, timeout_s: float) -> AsyncIterator[None]:
        """What an agent shares with what starts it: files as they are now, and sockets."""
        shared = [m for m in self._spec.mounts if m.target == SHARED and not m.writable]
        await put_mounts(self._remote, shared, self._user.number)
        async with AsyncExitStack() as stack:
            for mount in shared:
                for path in mount.source.iterdir():
                    if path.is_socket():
                        target = f"{mount.target}/{path.name}"
                        until = timeout_s + _PATIENCE_S
                        relay = relayed(self._remote, path, target, until)
                        await stack.enter_async_context(relay)
            yield

    async def _cleared(self) -> tuple[list[str], list[TrialFinding]]:
        """What was still alive, and whether it can be known."""
        try:
            return await self._reap(), []
        except SandboxUnavailable as error:
            if not await self._remote.is_broken(error):
                raise
            text = "it removed the shell or its programs; what it left running is not known"
            return [], [TrialFinding("supervisor_killed", text)]

    async def _give_up(self) -> None:
        """Leave nothing alive, if there is still a sandbox."""
        with suppress(SandboxUnavailable):
            await self._reap()

    async def _reap(self) -> list[str]:
        """Kill all that commands left; their names."""
        told = await self._remote.call(_REAP, str(self._user.number), *self._own)
        lines = told.decode(errors="replace").splitlines()
        return [printable(line.partition(" ")[2]) for line in lines]


async def _gather(
    process: ContainerProcess[bytes], output: BoundedOutput, said: BoundedOutput
) -> None:
    await asyncio.gather(drain(process.stdout, output.add), drain(process.stderr, said.add))


@contextmanager
def _task(work: Coroutine[Any, Any, _T]) -> "Iterator[asyncio.Task[_T]]":
    """Work that is done beside other work, and given up with it."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()


def _cpu_seconds(told: bytes) -> float:
    """What the shell says of the times of its children, in its last line."""
    lines = told.decode(errors="replace").strip().splitlines() or [""]
    found = _TIMES.findall(lines[-1])
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in found)
