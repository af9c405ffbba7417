"""The folder of a run and its lock."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.errors import JournalError, UsageError
from assay.store.journal import Journal, set_aside_damaged
from assay.store.run_folder import RunFolder, RunHeld, journal_root, unfinished_runs
from tests.store.sessions import START, make_run, make_session

HOLD = """
import sys
from pathlib import Path
from assay.store.run_folder import RunFolder
with RunFolder.open(Path(sys.argv[1]), sys.argv[2]).hold():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(database: Path, run_id: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database), run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "a.duckdb"


def test_run_record_round_trips(database: Path) -> None:
    run = make_run(baselines=["builtin/expert"])
    RunFolder.create(database, run)
    assert RunFolder.open(database, run.id).record == run


def test_unfinished_runs_are_listed_oldest_first(database: Path) -> None:
    assert unfinished_runs(database) == []
    for number in (3, 1, 2):
        RunFolder.create(database, make_run(f"r{number}", created_at=START + number))
    (journal_root(database) / "half").mkdir()
    assert [folder.record.id for folder in unfinished_runs(database)] == ["r1", "r2", "r3"]


def test_existing_run_is_not_created_again(database: Path) -> None:
    RunFolder.create(database, make_run())
    with pytest.raises(UsageError, match="--resume run-1"):
        RunFolder.create(database, make_run())


def test_a_finished_run_has_no_folder(database: Path) -> None:
    with pytest.raises(UsageError, match="'gone' has no journals"):
        RunFolder.open(database, "gone")


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "a" * 101, "ü"])
def test_run_id_must_be_a_valid_file_name(database: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid run id"):
        RunFolder.create(database, make_run(name))
    assert not journal_root(database).exists()


def test_damaged_run_record_is_named_in_the_error(database: Path) -> None:
    folder = RunFolder.create(database, make_run())
    (folder.folder / "run.json").write_text("{")
    with pytest.raises(JournalError, match=r"run\.json cannot be read"):
        RunFolder.open(database, "run-1")


def test_journals_without_a_header_are_not_listed(database: Path) -> None:
    run = make_run()
    folder = RunFolder.create(database, run)
    header = make_session(run).header
    Journal.create(folder.path(header.session_id), header)
    folder.path("blank").touch()
    assert folder.journals() == [folder.path(header.session_id)]


def test_locked_run_is_rejected_with_the_process_name(
    database: Path,
) -> None:
    folder = RunFolder.create(database, make_run())
    with held_elsewhere(database, "run-1") as process:
        assert folder.holder() == process.pid
        with pytest.raises(RunHeld, match=f"process {process.pid}") as caught, folder.hold():
            pass
        assert caught.value.pid == process.pid


def test_lock_of_a_killed_process_is_released_immediately(database: Path) -> None:
    folder = RunFolder.create(database, make_run())
    with held_elsewhere(database, "run-1") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert folder.holder() is None
    with folder.hold():
        assert folder.holder() == os.getpid()
    assert folder.holder() is None


def test_finished_run_leaves_no_files(database: Path) -> None:
    folder = RunFolder.create(database, make_run())
    with folder.hold():
        folder.remove()
    assert not journal_root(database).exists()
    assert folder.holder() is None


def test_unsaved_journals_prevent_removal_of_a_run(database: Path) -> None:
    run = make_run()
    folder = RunFolder.create(database, run)
    header = make_session(run).header
    path = folder.path(header.session_id)
    Journal.create(path, header)
    with pytest.raises(JournalError, match="not stored yet"):
        folder.remove()
    set_aside_damaged(path)
    folder.remove()
    assert [path.name for path in journal_root(database).iterdir()] == [
        f"run-1.{header.session_id}.jsonl.damaged"
    ]


def test_lost_spending_is_summed_and_partial_lines_are_ignored(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a.duckdb", make_run())
    assert folder.losses() == 0
    (folder.folder / "losses").write_bytes(b"0.25\n1e-07\n\xff\n0.5e")
    assert folder.losses() == 0.25 + 1e-07
