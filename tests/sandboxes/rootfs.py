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


def slim_root(root: Path) -> Path:
    """Make a root like that of the public images of Python, with git and pytest in it."""
    make_root(root, python=False)
    (root / "root").chmod(0o700)
    local = root / "usr/local"
    (local / "bin").mkdir(parents=True)
    name = f"python{sysconfig.get_python_version()}"
    _copy(root, Path(os.path.realpath(sys.executable)), local / "bin" / name)
    (local / "bin/python3").symlink_to(name)
    # A library of its own is where every program finds it, and nothing is where it is here.
    prefix = root / sys.base_prefix.lstrip("/")
    for library in prefix.glob("lib/libpython*"):
        library.rename(root / "usr/lib" / library.name)
    if prefix.exists() and prefix not in (root / "usr", local):
        shutil.rmtree(prefix)
    library = Path(sysconfig.get_path("stdlib"))
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(library, local / "lib" / name, ignore=left_out)
    for module in library.glob("lib-dynload/*.so"):
        _copy(root, module, local / "lib" / name / "lib-dynload" / module.name)
    packages = local / "lib" / name / "site-packages"
    packages.mkdir()
    here = Path(sysconfig.get_path("purelib"))
    for package in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(here / package, packages / package)
    shutil.copy(here / "py.py", packages)
    # What agents of others expect beside that.
    copy_libraries(root, "librt", "libgcc_s", "libpthread", "libdl", "libm")
    return root


def copy_libraries(root: Path, *names: str) -> None:
    """Copy libraries of this machine, those that it has."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    rows = [line.split() for line in known.stdout.splitlines() if "=>" in line]
    found = {
        row[0].partition(".so")[0]: row[-1] for row in reversed(rows) if "x86-64" in row[1]
    }
    for name in names:
        if name in found:
            _copy(root, Path(found[name]), root / found[name].lstrip("/"))


def _copy(root: Path, program: Path, target: Path) -> None:
    """Copy a program with the libraries that it is linked with."""
    shutil.copy2(program, target)
    linked = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    for path in re.findall(r"(/\S+)", linked.stdout):
        place = root / path.lstrip("/")
        if not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), place)
