"""Opening a database, and sharing it with other processes and threads."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from assay.errors import StoreBusy, StoreError, UsageError
from assay.store.store import Store
from tests.support import run_python

READER = """
import sys, time
from assay.store.store import Store
with Store(sys.argv[1]).reading() as connection:
    print("reading", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def reader(path: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that reads the database for a while."""
    process = subprocess.Popen(
        [sys.executable, "-c", READER, str(path), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.duckdb"
    with Store(path).writing():
        pass
    return path


def test_missing_database_error_names_the_command_that_creates_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="assay run"), Store(tmp_path / "no.duckdb").reading():
        pass
    assert not (tmp_path / "no.duckdb").exists()


def test_read_connection_cannot_write(path: Path) -> None:
    with pytest.raises(StoreError, match="read-only"), Store(path).reading() as connection:
        connection.execute("DELETE FROM runs")


@pytest.mark.parametrize(
    ("make", "mode", "message"),
    [
        pytest.param(
            lambda path: path.write_text("x" * 9000), "writing", "not a DuckDB file", id="text"
        ),
        pytest.param(lambda path: path.touch(), "reading", "not a DuckDB file", id="empty"),
        pytest.param(lambda path: path.mkdir(), "writing", "is a folder", id="a folder"),
        pytest.param(lambda path: path.mkdir(), "reading", "is a folder", id="to read"),
    ],
)
def test_non_database_file_is_rejected(
    tmp_path: Path, make: Callable[[Path], object], mode: str, message: str
) -> None:
    path = tmp_path / "a.duckdb"
    make(path)
    refused = pytest.raises((StoreError, UsageError), match=message)
    with refused, getattr(Store(path), mode)():
        pass


def test_missing_folder_is_named_in_the_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "gone" / "a.duckdb")
    with pytest.raises(StoreError, match="existing, writable folder"), store.writing():
        pass


def test_duckdb_file_without_traces_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    duckdb.connect(str(path)).close()
    with pytest.raises(StoreError, match="without assay tables"), Store(path).reading():
        pass


def test_full_disk_is_reported_and_existing_rows_are_kept(path: Path) -> None:
    program = """
import resource, signal, sys
from assay.errors import StoreError
from assay.store.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store(sys.argv[1]).writing() as connection:
    connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
size = 2_000_000
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    with Store(sys.argv[1]).writing() as connection:
        connection.execute("CREATE TABLE big AS SELECT random() AS x FROM range(2000000)")
except StoreError as error:
    print(error)
"""
    done = run_python("-c", program, str(path))
    assert "journals are kept" in done.output, done.output + done.errors
    with Store(path).reading() as connection:
        assert connection.execute("FROM kept").fetchall() == [(1,)]


@pytest.mark.extras
def test_writer_waits_for_a_reader_and_reports_it_once(path: Path) -> None:
    waits: list[str] = []
    with reader(path, 600) as process:

        def on_wait(busy: StoreBusy) -> None:
            waits.append(str(busy))
            threading.Timer(0.5, process.kill).start()

        store = Store(path, on_wait=on_wait)
        with store.writing() as connection:
            connection.execute("CREATE TABLE x (y INTEGER)")
    assert len(waits) == 1
    assert f"process {process.pid}" in waits[0]
    assert "assay traces snapshot" in waits[0]


def test_lock_timeout_names_the_holding_process(path: Path) -> None:
    with (
        reader(path, 600) as process,
        pytest.raises(StoreBusy, match=f"process {process.pid}"),
        Store(path, patience=0.05).writing(),
    ):
        pass


def test_readers_of_two_processes_do_not_wait_for_each_other(path: Path) -> None:
    with reader(path, 600), Store(path, patience=0.0).reading() as connection:
        assert connection.execute("FROM runs").fetchall() == []


def test_threads_of_one_process_take_turns(path: Path) -> None:
    with Store(path).writing() as connection:
        connection.execute("CREATE TABLE counts (n INTEGER)")

    def work() -> None:
        for _ in range(2):
            with Store(path).writing() as connection:
                connection.execute("INSERT INTO counts VALUES (1)")
            with Store(path).reading() as connection:
                connection.execute("FROM counts").fetchall()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store(path).reading() as connection:
        assert connection.execute("SELECT sum(n) FROM counts").fetchone() == (6,)


def test_killed_writer_loses_only_uncommitted_rows(
    path: Path,
) -> None:
    program = """
import os, signal, sys
from assay.store.store import Store
with Store(sys.argv[1]).writing() as connection:
    connection.execute("CREATE TABLE kept (x INTEGER)")
    connection.execute("INSERT INTO kept VALUES (1)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO kept VALUES (2)")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run_python("-c", program, str(path), expected=None)
    assert done.code < 0
    assert os.path.exists(f"{path}.wal")
    with Store(path).reading() as connection:
        assert connection.execute("FROM kept").fetchall() == [(1,)]
