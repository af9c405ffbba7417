"""The folder that a sandbox has on this machine, and how much it writes.

A folder is locked as long as its owner lives, so that what a killed one left can be told from
what is in use, and removed. Nothing here trusts what a command made: its folders can be
unreadable, full of links, or nested deeper than a path can be long.

What a sandbox writes, limited by a file system of its own, else by a watcher.

The file system lies in a sparse file and is as large as the limit allows, so that the kernel
counts whatever a command holds: files without a name, mapped or passed over sockets too. Only
root can mount one. A watcher sees files in folders and open ones, and kills above the limit.
"""

import asyncio
import errno
import fcntl
import os
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from assay.core.aio import to_the_end
from assay.core.files import remove_folder
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import MIB, Enforcement, ResourceLimits, SandboxBackend, TrialFinding
from assay.sandboxes.procfs import unlinked_bytes

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
    """Remove the folders of sandboxes whose owner is dead, each after `forget` of it."""
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


OWN_DISK: Final = "file system of its own"
WATCHED_DISK: Final = (
    "watcher and RLIMIT_FSIZE; unlinked files that are mapped or in sockets are not counted"
)
FILE_TOO_LARGE: Final = 128 + 25
"""The exit code of who was killed for writing beyond RLIMIT_FSIZE."""
_SLACK: Final = MIB
"""So that a single file, which RLIMIT_FSIZE stops, is not also killed for its folder."""
_BLOCK: Final = 4096
"""What each file counts at least, so that the number of files is limited, too."""
_INODE: Final = 256
_MOUNT: Final = "loop,nosuid,nodev,noatime,nobarrier,noinit_itable"
"""Nothing of it must survive a crash of the machine, and its file reads as zeros at first."""


@cache
def disk_held_by() -> str:
    """Return how disk space is limited here; a file system is tried once by mounting one."""
    problem = "only root can mount one"
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory(prefix="assay-disk-") as folder:
            content = Path(folder, "content")
            content.mkdir()
            try:
                with _new_disk([content], limit_mb=1):
                    return OWN_DISK
            except (SandboxUnavailable, OSError) as error:
                problem = str(error)
    return f"{WATCHED_DISK} (no {OWN_DISK}: {problem})"


def held_with(disk: Path | None, held: Enforcement) -> Enforcement:
    """Return how the limits of one sandbox are held: without a disk, it is watched."""
    if not held.disk.startswith(OWN_DISK):
        return held
    return replace(held, disk=OWN_DISK if disk else WATCHED_DISK)


@asynccontextmanager
async def own_disk(
    backend: SandboxBackend, limits: ResourceLimits, *content: Path
) -> AsyncIterator[Path | None]:
    """Yield a file system for the writable files of a sandbox, or None if a watcher is used.

    Args:
        backend: Makes the sandbox, and says whether there can be one.
        limits: How much more than its content fits in.
        content: Folders that are moved into it, under the same names.

    Raises:
        SandboxUnavailable: It cannot be made or mounted.
    """
    held = await asyncio.to_thread(backend.enforcement, limits)
    if not held.disk.startswith(OWN_DISK):
        yield None
        return
    opened = ExitStack()
    made: list[Path] = []

    def make() -> None:
        made.append(opened.enter_context(_new_disk(content, limits.disk_mb)))

    try:
        # A thread cannot be stopped: who does not wait for it would leave its mount behind.
        await to_the_end(asyncio.to_thread(make))
        yield made[0]
    finally:
        await to_the_end(asyncio.to_thread(opened.close))


@contextmanager
def _new_disk(content: Sequence[Path], limit_mb: int) -> Iterator[Path]:
    """Mount a new file system in a locked folder, which is swept if this process is killed."""
    # Where the content was: the folder for temporary files may be in memory.
    image = content[0].parent / "disk.img"
    folder, lock = new_folder()
    disk = folder / "disk"
    try:
        disk.mkdir()
        _mount(content, limit_mb, image, disk)
        yield disk
    finally:
        try:
            remove_locked(folder)
            image.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _mount(content: Sequence[Path], limit_mb: int, image: Path, disk: Path) -> None:
    """Make a file system, mount it, move the content into it and leave exactly the limit."""
    files = _total("du", "-sc", "--inodes", "--", *content)
    size = _total("du", "-sc", "-B1", "--apparent-size", "--", *content)
    inodes = files + limit_mb * MIB // _BLOCK + 64
    needed = size + files * _BLOCK + limit_mb * MIB + inodes * _INODE
    image.touch(0o600)
    with image.open("wb") as file:
        # The rest is for the file system itself; what is left of it is taken away below.
        file.truncate(round(needed * 1.05) + 8 * MIB)
    features = ("-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1", "-m", "0")
    sizes = ("-b", str(_BLOCK), "-I", str(_INODE), "-N", str(inodes))
    _output("mkfs.ext4", "-q", "-F", *features, *sizes, image)
    _output("mount", "-t", "ext4", "-o", _MOUNT, image, disk)
    _output("mv", "--", *content, disk)
    status = os.statvfs(disk)
    excess = status.f_bavail * status.f_frsize - limit_mb * MIB - _SLACK // 2
    with (disk / "unused").open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, excess)
        except OSError as error:
            raise SandboxUnavailable(f"{content[0]} does not fit its file system") from error


def _total(*command: str | Path) -> int:
    return int(_output(*command).splitlines()[-1].split()[0])


def _output(*command: str | Path) -> str:
    # Not every PATH has the programs of the administrator.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    variables = {"PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        ended = subprocess.run(command, env=variables, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise SandboxUnavailable(f"{command[0]} is not installed") from error
    if ended.returncode:
        # Its last words are the reason; paths before them would differ from trial to trial.
        reason = ended.stderr.decode(errors="replace").partition("\n")[0].rpartition(": ")[2]
        raise SandboxUnavailable(f"{command[0]} failed: {reason or ended.returncode}")
    return ended.stdout.decode()


async def _nothing() -> int:
    return 0


class DiskLimit:
    """The limit of one sandbox over all of its commands; `begin` comes first."""

    def __init__(
        self,
        folders: Sequence[Path],
        limit_mb: int,
        elsewhere: Callable[[], Awaitable[int]] = _nothing,
        disk: Path | None = None,
    ) -> None:
        """Look at some folders.

        Args:
            folders: What it may write to.
            limit_mb: How much, beside what is there at first.
            elsewhere: The bytes it wrote to other places than these.
            disk: The file system of `own_disk` that the folders are on, if there is one.

        Raises:
            SandboxUnavailable: A folder is not on that file system.
        """
        self._disk = disk
        self._at_first = os.statvfs(disk) if disk else None
        for folder in folders:
            if disk and folder.stat().st_dev != disk.stat().st_dev:
                raise SandboxUnavailable(f"{folder} is writable and not on the disk {disk}")
        self._folders = _outermost(folders)
        self._limit_mb = limit_mb
        self._elsewhere = elsewhere
        self._limit = limit_mb * MIB
        self._used = 0
        self._was_full = False

    async def begin(self) -> None:
        """See what is there before the first command."""
        at_first = await asyncio.to_thread(self._bytes)
        self._limit += at_first + await self._elsewhere()

    async def look(self, processes: Callable[[], Sequence[int]]) -> TrialFinding | None:
        """What is written now; a finding if the command is to be killed for it.

        Args:
            processes: Those of the command, whose open files may have no name.
        """
        # What an earlier command wrote too much may still be removed.
        allowed = max(self._limit, self._used) + _SLACK
        try:
            used = await asyncio.to_thread(self._bytes, processes, allowed)
        except TooDeep:
            return TrialFinding("disk_limit", "folders are nested too deeply to be measured")
        used += await self._elsewhere()
        self._was_full = self._was_full or used >= self._limit
        if used > allowed:
            limit = f"the limit of {self._limit_mb} MB"
            return TrialFinding("disk_limit", f"it wrote more than {limit}; it was killed")
        return None

    def _bytes(
        self, processes: Callable[[], Sequence[int]] = lambda: (), most: int | None = None
    ) -> int:
        if self._disk and self._at_first:
            now = os.statvfs(self._disk)
            blocks = self._at_first.f_bfree - now.f_bfree
            return max(blocks * now.f_frsize, (self._at_first.f_ffree - now.f_ffree) * _BLOCK)
        return bytes_in(self._folders, most=most) + unlinked_bytes(processes())

    async def end(self, exit_code: int | None) -> TrialFinding | None:
        """What is to be said once a command is dead that was not killed for it."""
        before = self._used
        try:
            self._used = await asyncio.to_thread(self._bytes)
            self._used += await self._elsewhere()
        except TooDeep:
            self._used = 0
        is_full = self._was_full or self._used >= self._limit
        self._was_full = False
        if (is_full and before < self._limit) or exit_code == FILE_TOO_LARGE:
            return TrialFinding(
                "disk_limit", f"it wrote up to the limit of {self._limit_mb} MB"
            )
        return None


def _outermost(folders: Sequence[Path]) -> list[Path]:
    """These without those that lie in another one, which would be counted twice."""
    resolved = dict.fromkeys(folder.resolve() for folder in folders)
    return [
        folder
        for folder in resolved
        if not any(folder != other and folder.is_relative_to(other) for other in resolved)
    ]
