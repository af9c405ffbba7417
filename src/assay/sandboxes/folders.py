"""The folder of a sandbox on this machine, and the limit on what it writes.

A folder is locked while its owner is alive, so that the folders of killed processes can be
recognised and removed. Content created by commands is not trusted: folders can be unreadable,
full of links, or nested deeper than the maximum path length.

Writing is limited by a separate file system, or else by a watcher. The file system is a sparse
file of the allowed size, so that the kernel counts everything a command holds, including
unlinked files that are mapped or passed over sockets. Only root can mount one. A watcher sees
files in folders and open files, and kills the command above the limit.
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

from assay.core.aio import finish_despite_cancellation
from assay.core.files import remove_folder
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import MIB, Enforcement, ResourceLimits, SandboxBackend, TrialFinding
from assay.sandboxes.procfs import unlinked_bytes

PREFIX: Final = "assay-box-"
_UNLOCKED_PREFIX: Final = "assay-new-box-"
_LOCK: Final = "lock"
_MIN_SIZE: Final = 4096
"""Minimum size of a file or folder: an empty one also takes space in its folder."""


class TooDeep(Exception):
    """Folders are nested too deeply to be measured."""


def new_folder() -> tuple[Path, int]:
    """Create a locked folder; return it with the handle of its lock."""
    unlocked = Path(tempfile.mkdtemp(prefix=f"{_UNLOCKED_PREFIX}{os.getpid()}-"))
    handle = os.open(unlocked / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    # Only now does it have a name that another process would sweep.
    folder = unlocked.with_name(PREFIX + unlocked.name.removeprefix(_UNLOCKED_PREFIX))
    unlocked.rename(folder)
    return folder, handle


def sweep_folders(forget: Callable[[Path], None]) -> None:
    """Remove the folders of sandboxes whose owner is dead.

    Args:
        forget: Removes the other resources of a sandbox, before its folder.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(OSError):  # its owner was killed while removing it
                folder.rmdir()
            continue
        except OSError:  # of another user
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            # If something cannot be removed now, the folder is kept and found again.
            with suppress(OSError):
                forget(folder)
                remove_locked(folder)
        finally:
            os.close(handle)


def remove_locked(folder: Path) -> None:
    """Remove the folder of a sandbox and its mounts, the lock last.

    If this is interrupted, the rest can still be swept.
    """
    for path in folder.iterdir():
        # Lazily, because a file in it may still be open.
        if path.is_mount() and subprocess.call(["umount", "--lazy", path]):
            raise OSError(f"{path} cannot be unmounted")
        if path.name != _LOCK:
            remove_folder(path)
    remove_folder(folder)


def measure_folders(folders: Iterable[Path], most: int | None = None) -> int:
    """Return the disk space of the files below some folders; stop counting above `most`.

    Raises:
        TooDeep: A path is longer than the maximum.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    pending = []
    for folder in folders:
        if folder.is_dir():
            pending.append(os.fsencode(folder))
        elif folder.exists():
            total += folder.lstat().st_blocks * 512
    while pending:
        for entry in _list_entries(pending.pop()):
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
            total += max(_MIN_SIZE, status.st_blocks * 512)
            if stat.S_ISDIR(status.st_mode):
                pending.append(entry.path)
            if most is not None and total > most:
                return total
    return total


def _list_entries(folder: bytes) -> list["os.DirEntry[bytes]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        return _list_entries(folder) if _make_readable(folder) else []
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise TooDeep from error
        return []


def _make_readable(folder: bytes) -> bool:
    """Make a folder readable that was closed to hide its content."""
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
"""Exit code of a process killed for exceeding RLIMIT_FSIZE."""
_SLACK: Final = MIB
"""Tolerance, so that a file stopped by RLIMIT_FSIZE is not also killed for its folder."""
_BLOCK: Final = 4096
"""Minimum size counted per file, so that the number of files is limited too."""
_INODE: Final = 256
_MOUNT: Final = "loop,nosuid,nodev,noatime,nobarrier,noinit_itable"
"""The disk need not survive a crash of the machine, and its file initially reads as zeros."""


@cache
def describe_disk_limit() -> str:
    """Describe how disk space is limited here; mounting a file system is tried once."""
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


def enforcement_with_disk(disk: Path | None, enforcement: Enforcement) -> Enforcement:
    """Return the enforcement of one sandbox: without a separate disk, a watcher is used."""
    if not enforcement.disk.startswith(OWN_DISK):
        return enforcement
    return replace(enforcement, disk=OWN_DISK if disk else WATCHED_DISK)


@asynccontextmanager
async def limited_disk(
    backend: SandboxBackend, limits: ResourceLimits, *content: Path
) -> AsyncIterator[Path | None]:
    """Yield a file system for the writable files of a sandbox, or None if a watcher is used.

    Args:
        backend: Creates the sandbox, and decides whether a file system is used.
        limits: Free space in addition to the content.
        content: Folders that are moved into it, with the same names.

    Raises:
        SandboxUnavailable: It cannot be created or mounted.
    """
    enforcement = await asyncio.to_thread(backend.enforcement, limits)
    if not enforcement.disk.startswith(OWN_DISK):
        yield None
        return
    opened = ExitStack()
    made: list[Path] = []

    def make() -> None:
        made.append(opened.enter_context(_new_disk(content, limits.disk_mb)))

    try:
        # A thread cannot be cancelled; without waiting for it, its mount would be left behind.
        await finish_despite_cancellation(asyncio.to_thread(make))
        yield made[0]
    finally:
        await finish_despite_cancellation(asyncio.to_thread(opened.close))


@contextmanager
def _new_disk(content: Sequence[Path], limit_mb: int) -> Iterator[Path]:
    """Mount a new file system in a locked folder, which is swept if this process is killed."""
    # Next to the content, because the folder for temporary files may be in memory.
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
    """Create a file system, mount it, move the content into it and leave exactly the limit."""
    files = _read_total("du", "-sc", "--inodes", "--", *content)
    size = _read_total("du", "-sc", "-B1", "--apparent-size", "--", *content)
    inodes = files + limit_mb * MIB // _BLOCK + 64
    needed = size + files * _BLOCK + limit_mb * MIB + inodes * _INODE
    image.touch(0o600)
    with image.open("wb") as file:
        # Space for the file system itself; the unused rest is allocated below.
        file.truncate(round(needed * 1.05) + 8 * MIB)
    features = ("-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1", "-m", "0")
    sizes = ("-b", str(_BLOCK), "-I", str(_INODE), "-N", str(inodes))
    _run("mkfs.ext4", "-q", "-F", *features, *sizes, image)
    _run("mount", "-t", "ext4", "-o", _MOUNT, image, disk)
    _run("mv", "--", *content, disk)
    status = os.statvfs(disk)
    excess = status.f_bavail * status.f_frsize - limit_mb * MIB - _SLACK // 2
    with (disk / "unused").open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, excess)
        except OSError as error:
            raise SandboxUnavailable(f"{content[0]} does not fit its file system") from error


def _read_total(*command: str | Path) -> int:
    return int(_run(*command).splitlines()[-1].split()[0])


def _run(*command: str | Path) -> str:
    # Not every PATH contains the administrator's programs.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    variables = {"PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        ended = subprocess.run(command, env=variables, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise SandboxUnavailable(f"{command[0]} is not installed") from error
    if ended.returncode:
        # The end of the message is the reason; the paths before it differ from trial to trial.
        reason = ended.stderr.decode(errors="replace").partition("\n")[0].rpartition(": ")[2]
        raise SandboxUnavailable(f"{command[0]} failed: {reason or ended.returncode}")
    return ended.stdout.decode()


async def _count_zero() -> int:
    return 0


class DiskLimit:
    """The disk limit of one sandbox over all of its commands; call `begin` first."""

    def __init__(
        self,
        folders: Sequence[Path],
        limit_mb: int,
        elsewhere: Callable[[], Awaitable[int]] = _count_zero,
        disk: Path | None = None,
    ) -> None:
        """Watch some folders.

        Args:
            folders: Folders that the sandbox can write to.
            limit_mb: Space in addition to the initial content.
            elsewhere: Returns the bytes written to other places.
            disk: The file system of `limited_disk` that contains the folders, if any.

        Raises:
            SandboxUnavailable: A folder is not on that file system.
        """
        self._disk = disk
        self._initial = os.statvfs(disk) if disk else None
        for folder in folders:
            if disk and folder.stat().st_dev != disk.stat().st_dev:
                raise SandboxUnavailable(f"{folder} is writable and not on the disk {disk}")
        self._folders = _drop_nested(folders)
        self._limit_mb = limit_mb
        self._elsewhere = elsewhere
        self._limit = limit_mb * MIB
        self._used = 0
        self._was_full = False

    async def begin(self) -> None:
        """Measure the content before the first command."""
        initial = await asyncio.to_thread(self._measure)
        self._limit += initial + await self._elsewhere()

    async def check(self, processes: Callable[[], Sequence[int]]) -> TrialFinding | None:
        """Measure the content; return a finding if the command must be killed.

        Args:
            processes: Returns the command's processes, whose open files may be unlinked.
        """
        # An earlier command may have exceeded the limit, and its files may still be removed.
        allowed = max(self._limit, self._used) + _SLACK
        try:
            used = await asyncio.to_thread(self._measure, processes, allowed)
        except TooDeep:
            return TrialFinding("disk_limit", "folders are nested too deeply to be measured")
        used += await self._elsewhere()
        self._was_full = self._was_full or used >= self._limit
        if used > allowed:
            limit = f"the limit of {self._limit_mb} MB"
            return TrialFinding("disk_limit", f"it wrote more than {limit}; it was killed")
        return None

    def _measure(
        self, processes: Callable[[], Sequence[int]] = lambda: (), most: int | None = None
    ) -> int:
        if self._disk and self._initial:
            now = os.statvfs(self._disk)
            blocks = self._initial.f_bfree - now.f_bfree
            return max(blocks * now.f_frsize, (self._initial.f_ffree - now.f_ffree) * _BLOCK)
        return measure_folders(self._folders, most=most) + unlinked_bytes(processes())

    async def end(self, exit_code: int | None) -> TrialFinding | None:
        """Return a finding after a command that was not killed for the disk limit."""
        before = self._used
        try:
            self._used = await asyncio.to_thread(self._measure)
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


def _drop_nested(folders: Sequence[Path]) -> list[Path]:
    """Return the folders that are not inside another one, to avoid counting twice."""
    resolved = dict.fromkeys(folder.resolve() for folder in folders)
    return [
        folder
        for folder in resolved
        if not any(folder != other and folder.is_relative_to(other) for other in resolved)
    ]
