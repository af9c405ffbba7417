"""Restrictions of a process and its descendants with Linux' Landlock.

Used inside a sandbox, where no further namespaces can be created. Needs only Python.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System call numbers, identical on every architecture."""
_ASK_VERSION = 1
_PATH_BENEATH = 1
_FILE_RIGHTS = 0b1100000000000111
"""Execute, write, read, truncate and ioctl; all other rights apply to folders."""
_RIGHTS = {2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
"""All rights on files, by Landlock version; later versions have `_LATER_RIGHTS`."""
_LATER_RIGHTS = 0xFFFF
_SCOPED = 0b11
"""Abstract sockets and signals reach only processes with the same or more restrictions."""
_SCOPES_SINCE = 6


def can_confine(denied: Sequence[str]) -> bool:
    """Return whether `confine` can deny access to these folders; a child process tries it."""
    if _get_version() < min(_RIGHTS):
        return False
    process = os.fork()
    if process == 0:
        try:
            confine(denied)
            os._exit(0 if not any(map(_is_readable, denied)) else 1)
        finally:
            os._exit(1)
    return os.waitpid(process, 0)[1] == 0


def confine(denied: Sequence[str]) -> None:
    """Give up access to these paths and everything below them, and signals to other processes.

    Does nothing if the kernel lacks Landlock or has only its first version, which forbids
    moving files between folders. Signals are restricted only by version 6 and later.

    Args:
        denied: Absolute paths; empty to keep all files.
    """
    version = _get_version()
    rights = _RIGHTS.get(version, _LATER_RIGHTS) if denied else 0
    scoped = _SCOPED if version >= _SCOPES_SINCE else 0
    if version < min(_RIGHTS) or not (rights or scoped):
        return
    attributes = struct.pack("=QQQ", rights, 0, scoped)[: 24 if scoped else 8]
    ruleset = _call_kernel(_CREATE_RULESET, attributes, len(attributes), 0)
    for path in (
        _list_other_paths("/", [os.path.realpath(path) for path in denied]) if rights else ()
    ):
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        allowed = rights if os.path.isdir(path) else rights & _FILE_RIGHTS
        _call_kernel(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, handle), 0)
        os.close(handle)
    _call_kernel(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _is_readable(folder: str) -> bool:
    try:
        os.listdir(folder)
    except PermissionError:
        return False
    return True


def _list_other_paths(folder: str, denied: Sequence[str]) -> Iterator[str]:
    """Yield paths below a folder that neither are nor contain these paths, without links."""
    for entry in os.scandir(folder):
        if entry.is_symlink() or entry.path in denied:
            continue
        if any(path.startswith(f"{entry.path}/") for path in denied):
            yield from _list_other_paths(entry.path, denied)
        else:
            yield entry.path


def _get_version() -> int:
    """Return the Landlock version of the kernel; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def _call_kernel(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock system call {number}: {os.strerror(error)}")
    return result
