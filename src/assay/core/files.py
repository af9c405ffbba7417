"""Atomic file writes, safe reads and removals, and batched syncs to disk.

Content is written to a temporary file in the same folder, which is renamed at the end: a reader
never sees a partial file, and a crash leaves the old content.

Written data survives the end of a process, but only synced data survives a power failure.
Waiting for a sync after every line would slow down every trial, so a thread syncs all recently
written files together.
"""

import atexit
import errno
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from assay.errors import OutputError

_DRAFT = re.compile(r"\..+\.(\d+)-\w{8}")
"""Name of an unfinished temporary file."""
_ABANDONED_S = 60
"""Age after which a draft is abandoned; the pid of another machine or container is unknown
here."""


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` when the block succeeds.

    Its `name` is the path of the temporary file. Parent directories are created. If the block
    raises, `path` is unchanged.

    Raises:
        OutputError: The file cannot be written.
    """
    stream, temporary = _open_temporary(path)
    try:
        try:
            with stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError as error:
            raise _write_error(path, error) from error
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def atomic_write(path: Path, content: bytes) -> None:
    """Write a whole file atomically; see `atomic_file`."""
    with atomic_file(path) as stream:
        stream.write(content)


def _is_running(process: int) -> bool:
    """Return whether this process id exists on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def is_draft(path: Path) -> bool:
    """Return whether a file is an unfinished file of `atomic_file`."""
    return _DRAFT.fullmatch(path.name) is not None


def remove_drafts(folder: Path) -> None:
    """Delete unfinished files of killed processes from a folder."""
    for path in folder.glob(".*.*-*"):
        if process := _DRAFT.fullmatch(path.name):
            remove_abandoned(path, int(process[1]))


def remove_abandoned(path: Path, process: int) -> None:
    """Delete an unfinished file of a process, if that process has ended."""
    with suppress(OSError):
        if not _is_running(process) and time.time() - path.stat().st_mtime > _ABANDONED_S:
            path.unlink()


def read_plain_file(
    path: Path, max_bytes: int = 100 << 20, within: Path | None = None
) -> bytes:
    """Return the content of a regular file; raise OSError for anything else.

    Links are not followed and pipes not waited for, even if the file was just replaced.

    Args:
        path: The file.
        max_bytes: The maximum size in bytes.
        within: A parent folder below which no link is followed; by default the file's own.
    """
    top = path.parent if within is None else within
    *folders, name = path.relative_to(top).parts
    folder_flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    handles = [os.open(top, folder_flags)]
    try:
        for folder in folders:
            handles.append(os.open(folder, folder_flags | os.O_NOFOLLOW, dir_fd=handles[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handles.append(os.open(name, flags, dir_fd=handles[-1]))
        # Checked before it is opened as a stream, which fails for a folder.
        status = os.fstat(handles[-1])
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, "too large")
        with open(handles[-1], "rb", closefd=False) as stream:
            return stream.read(max_bytes)
    finally:
        for handle in handles:
            os.close(handle)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, as far as possible.

    It may be nested more deeply than a path can be long, or lack permissions for its owner.
    Links are not followed, and other mounts are not entered.
    """
    if folder.is_symlink() or not folder.is_dir():
        with suppress(OSError):
            folder.unlink()
        return
    with suppress(OSError):
        top = _open_with_permissions(str(folder))
        try:
            device = os.fstat(top).st_dev
            pending = _delete_files(top)
            mark, count = os.urandom(8).hex(), 0
            while pending:
                name = pending.pop()
                with suppress(OSError):
                    handle = _open_with_permissions(name, top)
                    try:
                        if os.fstat(handle).st_dev != device:
                            continue
                        # Moved to the top, folders need neither a long path nor many handles.
                        for subfolder in _delete_files(handle):
                            count += 1
                            new_name = f"{mark}-{count}"
                            with suppress(OSError):
                                os.close(_open_with_permissions(subfolder, handle))
                                os.rename(
                                    subfolder, new_name, src_dir_fd=handle, dst_dir_fd=top
                                )
                                pending.append(new_name)
                    finally:
                        os.close(handle)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        folder.rmdir()


def _open_with_permissions(folder: str, parent: int | None = None) -> int:
    """Open a folder and give its owner all permissions; return the handle."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(folder, os.O_RDONLY | flags, dir_fd=parent)
    except PermissionError:
        path_handle = os.open(folder, os.O_PATH | flags, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{path_handle}", 0o700)
        finally:
            os.close(path_handle)
        handle = os.open(folder, os.O_RDONLY | flags, dir_fd=parent)
    with suppress(OSError):
        os.fchmod(handle, 0o700)
    return handle


def _delete_files(handle: int) -> list[str]:
    """Delete everything except folders from a folder; return the names of its folders."""
    with os.scandir(handle) as scan:
        entries = list(scan)
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name in {entry.name for entry in entries}.difference(folders):
        with suppress(OSError):
            os.unlink(name, dir_fd=handle)
    return folders


def find_free_path(path: Path, mark: str = "-") -> Path:
    """Return `path`, or with a mark and a number appended if it exists."""
    number, candidate = 1, path
    while candidate.exists() or candidate.is_symlink():
        number += 1
        candidate = path.with_name(f"{path.name}{mark}{number}")
    return candidate


def _open_temporary(path: Path) -> tuple[IO[bytes], Path]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The name contains the pid, so that other processes can recognise an abandoned file.
        prefix = f".{path.name[:40]}.{os.getpid()}-"
        handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
        # A temporary file is private; the final file gets the permissions of `path`.
        os.fchmod(handle, _read_mode(path))
        os.close(handle)
        # Opened by name, so that `stream.name` is a path that others can write to.
        temporary = Path(name)
        return temporary.open("wb"), temporary
    except OSError as error:
        raise _write_error(path, error) from error


def _read_mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _write_error(path: Path, error: OSError) -> OutputError:
    if isinstance(error, OutputError):
        return error
    return OutputError(
        f"cannot write {str(path)!r}: {error.strerror or error}; "
        "free some space, or give another path"
    )


_BATCH_S = 0.1
"""Time in which lines are collected; a sync costs about the same for one as for a thousand."""
_MAX_SINGLE_SYNCS = 4
"""Up to this many files are synced one by one; for more, the file system is synced."""


class _SyncQueue:
    """Paths waiting for a sync, and the thread that syncs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._wake = threading.Event()
        self._waiting: set[Path] = set()
        self._failed: dict[Path, OSError] = {}
        self._thread: threading.Thread | None = None

    def add(self, *paths: Path) -> None:
        with self._lock:
            is_first = not self._waiting
            self._waiting.update(paths)
            failed = self._failed.pop(paths[0], None)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="assay-sync", daemon=True
                )
                self._thread.start()
        if is_first:
            self._wake.set()
        if failed:
            raise failed

    def _run(self) -> None:
        while self._wake.wait():
            self._wake.clear()
            time.sleep(_BATCH_S)
            self.sync_all()

    def sync_all(self) -> None:
        with self._sync_lock:
            with self._lock:
                waiting, self._waiting = self._waiting, set()
            for device in _group_by_device(waiting):
                try:
                    _sync(device)
                except OSError as error:
                    with self._lock:
                        self._failed |= dict.fromkeys(device, error)


def _group_by_device(paths: Iterable[Path]) -> Iterable[list[Path]]:
    devices: dict[int, list[Path]] = {}
    for path in paths:
        # A missing file was stored or discarded meanwhile.
        with suppress(OSError):
            devices.setdefault(path.stat().st_dev, []).append(path)
    return devices.values()


def _sync(paths: list[Path]) -> None:
    if len(paths) <= _MAX_SINGLE_SYNCS or (syncfs := _load_syncfs()) is None:
        for path in paths:
            with suppress(FileNotFoundError):
                _call_on_file(path, os.fsync)
        return
    for path in paths:
        with suppress(FileNotFoundError):
            _call_on_file(path, syncfs)
            return


def _call_on_file(path: Path, operation: Any) -> None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        operation(descriptor)
    except OSError as error:
        # Some file systems sync folders themselves, and report an error.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@cache
def _load_syncfs() -> Any:
    """Return the call that syncs a whole file system, or None."""
    import ctypes

    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(descriptor: int) -> None:
        if function(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return syncfs


_sync_queue = _SyncQueue()


def _reset_after_fork() -> None:
    # A forked process has no thread, and its locks are in an undefined state.
    global _sync_queue
    _sync_queue = _SyncQueue()


os.register_at_fork(after_in_child=_reset_after_fork)


@atexit.register
def _sync_at_exit() -> None:
    _sync_queue.sync_all()


def sync_soon(*paths: Path) -> None:
    """Schedule files and folders to be synced by a thread soon.

    Raises:
        OSError: An earlier sync of the first path failed, so its content may be lost.
    """
    _sync_queue.add(*paths)


def sync_now(*paths: Path) -> None:
    """Sync files and folders one by one, in this order, before returning.

    Raises:
        OSError: A path cannot be opened or synced.
    """
    for path in paths:
        _call_on_file(path, os.fsync)
