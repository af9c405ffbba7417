"""The folder of an unfinished run: its record, a lock, and a journal per session.

`<database>.journal/<run>/` exists exactly while the run is unfinished. The lock is held by the
process that executes the run and is released when that process exits; the text in the lock
file only identifies the process.
"""

import fcntl
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from assay.core.files import find_free_path, sync_now, sync_soon
from assay.errors import JournalError, UsageError
from assay.store.codec import encode, get_fields
from assay.store.journal import is_blank
from assay.store.location import database_file
from assay.store.records import ExperimentRecord, RunRecord

_FORMAT = "assay-run/1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOSSES = "losses"
_LEDGER = "ledger"
_AMOUNT = re.compile(rb"\d+(\.\d+)?(e-\d+)?")
_TRIES = 5
_PAUSE_S = 0.02

_log = logging.getLogger(__name__)


class RunHeld(UsageError):
    """Another process executes this run; `pid` is its id, or None if unknown."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


def journal_root(database: Path) -> Path:
    """Return the journal folder of a database; raise UsageError for an invalid path."""
    database_file(database)
    return database.with_name(f"{database.name}.journal")


def unfinished_runs(database: Path) -> list["RunFolder"]:
    """Return the unfinished runs, the oldest first, without `unreadable_runs`."""
    found = []
    for file in journal_root(database).glob("*/run.json"):
        # The folder of a run that finishes meanwhile disappears.
        with suppress(JournalError, UsageError):
            found.append(RunFolder.open(database, file.parent.name))
    return sorted(found, key=lambda folder: (folder.record.created_at, folder.record.id))


def unreadable_runs(database: Path) -> dict[Path, str]:
    """Return the folders of runs whose record cannot be read, with the reason."""
    found = {}
    for file in sorted(journal_root(database).glob("*/run.json")):
        try:
            with suppress(UsageError):
                RunFolder.open(database, file.parent.name)
        except JournalError as error:
            found[file.parent] = str(error)
    return found


class RunFolder:
    """The folder of one unfinished run."""

    def __init__(self, folder: Path, record: RunRecord, *, has_ledger: bool = False) -> None:
        # User code may change the working directory.
        self.folder = folder.absolute()
        self.record = record
        """The run, as it was started."""
        self.has_ledger = has_ledger
        """Whether its spending is recorded in `ledger`; runs of older versions have none."""

    @property
    def is_benchmark(self) -> bool:
        """Whether it is a run of coding tasks, whose folders are named by a timestamp."""
        return "stamp" in self.record.configuration

    @property
    def is_launch(self) -> bool:
        """Whether it is a launch of training runs, whose names begin with a base name."""
        return "base_run_name" in self.record.configuration

    @property
    def resume_command(self) -> str:
        """Command that resumes it."""
        if self.is_launch:
            return f"assay launch --resume {self.record.id}"
        if self.is_benchmark:
            configuration = self.record.configuration
            return f"assay bench resume {configuration['name']}@{configuration['stamp']}"
        return f"assay run --resume {self.record.id}"

    @classmethod
    def create(
        cls,
        database: Path,
        record: RunRecord,
        *,
        name: str | None = None,
        at_once: bool = True,
    ) -> "RunFolder":
        """Create the folder of a new run.

        Args:
            database: The file it will be stored in.
            record: The run.
            name: Name of the folder (default: the id of the run).
            at_once: Sync to disk before returning; if false, this happens soon after.
        """
        folder = journal_root(database) / _check_id("run", name or record.id)
        target = folder / "run.json"
        if target.exists():
            raise UsageError(
                f"run {record.id!r} exists already and is unfinished; continue it with "
                f"'assay run --resume {record.id}', or choose another id"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            made = cls(folder, record)
            made._write(at_once=at_once)
        except OSError as error:
            raise JournalError(
                f"cannot create {folder}: {error.strerror}; choose a --database in a writable "
                "folder"
            ) from error
        return made

    def rewrite(self, record: RunRecord, *, has_ledger: bool) -> None:
        """Replace the record of the run; this process must hold the lock."""
        self.record, self.has_ledger = record, has_ledger
        try:
            self._write()
        except OSError as error:
            raise JournalError(
                f"cannot write {self.folder / 'run.json'}: {error.strerror}"
            ) from error

    def _write(self, *, at_once: bool = True) -> None:
        # Renamed into place, so that the file is never incomplete.
        draft = self.folder / "run.json.part"
        more = {_LEDGER: True} if self.has_ledger else {}
        draft.write_bytes(encode({"format": _FORMAT, **get_fields(self.record), **more}))
        if at_once:
            sync_now(draft)
        target = draft.rename(self.folder / "run.json")
        # The parent folders may have new entries, too.
        folders = self.folder, self.folder.parent, self.folder.absolute().parent.parent
        (sync_now if at_once else sync_soon)(target, *folders)

    @classmethod
    def open(cls, database: Path, run_id: str) -> "RunFolder":
        """Find the folder of an unfinished run."""
        folder = journal_root(database) / _check_id("run", run_id)
        file = folder / "run.json"
        try:
            values = json.loads(file.read_bytes())
            has_ledger = bool(values.pop(_LEDGER, False))
            return cls(folder, _parse_record(values), has_ledger=has_ledger)
        except FileNotFoundError:
            raise UsageError(
                f"run {run_id!r} has no journals next to {database}: it is finished, or it is "
                "in another database; see 'assay traces list'"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{file} cannot be read: {_format_reason(error)}") from error

    def path(self, session_id: str) -> Path:
        """Return the path of a session's journal, which may not exist."""
        return self.folder / f"{_check_id('session', session_id)}.jsonl"

    def journals(self) -> list[Path]:
        """Return the journals that have at least a header, sorted by name."""
        return [path for path in sorted(self.folder.glob("*.jsonl")) if not is_blank(path)]

    def aside(self) -> list[Path]:
        """Return the journals of trials that were restarted."""
        return sorted(self.folder.glob("*.jsonl.aside-*"))

    @property
    def ledger(self) -> Path:
        """File that records the spending of the run."""
        return self.folder / _LEDGER

    def losses(self) -> float:
        """Return the dollars spent without a journal, as recorded by runs of older versions."""
        file = self.folder / _LOSSES
        try:
            lines = file.read_bytes().splitlines()
        except FileNotFoundError:
            return 0.0
        amounts = [float(line) for line in lines if _AMOUNT.fullmatch(line)]
        if len(amounts) < len(lines):
            _log.warning(
                "%s",
                f"{file} is damaged: {len(lines) - len(amounts)} of its {len(lines)} lines are "
                "not amounts of dollars and are not counted as spent",
            )
        return sum(amounts)

    def damaged(self) -> list[Path]:
        """Return the damaged journals that were set aside."""
        return sorted(self.folder.glob("*.jsonl.damaged*"))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the run for this process; raise RunHeld if another process has the lock."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise JournalError(f"cannot open {self._lock}: {error.strerror}") from error
        try:
            self._acquire(descriptor)
            text = f"{os.getpid()} {socket.gethostname()}\n".encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
            yield
        finally:
            os.close(descriptor)

    def _acquire(self, descriptor: int) -> None:
        # Retried, because `holder` of another process takes the lock for a moment.
        for attempt in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt == _TRIES - 1:
                    raise self._make_held_error() from None
                time.sleep(_PAUSE_S)
            except OSError as error:
                raise JournalError(f"cannot lock {self._lock}: {error.strerror}") from error
            else:
                break
        with suppress(OSError):
            if os.stat(self._lock).st_ino == os.fstat(descriptor).st_ino:
                return
        raise UsageError(f"run {self.record.id!r} was finished by another process meanwhile")

    def _make_held_error(self) -> RunHeld:
        pid, host = self._read_holder()
        who = "another process" if pid is None else f"process {pid} on {host}"
        return RunHeld(
            f"run {self.record.id!r} is in progress in {who}; wait for it, or stop it first",
            pid,
        )

    def holder(self) -> int | None:
        """Return the id of the process that executes this run (0 if unknown), or None."""
        try:
            descriptor = os.open(self._lock, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._read_holder()[0] or 0
        finally:
            os.close(descriptor)
        return None

    def remove(self) -> None:
        """Delete the folder; damaged journals in it are moved to the parent folder."""
        if left := self.journals():
            raise JournalError(f"{left[0]} is not stored yet; the run is not finished")
        root = self.folder.parent
        for path in self.damaged():
            path.rename(find_free_path(root / f"{self.folder.name}.{path.name}"))
        # The record is deleted first, because a folder without it is ignored.
        (self.folder / "run.json").unlink(missing_ok=True)
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
        self.folder.rmdir()
        with suppress(OSError):
            root.rmdir()

    def discard(self) -> None:
        """Delete the folder with all its journals, stored or not.

        Raises:
            RunHeld: Another process executes this run.
        """
        with self.hold():
            for path in self.journals():
                path.unlink(missing_ok=True)
            self.remove()

    @property
    def _lock(self) -> Path:
        return self.folder / "lock"

    def _read_holder(self) -> tuple[int | None, str]:
        try:
            pid, _, host = self._lock.read_text("utf-8").partition(" ")
            return int(pid), host.strip()
        except (OSError, ValueError):
            return None, ""


def _check_id(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid {kind} id: use at most 100 letters, digits, '.', '_' and "
            "'-', starting with a letter or a digit"
        )
    return name


def _format_reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _parse_record(values: dict[str, Any]) -> RunRecord:
    if (form := values.pop("format")) != _FORMAT:
        raise ValueError(f"its format is {form!r}, but this assay reads {_FORMAT!r}")
    if not isinstance(values["configuration"], dict):
        raise ValueError("its configuration is not an object")
    experiments = tuple(ExperimentRecord(**fields) for fields in values.pop("experiments"))
    return RunRecord(**values, experiments=experiments)
