"""What a sandbox writes, held to its limit by looking."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from assay.bench.sandboxes.folders import TooDeep, bytes_in
from assay.bench.sandboxes.limits import MIB
from assay.bench.sandboxes.processes import unlinked_bytes
from assay.bench.seams import TrialFinding

__all__ = ["FILE_TOO_LARGE", "DiskLimit"]

_SLACK: Final = MIB
"""So that a single file, which RLIMIT_FSIZE stops, is not also killed for its folder."""
FILE_TOO_LARGE: Final = 128 + 25
"""The exit code of who was killed for writing beyond RLIMIT_FSIZE."""


async def _nothing() -> int:
    return 0


class DiskLimit:
    """The limit of one sandbox over all of its commands; `begin` comes first."""

    def __init__(
        self,
        folders: Sequence[Path],
        limit_mb: int,
        elsewhere: Callable[[], Awaitable[int]] = _nothing,
    ) -> None:
        """Look at some folders.

        Args:
            folders: What it may write to.
            limit_mb: How much, beside what is there at first.
            elsewhere: The bytes it wrote to other places than these.
        """
        self._folders = _outermost(folders)
        self._limit_mb = limit_mb
        self._elsewhere = elsewhere
        self._limit = limit_mb * MIB
        self._used = 0
        self._was_full = False

    async def begin(self) -> None:
        """See what is there before the first command."""
        at_first = await asyncio.to_thread(bytes_in, self._folders)
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

    def _bytes(self, processes: Callable[[], Sequence[int]], most: int) -> int:
        return bytes_in(self._folders, most=most) + unlinked_bytes(processes())

    async def end(self, exit_code: int | None) -> TrialFinding | None:
        """What is to be said once a command is dead that was not killed for it."""
        before = self._used
        try:
            self._used = await asyncio.to_thread(bytes_in, self._folders)
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
