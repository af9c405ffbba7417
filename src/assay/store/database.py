"""A DuckDB file, opened for as long as a piece of work takes and no longer.

DuckDB lets one process write or several read. Whoever finds the file taken waits, and says
once for whom. Within this process only one piece of work has the file at a time, because
DuckDB refuses to open it twice in different ways. Errors of DuckDB end here. A file of an
older version is copied before it is brought to the newest.

Whoever reads has views of this program, not those of the file.

A DuckDB file, attached to an instance of DuckDB.

An instance takes twenty milliseconds to start, and a file two to attach, so that the instance
that was used last is kept for the file it was used for. A file may come from anywhere: only a
plain path is attached, and from then on nothing but that file can be reached. No extension is
installed or loaded.
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

from assay.core.files import free_path, remove_abandoned, sync_now
from assay.core.text import printable
from assay.errors import StoreBusy, StoreError, UsageError
from assay.store.location import database_file
from assay.store.migrations import migrate, stored_version
from assay.store.schema import CATALOG, VERSION
from assay.store.views import VIEWS

BESIDE = "other"
"""The catalog of a second file."""
OURS = "memory.main"
"""The schema of the instance itself; what is made there is kept with it."""

_ISOLATED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}
_ROW_GROUP = 16_384
"""Rows that are rewritten together. Whenever a file is closed, DuckDB reads and writes the
last group of each table again, so that larger ones take more memory and time."""

_idle: dict[Path, duckdb.DuckDBPyConnection] = {}
"""At most one instance, with no file attached, by the file that it may attach."""
# DuckDB lists what is left when Python ends.
atexit.register(_idle.clear)


@contextmanager
def attached(
    path: Path, *, read_only: bool, beside: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a file, and to another one to read from.

    Raises:
        duckdb.Error: the file cannot be opened.
    """
    path = path.absolute()
    instance = None if beside else _idle.pop(path, None)
    known = instance is not None
    instance = instance or duckdb.connect(":memory:", config=_ISOLATED)
    keep = False
    try:
        mode = "READ_ONLY" if read_only else "READ_WRITE"
        # Only ATTACH can say how large row groups are.
        instance.execute(
            f"ATTACH {_quoted(path)} AS {CATALOG} ({mode}, ROW_GROUP_SIZE {_ROW_GROUP})"
        )
        if beside is not None:
            instance.execute(f"ATTACH {_quoted(beside.absolute())} AS {BESIDE} (READ_ONLY)")
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
    """Let go of the file; what is committed is in it, or in its log, if that fails."""
    try:
        instance.execute(f"DETACH {CATALOG}")
    except duckdb.Error:
        return False
    return True


def _quoted(path: Path) -> str:
    # An absolute path has no prefix that DuckDB might obey.
    return "'" + str(path).replace("'", "''") + "'"


_HOLDER = re.compile(r"held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")
_LOCKED = re.compile(r'Could not set lock on file "(?P<path>[^"]+)"')
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""What a file system without hard links says."""
_PIECE = 1 << 20
"""Bytes that are copied at once."""
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25

_log = logging.getLogger(__name__)
_locks: dict[Path, threading.RLock] = {}
_locks_guard = threading.Lock()


class StoreFile:
    """One database file; whoever uses it wants a `Store`, which takes in what was left."""

    def __init__(
        self,
        path: Path | str,
        *,
        patience: float | None = None,
        on_wait: Callable[[StoreBusy], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Name a file; nothing is opened yet.

        Args:
            path: the file.
            patience: seconds to wait for another process before StoreBusy; None for ever.
            on_wait: called once for each process that is waited for.
            given_up: asked while waiting; once it says yes, StoreBusy is raised.
        """
        self.path = Path(path)
        self._patience = patience
        self._on_wait = on_wait
        self._given_up = given_up
        self._tidied = False
        # Behind links: what DuckDB and this program put beside it goes to the same folder.
        self._file = database_file(self.path)
        with _locks_guard:
            self._lock = _locks.setdefault(self._file, threading.RLock())

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that cannot change anything; the file must be there."""
        if not self.path.exists():
            raise UsageError(
                f"there is no database {str(self.path)!r}; make one with 'assay run', or name "
                "another with --database"
            )
        with self._lock, _translated(self.path):
            with self._opened(read_only=True) as connection:
                version = stored_version(connection)
                if version == 0:
                    raise StoreError(
                        f"{str(self.path)!r} is a DuckDB file without traces; name another "
                        "with --database"
                    )
                if version == VERSION:
                    yield _with_views(connection)
                    return
            with self.writing():
                pass
            with self._opened(read_only=True) as connection:
                yield _with_views(connection)

    @contextmanager
    def writing(self, *, beside: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that may write; the file is made if it is missing.

        `beside` is a second file to read from, in the catalog `BESIDE`.
        """
        with self._lock, _translated(self.path), ExitStack() as afterwards:
            if not self._tidied:
                self._tidied = True
                self._remove_drafts()
            if not self.path.exists():
                self._create()
            with self._opened(read_only=False, beside=beside) as connection:
                version = stored_version(connection)
                if version < VERSION:
                    self._bring_up(connection, version, afterwards)
                yield connection

    def _bring_up(
        self, connection: duckdb.DuckDBPyConnection, version: int, afterwards: ExitStack
    ) -> None:
        """Migrate, and leave a copy of the file as it was, unless nothing was in it."""
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
                f"{self.path} was brought from version {version} of the tables to {VERSION}; "
                f"{copy} is a copy of it as it was"
            ),
        )

    def _copy(
        self, connection: duckdb.DuckDBPyConnection, version: int, afterwards: ExitStack
    ) -> Path:
        """Copy the file while nobody else can write to it."""
        draft = self._file.with_name(f"{self._file.name}.part-{os.getpid()}")
        try:
            # What a process that died had committed belongs into the copy.
            if self._file.with_name(f"{self._file.name}.wal").exists():
                connection.execute("CHECKPOINT")
            # To close it would release the lock that DuckDB has on the file.
            source = afterwards.enter_context(self._file.open("rb"))
            with draft.open("wb") as target:
                shutil.copyfileobj(source, target, _PIECE)
                target.flush()
                os.fsync(target.fileno())
            copy = free_path(self.path.with_name(f"{self.path.name}.v{version}"), ".")
            draft.rename(copy)
        except OSError as error:
            size = self.path.stat().st_size / 2**20
            raise StoreError(
                f"{str(self.path)!r} has version {version} of the tables, and a copy of it "
                f"cannot be made before it is brought to {VERSION}: {error.strerror}; nothing "
                f"was changed: make {size:,.1f} MiB of room beside it"
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return copy

    def _create(self) -> None:
        """Make the file under another name first, so that it is never there half made."""
        draft = self._file.with_name(f"{self._file.name}.part-{os.getpid()}")
        try:
            with attached(draft, read_only=False) as connection:
                migrate(connection, 0)
            # Another process may have been faster, and then its file counts.
            with suppress(FileExistsError):
                self._name(draft)
            sync_now(self._file.parent)
        except OSError as error:
            raise StoreError(
                f"{str(self.path)!r} cannot be made: {error.strerror}; name a file with "
                "--database in a folder that exists and can be written to"
            ) from error
        finally:
            for suffix in ("", ".wal"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)

    def _name(self, draft: Path) -> None:
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
        """Delete what processes that were killed have left of new files and of copies."""
        for path in self._file.parent.glob(f"{glob.escape(self._file.name)}.part-*"):
            number = path.name.removesuffix(".wal").rpartition("-")[2]
            if number.isdecimal():
                remove_abandoned(path, int(number))

    @contextmanager
    def _opened(
        self, *, read_only: bool, beside: Path | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        started = time.monotonic()
        pause = _FIRST_PAUSE_S
        told: str | None = None
        with ExitStack() as work:
            while True:
                try:
                    connection = work.enter_context(
                        attached(self._file, read_only=read_only, beside=beside)
                    )
                    break
                except duckdb.IOException as error:
                    if "Could not set lock" not in str(error):
                        raise
                    busy, holder = _busy(self.path, str(error))
                if holder != told and self._on_wait is not None:
                    self._on_wait(busy)
                told = holder
                waited = time.monotonic() - started
                tired = self._patience is not None and waited + pause > self._patience
                if tired or self._given_up():
                    raise busy
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            yield connection


def _with_views(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Let our views come before those of the file; who opens it again finds them there."""
    connection.execute(f"SET search_path = '{OURS},{CATALOG}.main'")
    there = connection.execute(
        "SELECT count(*) FROM duckdb_views() WHERE database_name || '.' || schema_name = ?"
        " AND NOT internal",
        [OURS],
    ).fetchall()
    if there != [(len(VIEWS),)]:
        for view in VIEWS:
            connection.execute(view.ddl(OURS))
    return connection


def _busy(path: Path, message: str) -> tuple[StoreBusy, str]:
    """Return the error to raise or to report, and the id of the process that holds the file."""
    found, locked = _HOLDER.search(message), _LOCKED.search(message)
    if locked:
        path = Path(locked["path"])
    who = "another process"
    if found:
        # A process that is being killed still holds its lock, and has no name.
        program = printable(Path(found["program"]).name)
        who = f"process {found['pid']}" + (f" ({program})" if program else "")
    return StoreBusy(
        f"{str(path)!r} is held by {who}; close it there, or read a copy made by "
        "'assay traces snapshot'"
    ), found["pid"] if found else ""


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise StoreError(_advice(path, error)) from error


def _advice(path: Path, error: duckdb.Error) -> str:
    name, text = repr(str(path)), printable(str(error).splitlines()[0] if str(error) else "")
    if "not a valid DuckDB database file" in text:
        return f"{name} is no DuckDB file; name another with --database, or move it away"
    if "orrupt" in text or "checksum" in text:
        return (
            f"{name} is damaged: {text}; put a copy in its place, as 'assay traces snapshot' "
            "and migrations leave them, or import what 'assay run' wrote to its folder of "
            "traces into a new file"
        )
    if "No space left" in text or "Could not write" in text or "out of space" in text.lower():
        return (
            f"{name} could not be written, the disk is full: {text}; free space, then run the "
            "same command again: journals are kept"
        )
    if "Cannot open file" in text or "Permission denied" in text or "Read-only" in text:
        return (
            f"{name} cannot be opened: {text}; name a file with --database in a folder that "
            "exists and can be written to"
        )
    return f"{name}: DuckDB reports: {text}"
