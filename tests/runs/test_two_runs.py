"""Several processes use one database: all finish, and nothing is lost."""

from pathlib import Path

import pytest

from assay.store.run_folder import journal_root

from .programs import Holder, Program, run_arguments
from .tables import contents, sessions

pytestmark = pytest.mark.usefixtures("compiled_engine")


@pytest.mark.extras
def test_two_runs_on_one_database_both_finish(tmp_path: Path) -> None:
    database = tmp_path / "traces.duckdb"
    programs = {}
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        arguments = run_arguments(folder, "--run-id", name, episodes=6)
        arguments[arguments.index("traces.duckdb")] = str(database)
        programs[name] = Program(folder, *arguments)
    for name, program in programs.items():
        assert program.wait() == 0, program.errors
        assert sessions(database, name) == 6
    assert not journal_root(database).exists()
    tables = contents(database)
    turns = 2 * 6 * 20
    assert len(tables["events"]) == len(tables["session_timesteps"]) + 2 * turns
    names = sorted(row[1] for row in tables["experiments"])
    assert names == ["builtin/random v1.0", "builtin/random v1.0 #2"]


@pytest.mark.parametrize(
    "seconds", [1.0, pytest.param(5.0, marks=pytest.mark.extras)], ids=["short", "long"]
)
def test_reader_of_the_database_delays_storing_and_is_named(
    tmp_path: Path, seconds: float
) -> None:
    database = tmp_path / "traces.duckdb"
    arguments = run_arguments(tmp_path, "--run-id", "waits", pause=seconds / 100)
    program = Program(tmp_path, *arguments, "--max-concurrent-episodes", "2")
    program.until(lambda: program.turns >= 1, "a turn")
    (tmp_path / "holder").mkdir()
    holder = Holder(tmp_path / "holder", database)
    # Episodes end and others start while the database is locked.
    program.until(lambda: program.turns >= 80, "the last turn")
    program.until(lambda: "waiting" in program.errors, "its word")
    assert f"process {holder.pid}" in program.errors
    assert len(list(journal_root(database).glob("waits/*.jsonl"))) == 4
    holder.kill()
    assert program.wait() == 0, program.errors
    assert sessions(database, "waits") == 4
    assert not journal_root(database).exists()
