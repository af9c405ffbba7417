"""Files that are there whole or not at all.

What is written goes to a file beside the target and takes its name at the end, so that a
reader never sees half of it and a crash leaves the old content.
"""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from assay.errors import OutputError

__all__ = [
    "atomic_file",
    "atomic_write",
    "free_path",
    "remove_abandoned",
    "remove_drafts",
]


_DRAFT = re.compile(r"\..+\.(\d+)-\w{8}")
"""The name of a file that takes another name at the end."""
_ABANDONED_S = 60
"""A process of another machine or container has no number here, and writes now and then."""


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` when the block ends well.

    Its `name` is the path of the temporary file. Directories above it are made. If the
    block raises, `path` stays as it was.

    Raises:
        OutputError: The file cannot be written.
    """
    stream, temporary = _beside(path)
    try:
        try:
            with stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except OSError as error:
            raise _failed(path, error) from error
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def atomic_write(path: Path, content: bytes) -> None:
    """Write a whole file at once; see `atomic_file`."""
    with atomic_file(path) as stream:
        stream.write(content)


def _is_running(process: int) -> bool:
    """Whether there is a process of this number on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def remove_drafts(folder: Path) -> None:
    """Delete the files that processes which were killed had not finished in a folder."""
    for path in folder.glob(".*.*-*"):
        if process := _DRAFT.fullmatch(path.name):
            remove_abandoned(path, int(process[1]))


def remove_abandoned(path: Path, process: int) -> None:
    """Delete a file that a process has not finished, if that does not live any more."""
    with suppress(OSError):
        if not _is_running(process) and time.time() - path.stat().st_mtime > _ABANDONED_S:
            path.unlink()


def free_path(path: Path, mark: str = "-") -> Path:
    """A path that is not taken: this one, else with a mark and a number at its end."""
    number, candidate = 1, path
    while candidate.exists() or candidate.is_symlink():
        number += 1
        candidate = path.with_name(f"{path.name}{mark}{number}")
    return candidate


def _beside(path: Path) -> tuple[IO[bytes], Path]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Named by its process, so that others know when nobody finishes it any more.
        prefix = f".{path.name[:40]}.{os.getpid()}-"
        handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
        # A temporary file is for its owner only; the one it becomes is for whom it was for.
        os.fchmod(handle, _mode(path))
        os.close(handle)
        # Opened by its name, so that `stream.name` is a path that others can write to.
        temporary = Path(name)
        return temporary.open("wb"), temporary
    except OSError as error:
        raise _failed(path, error) from error


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _failed(path: Path, error: OSError) -> OutputError:
    if isinstance(error, OutputError):
        return error
    return OutputError(
        f"cannot write {str(path)!r}: {error.strerror or error}; "
        "free some space, or name another place"
    )
