"""The user of this machine that a sandbox runs as, and the folders lent to it.

Sandboxes of an ordinary user run as that user. Those of root run as `SANDBOX_USER`, which
cannot write to kernel files reserved for root. Its folders are owned by that user meanwhile.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import Mount

SANDBOX_USER: Final = 64_998
"""Outside the ranges that Debian, Fedora and systemd assign."""
_AS_USER: Final = ("--setgid", str(SANDBOX_USER), "--setuid", str(SANDBOX_USER))
_STAGE: Final = "/sys"
"""In our own mount namespace: every Linux has this folder, and sandboxes do not use it."""
_SCRIPT: Final = f"""
mount -n -t tmpfs -o mode=755,size=1m assay {_STAGE}
number=0
for source; do
    place={_STAGE}/$number
    if [ -d "$source" ]; then mkdir "$place"; else : >"$place"; fi
    mount -n --rbind -- "$source" "$place"
    number=$((number + 1))
done
echo ready
read end
"""


def is_root() -> bool:
    """Return whether this is root with other users to run as; `unshare -r` has none."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        rows = [[int(word) for word in line.split()] for line in file]
    return any(first <= SANDBOX_USER < first + count for first, _, count in rows)


class MountStage:
    """Makes files accessible to the sandbox user, regardless of the permissions above them.

    For root this is a mount namespace in which each file is mounted below a folder that
    everyone can enter; it ends with `close` or with assay. Other users do not need one.
    """

    prefix: tuple[str, ...] = ()
    """Prefix of bubblewrap's command line."""
    handles: tuple[int, ...] = ()
    """File descriptors that the prefix uses."""

    def __init__(self, sources: Sequence[Path]) -> None:
        """Create the mount namespace.

        Args:
            sources: Files and folders; everything below them is accessible too.

        Raises:
            SandboxUnavailable: Root cannot create a mount namespace here.
        """
        self._places: Mapping[Path, str] = {}
        if not is_root():
            return
        unshare, nsenter = shutil.which("unshare"), shutil.which("nsenter")
        if unshare is None or nsenter is None:
            raise SandboxUnavailable("as root, sandboxes need util-linux; install it")
        with subprocess.Popen(
            [unshare, "--mount", "/bin/sh", "-ec", _SCRIPT, "stage", *map(str, sources)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if not process.stdout.readline():
                error = process.stderr.read().decode(errors="replace").strip()
                raise SandboxUnavailable(
                    f"root cannot mount anything here: {error}; run assay as an ordinary user, "
                    "or give it CAP_SYS_ADMIN (in a container: --privileged)"
                )
            handle = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._places = {source: f"{_STAGE}/{number}" for number, source in enumerate(sources)}
        self.handles = (handle,)
        self.prefix = (nsenter, f"--mount=/proc/self/fd/{handle}", *_AS_USER)

    def path(self, source: Path) -> str:
        """Return the path of a file for bubblewrap."""
        for known, place in self._places.items():
            if source.is_relative_to(known):
                return str(place / source.relative_to(known))
        return str(source)

    def close(self) -> None:
        """Close the mount namespace."""
        for handle in self.handles:
            os.close(handle)
        self.handles = ()


def set_limits(pid: int, limits: Mapping[str, int]) -> None:
    """Lower the limits of a sandbox process started by us; lower ones are kept.

    Args:
        pid: The process, which still has our own limits.
        limits: By name, for example FSIZE for RLIMIT_FSIZE.

    Raises:
        SandboxUnavailable: The limits cannot be set.
    """
    own = {name: getattr(resource, f"RLIMIT_{name}") for name in limits}
    values = {name: _at_most_hard_limit(own[name], value) for name, value in limits.items()}
    try:
        for name, value in values.items():
            resource.prlimit(pid, own[name], (value, value))
    except PermissionError:
        # Root without CAP_SYS_RESOURCE, as in some containers; the user itself can do it.
        options = [f"--{name.lower()}={value}" for name, value in values.items()]
        command = ["nsenter", *_AS_USER, "prlimit", "--pid", str(pid), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            error = done.stderr.strip()
            raise SandboxUnavailable(
                f"limits of a sandbox cannot be set as user {SANDBOX_USER}: {error}"
            ) from None


def _at_most_hard_limit(kind: int, value: int) -> int:
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def lend_folders(folders: Sequence[Path], mounts: Sequence[Mount], user: int) -> None:
    """As root, make the sandbox user the owner of folders and everything below them.

    Args:
        folders: Folders that the sandbox can write to.
        mounts: Its mounts; read-only ones stay root's and must be readable.
        user: Its uid on this machine.

    Raises:
        SandboxUnavailable: The user cannot read a mount.
    """
    if not is_root():
        return
    for mount in mounts:
        needed = 0o005 if mount.source.is_dir() else 0o004
        if not mount.writable and mount.source.stat().st_mode & needed != needed:
            raise SandboxUnavailable(
                f"{mount.source} is to be mounted, and the user {user} of the sandbox may not "
                "read it; allow it: chmod o+rX"
            )
    _change_owner(folders, user)


def return_folders(folders: Sequence[Path]) -> None:
    """Make root the owner of its folders again, and remove setuid bits and devices."""
    if not folders:
        return
    if is_root():
        _change_owner(folders, 0)
    # Outside, these file systems are mounted without nosuid and nodev.
    devices = ("(", "-type", "b", "-o", "-type", "c", ")", "-delete")
    bits = ("!", "-type", "l", "-perm", "/6000", "-exec", "chmod", "ug-s", "{}", "+")
    _run("find", *_real_paths(folders), "-xdev", *devices, "-o", *bits)


def _change_owner(folders: Sequence[Path], user: int) -> None:
    """Change the owner of folders and everything below them, without following links."""
    if folders:
        _run("chown", "-hR", f"{user}:{user}", "--", *_real_paths(folders))


def _real_paths(folders: Sequence[Path]) -> list[str]:
    return [os.path.realpath(folder) for folder in folders]


def _run(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)
