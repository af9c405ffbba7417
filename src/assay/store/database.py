"""Access to a DuckDB file, which is open only while it is read or written.

DuckDB lets one process write or several read. If the file is locked, this process waits and
reports the lock's holder once. Within this process, one thread uses the file at a time, because
DuckDB cannot open it both for reading and for writing. DuckDB errors become StoreErrors here. A
file of an older version is copied before it is migrated. A connection for reading has the views
of this version of assay, not the ones in the file.

A DuckDB instance takes twenty milliseconds to start, and attaching a file takes two, so the
last instance is kept for reuse with the same file. Files may be untrusted: only a plain path is
attached, after that no other file can be accessed, and no extension is installed or loaded.
"""

import atexit
import errno
import fcntl
import glob
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import duckdb

from assay.core.files import find_free_path, remove_abandoned, sync_now
from assay.core.text import printable
from assay.errors import StoreBusy, StoreError, UsageError
from assay.store.location import database_file
from assay.store.migrations import migrate, stored_version
from assay.store.schema import CATALOG, VERSION
from assay.store.views import VIEWS

OTHER_CATALOG = "other"
"""The catalog of a second file."""
MEMORY_SCHEMA = "memory.main"
"""The in-memory schema of the instance; its views last as long as the instance."""

_ISOLATED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
_ROW_GROUP = 16_384
"""Rows per group. DuckDB rewrites the last group of each table whenever a file is closed, so
larger groups take more memory and time."""

_idle: dict[Path, duckdb.DuckDBPyConnection] = {}
"""At most one instance without an attached file, by the only file it may attach."""
# Cleared explicitly, because DuckDB reports connections that are open when Python exits.
atexit.register(_idle.clear)


@contextmanager
def attach_database(
    path: Path, *, read_only: bool, beside: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to a file, and to a second one (`beside`) for reading.

    Raises:
        duckdb.Error: The file cannot be opened.
    """
    path = path.absolute()
    instance = None if beside else _idle.pop(path, None)
    known = instance is not None
    instance = instance or duckdb.connect(":memory:", config=_ISOLATED)
    keep = False
    try:
        mode = "READ_ONLY" if read_only else "READ_WRITE"
        # The row group size can only be set in ATTACH.
        instance.execute(
            f"ATTACH {_quote(path)} AS {CATALOG} ({mode}, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        if beside is not None:
            instance.execute(
                f"ATTACH {_quote(beside.absolute())} AS {OTHER_CATALOG} (READ_ONLY)"
            )
        if not known:
            instance.execute("SET enable_external_access = false")
        with instance.cursor() as connection:
            connection.execute(f"USE {CATALOG}")
            yield connection
        keep = beside is None and _detach(instance)
    finally:
        if keep:
            _idle.clear()
            _idle[path] = instance
        else:
            instance.close()


def _detach(instance: duckdb.DuckDBPyConnection) -> bool:
    """Detach the file and return whether that worked; committed data is safe in either case."""
    try:
        instance.execute(f"DETACH {CATALOG}")
    except duckdb.Error:
        return False
    return True


def _quote(path: Path) -> str:
    # The path is absolute, so it has no prefix (such as a URL scheme) that DuckDB interprets.
    return "'" + str(path).replace("'", "''") + "'"


_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")
_LOCKED = re.compile(r'Could not set lock on file "(?P<path>[^"]+)"')
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""Errors from a file system without hard links."""
_PIECE = 1 << 20
"""Bytes copied at a time."""
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25

_log = logging.getLogger(__name__)
_locks: dict[Path, threading.RLock] = {}
_locks_guard = threading.Lock()


class StoreFile:
    """One database file. Use its subclass `Store`, which also stores leftover journals."""

    def __init__(
        self,
        path: Path | str,
        *,
        patience: float | None = None,
        on_wait: Callable[[StoreBusy], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set the file; nothing is opened yet.

        Args:
            path: The file.
            patience: Seconds to wait for another process before StoreBusy; None: no limit.
            on_wait: Called once for each process that holds the file.
            given_up: Called while waiting; if it returns True, StoreBusy is raised.
        """
        self.path = Path(path)
        self._patience = patience
        self._on_wait = on_wait
        self._given_up = given_up
        self._tidied = False
        # Links resolved, so that DuckDB's log and our drafts are next to the actual file.
        self._file = database_file(self.path)
        with _locks_guard:
            self._lock = _locks.setdefault(self._file, threading.RLock())

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a read-only connection; the file must exist."""
        if not self.path.exists():
            raise UsageError(
                f"database {str(self.path)!r} not found; create one with 'assay run', or give "
                "another with --database"
            )
        with self._lock, _translate_errors(self.path):
            with self._open(read_only=True) as connection:
                version = stored_version(connection)
                if version == 0:
                    raise StoreError(
                        f"{str(self.path)!r} is a DuckDB file without assay tables; give "
                        "another with --database"
                    )
                if version == VERSION:
                    yield _add_views(connection)
                    return
            with self.writing():
                pass
            with self._open(read_only=True) as connection:
                yield _add_views(connection)

    @contextmanager
    def writing(self, *, beside: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection for writing, and create the file if it is missing.

        `beside` is a second file to read from, in the catalog `OTHER_CATALOG`.
        """
        with self._lock, _translate_errors(self.path), ExitStack() as afterwards:
            if not self._tidied:
                self._tidied = True
                self._remove_drafts()
            if not self.path.exists():
                self._create()
            with self._open(read_only=False, beside=beside) as connection:
                version = stored_version(connection)
                if version < VERSION:
                    self._upgrade(connection, version, afterwards)
                yield connection

    def _upgrade(
        self, connection: duckdb.DuckDBPyConnection, version: int, afterwards: ExitStack
    ) -> None:
        """Migrate the file after copying it; an empty file is not copied."""
        if version == 0:
            migrate(connection, version)
            return
        copy = self._copy(connection, version, afterwards)
        try:
            migrate(connection, version)
        except BaseException:
            copy.unlink()
            raise
        _log.warning(
            "%s",
            printable(
                f"{self.path} was migrated from schema version {version} to {VERSION}; "
                f"{copy} is a copy of the old file"
            ),
        )

    def _copy(
        self, connection: duckdb.DuckDBPyConnection, version: int, afterwards: ExitStack
    ) -> Path:
        """Copy the file while the open connection keeps other processes from writing."""
        draft = self._file.with_name(f"{self._file.name}.part-{os.getpid()}")
        try:
            # The log has what a process committed before it died.
            if self._file.with_name(f"{self._file.name}.wal").exists():
                connection.execute("CHECKPOINT")
            # Closed only later, because closing releases the lock DuckDB has on the file.
            source = afterwards.enter_context(self._file.open("rb"))
            with draft.open("wb") as target:
                shutil.copyfileobj(source, target, _PIECE)
                target.flush()
                os.fsync(target.fileno())
            copy = find_free_path(self.path.with_name(f"{self.path.name}.v{version}"), ".")
            draft.rename(copy)
        except OSError as error:
            size = self.path.stat().st_size / 2**20
            raise StoreError(
                f"{str(self.path)!r} has schema version {version} and must be copied before it "
                f"is migrated to {VERSION}, but copying failed: {error.strerror}; nothing was "
                f"changed; free {size:,.1f} MiB in its folder"
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return copy

    def _create(self) -> None:
        """Create the file under another name first, so that it is never seen incomplete."""
        draft = self._file.with_name(f"{self._file.name}.part-{os.getpid()}")
        try:
            with attach_database(draft, read_only=False) as connection:
                migrate(connection, 0)
            # If another process was faster, its file is used.
            with suppress(FileExistsError):
                self._publish(draft)
            sync_now(self._file.parent)
        except OSError as error:
            raise StoreError(
                f"{str(self.path)!r} cannot be created: {error.strerror}; give a file in an "
                "existing, writable folder with --database"
            ) from error
        finally:
            for suffix in ("", ".wal"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)

    def _publish(self, draft: Path) -> None:
        try:
            os.link(draft, self._file)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            guard = self._file.with_name(f"{self._file.name}.made")
            with guard.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not self._file.exists():
                    draft.rename(self._file)
                guard.unlink(missing_ok=True)

    def _remove_drafts(self) -> None:
        """Delete unfinished new files and copies left by processes that were killed."""
        for path in self._file.parent.glob(f"{glob.escape(self._file.name)}.part-*"):
            number = path.name.removesuffix(".wal").rpartition("-")[2]
            if number.isdecimal():
                remove_abandoned(path, int(number))

    @contextmanager
    def _open(
        self, *, read_only: bool, beside: Path | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        started = time.monotonic()
        pause = _FIRST_PAUSE_S
        reported: str | None = None
        with ExitStack() as work:
            while True:
                try:
                    connection = work.enter_context(
                        attach_database(self._file, read_only=read_only, beside=beside)
                    )
                    break
                except duckdb.IOException as error:
                    if "Could not set lock" not in str(error):
                        raise
                    busy, holder = _make_busy_error(self.path, str(error))
                if holder != reported and self._on_wait is not None:
                    self._on_wait(busy)
                reported = holder
                waited = time.monotonic() - started
                timed_out = self._patience is not None and waited + pause > self._patience
                if timed_out or self._given_up():
                    raise busy
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            yield connection


def _add_views(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Make our views take precedence over the ones in the file; they stay in the instance."""
    connection.execute(f"SET search_path = '{MEMORY_SCHEMA},{CATALOG}.main'")
    count = connection.execute(
        "SELECT count(*) FROM duckdb_views() WHERE database_name || '.' || schema_name = ?"
        " AND NOT internal",
        [MEMORY_SCHEMA],
    ).fetchall()
    if count != [(len(VIEWS),)]:
        for view in VIEWS:
            connection.execute(view.ddl(MEMORY_SCHEMA))
    return connection


def _make_busy_error(path: Path, message: str) -> tuple[StoreBusy, str]:
    """Return the error to raise or to report, and the id of the process that holds the file."""
    found, locked = _HOLDER.search(message), _LOCKED.search(message)
    if locked:
        path = Path(locked["path"])
    who = "another process"
    if found:
        # A process that is being killed still holds its lock, but has no program name.
        program = printable(Path(found["program"]).name)
        who = f"process {found['pid']}" + (f" ({program})" if program else "")
    return StoreBusy(
        f"{str(path)!r} is held by {who}; close it there, or read a copy made by "
        "'assay traces snapshot'"
    ), found["pid"] if found else ""


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(_format_error(path, error)) from error


def _format_error(path: Path, error: duckdb.Error) -> str:
    name, text = repr(str(path)), printable(str(error).splitlines()[0] if str(error) else "")
    if "not a valid DuckDB database file" in text:
        return f"{name} is not a DuckDB file; give another with --database, or move it away"
    if "orrupt" in text or "checksum" in text:
        return (
            f"{name} is damaged: {text}; replace it with a copy, which 'assay traces snapshot' "
            "and migrations make, or import the trace folder of 'assay run' into a new file"
        )
    if "No space left" in text or "Could not write" in text or "out of space" in text.lower():
        return (
            f"{name} could not be written because the disk is full: {text}; free space, then "
            "run the same command again; journals are kept"
        )
    if "Cannot open file" in text or "Permission denied" in text or "Read-only" in text:
        return (
            f"{name} cannot be opened: {text}; give a file in an existing, writable folder "
            "with --database"
        )
    return f"{name}: DuckDB reports: {text}"
