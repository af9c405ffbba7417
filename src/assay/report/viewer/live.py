"""What is new in a database and in its runs in progress, for pages that follow them."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from assay.errors import AssayError, JournalError
from assay.report.viewer.library import Library
from assay.store.journal import read_session
from assay.store.run_folder import RunFolder
from assay.store.viewing import totals

_MOST: Final = 64
"""Episodes of a run in progress whose turns are counted: the last ones that changed."""


class LiveWatch:
    """Compares the present with what was seen before."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._stamp: object = None
        self._runs: object = None
        self._read: dict[Path, tuple[int, dict[str, Any]]] = {}

    def changed(self) -> Mapping[str, Any]:
        """Return what has changed since the last call, by the name of an event."""
        found: dict[str, Any] = {}
        library, stamp = self._library, self._library.stamp()
        runs = [
            {
                "id": folder.record.id,
                "process": folder.holder(),
                "resume": folder.resume_command,
                "sessions": self._sessions(folder),
            }
            for folder in library.open_runs()
        ]
        if runs != self._runs:
            self._runs = found["runs"] = runs
        if stamp != self._stamp:
            # A process may be writing: then the next call sees it.
            with suppress(AssayError):
                episodes = runs_stored = 0
                if library.path.exists():
                    with library.reading() as connection:
                        episodes, runs_stored = totals(connection)
                found["stored"] = {"episodes": episodes, "runs": runs_stored}
                self._stamp = stamp
        return found

    def _sessions(self, folder: RunFolder) -> list[dict[str, Any]]:
        sizes = []
        for path in folder.journals():
            with suppress(OSError):  # stored meanwhile
                status = path.stat()
                sizes.append((status.st_mtime_ns, status.st_size, path))
        found = [
            self._session(path, size, folder.record.id)
            for _, size, path in sorted(sizes, reverse=True)[:_MOST]
        ]
        return sorted((each for each in found if each), key=lambda each: str(each["id"]))

    def _session(self, path: Path, size: int, run_id: str) -> dict[str, Any] | None:
        known = self._read.get(path)
        if known is not None and known[0] == size:
            return known[1]
        try:
            session = read_session(path, run_id)
        except JournalError:
            return None
        header = session.header
        read = {
            "id": header.session_id,
            "model": header.subject,
            "seed": header.seed,
            "turns": len(session.played),
            "steps": sum(len(played.steps) for played in session.played),
        }
        self._read[path] = size, read
        return read
