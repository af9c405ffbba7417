"""Which writes are synced, observed by system calls."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from assay.core.files import sync_now
from assay.errors import JournalError
from assay.store.journal import Journal
from assay.store.records import PlayedRecord
from tests.store.sessions import make_run, make_session

WRITES = """
import os, sys, time
from pathlib import Path
from assay.core.files import _sync_queue
from assay.store.run_folder import RunFolder
from assay.store.journal import Journal
from assay.store.records import PlayedRecord
from tests.store.sessions import make_run, make_session

def synced():
    while _sync_queue._waiting:
        time.sleep(0.01)
    with _sync_queue._sync_lock:
        pass

run = make_run()
folder = RunFolder.create(Path(sys.argv[1]), run)
print("made", flush=True)
headers = [make_session(run, episode=n).header for n in range(int(sys.argv[2]))]
journals = [Journal.create(folder.path(header.session_id), header) for header in headers]
synced()
print("began", flush=True)
for turn in range(1, 101):
    for journal in journals:
        journal.append_played(PlayedRecord(turn=turn, at=1.0))
print("wrote", flush=True)
if "exit" not in sys.argv:
    synced()
    os._exit(0)
"""


class Calls(NamedTuple):
    """The system calls of a process, in their order."""

    found: list[str]
    """Its syncs and renames, each with its file, between the lines that it prints."""
    unsynced: set[str]
    """Journals with a write after which no sync began."""


def calls(database: Path, sessions: int, *more: str) -> Calls:
    """The calls of a process that writes 100 lines in each session."""
    if not shutil.which("strace"):
        pytest.skip("there is no strace here")
    log = database.with_name("calls")
    done = subprocess.run(
        [
            *("strace", "-f", "-y", "-s", "9", "-o", str(log)),
            *("-e", "trace=fsync,fdatasync,syncfs,rename,write"),
            *(sys.executable, "-c", WRITES, str(database), str(sessions), *more),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "PTRACE" in done.stderr:
        pytest.skip("processes cannot be traced here")
    assert done.returncode == 0, done.stderr
    found: list[str] = []
    unsynced: set[str] = set()
    for line in log.read_text().splitlines():
        if said := re.search(r'write\(1<.*"(\w+)', line):
            found.append(said[1])
        elif sync := re.search(r"(fsync|syncfs)\(\d+<([^>]*)>", line):
            found.append(f"{sync[1]} {Path(sync[2]).name}")
            unsynced -= unsynced if sync[1] == "syncfs" else {sync[2]}
        elif wrote := re.search(r"write\(\d+<([^>]*\.jsonl)>", line):
            unsynced.add(wrote[1])
        elif "rename(" in line:
            found.append("rename")
    return Calls(found, unsynced)


@pytest.mark.extras
def test_run_record_is_synced_before_the_run_starts(tmp_path: Path) -> None:
    found, _ = calls(tmp_path / "t.duckdb", 1)
    assert found[: found.index("made")] == [
        *("fsync run.json.part", "rename", "fsync run.json", "fsync run-1"),
        *("fsync t.duckdb.journal", f"fsync {tmp_path.name}"),
    ]


@pytest.mark.extras
@pytest.mark.parametrize(
    ("sessions", "sync"), [(1, r"fsync \w+\.jsonl"), (20, "syncfs .*")], ids=["one", "many"]
)
def test_lines_of_many_sessions_are_synced_together(
    sessions: int, sync: str, tmp_path: Path
) -> None:
    found, unsynced = calls(tmp_path / "t.duckdb", sessions)
    assert not unsynced, "they are synced without anybody asking"
    began = found.index("began")
    assert any(re.fullmatch(sync, call) for call in found[began:]), found
    assert len(found) - began < 100 * sessions, "of 100 lines in each session"
    made = found[found.index("made") : began]
    assert any("run-1" in call or "syncfs" in call for call in made), "the folder has entries"


@pytest.mark.extras
def test_exiting_process_syncs_its_writes(tmp_path: Path) -> None:
    found, unsynced = calls(tmp_path / "t.duckdb", 20, "exit")
    assert "wrote" in found
    assert not unsynced


FORKS = """
import os, sys, time
from pathlib import Path
from assay.core import files as syncing

file = Path(sys.argv[1])
file.touch()
syncing.sync_soon(file)
if os.fork() == 0:
    syncing.sync_soon(file)
    while syncing._sync_queue._waiting:
        time.sleep(0.01)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_forked_process_syncs_independently(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path / "f")]
    assert subprocess.run(command, timeout=120).returncode == 0


def test_failed_sync_stops_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.core import files

    path = tmp_path / "s.jsonl"
    journal = Journal.create(path, make_session(make_run()).header)
    files._sync_queue.sync_all()

    def broken(paths: list[Path]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "_sync", broken)
    journal.append_played(PlayedRecord(turn=1, at=1.0))
    files._sync_queue.sync_all()
    with pytest.raises(JournalError, match=r"cannot write to .*: Input/output error"):
        journal.append_played(PlayedRecord(turn=2, at=1.0))


def test_folders_can_be_synced(tmp_path: Path) -> None:
    sync_now(tmp_path)
