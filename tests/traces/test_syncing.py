"""What reaches the disk, as the system calls of a process say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay._util.syncing import sync_now
from assay.errors import JournalError
from assay.traces.journal import Journal
from assay.traces.records import PlayedRecord
from tests.traces.sessions import make_run, make_session

WRITES = """
import os, sys, time
from pathlib import Path
from assay.traces.folder import RunFolder
from assay.traces.journal import Journal
from assay.traces.records import PlayedRecord
from tests.traces.sessions import make_run, make_session

run = make_run()
folder = RunFolder.create(Path(sys.argv[1]), run)
print("made", flush=True)
headers = [make_session(run, episode=n).header for n in range(int(sys.argv[2]))]
journals = [Journal.create(folder.path(each.session_id), each) for each in headers]
time.sleep(0.5)
print("began", flush=True)
for turn in range(1, 101):
    for journal in journals:
        journal.append_played(PlayedRecord(turn=turn, at=1.0))
print("wrote", flush=True)
if "exit" not in sys.argv:
    time.sleep(0.5)
    os._exit(0)
"""


def calls(database: Path, sessions: int, *more: str) -> list[str]:
    """The syncs of a process, each with its file, between the lines that it prints."""
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
    )
    if "PTRACE" in done.stderr:
        pytest.skip("processes cannot be traced here")
    assert done.returncode == 0, done.stderr
    found = []
    for line in log.read_text().splitlines():
        if said := re.search(r'write\(1<.*"(\w+)', line):
            found.append(said[1])
        elif sync := re.search(r"(fsync|syncfs)\(\d+<([^>]*)>", line):
            found.append(f"{sync[1]} {Path(sync[2]).name}")
        elif "rename(" in line:
            found.append("rename")
    return found


def test_the_record_of_a_run_is_on_disk_before_it_begins(tmp_path: Path) -> None:
    found = calls(tmp_path / "t.duckdb", 1)
    assert found[: found.index("made")] == [
        *("fsync run.json.part", "rename", "fsync run.json", "fsync run-1"),
        *("fsync t.duckdb.journal", f"fsync {tmp_path.name}"),
    ]


@pytest.mark.parametrize(
    ("sessions", "sync"), [(1, r"fsync \w+\.jsonl"), (20, "syncfs .*")], ids=["one", "many"]
)
def test_lines_of_many_sessions_are_synced_together_and_not_one_by_one(
    sessions: int, sync: str, tmp_path: Path
) -> None:
    found = calls(tmp_path / "t.duckdb", sessions)
    wrote = found.index("wrote")
    assert re.fullmatch(sync, found[-1]), found
    assert found[wrote + 1 :], "they are synced without anybody asking"
    assert len(found) - found.index("began") < 100, "of 100 lines in each session"
    began = found[found.index("made") : found.index("began")]
    assert any("run-1" in each or "syncfs" in each for each in began), "the folder has entries"


def test_a_process_that_ends_syncs_what_it_wrote(tmp_path: Path) -> None:
    found = calls(tmp_path / "t.duckdb", 20, "exit")
    assert found[-1].startswith("syncfs")
    assert found.index("wrote") < len(found) - 1


FORKS = """
import os, sys, time
from pathlib import Path
from assay._util import syncing

file = Path(sys.argv[1])
file.touch()
syncing.sync_soon(file)
if os.fork() == 0:
    syncing.sync_soon(file)
    time.sleep(1)
    os._exit(0 if not syncing._syncing._waiting else 3)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_forked_process_syncs_by_itself(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path / "f")])
    assert done.returncode == 0


def test_a_sync_that_fails_stops_whoever_writes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay._util import syncing

    path = tmp_path / "s.jsonl"
    journal = Journal.create(path, make_session(make_run()).header)
    syncing._syncing.now()

    def broken(paths: list[Path]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(syncing, "_sync", broken)
    journal.append_played(PlayedRecord(turn=1, at=1.0))
    syncing._syncing.now()
    with pytest.raises(JournalError, match=r"cannot write to .*: Input/output error"):
        journal.append_played(PlayedRecord(turn=2, at=1.0))


def test_folders_can_be_synced(tmp_path: Path) -> None:
    sync_now(tmp_path)
