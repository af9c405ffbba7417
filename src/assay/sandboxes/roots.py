"""The file system of a sandbox: programs to read, little else, and the mounts it is given.

Its folder `/usr` and the few files of `/etc` are those of this machine, and cannot be written
to; nor can the files of the kernel in `/proc`. There is no `/sys`.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from assay.sandboxes.base import Mount, SandboxSpec
from assay.sandboxes.host_user import MountStage

USER_ID: Final = 1000
"""Not 65534, which also stands for everybody that a namespace does not know."""
HOME: Final = "/tmp/home"
ENVIRONMENT: Final[Mapping[str, str]] = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "TMPDIR": "/tmp",
    "USER": "coder",
}
"""Variables of every command, unless the sandbox has others."""
_WRITABLE: Final = {"tmp": "/tmp", "shm": "/dev/shm"}
"""Folders of every sandbox that it may write to, by their names here."""
_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = (
    "alternatives",
    "crypto-policies",
    "ld.so.cache",
    "localtime",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    # Not all of it: it also holds private keys.
    "ssl/certs",
    "ssl/openssl.cnf",
)
_MASKED: Final = (
    *("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/sysrq-trigger", "/proc/timer_list"),
)
"""Files of the kernel that tell about this machine or act on it."""
_MADE_UP: Final = {
    "passwd": f"root:x:0:0::/:/bin/sh\ncoder:x:{USER_ID}:{USER_ID}::{HOME}:/bin/sh\n"
    "nobody:x:65534:65534::/:/bin/false\n",
    "group": f"root:x:0:\ncoder:x:{USER_ID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    # An address for documentation, to which no route leads: a look-up fails at once, seen.
    "resolv.conf": "nameserver 192.0.2.1\noptions attempts:1 timeout:1\n",
}


def python_path() -> str:
    """The Python that runs assay; with `python_mounts` it is there in a sandbox, too."""
    return sys.executable


def python_mounts() -> tuple[Mount, ...]:
    """What a sandbox needs, beside its programs, to run the Python that runs assay."""
    mounts: dict[str, Mount] = {}
    for folder in dict.fromkeys((sys.base_prefix, sys.base_exec_prefix, sys.prefix)):
        if not _covered(folder, ("/usr", *mounts)):
            mounts[folder] = Mount(Path(folder), folder)
    for hop in links_of(sys.executable):
        if not _covered(hop, ("/usr", *_LINKS, *mounts)):
            mounts[hop] = Mount(Path(hop).resolve(), hop)
    return tuple(mounts.values())


def sandbox_environment() -> dict[str, str]:
    """The variables of a sandbox in which the Python that runs assay comes first."""
    return {**ENVIRONMENT, "PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"}


def _covered(path: str, folders: Sequence[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


def links_of(path: str) -> Iterator[str]:
    """A file and what it links to, link by link."""
    for _ in range(40):  # as many as the kernel follows
        yield path
        if not os.path.islink(path):
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def writable_folders(folder: Path, spec: SandboxSpec) -> dict[str, Path]:
    """Return the folders of its own that a sandbox may write to, by where it has them."""
    place = spec.disk / folder.name if spec.disk else folder
    return {target: place / name for name, target in _WRITABLE.items()}


def prepare(folder: Path, spec: SandboxSpec) -> None:
    """Make what a sandbox has of its own, in its folder here and on its disk."""
    for path in writable_folders(folder, spec).values():
        path.mkdir(parents=True)
    (writable_folders(folder, spec)["/tmp"] / PurePosixPath(HOME).name).mkdir()
    (folder / "etc").mkdir()
    for name, text in _MADE_UP.items():
        (folder / "etc" / name).write_text(text, "utf-8")


def root_links() -> dict[str, str]:
    """The links at the top of the file system, with what they lead to."""
    return {link: os.readlink(link) for link in _LINKS if os.path.islink(link)}


def root_mounts(folder: Path, spec: SandboxSpec) -> list[Mount]:
    """All that is mounted into a sandbox, outer folders first."""
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
    """The options of bubblewrap that make up the file system."""
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
    # All of /proc: bubblewrap itself leaves the files below /proc/sys as they are.
    read_only = ("/proc", "/dev", "/")
    return [*found, *(part for path in read_only for part in ("--remount-ro", path))]


def hidden_paths(mounts: Sequence[Mount]) -> Iterator[str]:
    """Where mounts would show assay itself, whose samples come with their solutions."""
    package = Path(__file__).resolve().parents[1]
    for mount in mounts:
        source = mount.source.resolve()
        if package.is_relative_to(source):
            yield str(PurePosixPath(mount.target) / package.relative_to(source))
