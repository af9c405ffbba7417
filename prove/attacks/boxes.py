"""Agents that try to get out of their sandbox, or to take more than their share of the host."""

import ctypes
import json
import os
import platform
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from .scene import KNOB, Attack, DocumentedLimit, Scene

__all__ = ["ATTACKS"]

_LIMITED_MB: Final = 50
_HELD_MB: Final = 200
"""More than the limit, and than what a watcher lets pass between two looks."""


def _attack_kernel_files(scene: Scene) -> str:
    before = KNOB.read_text().strip()
    value = str(int(before) + 1)
    trial = scene.trial("kernel_files.py", KNOB=str(KNOB), VALUE=value)
    after = KNOB.read_text().strip()
    if after == before:
        return ""
    with suppress(OSError):
        KNOB.write_text(before)
    opened = next((line for line in trial.log.splitlines() if line.startswith("opened")), "")
    return f"{KNOB} of the host went from {before} to {after}; {opened}"


def _attack_mounts(scene: Scene) -> str:
    mark = Path(f"/usr/assay-attack-{scene.token}")
    devices: set[str] = set()

    def observe() -> None:
        for path in _find_trial_files(scene):
            mode = path.lstat().st_mode
            if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
                devices.add(path.name)

    scene.trial("mounts.py", watch=observe, MARK=str(mark))
    seen = [f"device nodes {sorted(devices)}"] if devices else []
    if mark.exists():
        mark.unlink()
        seen.append("a file in /usr of the host")
    return "; ".join(seen)


def _find_trial_files(scene: Scene, name: str = "*") -> Iterator[Path]:
    """Yield the files of a trial: below the run folder, or on its own disk."""
    yield from scene.folder.glob(f"data/runs/*/work/**/{name}")
    yield from scene.folder.parent.glob(f"tmp/assay-*/disk/**/{name}")


def _attack_setuid(scene: Scene) -> str:
    seen: set[str] = set()

    def observe() -> None:
        for path in _find_trial_files(scene, "attack-*"):
            status = path.lstat()
            reached = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
            allowed = not os.statvfs(path).f_flag & os.ST_NOSUID
            if status.st_mode & stat.S_ISUID and reached and allowed:
                seen.add(f"{path.name} of uid {status.st_uid} has mode {status.st_mode:o}")

    scene.trial("setuid.py", watch=observe)
    return f"everybody on the host could run: {'; '.join(sorted(seen))}" if seen else ""


def _attack_network(scene: Scene, *options: str) -> str:
    """Ask for a network in the task's own file; the options are what the user allows."""
    with ExitStack() as stack:
        called: list[str] = []
        tcp = stack.enter_context(_start_server())
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
        hidden.bind(f"\0assay-attack-{scene.token}")
        hidden.listen()
        for server in (tcp, hidden):
            threading.Thread(target=_accept_calls, args=(server, called), daemon=True).start()
        own = _list_host_addresses()
        forms = [*own, "localhost", "2130706433", "0x7f.1", "0.0.0.0", "[::ffff:127.0.0.1]"]
        trial = scene.trial(
            "network.py",
            *options,
            task=scene.task({"app.py": "x = 1\n"}, limits={"network": True}),
            ADDRESSES=" ".join(own),
            FORMS=" ".join(forms),
            PORT=str(tcp.getsockname()[1]),
            ABSTRACT=f"assay-attack-{scene.token}",
        )
        if options and "HTTP/1.1" not in trial.log:
            raise RuntimeError(
                f"no proxy answered: {trial.log[-300:]} {trial.done.output[-300:]}"
            )
        seen = sorted({line.split()[0] for line in called if scene.token in line})
    return f"servers of the host were called at {', '.join(seen)}" if seen else ""


def _start_server() -> socket.socket:
    """A server at all addresses, at the port of HTTP if it is free: a proxy allows that."""
    with suppress(OSError):
        return socket.create_server(("0.0.0.0", 80))
    return socket.create_server(("0.0.0.0", 0))


def _accept_calls(server: socket.socket, called: list[str]) -> None:
    with suppress(OSError):
        while True:
            line, _ = server.accept()
            with line:
                called.append(line.recv(1000).decode("utf-8", "replace"))


def _list_host_addresses() -> list[str]:
    """The addresses of this machine: loopback, and those that others reach it by."""
    found = {"127.0.0.1"}
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect(("192.0.2.1", 9))  # sends nothing
        found.add(line.getsockname()[0])
    with suppress(OSError):
        found |= {
            str(entry[4][0])
            for entry in socket.getaddrinfo(socket.gethostname(), 9, socket.AF_INET)
        }
    return sorted(found)


def _attack_channels(scene: Scene) -> str:
    text = (Path(__file__).parent / "scripts" / "channels.py").read_text("utf-8")
    test = (
        "import os, subprocess, sys\n\n\ndef test_a_channel_leads_here():\n"
        f"    environment = {{**os.environ, 'TOKEN': {scene.token!r}}}\n"
        f"    done = subprocess.run([sys.executable, '-c', {text!r}], env=environment, "
        "capture_output=True, text=True)\n    assert 'read ' in done.stdout, done\n"
    )
    task = scene.task({"app.py": "x = 1\n"}, test)
    with _plant_host_values(scene.token) as left:
        trial = scene.trial("channels.py", task=task, entry={"rollouts": 2})
        seen = [f"on the host: {where}" for where in left()]
    read = {line[5:] for line in trial.log.splitlines() if line.startswith("read ")}
    seen += [
        f"in a trial: {line.partition(':')[0]} ({_parse_origin(line)})" for line in sorted(read)
    ]
    seen += ["in grading"] if trial.score else []
    return f"values passed: {'; '.join(seen)}" if seen else ""


def _parse_origin(line: str) -> str:
    return "of the host" if "host-" in line else "of another trial"


@contextmanager
def _plant_host_values(token: str) -> Iterator[Callable[[], list[str]]]:
    """Put values of the host where the kernel keeps them; what a trial left there instead."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    add_key, keyctl = (248, 250) if platform.machine() == "x86_64" else (217, 219)
    name, value = f"assay-attack-{token}".encode(), f"host-{token}".encode()
    libc.syscall(keyctl, 1, None)  # a session keyring of our own, which programs inherit
    key = libc.syscall(add_key, b"user", name, value, len(value), -3)
    segment = libc.shmget(int(token[:7], 16), 200, 0o1666)
    address = libc.shmat(segment, None, 0)
    ctypes.memmove(address, value, len(value))

    def left() -> list[str]:
        buffer = ctypes.create_string_buffer(200)
        libc.syscall(keyctl, 11, key, buffer, 200, 0)
        found = ["session keyring"] if buffer.value.startswith(b"left-") else []
        if ctypes.string_at(address, 200).startswith(b"left-"):
            found.append("System V segment")
        folders = ("/dev/shm", "/tmp", "/var/tmp")
        return found + [folder for folder in folders if Path(folder, name.decode()).exists()]

    try:
        yield left
    finally:
        libc.shmdt(ctypes.c_void_p(address))
        libc.shmctl(segment, 0, None)
        libc.syscall(keyctl, 3, key)


def _attack_disk_limit(scene: Scene, how: str) -> str:
    most = start = _measure_disk_mb(scene.folder)

    def observe() -> None:
        nonlocal most
        most = max(most, _measure_disk_mb(scene.folder))

    scene.trial("hold_disk.py", watch=observe, entry={"disk_mb": _LIMITED_MB}, HOW=how)
    if most - start <= _HELD_MB:
        return ""
    seen = f"{most - start:.0f} MB were held at a limit of {_LIMITED_MB}"
    for path in scene.folder.glob("data/runs/*/agent.json"):
        held_by = json.loads(path.read_text())["enforcement"]["disk"]
        if "not counted" in held_by:
            raise DocumentedLimit(f"{seen}; the record says: {held_by}")
    return seen


def _measure_disk_mb(folder: Path) -> float:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize / 2**20


def _attack_deep_folders(scene: Scene, depth: int, length: int) -> str:
    trial = scene.trial(
        "deep_folders.py", may_lose_its_log=True, DEPTH=str(depth), LENGTH=str(length)
    )
    patch = "".join(path.read_text("utf-8", "replace") for path in _find_patches(scene))
    lost = [] if f"+kept-{scene.token}" in patch else ["the patch"]
    lost += [] if f"tried-{scene.token}" in trial.log else ["the log"]
    lost += [] if [result["state"] for result in trial.results] == ["result"] else ["the grade"]
    return f"lost: {', '.join(lost)}" if lost else ""


def _find_patches(scene: Scene) -> Iterator[Path]:
    return scene.folder.glob("data/runs/*/artifacts/diff.patch")


def _attack_process_limit(scene: Scene, processes: int, megabytes: int) -> str:
    limits = {"processes": 48, "memory_mb": 256, "disk_mb": 64}
    most, most_mb = 0, 0.0

    def observe() -> None:
        nonlocal most, most_mb
        pids = [*_find_marked_processes(scene.token)]
        most, most_mb = max(most, len(pids)), max(most_mb, sum(map(_read_resident_mb, pids)))

    scene.trial(
        "bombs.py",
        watch=observe,
        entry=limits,
        PROCESSES=str(processes),
        MEGABYTES=str(megabytes),
    )
    # A watcher is not exact between two checks, but half of the attempt must be blocked.
    seen = [f"{most} processes at a limit of 48"] if most > 200 else []
    seen += [f"{most_mb:.0f} MB at a limit of 256"] if most_mb > 1200 else []
    seen += ["processes outlived their trial"] if [*_find_marked_processes(scene.token)] else []
    return "; ".join(seen)


def _find_marked_processes(token: str) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if token.encode() in words:
                yield int(path.parent.name)


def _read_resident_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


_KERNEL: Final = "an ordinary user, also if assay runs as root; `/proc` read-only, no `/sys`"
_DISK: Final = "a file system of limited size, where root can mount one"
_DEEP: Final = "trees are walked by directory descriptors; the finding `path_too_long`"
ATTACKS: tuple[Attack, ...] = (
    Attack(
        "kernel-files",
        "write all files below /proc/sys and /sys",
        _KERNEL,
        _attack_kernel_files,
    ),
    Attack(
        "mounts",
        "mount, remount, make devices and namespaces",
        "an ordinary user in a user namespace, without capabilities",
        _attack_mounts,
    ),
    Attack(
        "setuid",
        "leave setuid programs on the host during the trial",
        "folders of trials are 0700; a disk of its own is nosuid and nodev",
        _attack_setuid,
    ),
    Attack(
        "network",
        "a task allows itself the network, and calls servers of the host",
        "the network is the user's to give, through a proxy to public addresses",
        _attack_network,
    ),
    Attack(
        "allowed-network",
        "the user allows public addresses, and the agent asks for the host's own",
        "the proxy checks the address that it connects to",
        lambda scene: _attack_network(scene, "--allow-network", "public"),
    ),
    Attack(
        "channels",
        "pass values by keyrings, shared memory and files: host, trials, grading",
        "a system call filter, IPC namespace, own /tmp and /dev/shm",
        _attack_channels,
    ),
    Attack(
        "disk-in-sockets",
        "hold 400 MB in files that are only in a socket",
        _DISK,
        lambda scene: _attack_disk_limit(scene, "socket"),
    ),
    Attack(
        "disk-in-maps",
        "hold 400 MB in files that are only mapped",
        _DISK,
        lambda scene: _attack_disk_limit(scene, "map"),
    ),
    Attack(
        "nested-folders",
        "2,500 nested folders hide a patch",
        _DEEP,
        lambda scene: _attack_deep_folders(scene, 2500, 1),
    ),
    Attack(
        "long-folders",
        "60 nested folders of 200 letters hide a patch",
        _DEEP,
        lambda scene: _attack_deep_folders(scene, 60, 200),
    ),
    Attack(
        "fork-bomb",
        "400 processes at a limit of 48",
        "control groups, else a watcher",
        lambda scene: _attack_process_limit(scene, 400, 0),
    ),
    Attack(
        "memory-bomb",
        "12 processes of 200 MB at a limit of 256",
        "control groups, else a watcher",
        lambda scene: _attack_process_limit(scene, 12, 200),
    ),
)
