"""The single writer: from journals to rows, with concurrent readers and writers."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from assay.store.ingest import ensure_run
from assay.store.journal import Journal, read_journal
from assay.store.queries import committed_sessions
from assay.store.records import RunRecord, SessionRecord
from assay.store.run_folder import RunFolder, journal_root
from assay.store.schema import TABLES
from assay.store.store import Store
from assay.store.writer import JournalDamaged, SessionStored, StoringFailed, Writer, WriterEvent
from assay.types import TrialState
from tests.store.sessions import ingest_session, make_run, make_session, make_sessions
from tests.store.test_journal import write
from tests.store.test_store import reader

WRITER = """
import sys
from pathlib import Path
from assay.store.run_folder import RunFolder
from assay.store.store import Store
from assay.store.writer import Writer
from tests.store.sessions import make_run, make_sessions
from tests.store.test_journal import write

database, name = Path(sys.argv[1]), sys.argv[2]
run = make_run(name, ["m"])
folder = RunFolder.create(database, run)
writer = Writer(Store(database), on_event=lambda event: None, linger=0.01)
print("ready", flush=True)
sys.stdin.readline()
writer.start()
for session in make_sessions(run, 4):
    path = folder.path(session.header.session_id)
    write(path, session)
    writer.submit(run, path)
    writer.drain()
writer.close()
folder.remove()
"""


class Desk:
    """A run folder with a writer."""

    def __init__(self, database: Path, run: RunRecord) -> None:
        self.run = run
        self.folder = RunFolder.create(database, run)
        self.store = Store(database, on_wait=lambda busy: self.waits.append(str(busy)))
        self.events: list[WriterEvent] = []
        self.waits: list[str] = []
        self.writer = Writer(self.store, on_event=self.events.append, linger=0.01)

    def journal(self, session: SessionRecord) -> Path:
        path = self.folder.path(session.header.session_id)
        write(path, session)
        return path

    def stored(self) -> dict[str, TrialState]:
        with self.store.reading() as connection:
            return committed_sessions(connection, self.run.id)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "a.duckdb", make_run())


def test_finished_sessions_are_stored_and_their_journals_deleted(desk: Desk) -> None:
    sessions = make_sessions(desk.run, 20)
    desk.writer.start()
    for session in sessions:
        desk.writer.submit(desk.run, desk.journal(session))
    desk.writer.drain()
    ids = {session.header.session_id for session in sessions}
    assert set(desk.stored()) == ids
    assert {event.session_id for event in desk.events} == ids
    assert all(isinstance(event, SessionStored) for event in desk.events)
    assert desk.folder.journals() == []
    desk.writer.close()
    desk.folder.remove()


def test_writer_stores_the_same_as_direct_ingestion(desk: Desk, tmp_path: Path) -> None:
    sessions = make_sessions(desk.run)
    desk.writer.start()
    for session in sessions:
        desk.writer.submit(desk.run, desk.journal(session))
    desk.writer.close()
    with Store(tmp_path / "b.duckdb").writing() as connection:
        ensure_run(connection, desk.run)
        for session in sessions:
            ingest_session(connection, session)
        expected = {
            table.name: connection.execute(f"FROM {table.name} ORDER BY ALL").fetchall()
            for table in TABLES
        }
    with desk.store.reading() as connection:
        for name, rows in expected.items():
            assert connection.execute(f"FROM {name} ORDER BY ALL").fetchall() == rows


def test_journal_of_an_infrastructure_error_is_kept_for_resume(desk: Desk) -> None:
    session = make_session(desk.run, state=TrialState.INFRASTRUCTURE)
    path = desk.journal(session)
    desk.writer.start()
    desk.writer.submit(desk.run, path)
    desk.writer.drain()
    assert desk.stored() == {session.header.session_id: TrialState.INFRASTRUCTURE}
    journal, _ = Journal.reopen(path)
    whole = make_session(desk.run, turns=5)
    last = whole.calls[-1]
    written = len(session.messages)
    journal.append_call(last, whole.messages[written : last.reply + 1])
    desk.writer.submit(desk.run, path)
    desk.writer.drain()
    assert path.exists(), "a session that goes on is left alone"
    journal.append_played(whole.played[-1])
    assert whole.end is not None
    journal.append_end(whole.end)
    desk.writer.submit(desk.run, path)
    desk.writer.close()
    assert desk.stored() == {session.header.session_id: TrialState.RESULT}
    assert not path.exists()


def test_damaged_journal_is_kept_and_the_rest_is_stored(desk: Desk) -> None:
    first, second = make_sessions(desk.run, 1)
    damaged = desk.journal(first)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:300] + b"?" + content[301:])
    desk.writer.start()
    desk.writer.submit(desk.run, damaged)
    desk.writer.submit(desk.run, desk.journal(second))
    desk.writer.close()
    assert list(desk.stored()) == [second.header.session_id]
    (event,) = [item for item in desk.events if isinstance(item, JournalDamaged)]
    assert event.session_id == first.header.session_id
    assert desk.folder.journals() == [event.path] == [damaged]
    assert "damaged in line" in str(event)


def test_journal_with_impossible_numbers_is_kept(desk: Desk) -> None:
    session = make_session(desk.run)
    # More than a column of turns can hold.
    played = [*session.played[:-1], replace(session.played[-1], turn=2**40)]
    desk.writer.start()
    desk.writer.submit(desk.run, desk.journal(replace(session, played=played)))
    desk.writer.close()
    (event,) = desk.events
    assert isinstance(event, JournalDamaged)
    assert event.path.exists()


def test_rejected_sessions_do_not_block_others(desk: Desk) -> None:
    with desk.store.writing() as connection:
        connection.execute("CREATE UNIQUE INDEX one_per_seed ON session_traces (seed)")
    sessions = make_sessions(desk.run, 3)
    paths = [desk.journal(session) for session in sessions]
    desk.writer.start()
    for path in paths:
        desk.writer.submit(desk.run, path)
    desk.writer.close()
    assert len(desk.stored()) == 3
    failed = [event for event in desk.events if isinstance(event, StoringFailed)]
    assert {event.session_id for event in failed} == {path.stem for path in paths[3:]}
    assert desk.folder.journals() == sorted(paths[3:]), "they are kept"


def test_journals_are_kept_if_the_database_cannot_be_written(tmp_path: Path) -> None:
    database = tmp_path / "a.duckdb"
    database.write_text("not a database" * 1000)
    desk = Desk(database, make_run())
    path = desk.journal(make_session(desk.run))
    desk.writer.start()
    desk.writer.submit(desk.run, path)
    desk.writer.close()
    (event,) = desk.events
    assert isinstance(event, StoringFailed)
    assert "not a DuckDB file" in str(event)
    assert read_journal(path).end is not None


def test_journals_are_written_while_others_are_stored(desk: Desk) -> None:
    desk.writer.start()

    def play(model: str) -> None:
        for session in (make_session(desk.run, model, episode) for episode in range(10)):
            desk.writer.submit(desk.run, desk.journal(session))

    models = [experiment.model for experiment in desk.run.experiments]
    threads = [threading.Thread(target=play, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.writer.close()
    assert len(desk.stored()) == 20


def test_listener_error_is_raised_to_the_waiting_caller(desk: Desk) -> None:
    def listen(event: WriterEvent) -> None:
        raise RuntimeError("no paper")

    writer = Writer(desk.store, on_event=listen, linger=0.0)
    writer.start()
    writer.submit(desk.run, desk.journal(make_session(desk.run)))
    with pytest.raises(RuntimeError, match="no paper"):
        writer.close()


@pytest.mark.extras
def test_reader_delays_a_writer_without_loss(desk: Desk) -> None:
    delayed(desk, 1.0)


@pytest.mark.extras
def test_five_second_reader_delays_a_writer_without_loss(
    desk: Desk,
) -> None:
    delayed(desk, 5.0)


def delayed(desk: Desk, seconds: float) -> None:
    with desk.store.writing():
        pass
    desk.writer.start()
    with reader(desk.store.path, seconds) as process:
        for session in make_sessions(desk.run):
            desk.writer.submit(desk.run, desk.journal(session))
        desk.writer.close()
    assert len(desk.waits) == 1
    assert f"process {process.pid}" in desk.waits[0]
    assert len(desk.stored()) == 4


@pytest.mark.extras
def test_two_processes_write_to_one_database_without_loss(tmp_path: Path) -> None:
    database = tmp_path / "a.duckdb"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(database), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with Store(database).reading() as connection:
        counts = connection.execute(
            "SELECT run_id, count(*) FROM session_traces GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert counts == [("one", 4), ("two", 4)]
        bodies = "SELECT count(*), count(DISTINCT hash) FROM message_bodies"
        total, distinct = connection.execute(bodies).fetchall()[0]
        assert total == distinct
    assert not journal_root(database).exists()


@pytest.mark.extras
def test_cancelled_storing_keeps_the_rest_in_journals(desk: Desk) -> None:
    sessions = make_sessions(desk.run, 60)
    paths = [desk.journal(session) for session in sessions]
    writer = Writer(desk.store, on_event=desk.events.append, given_up=lambda: bool(desk.events))
    writer.start()
    for path in paths:
        writer.submit(desk.run, path)
    assert writer.drain() is False
    writer.close()
    stored, left = desk.stored(), desk.folder.journals()
    assert stored
    assert left
    assert len(stored) + len(left) == len(sessions)
    desk.writer.start()
    for path in left:
        desk.writer.submit(desk.run, path)
    assert desk.writer.drain() is True
    desk.writer.close()
    assert len(desk.stored()) == len(sessions)


@pytest.mark.extras
def test_waiting_for_storage_reports_the_remaining_sessions(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.store.writer._FIRST_REPORT_S", 0.0)
    sessions = make_sessions(desk.run, 40)
    desk.writer.start()
    for session in sessions:
        desk.writer.submit(desk.run, desk.journal(session))
    heard: list[int] = []
    desk.writer.drain(heard.append)
    desk.writer.close()
    assert heard
    assert all(0 < left <= len(sessions) for left in heard)
