"""Reads, then leaves a value wherever the kernel keeps one for more than one process."""

import ctypes
import os
import platform
from collections.abc import Callable

token = os.environ["TOKEN"]
left = f"left-{token}".encode()
print(f"tried-{token}", flush=True)
libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = (248, 250) if platform.machine() == "x86_64" else (217, 219)
SEARCH, READ, CREATE = 10, 11, 0o1000


def keyring(which: int) -> Callable[[], bytes]:
    """Return an exchange by one of the process's keyrings."""

    def exchange() -> bytes:
        name = f"assay-attack-{token}".encode()
        found = libc.syscall(KEYCTL, SEARCH, which, b"user", name, 0)
        buffer = ctypes.create_string_buffer(200)
        size = libc.syscall(KEYCTL, READ, found, buffer, 200, 0) if found > 0 else 0
        libc.syscall(ADD_KEY, b"user", name, left, len(left), which)
        return buffer.raw[: max(size, 0)]

    return exchange


def segment() -> bytes:
    """Read a segment of System V, and leave the value there."""
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(int(token[:7], 16), 200, 0o666 | CREATE)
    address = libc.shmat(number, None, 0) if number >= 0 else None
    if address in (None, ctypes.c_void_p(-1).value):
        return b""
    found = ctypes.string_at(address, 200).rstrip(b"\0")
    ctypes.memmove(address, left, len(left))
    return found


def file(folder: str) -> Callable[[], bytes]:
    """Return an exchange by a file of a folder."""

    def exchange() -> bytes:
        path = f"{folder}/assay-attack-{token}"
        try:
            with open(path, "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            with open(path, "wb") as stream:
                stream.write(left)
            return b""

    return exchange


for channel, exchange in {
    "session keyring": keyring(-3),
    "user keyring": keyring(-4),
    "System V segment": segment,
    "/dev/shm": file("/dev/shm"),
    "/tmp": file("/tmp"),
    "/var/tmp": file("/var/tmp"),
}.items():
    try:
        if value := exchange():
            print(f"read {channel}: {value.decode()}")
    except OSError as error:
        print(channel, error)
