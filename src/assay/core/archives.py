"""Tar files unpacked: regular files and folders, and nothing else.

`TarFile.extractall(filter="data")` would do, but Python 3.11.2, which Debian 12 ships, has no
filters. This is stricter: links are refused, so no path can lead out of the folder.
"""

import os
import shutil
from pathlib import Path, PurePosixPath
from tarfile import BLOCKSIZE, TarFile

from assay.errors import UsageError


def unpack_tar(archive: TarFile, folder: Path, *, max_bytes: int = 2**30) -> None:
    """Unpack a tar file into a folder, with times, and without owners or special modes.

    Args:
        archive: The open tar file.
        folder: An empty folder.
        max_bytes: The bound on all files and headers together, checked before each is written.

    Raises:
        UsageError: A member is neither a file nor a folder, would be outside the folder or
            is there twice, or the archive is too large.
    """
    left = max_bytes
    for member in archive:
        place = PurePosixPath(member.name)
        if not (member.isreg() or member.isdir()):
            raise UsageError(f"{member.name!r} in a tar file is not a file or a folder")
        if place.is_absolute() or ".." in place.parts:
            raise UsageError(f"{member.name!r} in a tar file leads out of the folder")
        left -= BLOCKSIZE + member.size
        if left < 0:
            raise UsageError(f"a tar file unpacks to more than {max_bytes:,} bytes")
        target = folder / place
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        assert content is not None  # only for members that are not files
        try:
            with content, target.open("xb") as file:
                shutil.copyfileobj(content, file)
        except FileExistsError:
            raise UsageError(f"{member.name!r} is there already") from None
        target.chmod(0o755 if member.mode & 0o100 else 0o644)
        os.utime(target, (member.mtime, member.mtime))
