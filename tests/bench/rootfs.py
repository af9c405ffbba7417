"""A small root file system of this machine's own programs, to build images over."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PROGRAMS = (
    *("sh", "bash", "setsid", "setpriv", "cat", "chmod", "chown", "cp", "dirname", "echo"),
    *("env", "grep", "id", "ls", "mkdir", "mv", "rm", "sed", "sleep", "tar", "touch"),
    *("cut", "find", "git", "gzip", "head", "ln", "mount", "prlimit", "pwd", "true", "unshare"),
    *("whoami", "xargs"),
)
PASSWD = "root:x:0:0:root:/root:/bin/sh\nada:x:1234:1234::/home/ada:/bin/sh\n"
GROUP = "root:x:0:\nada:x:1234:\nteam:x:77:ada\n"
LEFT_OUT = (
    "__pycache__",
    "test",
    "tests",
    "site-packages",
    "dist-packages",
    "config-*",
    "idlelib",
)


def make_root(root: Path, *, python: bool = True) -> Path:
    """Make a root file system with a shell, a few programs, two users and perhaps Python."""
    for name in ("bin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("etc", "proc", "dev", "run", "root", "home/ada", "var"):
        (root / name).mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            _copy(root, Path(os.path.realpath(found)), root / "usr/bin" / name)
    if python:
        _copy_python(root)
    return root


def _copy_python(root: Path) -> None:
    program = Path(os.path.realpath(sys.executable))
    target = root / program.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy(root, program, target)
    link = root / "usr/bin/python3"
    if not link.exists():
        link.symlink_to(program)
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library,
        root / library.relative_to("/"),
        ignore=shutil.ignore_patterns(*LEFT_OUT),
        dirs_exist_ok=True,
    )
    for module in library.glob("lib-dynload/_ctypes.*"):
        _copy(root, module, root / module.relative_to("/"))


def _copy(root: Path, program: Path, target: Path) -> None:
    """Copy a program with the libraries that it is linked with."""
    shutil.copy2(program, target)
    linked = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    for path in re.findall(r"(/\S+)", linked.stdout):
        place = root / path.lstrip("/")
        if not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), place)
