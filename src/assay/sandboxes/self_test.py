"""Self-test of a sandbox on this machine: real attacks are tried inside one.

It runs once per process and backend, before the first trial. A vulnerability prevents the run
and is reported; a limit that is not enforced is recorded. Modal's machines are not tested.
"""

import ctypes
import os
import secrets
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from assay.core.aio import run_in_own_loop
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    REPOSITORY,
    Command,
    CommandEnd,
    Enforcement,
    Mount,
    ResourceLimits,
    SandboxBackend,
    SandboxSpec,
)
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.roots import python_mounts, python_path

_TESTED: Final = (BubblewrapBackend.name, "docker")
_LIMITS: Final = ResourceLimits(memory_mb=96, processes=32, disk_mb=8)
_TIMEOUT_S: Final = 60.0
_SOCKET: Final = "socket"
"""In the working directory of the command."""
_HOLES: Final = (
    *("user", "kernel files", "mounts", "privileges", "keyrings", "shared memory"),
    *("signals", "loopback", "abstract sockets", "network"),
)
_HELD: Final = ("file size", "memory", "user namespaces", "processes")
"""Limits; testing the last one may kill the probe."""
_PROBE: Final = r"""
import ctypes, os, platform, signal, socket, sys, tempfile
pid, port, key = map(int, sys.argv[1:4])
mark, began = sys.argv[4:]
libc = ctypes.CDLL(None, use_errno=True)

def opened(path, flags):
    try:
        handle = os.open(path, flags | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return flags != os.O_RDONLY or bool(os.read(handle, 1))
    except OSError:
        return False
    finally:
        os.close(handle)

def kernel_files():
    paths = [os.path.join(folder, name)
             for top in ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/sys")
             for folder, _, names in os.walk(top) for name in names]
    open_to = [path for path in (*paths, "/proc/sysrq-trigger") if opened(path, os.O_WRONLY)]
    open_to += [path for path in ("/proc/kcore", "/proc/kmsg") if opened(path, os.O_RDONLY)]
    return open_to and f"{open_to[0]} and {len(open_to) - 1} more can be opened"

def mounted():
    place = tempfile.mkdtemp(dir=".").encode()
    if libc.mount(b"none", place, b"tmpfs", 0, None):
        return False
    libc.umount(place)
    return True

def mounts():
    return mounted() and "a file system can be mounted"

def privileges():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    if int(status["CapEff"], 16) or not int(status["NoNewPrivs"]):
        return "a command has capabilities, or can gain some from a setuid file"

def keyrings():
    calls = {"x86_64": (248, 250)}.get(platform.machine(), (217, 219))
    if libc.syscall(calls[1], 0, -3, 1) >= 0:
        return "the session keyring is there"
    if libc.syscall(calls[0], b"user", b"assay", b"x", 1, -3) >= 0:
        return "a key can be added"

def shared_memory():
    if libc.shmget(key, 0, 0) >= 0:
        return "a System V segment of this machine is there"
    if os.path.exists(f"/dev/shm/{mark}"):
        return "/dev/shm is that of this machine"

def signals():
    os.kill(pid, 0)
    try:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    except OSError:
        fields = []
    if fields[19:20] in ([], [began]):  # else another process has this number inside
        return f"process {pid} of this machine can be signalled"

def connected(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.connect(address)
    return f"{address!r} can be reached"

def user():
    connected(socket.AF_UNIX, socket.SOCK_STREAM, "socket")

def survives(act):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        act()
        os._exit(0)
    except BaseException:
        os._exit(1)

def file_size():
    with open("large", "wb") as file:
        file.truncate(9 << 20)
    return "a file can be larger than the limit"

def fill():
    space = bytearray(200 << 20)
    space[:: 4096] = b"x" * len(space[:: 4096])

def memory():
    return survives(fill) and "200 MB can be used at a limit of 96 MB"

def enter():
    if libc.unshare(0x10020000) or not mounted():
        raise OSError

def user_namespaces():
    return survives(enter) and "a command can make namespaces, and mount memory in them"

def processes():
    children = []
    try:
        for _ in range(48):
            child = os.fork()
            if not child:
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return "48 processes can be started at a limit of 32"

tests = {
    "user": user, "kernel files": kernel_files, "mounts": mounts, "privileges": privileges,
    "keyrings": keyrings, "shared memory": shared_memory, "signals": signals,
    "loopback": lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
    "abstract sockets": lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + mark),
    "network": lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9)),
    "file size": file_size, "memory": memory, "user namespaces": user_namespaces,
    "processes": processes,
}
for name, test in tests.items():
    try:
        found = test()
    except (OSError, MemoryError):
        found = None
    print(f"{name}\t{found or ''}", flush=True)
"""


class SelfTest(NamedTuple):
    """Result of a self-test."""

    backend: str
    holes: tuple[str, ...] = ()
    """Successful attacks, in words."""
    not_held: tuple[str, ...] = ()
    """Limits that could be exceeded, in words."""
    is_tested: bool = True

    def __str__(self) -> str:
        """Summarise the result for records and messages."""
        if not self.is_tested:
            return "not tested"
        if self.holes:
            return f"open: {'; '.join(self.holes)}"
        held = f"held: {', '.join(_HOLES)}"
        return held + (f"; not held: {'; '.join(self.not_held)}" if self.not_held else "")


_done: dict[type, SelfTest] = {}
_turn = threading.Lock()


def verify_enforcement(backend: SandboxBackend, limits: ResourceLimits) -> Enforcement:
    """Return how limits are enforced here, after a self-test of the sandbox.

    Raises:
        SandboxUnavailable: A limit cannot be enforced, or the self-test found a vulnerability.
    """
    enforcement = backend.enforcement(limits)
    with _turn:
        kind = type(backend)
        if kind not in _done:
            _done[kind] = run_self_test(backend)
        found = _done[kind]
    if found.holes:
        raise SandboxUnavailable(
            f"sandbox {backend.name!r} does not protect this machine: "
            f"{'; '.join(found.holes)}; see assay doctor --sandbox {backend.name}"
        )
    return replace(enforcement, self_test=str(found))


def run_self_test(backend: SandboxBackend) -> SelfTest:
    """Try attacks in a sandbox of this backend, and exceed its limits.

    Raises:
        SandboxUnavailable: The sandbox cannot be created, or the probe did not end.
    """
    if backend.name not in _TESTED:
        return SelfTest(backend.name, is_tested=False)
    mark = f"assay-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-probe-"))
        folder = Path(scratch, "repo")
        folder.mkdir(mode=0o755)
        # By its descriptor, because the path of a socket is limited to 107 bytes.
        handle = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        stack.callback(os.close, handle)
        own = _listen(stack, socket.AF_UNIX, f"/proc/self/fd/{handle}/{_SOCKET}")
        (folder / _SOCKET).chmod(0o777)
        loopback = _listen(stack, socket.AF_INET, ("127.0.0.1", 0))
        _listen(stack, socket.AF_UNIX, f"\0{mark}")
        key = stack.enter_context(_create_shared_memory(mark))
        began = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[19]
        numbers = (os.getpid(), loopback.getsockname()[1], key)
        arguments = (*map(str, numbers), mark, began)
        command = Command(
            argv=(python_path(), "-I", "-S", "-c", _PROBE, *arguments), timeout_s=_TIMEOUT_S
        )
        end = _run(backend, folder, command)
        return _read_results(backend.name, end, _read_peer_user(own))


def _listen(stack: ExitStack, family: int, address: object) -> socket.socket:
    listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    listener.bind(address)  # type: ignore[arg-type]
    listener.listen()
    listener.settimeout(1)
    return listener


@contextmanager
def _create_shared_memory(mark: str) -> Iterator[int]:
    """Create a System V segment and a file in /dev/shm that must be invisible in a sandbox."""
    libc = ctypes.CDLL(None)
    key = secrets.randbelow(2**30) + 1
    segment = libc.shmget(key, 4096, 0o1666)
    file = Path("/dev/shm", mark)
    try:
        if file.parent.is_dir() and os.access(file.parent, os.W_OK):
            file.touch()
        yield key
    finally:
        file.unlink(missing_ok=True)
        libc.shmctl(segment, 0, None)


def _run(backend: SandboxBackend, folder: Path, command: Command) -> CommandEnd:
    spec = SandboxSpec(
        mounts=(*python_mounts(), Mount(folder, REPOSITORY, writable=True)), limits=_LIMITS
    )

    async def run() -> CommandEnd:
        async with backend.open(spec) as sandbox:
            return await sandbox.run(command)

    return run_in_own_loop(run)


def _read_peer_user(listener: socket.socket) -> int | None:
    """Return the user that has connected according to the kernel, or None."""
    try:
        client, _ = listener.accept()
    except TimeoutError:
        return None
    with client:
        size = struct.calcsize("3i")
        enforcement = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", enforcement)[1])


def _read_results(backend: str, end: CommandEnd, user: int | None) -> SelfTest:
    lines = end.output.decode(errors="replace").splitlines()
    results = dict(line.split("\t", 1) for line in lines if "\t" in line)
    is_limited = any(finding.name == "process_limit" for finding in end.findings)
    if is_limited:  # it was enforced by killing the whole command
        results.setdefault("processes", "")
    missing = [name for name in (*_HOLES, *_HELD) if name not in results]
    if missing or user is None:
        output = " ".join(lines[-3:])[-300:]
        raise SandboxUnavailable(
            f"the self-test of sandbox {backend!r} did not end ({', '.join(missing)}): {output}"
        )
    if user == 0:
        results["user"] = "commands run as root of this machine"
    return SelfTest(
        backend,
        tuple(f"{name}: {results[name]}" for name in _HOLES if results[name]),
        tuple(f"{name}: {results[name]}" for name in _HELD if results[name]),
    )
