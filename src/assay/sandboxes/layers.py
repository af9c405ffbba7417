"""Changes of a sandbox to its image as a tar file, and unpacking such a file over an image.

A deleted file is an empty file `.wh.NAME`, as in image layers. Files created by commands are
not trusted: links are not followed, and only regular files are opened.
"""

import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

WHITEOUT: Final = ".wh."
"""Prefix of the name of a deleted file."""
PLAIN_MODE: Final = 0o1777
"""All permissions except setuid and setgid, which are removed from files of commands."""


class Changed(NamedTuple):
    """A path that differs from the image."""

    path: str
    """Relative to the root of the image, without a leading slash."""
    source: Path | None
    """Path on this machine; None if it was deleted."""


def is_excluded(path: str, excluded: Iterable[str]) -> bool:
    """Return whether a path is one of these absolute paths, or below one."""
    return any(PurePosixPath("/", path).is_relative_to(other) for other in excluded)


def write_layer(target: Path, changes: Iterable[Changed], exclude: Sequence[str]) -> None:
    """Write changes, folders before what is in them, to a tar file.

    Args:
        target: The file.
        changes: Changes, folders before their content.
        exclude: Absolute paths that are left out, with everything below them.
    """
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, source in changes:
            if is_excluded(path, exclude):
                continue
            if source is None:
                deleted = PurePosixPath(path)
                name = str(deleted.with_name(WHITEOUT + deleted.name))
                tar.addfile(tarfile.TarInfo(name))
                continue
            try:
                member = tar.gettarinfo(source, path)
            except OSError:
                continue
            if member is None or member.ischr() or member.isblk():  # None: a socket
                continue
            member.name = path
            member.mode &= PLAIN_MODE
            member.uname = member.gname = ""
            if not member.isreg():
                tar.addfile(member)
                continue
            handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(handle, "rb") as file:
                tar.addfile(member, file)


def layer_paths(layer: Path) -> Iterator[tuple[str, bool]]:
    """Yield the paths in a layer except folders, each with whether it was deleted."""
    with tarfile.open(layer) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if path.name.startswith(WHITEOUT):
                yield str(path.with_name(path.name.removeprefix(WHITEOUT))), True
            elif not member.isdir():
                yield member.name, False


def unpack_layer(layer: Path, root: Path) -> None:
    """Unpack the files of a layer into a folder; its deletions are ignored.

    Args:
        layer: The tar file.
        root: The folder. A file in it that is in the place of a parent folder is replaced.
    """
    folders: list[tuple[Path, tarfile.TarInfo]] = []
    with tarfile.open(layer) as tar:
        for member in tar:
            parts = [part for part in PurePosixPath(member.name).parts if part != "/"]
            if not parts or ".." in parts:
                continue
            path = root
            for part in parts[:-1]:
                path = path / part
                _make_folder(path)
            path = path / parts[-1]
            if path.name.startswith(WHITEOUT):
                continue
            if member.isdir():
                _make_folder(path)
                folders.append((path, member))
                continue
            _remove(path)
            _unpack(tar, member, path, root)
    for path, member in reversed(folders):  # unpacking into them has changed their times
        _restore_metadata(path, member)


def _remove(path: Path) -> None:
    """Remove any file or folder at a path."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()


def _make_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            return
        path.unlink()
    path.mkdir()


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, root: Path) -> None:
    if member.issym():
        path.symlink_to(member.linkname)
    elif member.islnk():
        with suppress(OSError):  # the target of the link was left out
            os.link(root / member.linkname.lstrip("/"), path, follow_symlinks=False)
        return
    elif member.isfifo():
        os.mkfifo(path)
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None
        with content, path.open("xb") as file:
            shutil.copyfileobj(content, file)
    else:
        return
    _restore_metadata(path, member)


def _restore_metadata(path: Path, member: tarfile.TarInfo) -> None:
    """Restore the owner, permissions and time of a file."""
    if os.geteuid() == 0:
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        path.chmod(member.mode & PLAIN_MODE)
    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
