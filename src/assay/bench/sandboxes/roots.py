"""The file system of a sandbox: programs to read, little else, and the mounts it is given.

Its folder `/usr` and the few files of `/etc` are those of this machine, and cannot be written
to. Who runs assay as root has the rights of root on files in there, whatever number it has
inside, so nothing with secrets may be mounted at all.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from assay.bench.seams import Mount, SandboxSpec

__all__ = [
    "ENVIRONMENT",
    "HOME",
    "IMAGE_ENVIRONMENT",
    "MOUNTED",
    "USER_ID",
    "WRITABLE",
    "hidden_paths",
    "image_root_arguments",
    "links_of",
    "prepare",
    "python_mounts",
    "python_path",
    "root_arguments",
    "root_links",
    "root_mounts",
    "sandbox_environment",
]

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
WRITABLE: Final = {"tmp": "/tmp", "shm": "/dev/shm"}
"""Folders of every sandbox that it may write to, by their names in its folder here."""
IMAGE_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOSTNAME": "sandbox",
}
"""Variables of every command on an image, unless the image or the sandbox has others."""
MOUNTED: Final = ("/proc", "/dev", "/etc/hosts", "/etc/resolv.conf")
"""What a sandbox on an image has from us and not from the image."""
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


def prepare(folder: Path, *, network: bool) -> None:
    """Make what a sandbox has of its own, in its folder here."""
    for name in WRITABLE:
        (folder / name).mkdir()
    (folder / "tmp" / PurePosixPath(HOME).name).mkdir()
    (folder / "etc").mkdir()
    for name, text in _MADE_UP.items():
        if name != "resolv.conf" or not network:
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
    resolver = Path(os.path.realpath("/etc/resolv.conf"))
    if spec.limits.network and resolver.exists():
        found.append(Mount(resolver, "/etc/resolv.conf"))
    for name, target in WRITABLE.items():
        found.append(Mount(folder / name, target, writable=True))
    found += sorted(spec.mounts, key=lambda mount: len(PurePosixPath(mount.target).parts))
    return found


def root_arguments(folder: Path, spec: SandboxSpec) -> list[str]:
    """The options of bubblewrap that make up the file system."""
    found = []
    for link, target in root_links().items():
        found += ["--symlink", target, link]
    found += ["--proc", "/proc", "--dev", "/dev"]
    for mount in root_mounts(folder, spec):
        kind = "--bind" if mount.writable else "--ro-bind"
        found += [kind, str(mount.source), mount.target]
    for target in hidden_paths(spec.mounts):
        found += ["--tmpfs", target, "--remount-ro", target]
    return [*found, "--remount-ro", "/dev", "--remount-ro", "/"]


def image_root_arguments(folder: Path, root: Path, spec: SandboxSpec) -> list[str]:
    """The options of bubblewrap that make up the file system of a sandbox on an image."""
    found = ["--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev"]
    found += ["--bind", str(folder / "shm"), "/dev/shm"]
    found += ["--ro-bind", str(folder / "etc" / "hosts"), "/etc/hosts"]
    names = folder / "etc" / "resolv.conf"
    own = str(names) if names.exists() else os.path.realpath("/etc/resolv.conf")
    found += ["--ro-bind-try", own, "/etc/resolv.conf"]
    for mount in sorted(spec.mounts, key=lambda mount: len(PurePosixPath(mount.target).parts)):
        kind = "--bind" if mount.writable else "--ro-bind"
        found += [kind, str(mount.source), mount.target]
    return [*found, "--remount-ro", "/dev"]


def hidden_paths(mounts: Sequence[Mount]) -> Iterator[str]:
    """Where mounts would show assay itself, whose samples come with their solutions."""
    package = Path(__file__).resolve().parents[2]
    for mount in mounts:
        source = mount.source.resolve()
        if package.is_relative_to(source):
            yield str(PurePosixPath(mount.target) / package.relative_to(source))
