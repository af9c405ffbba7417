"""The folder that a sandbox has on this machine, and how much it writes.

A folder is locked as long as its owner lives, so that what a killed one left can be told from
what is in use, and removed. Nothing here trusts what a command made: its folders can be
unreadable, full of links, or nested deeper than a path can be long.
"""

import errno
import fcntl
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from assay._util.files import remove_folder

__all__ = [
    "PREFIX",
    "TooDeep",
    "bytes_in",
    "new_folder",
    "remove_locked",
    "sweep_folders",
]

PREFIX: Final = "assay-box-"
_UNREADY: Final = "assay-new-box-"
_LOCK: Final = "lock"
_LEAST: Final = 4096
"""What a file or folder takes at least: an empty one takes a place in its folder, too."""


class TooDeep(Exception):
    """Folders are nested so deeply that they cannot be measured."""


def new_folder() -> tuple[Path, int]:
    """A folder that is locked, and the handle that locks it."""
    unready = Path(tempfile.mkdtemp(prefix=f"{_UNREADY}{os.getpid()}-"))
    handle = os.open(unready / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    # Only now does it have a name that somebody would sweep.
    folder = unready.with_name(PREFIX + unready.name.removeprefix(_UNREADY))
    unready.rename(folder)
    return folder, handle


def sweep_folders(forget: Callable[[Path], None]) -> None:
    """Remove the folders of sandboxes whose owner is dead.

    Args:
        forget: Removes what else a sandbox has, before its folder.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(OSError):  # its owner was killed while it removed it
                folder.rmdir()
            continue
        except OSError:  # somebody else's
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            # What cannot be removed now keeps its folder, and is found again.
            with suppress(OSError):
                forget(folder)
                remove_locked(folder)
        finally:
            os.close(handle)


def remove_locked(folder: Path) -> None:
    """Remove the folder of a sandbox and what is mounted there, its lock last.

    So what is left of it can be swept.
    """
    for path in folder.iterdir():
        # Lazily, since somebody may still have a file of it open.
        if path.is_mount() and subprocess.call(["umount", "--lazy", path]):
            raise OSError(f"{path} cannot be unmounted")
        if path.name != _LOCK:
            remove_folder(path)
    remove_folder(folder)


def bytes_in(folders: Iterable[Path], most: int | None = None) -> int:
    """What the files below these take on the disk; stops counting above `most`.

    Raises:
        TooDeep: A path there is longer than a path can be.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    waiting = []
    for folder in folders:
        if folder.is_dir():
            waiting.append(os.fsencode(folder))
        elif folder.exists():
            total += folder.lstat().st_blocks * 512
    while waiting:
        for entry in _entries(waiting.pop()):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    raise TooDeep from error
                continue
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            total += max(_LEAST, status.st_blocks * 512)
            if stat.S_ISDIR(status.st_mode):
                waiting.append(entry.path)
            if most is not None and total > most:
                return total
    return total


def _entries(folder: bytes) -> list["os.DirEntry[bytes]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        return _entries(folder) if _opened_up(folder) else []
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise TooDeep from error
        return []


def _opened_up(folder: bytes) -> bool:
    """Make a folder readable that was closed to hide what is in it."""
    try:
        handle = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
