"""One process of bubblewrap, from its start to the death of the last process below it.

bubblewrap waits outside; its child inside is the init of a namespace of processes, and when
that dies the kernel kills the rest. Below it a shell of ours, the supervisor, runs the command,
reports its exit code, and stops itself, so that what is left can be looked at from outside. It
speaks over a socket, which the command does not have and cannot open.

A launcher, another shell, is the parent of bubblewrap, and waits until `guarding` knows of it.

Who kills the sandboxes of an assay that was itself killed.

bubblewrap can end with its parent, but not while it sets a sandbox up: its child is then left
without anybody. So a shell of ours is told of every sandbox before it starts. It sees the end
of the pipe when assay dies, whatever of, stops each chain of launcher and bubblewrap so that
nothing new is started, and kills it from the inside out.
"""

import asyncio
import atexit
import fcntl
import os
import re
import select
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Final

from assay.errors import SandboxUnavailable
from assay.sandboxes.host_user import SANDBOX_USER, MountStage
from assay.sandboxes.procfs import BoundedOutput, cpu_seconds, descendants, is_alive, numbers

_SCRIPT: Final = """
live=
while read -r sign pid; do
    rest=
    for known in $live; do [ "$known" = "$pid" ] || rest="$rest $known"; done
    live=$rest
    [ "$sign" = + ] && live="$live $pid"
done
stop() {
    kill -STOP "$1" || return 1
    while read -r state <"/proc/$1/stat"; do
        case $state in *") T "*) return 0 ;; *") Z "*) return 1 ;; esac
    done
    return 1
}
for launcher in $live; do
    stop "$launcher" || continue
    for outer in $(cat "/proc/$launcher/task/$launcher/children"); do
        stop "$outer" && kill -KILL $(cat "/proc/$outer/task/$outer/children")
        kill -KILL "$outer"
    done
    kill -KILL "$launcher"
done
"""


class _Guard:
    """The shell, and the pipe to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        source, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "assay-guard"],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            # Who kills the group of assay does not kill it.
            start_new_session=True,
        )
        os.close(source)

    @property
    def works(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None

    def tell(self, line: str) -> None:
        os.write(self._pipe, f"{line}\n".encode())

    def let_go(self) -> None:
        """Close the pipe: all that it still knows is killed."""
        os.close(self._pipe)
        if self.owner == os.getpid():
            self._process.wait()
        else:  # ours is a copy, and the parent's is alive
            self._process.returncode = 0


_guard: _Guard | None = None


def guard(pid: int) -> None:
    """Have the sandbox of this launcher killed when this process dies."""
    global _guard
    if _guard is None or not _guard.works:
        _guard = _Guard()
    _guard.tell(f"+ {pid}")


def unguard(pid: int) -> None:
    """The sandbox is dead; to be said before its number can be somebody else's."""
    if _guard is not None and _guard.works:
        _guard.tell(f"- {pid}")


def _let_go() -> None:
    global _guard
    if _guard is not None:
        _guard.let_go()
        _guard = None


atexit.register(_let_go)
os.register_at_fork(after_in_child=_let_go)

_LAUNCHER: Final = (
    "/bin/sh",
    "-c",
    # The exit keeps it from becoming bubblewrap, whose parent must not be assay.
    'read go <&2 && [ "$go" = go ] || exit 125; "$@"; exit $?',
    "launcher",
)
SUPERVISOR: Final = (
    "/bin/sh",
    "-c",
    'read go <&2 && [ "$go" = go ] || exit 125; echo begun >&2; '
    '(exec /usr/bin/setsid "$@" 2>&1); echo "ended $?" >&2; kill -STOP $$',
    "supervisor",
)
_CHUNK: Final = 2**18
_SAID: Final = 8192
_CHILD: Final = re.compile(rb'"child-pid": (\d+)\D')
_ENDED: Final = re.compile(rb"(?:^|\n)ended (\d+)\n")
_PATIENCE_S: Final = 30.0
"""How long a killed process may take to be gone."""


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(handle, wake)
    try:
        await ready
    finally:
        loop.remove_reader(handle)


class BoxedProcess:
    """A started bubblewrap; `close` must be called, and leaves nothing alive."""

    def __init__(
        self,
        prefix: Sequence[str],
        bwrap: str,
        options: Sequence[str],
        argv: Sequence[str],
        stdin: bytes,
        seccomp: bytes,
        stage: MountStage,
    ) -> None:
        """Start it.

        `prefix` stands before bubblewrap where the manager of services starts it; `seccomp` is
        empty for no filter; `stage` makes what the options name reachable for its user.
        """
        self.output = BoundedOutput()
        self._said = b""
        self._inner: int | None = None
        self._inner_handle: int | None = None
        self._info = b""
        self._output_handle, output = os.pipe()
        if stage.prefix:
            # So that it can open /dev/stdout.
            os.fchown(output, SANDBOX_USER, SANDBOX_USER)
        self._info_handle, info = _pipe_that_never_breaks()
        gate, self._gate = os.pipe()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        os.set_blocking(self._output_handle, False)
        given = _sealed(stdin) if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # Not on the command line, where everybody could read them, inside as well.
        options = [*options, "--info-fd", str(info), "--block-fd", str(gate)]
        passed = [info, gate]
        if seccomp:
            passed.append(_sealed(seccomp))
            options += ["--seccomp", str(passed[-1])]
        arguments = _sealed(b"".join(os.fsencode(option) + b"\0" for option in options))
        try:
            self._process = subprocess.Popen(
                [
                    *_LAUNCHER,
                    *prefix,
                    *stage.prefix,
                    bwrap,
                    "--args",
                    str(arguments),
                    "--",
                    *SUPERVISOR,
                    *argv,
                ],
                stdin=given,
                stdout=output,
                stderr=theirs.fileno(),
                pass_fds=(arguments, *passed, *stage.handles),
                # An environment of ours could be read in /proc/1/environ.
                env=_reach_manager() if prefix else {},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._close_handles()
            raise
        finally:
            theirs.close()
            for handle in (output, given, arguments, *passed):
                os.close(handle)
        self._handle = os.pidfd_open(self._process.pid)
        guard(self._process.pid)
        self._socket.send(b"go\n")
        asyncio.get_running_loop().add_reader(self._output_handle, self._take_output)

    @property
    def inner(self) -> int | None:
        """The number of the init inside, as we see it."""
        return self._inner

    @property
    def exit_code(self) -> int | None:
        """That of bubblewrap, once it is dead."""
        return self._process.returncode

    async def started(self) -> int:
        """The init inside, which waits for `release`.

        Raises:
            SandboxUnavailable: bubblewrap could not make the sandbox.
        """
        while self._inner is None:
            await _readable(self._info_handle)
            if not self._take_info():
                raise SandboxUnavailable(f"bubblewrap failed: {await self._complaint()}")
        return self._inner

    def release(self) -> None:
        """Let the command begin."""
        os.write(self._gate, b"x")
        self._socket.send(b"go\n")

    async def ended(self) -> int | None:
        """The exit code of the command; None if the supervisor died before it could tell."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                chunk = await loop.sock_recv(self._socket, 4096)
            except ConnectionResetError:  # it died before it read what we said
                return None
            if not chunk:
                return None
            self._said = (self._said + chunk)[-_SAID:]
            found = _ENDED.search(self._said)
            if found:
                return int(found[1])

    @property
    def begun(self) -> bool:
        """Whether the command was started."""
        return b"begun\n" in self._said

    @property
    def complaint(self) -> str:
        """What bubblewrap said."""
        return self._said.decode(errors="replace").strip().removeprefix("bwrap: ")

    def processes(self) -> list[int]:
        """All inside but the init and the supervisor."""
        if self._inner is None:
            return []
        return [
            pid
            for pid in descendants(self._inner)
            if is_alive(pid) and numbers(pid)[-1:] not in ([], [2])
        ]

    def cpu_seconds(self) -> float:
        """CPU time of all inside, as far as somebody there waited for those that ended."""
        if self._inner is None:
            return 0.0
        return cpu_seconds([self._inner, *descendants(self._inner)])

    async def dead(self) -> None:
        """Kill everything, and wait until it is dead."""
        self._kill()
        if self._inner_handle is not None:
            await _readable(self._inner_handle)
        await _readable(self._handle)

    def close(self) -> None:
        """See that everything is dead, at once if `dead` was waited for; let go of all."""
        while self._inner is None and _wait(self._info_handle) and self._take_info():
            pass
        self._kill()
        for handle in (self._inner_handle, self._handle):
            if handle is not None and not _wait(handle):
                raise SandboxUnavailable(
                    f"process {self._inner} of a sandbox does not die within {_PATIENCE_S:g} s"
                )
        unguard(self._process.pid)
        self._process.wait()
        asyncio.get_running_loop().remove_reader(self._output_handle)
        self._take_output(rest=True)
        for handle in (self._handle, self._inner_handle):
            if handle is not None:
                os.close(handle)
        self._close_handles()

    def _kill(self) -> None:
        # The one inside first: the one outside then waits for it.
        handle = self._handle if self._inner_handle is None else self._inner_handle
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _take_info(self) -> bool:
        """Read on; whether there was anything."""
        chunk = os.read(self._info_handle, 4096)
        self._info += chunk
        found = _CHILD.search(self._info)
        if found and self._inner is None:
            try:
                self._inner_handle = os.pidfd_open(int(found[1]))
            except ProcessLookupError:  # dead already; bubblewrap will say why
                return False
            self._inner = int(found[1])
        return bool(chunk)

    def _take_output(self, *, rest: bool = False) -> None:
        while True:
            try:
                chunk = os.read(self._output_handle, _CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                asyncio.get_running_loop().remove_reader(self._output_handle)
                return
            self.output.add(chunk)
            if not rest:
                return

    async def _complaint(self) -> str:
        await _readable(self._handle)
        await self.ended()
        return self.complaint

    def _close_handles(self) -> None:
        self._socket.close()
        for handle in (self._output_handle, self._info_handle, self._gate):
            os.close(handle)


def _pipe_that_never_breaks() -> tuple[int, int]:
    """A pipe whose end for writing can be read from, too, so that it always has a reader.

    bubblewrap would die of one that has none, and leave its child waiting for it.
    """
    source, sink = os.pipe()
    both = os.open(f"/proc/self/fd/{sink}", os.O_RDWR | os.O_CLOEXEC)
    os.close(sink)
    return source, both


def _sealed(content: bytes) -> int:
    """A file in memory that can be read and not changed."""
    handle = os.memfd_create("assay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(handle, "wb", closefd=False) as file:
        file.write(content)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _reach_manager() -> dict[str, str]:
    """What systemd-run needs to find the service manager of the user."""
    names = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}


def _wait(handle: int) -> bool:
    """Block until there is something to read; whether there was in time."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(_PATIENCE_S * 1000))
