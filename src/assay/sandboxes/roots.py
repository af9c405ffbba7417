"""The file system of a sandbox: read-only programs, a minimum of other files, and its mounts.

Its `/usr` and the few files of `/etc` come from this machine and cannot be written, nor can the
kernel files in `/proc`. `/sys` is missing.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from assay.sandboxes.base import Mount, SandboxSpec
from assay.sandboxes.host_user import MountStage

USER_ID: Final = 1000
"""Not 65534, which also represents all users unknown to a namespace."""
HOME: Final = "/tmp/home"
ENVIRONMENT: Final[Mapping[str, str]] = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "TMPDIR": "/tmp",
    "USER": "coder",
}
"""Default environment variables of commands."""
_WRITABLE: Final = {"tmp": "/tmp", "shm": "/dev/shm"}
"""Writable folders of every sandbox, by their names on this machine."""
_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = (
    "alternatives",
    "crypto-policies",
    "ld.so.cache",
    "localtime",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    # Not all of it, because it also contains private keys.
    "ssl/certs",
    "ssl/openssl.cnf",
)
_MASKED: Final = (
    *("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/sysrq-trigger", "/proc/timer_list"),
)
"""Kernel files that reveal information about this machine or act on it."""
_ETC_FILES: Final = {
    "passwd": f"root:x:0:0::/:/bin/sh\ncoder:x:{USER_ID}:{USER_ID}::{HOME}:/bin/sh\n"
    "nobody:x:65534:65534::/:/bin/false\n",
    "group": f"root:x:0:\ncoder:x:{USER_ID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # A documentation address without a route, so that look-ups fail at once and are counted.
    "resolv.conf": "nameserver 192.0.2.1\noptions attempts:1 timeout:1\n",
}


def python_path() -> str:
    """Return the path of assay's Python, which `python_mounts` provides in sandboxes."""
    return sys.executable


def python_mounts() -> tuple[Mount, ...]:
    """Return the mounts that a sandbox needs to run the Python that runs assay."""
    mounts: dict[str, Mount] = {}
    for folder in dict.fromkeys((sys.base_prefix, sys.base_exec_prefix, sys.prefix)):
        if not _is_covered(folder, ("/usr", *mounts)):
            mounts[folder] = Mount(Path(folder), folder)
    for link in follow_links(sys.executable):
        if not _is_covered(link, ("/usr", *_LINKS, *mounts)):
            mounts[link] = Mount(Path(link).resolve(), link)
    return tuple(mounts.values())


def sandbox_environment() -> dict[str, str]:
    """Return the variables of a sandbox, with assay's Python first in the path."""
    return {**ENVIRONMENT, "PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}


def _is_covered(path: str, folders: Sequence[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


def follow_links(path: str) -> Iterator[str]:
    """Yield a path and the targets of its links, one after another."""
    for _ in range(40):  # the limit of the kernel
        yield path
        if not os.path.islink(path):
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def writable_folders(folder: Path, spec: SandboxSpec) -> dict[str, Path]:
    """Return the writable folders of a sandbox, by their paths in it."""
    place = spec.disk / folder.name if spec.disk else folder
    return {target: place / name for name, target in _WRITABLE.items()}


def prepare(folder: Path, spec: SandboxSpec) -> None:
    """Create the sandbox's own files and folders, in its folder here and on its disk."""
    for path in writable_folders(folder, spec).values():
        path.mkdir(parents=True)
    (writable_folders(folder, spec)["/tmp"] / PurePosixPath(HOME).name).mkdir()
    (folder / "etc").mkdir()
    for name, text in _ETC_FILES.items():
        (folder / "etc" / name).write_text(text, "utf-8")


def root_links() -> dict[str, str]:
    """Return the links at the root of the file system, with their targets."""
    return {link: os.readlink(link) for link in _LINKS if os.path.islink(link)}


def root_mounts(folder: Path, spec: SandboxSpec) -> list[Mount]:
    """Return all mounts of a sandbox, outer folders first."""
    found = [Mount(Path("/usr"), "/usr")]
    found += [
        Mount(Path(link), link)
        for link in _LINKS
        if os.path.isdir(link) and not os.path.islink(link)
    ]
    for name in _ETC:
        if os.path.exists(f"/etc/{name}"):
            found.append(Mount(Path("/etc", name), f"/etc/{name}"))
    for file in sorted((folder / "etc").iterdir()):
        found.append(Mount(file, f"/etc/{file.name}"))
    for target, source in writable_folders(folder, spec).items():
        found.append(Mount(source, target, writable=True))
    found += sorted(spec.mounts, key=lambda mount: len(PurePosixPath(mount.target).parts))
    return found


def root_arguments(folder: Path, spec: SandboxSpec, stage: MountStage) -> list[str]:
    """Return the bubblewrap options that create the file system."""
    found = []
    for link, target in root_links().items():
        found += ["--symlink", target, link]
    found += ["--proc", "/proc", "--dev", "/dev"]
    for path in _MASKED:
        if os.path.exists(path):
            found += ["--ro-bind", "/dev/null", path]
    for mount in root_mounts(folder, spec):
        kind = "--bind" if mount.writable else "--ro-bind"
        found += [kind, stage.path(mount.source), mount.target]
    for target in hidden_paths(spec.mounts):
        found += ["--tmpfs", target, "--remount-ro", target]
    # All of /proc, because bubblewrap does not change the files below /proc/sys.
    read_only = ("/proc", "/dev", "/")
    return [*found, *(part for path in read_only for part in ("--remount-ro", path))]


def hidden_paths(mounts: Sequence[Mount]) -> Iterator[str]:
    """Yield the paths where mounts would expose assay, which contains sample solutions."""
    package = Path(__file__).resolve().parents[1]
    for mount in mounts:
        source = mount.source.resolve()
        if package.is_relative_to(source):
            yield str(PurePosixPath(mount.target) / package.relative_to(source))
