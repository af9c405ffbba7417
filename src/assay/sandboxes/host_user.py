"""The user of this machine that a sandbox runs as, and the folders that it has meanwhile.

An ordinary user's sandboxes run as that user. Root's run as `SANDBOX_USER`: a kernel file that
only root may write stays closed to it. Its folders are lent to that user and returned after.
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
"""Between the users that Debian, Fedora and systemd give out."""
_AS_USER: Final = ("--setgid", str(SANDBOX_USER), "--setuid", str(SANDBOX_USER))
_STAGE: Final = "/sys"
"""Of a mount namespace of our own: every Linux has this folder, and it has nothing to mount."""
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
    """Makes files reachable for the user of a sandbox, whatever folders lie above them.

    As root this is a mount namespace in which each is mounted below a folder that everybody may
    enter; it ends with `close` or with assay. Everybody else needs none.
    """

    prefix: tuple[str, ...] = ()
    """What stands before the command line of bubblewrap."""
    handles: tuple[int, ...] = ()
    """Open files that the prefix names."""

    def __init__(self, sources: Sequence[Path]) -> None:
        """Make it.

        Args:
            sources: Files and folders; what lies below one of them is reachable, too.

        Raises:
            SandboxUnavailable: Root may not make a mount namespace here.
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
                said = process.stderr.read().decode(errors="replace").strip()
                raise SandboxUnavailable(
                    f"root cannot mount anything here: {said}; run assay as an ordinary user, "
                    "or give it CAP_SYS_ADMIN (in a container: --privileged)"
                )
            handle = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._places = {source: f"{_STAGE}/{number}" for number, source in enumerate(sources)}
        self.handles = (handle,)
        self.prefix = (nsenter, f"--mount=/proc/self/fd/{handle}", *_AS_USER)

    def path(self, source: Path) -> str:
        """Return where bubblewrap finds a file."""
        for known, place in self._places.items():
            if source.is_relative_to(known):
                return str(place / source.relative_to(known))
        return str(source)

    def close(self) -> None:
        """Let go of it."""
        for handle in self.handles:
            os.close(handle)
        self.handles = ()


def set_limits(pid: int, limits: Mapping[str, int]) -> None:
    """Lower limits, named as FSIZE for RLIMIT_FSIZE, of a process that we started.

    A limit that is lower already stays.

    Raises:
        SandboxUnavailable: They cannot be set.
    """
    own = {name: getattr(resource, f"RLIMIT_{name}") for name in limits}
    values = {name: _lower(own[name], value) for name, value in limits.items()}
    try:
        for name, value in values.items():
            resource.prlimit(pid, own[name], (value, value))
    except PermissionError:
        # Root without CAP_SYS_RESOURCE, as in some containers; the user itself may.
        options = [f"--{name.lower()}={value}" for name, value in values.items()]
        command = ["nsenter", *_AS_USER, "prlimit", "--pid", str(pid), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip()
            raise SandboxUnavailable(
                f"limits of a sandbox cannot be set as user {SANDBOX_USER}: {said}"
            ) from None


def _lower(kind: int, value: int) -> int:
    _, hard = resource.getrlimit(kind)
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def lend_folders(folders: Sequence[Path], mounts: Sequence[Mount], user: int) -> None:
    """As root, give folders to the user of a sandbox, with all below them.

    Args:
        folders: What it may write to.
        mounts: What it has; what it may only read stays root's and must be readable.
        user: Its number on this machine.

    Raises:
        SandboxUnavailable: A mount is not readable for it.
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
    """Take folders back: root's are root's again; setuid bits and devices are removed."""
    if not folders:
        return
    if is_root():
        _change_owner(folders, 0)
    # Neither may work outside, where these file systems are mounted without nosuid and nodev.
    devices = ("(", "-type", "b", "-o", "-type", "c", ")", "-delete")
    bits = ("!", "-type", "l", "-perm", "/6000", "-exec", "chmod", "ug-s", "{}", "+")
    _run("find", *_real(folders), "-xdev", *devices, "-o", *bits)


def _change_owner(folders: Sequence[Path], user: int) -> None:
    """Of these and all below them; links are not followed."""
    if folders:
        _run("chown", "-hR", f"{user}:{user}", "--", *_real(folders))


def _real(folders: Sequence[Path]) -> list[str]:
    return [os.path.realpath(folder) for folder in folders]


def _run(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)
