"""The folder of an unfinished run: what was asked for, a lock, and a journal per session.

`<database>.journal/<run>/` is there exactly while the run is unfinished. The lock belongs to
the process that plays the run and is free the moment that process is gone; the text in it
only says who that was.
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

from assay.core.files import free_path, sync_now, sync_soon
from assay.errors import JournalError, UsageError
from assay.store.codec import encode, fields_of
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
    """A living process plays this run; `pid` is its number, or None if it does not say."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


def journal_root(database: Path) -> Path:
    """Where the journals of a database are; UsageError if it is no path of a file."""
    database_file(database)
    return database.with_name(f"{database.name}.journal")


def unfinished_runs(database: Path) -> list["RunFolder"]:
    """The runs that are not finished, the oldest first; see also `unreadable_runs`."""
    found = []
    for file in journal_root(database).glob("*/run.json"):
        # One that was finished meanwhile is not there.
        with suppress(JournalError, UsageError):
            found.append(RunFolder.open(database, file.parent.name))
    return sorted(found, key=lambda folder: (folder.record.created_at, folder.record.id))


def unreadable_runs(database: Path) -> dict[Path, str]:
    """The folders of runs whose record cannot be read, and why; they cannot be resumed."""
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
        # Code of users may change the working directory.
        self.folder = folder.absolute()
        self.record = record
        """The run, as it was asked for."""
        self.has_ledger = has_ledger
        """Whether what it spends is written down in `ledger`; older runs have none."""

    @property
    def is_of_benchmark(self) -> bool:
        """Whether it is a run of coding tasks, which have folders named by a stamp."""
        return "stamp" in self.record.configuration

    @property
    def is_of_launch(self) -> bool:
        """Whether it is a launch of training runs, whose names begin with a base."""
        return "base_run_name" in self.record.configuration

    @property
    def resume_command(self) -> str:
        """What resumes it, on the command line."""
        if self.is_of_launch:
            return f"assay launch --resume {self.record.id}"
        if self.is_of_benchmark:
            said = self.record.configuration
            return f"assay bench resume {said['name']}@{said['stamp']}"
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
        """Make the folder of a new run.

        Args:
            database: The file it will be stored in.
            record: What was asked for.
            name: Of the folder; the id of the run by default.
            at_once: Whether to return only once all of it is on disk, or trust that it will
                be within a moment.
        """
        folder = journal_root(database) / _checked("run", name or record.id)
        target = folder / "run.json"
        if target.exists():
            raise UsageError(
                f"run {record.id!r} is already there and unfinished; go on with it by "
                f"'assay run --resume {record.id}', or choose another id"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            made = cls(folder, record)
            made._write(at_once=at_once)
        except OSError as error:
            raise JournalError(
                f"cannot make {folder}: {error.strerror}; choose a --database in a folder "
                "that can be written to"
            ) from error
        return made

    def rewrite(self, record: RunRecord, *, has_ledger: bool) -> None:
        """Keep another record of the run, which this process holds."""
        self.record, self.has_ledger = record, has_ledger
        try:
            self._write()
        except OSError as error:
            raise JournalError(
                f"cannot write {self.folder / 'run.json'}: {error.strerror}"
            ) from error

    def _write(self, *, at_once: bool = True) -> None:
        # Renamed into place, so that a run is either there as a whole or not at all.
        draft = self.folder / "run.json.part"
        more = {_LEDGER: True} if self.has_ledger else {}
        draft.write_bytes(encode({"format": _FORMAT, **fields_of(self.record), **more}))
        if at_once:
            sync_now(draft)
        target = draft.rename(self.folder / "run.json")
        # The folders above have new entries if this is the first.
        folders = self.folder, self.folder.parent, self.folder.absolute().parent.parent
        (sync_now if at_once else sync_soon)(target, *folders)

    @classmethod
    def open(cls, database: Path, run_id: str) -> "RunFolder":
        """Find the folder of an unfinished run."""
        folder = journal_root(database) / _checked("run", run_id)
        file = folder / "run.json"
        try:
            values = json.loads(file.read_bytes())
            has_ledger = bool(values.pop(_LEDGER, False))
            return cls(folder, _record(values), has_ledger=has_ledger)
        except FileNotFoundError:
            raise UsageError(
                f"run {run_id!r} has no journals beside {database}: it is finished, or its "
                "database is another; see 'assay traces list'"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{file} cannot be read: {_reason(error)}") from error

    def path(self, session_id: str) -> Path:
        """Where the journal of a session is, or would be."""
        return self.folder / f"{_checked('session', session_id)}.jsonl"

    def journals(self) -> list[Path]:
        """The journals that have at least a header, in the order of their names."""
        return [path for path in sorted(self.folder.glob("*.jsonl")) if not is_blank(path)]

    def aside(self) -> list[Path]:
        """The journals of trials that were begun and tried anew."""
        return sorted(self.folder.glob("*.jsonl.aside-*"))

    @property
    def ledger(self) -> Path:
        """Where what the run spends is written down."""
        return self.folder / _LEDGER

    def losses(self) -> float:
        """Dollars that no journal of an older run accounts for, as far as the lines say."""
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
                "no amounts of dollars, and are not counted as spent",
            )
        return sum(amounts)

    def damaged(self) -> list[Path]:
        """The journals that were set aside."""
        return sorted(self.folder.glob("*.jsonl.damaged*"))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep every other process from playing this run; raises RunHeld if one does."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise JournalError(f"cannot open {self._lock}: {error.strerror}") from error
        try:
            self._take(descriptor)
            text = f"{os.getpid()} {socket.gethostname()}\n".encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
            yield
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        # Somebody who only asks who holds the lock has it for a moment: try again.
        for attempt in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt == _TRIES - 1:
                    raise self._held() from None
                time.sleep(_PAUSE_S)
            except OSError as error:
                raise JournalError(f"cannot lock {self._lock}: {error.strerror}") from error
            else:
                break
        with suppress(OSError):
            if os.stat(self._lock).st_ino == os.fstat(descriptor).st_ino:
                return
        raise UsageError(f"run {self.record.id!r} was finished by another process meanwhile")

    def _held(self) -> RunHeld:
        pid, host = self._written()
        who = "another process" if pid is None else f"process {pid} on {host}"
        return RunHeld(
            f"run {self.record.id!r} is being played by {who}; wait for it, or stop it first",
            pid,
        )

    def holder(self) -> int | None:
        """The number of the process that plays this run, or None if none does."""
        try:
            descriptor = os.open(self._lock, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._written()[0] or 0
        finally:
            os.close(descriptor)
        return None

    def remove(self) -> None:
        """Delete the folder; journals in it that an earlier assay set aside move up."""
        if left := self.journals():
            raise JournalError(f"{left[0]} is not stored yet; the run is not finished")
        root = self.folder.parent
        for path in self.damaged():
            path.rename(free_path(root / f"{self.folder.name}.{path.name}"))
        # The record goes first: without it the folder is nobody's, whatever is left of it.
        (self.folder / "run.json").unlink(missing_ok=True)
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
        self.folder.rmdir()
        with suppress(OSError):
            root.rmdir()

    def discard(self) -> None:
        """Delete the folder with all its journals, stored or not.

        Raises:
            RunHeld: A process plays this run.
        """
        with self.hold():
            for path in self.journals():
                path.unlink(missing_ok=True)
            self.remove()

    @property
    def _lock(self) -> Path:
        return self.folder / "lock"

    def _written(self) -> tuple[int | None, str]:
        try:
            pid, _, host = self._lock.read_text("utf-8").partition(" ")
            return int(pid), host.strip()
        except (OSError, ValueError):
            return None, ""


def _checked(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the id of a {kind}: use letters, digits, '.', '_' and '-', "
            "at most 100, the first a letter or a digit"
        )
    return name


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _record(values: dict[str, Any]) -> RunRecord:
    if (said := values.pop("format")) != _FORMAT:
        raise ValueError(f"its format is {said!r}, and this assay reads {_FORMAT!r}")
    if not isinstance(values["configuration"], dict):
        raise ValueError("its configuration is no object")
    experiments = tuple(ExperimentRecord(**each) for each in values.pop("experiments"))
    return RunRecord(**values, experiments=experiments)
