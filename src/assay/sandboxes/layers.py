"""What a sandbox changed of its image, as a tar file, and such a file unpacked over an image.

A file that was deleted is an empty file `.wh.NAME`, as in the layers of images. What a command
made is not trusted: no link is followed, and nothing is opened that is not a plain file.
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
"""What the name of a deleted file begins with."""
PLAIN_MODE: Final = 0o1777
"""All rights but setuid and setgid, which nothing that a command made keeps."""


class Changed(NamedTuple):
    """One path that differs from the image."""

    path: str
    """From the root of the image, without a slash before it."""
    source: Path | None
    """Where it is on this machine; None if it was deleted."""


def is_excluded(path: str, excluded: Iterable[str]) -> bool:
    """Whether a path is one of these absolute ones, or below one."""
    return any(PurePosixPath("/", path).is_relative_to(other) for other in excluded)


def write_layer(target: Path, changes: Iterable[Changed], exclude: Sequence[str]) -> None:
    """Write changes, folders before what is in them, to a tar file.

    `exclude` are absolute paths, left out with all below them.
    """
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, source in changes:
            if is_excluded(path, exclude):
                continue
            if source is None:
                place = PurePosixPath(path)
                gone = tarfile.TarInfo(str(place.with_name(WHITEOUT + place.name)))
                tar.addfile(gone)
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
    """The paths of a layer that are no folders, each with whether it was deleted."""
    with tarfile.open(layer) as tar:
        for member in tar:
            place = PurePosixPath(member.name)
            if place.name.startswith(WHITEOUT):
                yield str(place.with_name(place.name.removeprefix(WHITEOUT))), True
            elif not member.isdir():
                yield member.name, False


def unpack_layer(layer: Path, root: Path) -> None:
    """Unpack the files of a layer below a folder; what it deletes is left alone.

    What is no folder on the way to a file gives way to one.
    """
    folders: list[tuple[Path, tarfile.TarInfo]] = []
    with tarfile.open(layer) as tar:
        for member in tar:
            parts = [part for part in PurePosixPath(member.name).parts if part != "/"]
            if not parts or ".." in parts:
                continue
            place = root
            for part in parts[:-1]:
                place = place / part
                _make_folder(place)
            place = place / parts[-1]
            if place.name.startswith(WHITEOUT):
                continue
            if member.isdir():
                _make_folder(place)
                folders.append((place, member))
                continue
            _clear(place)
            _unpack(tar, member, place, root)
    for place, member in reversed(folders):  # what was put into them changed their times
        _dress(place, member)


def _clear(place: Path) -> None:
    """Remove whatever is at a place."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(place.lstat().st_mode):
            shutil.rmtree(place)
        else:
            place.unlink()


def _make_folder(place: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(place.lstat().st_mode):
            return
        place.unlink()
    place.mkdir()


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path, root: Path) -> None:
    if member.issym():
        place.symlink_to(member.linkname)
    elif member.islnk():
        with suppress(OSError):  # what it links to was left out
            os.link(root / member.linkname.lstrip("/"), place, follow_symlinks=False)
        return
    elif member.isfifo():
        os.mkfifo(place)
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None
        with content, place.open("xb") as file:
            shutil.copyfileobj(content, file)
    else:
        return
    _dress(place, member)


def _dress(place: Path, member: tarfile.TarInfo) -> None:
    """Give a file the owner, rights and time that it had."""
    if os.geteuid() == 0:
        os.chown(place, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        place.chmod(member.mode & PLAIN_MODE)
    os.utime(place, (member.mtime, member.mtime), follow_symlinks=False)
