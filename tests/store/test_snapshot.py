"""A snapshot is a separate database, taken between two writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import OutputError, StoreBusy, UsageError
from assay.store.export import take_snapshot
from assay.store.journal import Journal
from assay.store.run_folder import RunFolder
from assay.store.store import Store
from tests.store.sessions import make_run, make_session, make_sessions
from tests.store.stores import add_training, fill, rows_of

RUN = make_run()


def test_snapshot_has_equal_rows_and_leaves_no_other_file(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, make_sessions(RUN))
    add_training(store, RUN)
    taken = take_snapshot(store, tmp_path / "out" / "copy.duckdb")
    assert (taken.sessions, taken.open_journals) == (4, 0)
    assert rows_of(Store(taken.path)) == rows_of(store)
    assert os.listdir(tmp_path / "out") == ["copy.duckdb"]


def test_open_journals_are_counted_and_not_in_the_snapshot(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, [make_session(RUN)], finished=False)
    folder = RunFolder.create(store.path, RUN)
    going_on = make_session(RUN, episode=1, state=None)
    Journal.create(folder.path(going_on.header.session_id), going_on.header)
    taken = take_snapshot(store, tmp_path / "copy.duckdb")
    assert (taken.sessions, taken.open_journals) == (1, 1)


def test_existing_snapshot_is_replaced_only_on_request(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, [make_session(RUN)])
    target = tmp_path / "copy.duckdb"
    target.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        take_snapshot(store, target)
    assert target.read_text() == "mine"
    assert take_snapshot(store, target, replace=True).sessions == 1
    assert rows_of(Store(target)) == rows_of(store)


def test_snapshot_onto_the_database_or_an_invalid_path_is_rejected(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, [])
    with pytest.raises(UsageError, match="the database itself"):
        take_snapshot(store, tmp_path / "." / "t.duckdb", replace=True)
    with pytest.raises(OutputError, match="cannot write"):
        take_snapshot(store, Path("/dev/null/copy.duckdb"))
    with pytest.raises(UsageError, match="assay run"):
        take_snapshot(Store(tmp_path / "nowhere.duckdb"), tmp_path / "copy.duckdb")


WRITER = """
import sys, duckdb
with duckdb.connect(sys.argv[1]) as connection:
    connection.execute("PRAGMA wal_autocheckpoint='1TB'")
    connection.execute("UPDATE runs SET command = 'of the writer'")
    print("holding", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "die":
        import os
        os._exit(1)
"""


def writer(path: Path, end: str) -> subprocess.Popen[str]:
    """A process that has changed the database and keeps it open until it is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


@pytest.mark.parametrize("end", ["close", "die"])
def test_snapshot_waits_for_a_writer_and_includes_its_commits(end: str, tmp_path: Path) -> None:
    path = fill(tmp_path / "t.duckdb", RUN, [make_session(RUN)]).path
    with writer(path, end) as process:
        waited: list[StoreBusy] = []

        def let_go(busy: StoreBusy) -> None:
            waited.append(busy)
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

        taken = take_snapshot(Store(path, on_wait=let_go), tmp_path / "copy.duckdb")
    assert str(process.pid) in str(waited[0])
    assert rows_of(Store(taken.path))["runs"][0][1] == "of the writer"
