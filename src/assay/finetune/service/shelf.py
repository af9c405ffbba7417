"""Files that clients uploaded, in a folder of bounded size.

An id is made here and looked up, never read as a path.
"""

import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from assay._util.files import atomic_file, atomic_write
from assay.errors import AssayError

__all__ = ["FileShelf", "NoRoom", "ShelvedFile"]


class NoRoom(AssayError):
    """The folder has as much in it as it may have."""


@dataclass(frozen=True, slots=True)
class ShelvedFile:
    """A file, as its client is told of it."""

    id: str
    filename: str
    bytes: int
    purpose: str
    created_at: int

    def told(self) -> dict[str, Any]:
        """The object of the protocol."""
        return {**asdict(self), "object": "file", "status": "processed", "status_details": None}


class FileShelf:
    """The files of a service.

    Args:
        folder: Where they lie.
        home: The folder that may have `quota` bytes in it, the files among them.
        quota: Bytes.
    """

    def __init__(self, folder: Path, *, home: Path, quota: int) -> None:
        self._folder, self._home, self._quota = folder, home, quota
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {file.id: file for file in self._read()}

    def _read(self) -> Iterator[ShelvedFile]:
        for path in sorted(self._folder.glob("file-*.json")):
            # What a kill left without its other half is no file.
            with suppress(OSError, ValueError, TypeError):
                file = ShelvedFile(**json.loads(path.read_bytes()))
                if self._content(file.id).stat().st_size == file.bytes:
                    yield file

    @property
    def room(self) -> int:
        """Bytes that may still be added."""
        used = sum(path.stat().st_size for path in self._home.rglob("*") if path.is_file())
        return max(0, min(self._quota - used, shutil.disk_usage(self._home).free))

    @contextmanager
    def adding(self, filename: str, purpose: str) -> Iterator["_Addition"]:
        """Write a file; it is there once the block has ended without an error."""
        name = f"file-{secrets.token_hex(12)}"
        path = self._content(name)
        with atomic_file(path) as stream:
            addition = _Addition(stream, self.room)
            yield addition
        file = ShelvedFile(name, filename, addition.size, purpose, int(time.time()))
        atomic_write(path.with_suffix(".json"), json.dumps(asdict(file)).encode())
        self._files[name] = addition.file = file

    def all(self) -> list[ShelvedFile]:
        """The newest first."""
        return sorted(self._files.values(), key=lambda file: -file.created_at)

    def find(self, name: str) -> ShelvedFile | None:
        """The file of an id."""
        return self._files.get(name)

    def path(self, file: ShelvedFile) -> Path:
        """Where its content lies."""
        return self._content(file.id)

    def remove(self, file: ShelvedFile) -> None:
        """Delete it."""
        del self._files[file.id]
        for suffix in (".json", ".jsonl"):
            self._content(file.id).with_suffix(suffix).unlink(missing_ok=True)

    def _content(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


class _Addition:
    """A file that is being written."""

    file: ShelvedFile

    def __init__(self, stream: IO[bytes], room: int) -> None:
        self._stream, self._room = stream, room
        self.size = 0

    def write(self, part: bytes) -> None:
        """Add a part; raises NoRoom where it is too much."""
        self.size += len(part)
        if self.size > self._room:
            raise NoRoom("there is no room for this file; delete files or models first")
        self._stream.write(part)
