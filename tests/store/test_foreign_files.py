"""Databases from other sources, and invalid database paths."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from assay.api.checks import CheckState, check_database
from assay.cli import main
from assay.errors import StoreError, UsageError
from assay.store.export import take_snapshot
from assay.store.imports import import_traces, trace_files
from assay.store.merge import merge_stores
from assay.store.queries import count_sessions
from assay.store.store import Store
from tests.store.sessions import make_run, make_sessions
from tests.store.stores import fill


@pytest.fixture
def store(tmp_path: Path) -> Store:
    run = make_run()
    return fill(tmp_path / "a.duckdb", run, make_sessions(run))


COMMANDS = ("traces list", "run --dry-run", "doctor")
NO_FILES = [
    (":memory:", "not the path of a file"),
    ("md:x", "not the path of a file"),
    ("http://host/x.duckdb", "not the path of a file"),
    ("s3://bucket/x.duckdb", "not the path of a file"),
    (".", "it is a folder"),
    ("..", "it is a folder"),
    ("loop", "its links are circular"),
    ("pipe", "it is not a regular file"),
    ("/dev/null", "it is not a regular file"),
    ("stray", "it is a link into a folder that does not exist"),
    (os.fsdecode(b"\xff.duckdb"), "not valid UTF-8"),
]


@pytest.mark.parametrize(
    ("command", "name", "said"),
    [
        *((command, *case) for command in COMMANDS for case in NO_FILES),
        # To the others an empty name stands for none.
        ("traces list", "", "it is a folder"),
    ],
)
def test_database_path_must_be_a_file_path(
    command: str,
    name: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("stray").symlink_to("gone/traces.duckdb")
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match=said):
        Store(name)
    code = main([*command.split(), "--database", name])
    told = capsys.readouterr()
    assert code in (1, 2)
    assert said in (told.out + told.err).replace("\n", " "), told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "pipe", "stray"]


def test_link_to_a_missing_file_creates_that_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.duckdb", tmp_path / "there" / "target.duckdb"
    link.symlink_to(target)
    run = make_run()
    store = fill(link, run, make_sessions(run))
    assert link.is_symlink()
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    with store.reading() as here, Store(target).reading() as there:
        count = "SELECT count(*) FROM session_traces"
        assert here.execute(count).fetchall() == there.execute(count).fetchall() != [(0,)]


def test_later_colon_is_part_of_the_file_name(tmp_path: Path) -> None:
    with Store(tmp_path / "at 12:30.duckdb").writing():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["at 12:30.duckdb"]


def test_views_in_a_foreign_file_are_not_executed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("planted")
    with duckdb.connect(str(store.path)) as connection:
        connection.execute("DROP VIEW episodes")
        connection.execute(
            f"CREATE VIEW episodes AS SELECT content FROM read_text('{tmp_path}/secret')"
        )
        connection.execute(
            f"CREATE VIEW mine AS SELECT content FROM read_text('{tmp_path}/secret')"
        )
    with store.reading() as connection:
        assert "planted" not in str(connection.execute("FROM episodes").fetchall())
        with pytest.raises(duckdb.PermissionException, match="disabled by configuration"):
            connection.execute("FROM mine")
        connection.execute("SELECT 1").fetchall()


def test_view_instead_of_a_table_is_rejected(store: Store) -> None:
    with duckdb.connect(str(store.path)) as connection:
        connection.execute("ALTER TABLE looks RENAME TO looked")
        connection.execute("CREATE VIEW looks AS FROM looked")
    with pytest.raises(StoreError, match="a view 'looks' where assay has a table"):
        store.reading().__enter__()


@pytest.mark.parametrize("statement", ["INSTALL httpfs", "LOAD httpfs", "ATTACH 'b.duckdb'"])
def test_opening_a_database_loads_no_other_files(store: Store, statement: str) -> None:
    with store.reading() as connection, pytest.raises(duckdb.Error, match="disabled"):
        connection.execute(statement)
    with store.reading() as connection:
        settings = connection.execute(
            "SELECT name, value FROM duckdb_settings() WHERE name LIKE 'auto%known_extensions'"
        ).fetchall()
    assert {value for _, value in settings} == {"false"}


def test_text_as_schema_version_is_reported(store: Store) -> None:
    with duckdb.connect(str(store.path)) as connection:
        connection.execute("CREATE OR REPLACE TABLE schema_version AS SELECT 'v2' AS version")
    with pytest.raises(StoreError, match="invalid schema version, 'v2'"):
        store.reading().__enter__()


def test_messages_with_wrong_hashes_are_not_merged(store: Store, tmp_path: Path) -> None:
    with duckdb.connect(str(store.path)) as connection:
        connection.execute(
            "UPDATE message_bodies SET body = replace(body, 'user', 'admin')"
            " WHERE hash = (SELECT min(hash) FROM message_bodies WHERE body LIKE '%user%')"
        )
    into = Store(tmp_path / "into.duckdb")
    with pytest.raises(StoreError, match="1 of its messages do not match their hashes"):
        merge_stores(into, [store])
    with into.reading() as connection:
        assert count_sessions(connection) == 0
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


def test_special_files_in_a_folder_are_skipped_by_name(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    os.mkfifo(folder / "index.json")
    report = import_traces(store, trace_files([folder, Path("/dev/zero")]))
    told = {Path(item.where).name: item.reason for item in report.damaged}
    assert told.keys() == {"pipe.json", "zero.jsonl", "index.json", "zero"}
    assert {told[name] for name in ("pipe.json", "zero.jsonl", "zero")} == {
        "is not a regular file"
    }


def test_writers_are_blocked_until_the_log_is_copied(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    tries = []

    def copy(source: Path, target: Path) -> None:
        script = f"import duckdb; duckdb.connect({str(store.path)!r})"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True)
        tries.append(b"Could not set lock" in done.stderr)
        raise FileNotFoundError

    monkeypatch.setattr(shutil, "copyfile", copy)
    take_snapshot(store, tmp_path / "copy.duckdb")
    assert tries == [True]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_database_works_without_hard_links(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "a.duckdb"
    with Store(path).writing() as connection:
        connection.execute("CREATE TABLE mine AS SELECT 'r' AS id")
    Store(path)._create()
    assert [path.name for path in tmp_path.iterdir()] == ["a.duckdb"]
    with Store(path).reading() as connection:
        assert connection.execute("SELECT id FROM mine").fetchall() == [("r",)]


@pytest.mark.parametrize("is_there", [False, True], ids=["made", "opened"])
def test_leftovers_of_killed_processes_are_removed_by_the_next_write(
    tmp_path: Path, is_there: bool
) -> None:
    if is_there:
        with Store(tmp_path / "a.duckdb").writing():
            pass
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for pid in (gone.pid, os.getppid()):
        for suffix in ("", ".wal"):
            draft = tmp_path / f"a.duckdb.part-{pid}{suffix}"
            draft.touch()
            os.utime(draft, (0, 0))
    (tmp_path / "a.duckdb.part-of-mine").touch()
    # Of a process in another container, which has no number here.
    (tmp_path / f"a.duckdb.part-{gone.pid}0").touch()
    with Store(tmp_path / "a.duckdb").writing():
        pass
    kept = f"a.duckdb.part-{os.getppid()}"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "a.duckdb",
            *(kept, f"{kept}.wal"),
            *("a.duckdb.part-of-mine", f"a.duckdb.part-{gone.pid}0"),
        ]
    )


def test_doctor_detects_a_damaged_block_in_any_table(store: Store, tmp_path: Path) -> None:
    assert check_database(store.path).state is CheckState.OK
    with duckdb.connect(str(store.path)) as connection:
        used = {
            row[0]
            for table in ("message_bodies", "events", "session_timesteps")
            for row in connection.execute(
                f"SELECT block_id FROM pragma_storage_info('{table}') WHERE block_id >= 0"
            ).fetchall()
        }
        (size,) = connection.execute(
            "SELECT block_size FROM pragma_database_size()"
        ).fetchall()[0]
    whole = store.path.read_bytes()
    copy = tmp_path / "spoiled.duckdb"
    for block in sorted(used):
        content = bytearray(whole)
        content[3 * 4096 + block * size + size // 2] ^= 4
        copy.write_bytes(content)
        check = check_database(copy)
        assert check.state is CheckState.FAIL, block
        assert "is damaged" in check.detail
        assert "snapshot" in check.detail
