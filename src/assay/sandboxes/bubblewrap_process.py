"""One bubblewrap process, from its start to the death of its last descendant.

bubblewrap waits outside; its child inside is the init of a PID namespace, and when that dies
the kernel kills the rest. Below it a shell of ours, the supervisor, runs the command, reports
its exit code and stops itself, so that remaining processes can be inspected from outside. It
uses a socket that the command cannot access.

A launcher, another shell, is the parent of bubblewrap, and waits until the guard knows its pid.
The guard is a shell that kills the sandboxes of an assay that was itself killed. bubblewrap can
end with its parent, but not while it sets up a sandbox: its child would then be orphaned. So
the guard is notified of every sandbox before it starts. When assay dies for any reason, the
guard's pipe ends. It then stops each chain of launcher and bubblewrap, so that nothing new is
started, and kills it from the inside out.
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
from assay.sandboxes.procfs import BoundedOutput, all_pids, cpu_seconds, descendants, is_alive

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
    """The guard shell, and the pipe to it."""

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
            # A signal to assay's process group does not reach it.
            start_new_session=True,
        )
        os.close(source)

    @property
    def is_usable(self) -> bool:
        return self.owner == os.getpid() and self._process.poll() is None

    def send(self, line: str) -> None:
        os.write(self._pipe, f"{line}\n".encode())

    def close(self) -> None:
        """Close the pipe: all sandboxes that are still registered are killed."""
        os.close(self._pipe)
        if self.owner == os.getpid():
            self._process.wait()
        else:  # after a fork: the shell belongs to the parent
            self._process.returncode = 0


_guard: _Guard | None = None


def guard(pid: int) -> None:
    """Register a launcher, whose sandbox is killed when this process dies."""
    global _guard
    if _guard is None or not _guard.is_usable:
        _guard = _Guard()
    _guard.send(f"+ {pid}")


def unguard(pid: int) -> None:
    """Unregister a dead sandbox; call before its pid can be reused."""
    if _guard is not None and _guard.is_usable:
        _guard.send(f"- {pid}")


def _close_guard() -> None:
    global _guard
    if _guard is not None:
        _guard.close()
        _guard = None


atexit.register(_close_guard)
os.register_at_fork(after_in_child=_close_guard)

_LAUNCHER: Final = (
    "/bin/sh",
    "-c",
    # Because of the exit the shell is not replaced by bubblewrap, whose parent it must be.
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
_MAX_MESSAGE: Final = 8192
_CHILD: Final = re.compile(rb'"child-pid": (\d+)\D')
_ENDED: Final = re.compile(rb"(?:^|\n)ended (\d+)\n")
_KILL_TIMEOUT_S: Final = 30.0
"""Seconds a killed process may take to disappear."""


async def _wait_readable(handle: int) -> None:
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


class BubblewrapProcess:
    """A started bubblewrap; `close` must be called, and kills everything."""

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
        """Start bubblewrap.

        Args:
            prefix: Prefix of the command line, which needs the service manager.
            bwrap: Path of bubblewrap.
            options: Options of bubblewrap.
            argv: The command.
            stdin: Standard input of the command.
            seccomp: A system call filter; empty for none.
            stage: Makes the paths in the options accessible to the sandbox user.
        """
        self.output = BoundedOutput()
        self._message = b""
        self._inner: int | None = None
        self._inner_handle: int | None = None
        self._info = b""
        self._output_handle, output = os.pipe()
        if stage.prefix:
            # Allows it to open /dev/stdout.
            os.fchown(output, SANDBOX_USER, SANDBOX_USER)
        self._info_handle, info = _unbreakable_pipe()
        gate, self._gate = os.pipe()
        self._socket, their_socket = socket.socketpair()
        self._socket.setblocking(False)
        os.set_blocking(self._output_handle, False)
        given = _seal(stdin) if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # Not on the command line, which every process could read, also inside.
        options = [*options, "--info-fd", str(info), "--block-fd", str(gate)]
        passed = [info, gate]
        if seccomp:
            passed.append(_seal(seccomp))
            options += ["--seccomp", str(passed[-1])]
        arguments = _seal(b"".join(os.fsencode(option) + b"\0" for option in options))
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
                stderr=their_socket.fileno(),
                pass_fds=(arguments, *passed, *stage.handles),
                # The command could read our environment in /proc/1/environ.
                env=_service_manager_variables() if prefix else {},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._close_handles()
            raise
        finally:
            their_socket.close()
            for handle in (output, given, arguments, *passed):
                os.close(handle)
        self._handle = os.pidfd_open(self._process.pid)
        guard(self._process.pid)
        self._socket.send(b"go\n")
        asyncio.get_running_loop().add_reader(self._output_handle, self._read_output)

    @property
    def inner(self) -> int | None:
        """Pid of the init inside, in our namespace."""
        return self._inner

    @property
    def exit_code(self) -> int | None:
        """Exit code of bubblewrap, after it has ended."""
        return self._process.returncode

    async def wait_started(self) -> int:
        """Return the pid of the init inside, which waits for `release`.

        Raises:
            SandboxUnavailable: bubblewrap could not create the sandbox.
        """
        while self._inner is None:
            await _wait_readable(self._info_handle)
            if not self._read_info():
                message = await self._wait_error_message()
                raise SandboxUnavailable(f"bubblewrap failed: {message}")
        return self._inner

    def release(self) -> None:
        """Start the command."""
        os.write(self._gate, b"x")
        self._socket.send(b"go\n")

    async def wait_ended(self) -> int | None:
        """Return the exit code of the command; None if the supervisor did not report it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                chunk = await loop.sock_recv(self._socket, 4096)
            except ConnectionResetError:  # it died before it read our message
                return None
            if not chunk:
                return None
            self._message = (self._message + chunk)[-_MAX_MESSAGE:]
            found = _ENDED.search(self._message)
            if found:
                return int(found[1])

    @property
    def has_begun(self) -> bool:
        """Whether the command was started."""
        return b"begun\n" in self._message

    @property
    def error_message(self) -> str:
        """Error message of bubblewrap."""
        return self._message.decode(errors="replace").strip().removeprefix("bwrap: ")

    def processes(self) -> list[int]:
        """Return the pids of all processes inside except the init and the supervisor."""
        if self._inner is None:
            return []
        return [
            pid
            for pid in descendants(self._inner)
            if is_alive(pid) and all_pids(pid)[-1:] not in ([], [2])
        ]

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes inside, and of ended ones that were awaited."""
        if self._inner is None:
            return 0.0
        return cpu_seconds([self._inner, *descendants(self._inner)])

    async def kill_and_wait(self) -> None:
        """Kill everything, and wait until it is dead."""
        self._kill()
        if self._inner_handle is not None:
            await _wait_readable(self._inner_handle)
        await _wait_readable(self._handle)

    def close(self) -> None:
        """Kill everything, wait if `kill_and_wait` was not awaited, and close all handles."""
        while self._inner is None and _wait(self._info_handle) and self._read_info():
            pass
        self._kill()
        for handle in (self._inner_handle, self._handle):
            if handle is not None and not _wait(handle):
                raise SandboxUnavailable(
                    f"process {self._inner} of a sandbox does not die in {_KILL_TIMEOUT_S:g} s"
                )
        unguard(self._process.pid)
        self._process.wait()
        asyncio.get_running_loop().remove_reader(self._output_handle)
        self._read_output(rest=True)
        for handle in (self._handle, self._inner_handle):
            if handle is not None:
                os.close(handle)
        self._close_handles()

    def _kill(self) -> None:
        # The inner process first: the outer one waits for it.
        handle = self._handle if self._inner_handle is None else self._inner_handle
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _read_info(self) -> bool:
        """Read more info; return whether there was any."""
        chunk = os.read(self._info_handle, 4096)
        self._info += chunk
        found = _CHILD.search(self._info)
        if found and self._inner is None:
            try:
                self._inner_handle = os.pidfd_open(int(found[1]))
            except ProcessLookupError:  # already dead; bubblewrap will report why
                return False
            self._inner = int(found[1])
        return bool(chunk)

    def _read_output(self, *, rest: bool = False) -> None:
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

    async def _wait_error_message(self) -> str:
        await _wait_readable(self._handle)
        await self.wait_ended()
        return self.error_message

    def _close_handles(self) -> None:
        self._socket.close()
        for handle in (self._output_handle, self._info_handle, self._gate):
            os.close(handle)


def _unbreakable_pipe() -> tuple[int, int]:
    """Create a pipe whose write end is also readable, so that it always has a reader.

    Without a reader bubblewrap would be killed by SIGPIPE, and its child would wait forever.
    """
    source, sink = os.pipe()
    both = os.open(f"/proc/self/fd/{sink}", os.O_RDWR | os.O_CLOEXEC)
    os.close(sink)
    return source, both


def _seal(content: bytes) -> int:
    """Create a read-only file in memory."""
    handle = os.memfd_create("assay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(handle, "wb", closefd=False) as file:
        file.write(content)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _service_manager_variables() -> dict[str, str]:
    """Return the variables systemd-run needs to find the user's service manager."""
    names = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}


def _wait(handle: int) -> bool:
    """Wait until the handle is readable; return False after a timeout."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(_KILL_TIMEOUT_S * 1000))
