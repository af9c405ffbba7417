"""Interrupted runs, and the run that the same command then continues."""

from pathlib import Path

import pytest

from assay.store.run_folder import journal_root, unfinished_runs

from .programs import Holder, Program, run_arguments
from .tables import sessions

pytestmark = pytest.mark.usefixtures("compiled_engine")


def interrupted(folder: Path, *more: str) -> Program:
    """Return a run that was interrupted and stopped cleanly."""
    program = Program(folder, *run_arguments(folder, *more, pause=0.02))
    program.until(lambda: program.turns >= 10, "some turns")
    program.interrupt()
    assert program.wait() == 130, program.errors
    return program


def unfinished(folder: Path) -> list[str]:
    return [run.record.id for run in unfinished_runs(folder / "traces.duckdb")]


@pytest.mark.extras
def test_interrupted_run_prints_its_resume_command_and_resumes(tmp_path: Path) -> None:
    program = interrupted(tmp_path)
    (run_id,) = unfinished(tmp_path)
    assert f"assay run --resume {run_id} --database traces.duckdb" in program.output
    arguments = run_arguments(tmp_path, pause=0.02)

    changed = Program(tmp_path, "run", "--resume", run_id, *arguments[1:], "--seed", "7")
    assert changed.wait() == 2
    assert "seed: 42 -> 7" in changed.errors

    again = Program(tmp_path, *arguments)
    again.until(lambda: again.turns >= 10, "some turns")
    # While the run is in progress, the same command starts another run.
    other = Program(tmp_path, *arguments, "--dry-run")
    assert other.wait() == 0
    assert "nothing is started: a new run" in other.output
    assert again.wait() == 0
    assert sessions(tmp_path / "traces.duckdb", run_id) == 4
    assert unfinished(tmp_path) == []

    after = Program(tmp_path, *arguments, "--dry-run")
    assert after.wait() == 0
    assert "nothing is started: a new run" in after.output


@pytest.mark.extras
def test_fresh_starts_a_new_run_and_keeps_the_unfinished_one(tmp_path: Path) -> None:
    interrupted(tmp_path)
    (first,) = unfinished(tmp_path)
    interrupted(tmp_path, "--fresh")
    assert len(unfinished(tmp_path)) == 2
    named = Program(tmp_path, "run", "--resume", first, "--database", "traces.duckdb")
    assert named.wait() == 0, named.errors
    assert f"resuming unfinished run {first}" in named.errors
    assert len(unfinished(tmp_path)) == 1


@pytest.mark.extras
def test_second_interrupt_stops_waiting_for_a_locked_database(tmp_path: Path) -> None:
    database = tmp_path / "traces.duckdb"
    arguments = run_arguments(tmp_path, "--max-concurrent-episodes", "1", pause=0.01)
    program = Program(tmp_path, *arguments)
    program.until(lambda: program.turns >= 1, "a turn")
    (tmp_path / "holder").mkdir()
    holder = Holder(tmp_path / "holder", database)
    program.until(lambda: program.turns >= 30, "an episode that has ended")
    program.interrupt()
    program.until(lambda: "again to quit now" in program.errors, "its word")
    program.interrupt()
    assert program.wait() == 130, program.errors
    (run_id,) = unfinished(tmp_path)
    assert f"assay run --resume {run_id}" in program.errors + program.output
    assert list(journal_root(database).glob("*/*.jsonl"))
    holder.kill()
    again = Program(tmp_path, *arguments)
    assert again.wait() == 0, again.errors
    assert sessions(database, run_id) == 4


@pytest.mark.extras
def test_locked_database_does_not_delay_the_first_turn(tmp_path: Path) -> None:
    first = Program(tmp_path, *run_arguments(tmp_path, episodes=1, turns=1))
    assert first.wait() == 0, first.errors
    (tmp_path / "holder").mkdir()
    holder = Holder(tmp_path / "holder", tmp_path / "traces.duckdb")
    program = Program(tmp_path, *run_arguments(tmp_path))
    program.until(lambda: program.turns >= 10, "turns while the database is held")
    holder.kill()
    assert program.wait() == 0


def test_second_interrupt_exits_before_any_episode_has_ended(tmp_path: Path) -> None:
    program = Program(tmp_path, *run_arguments(tmp_path, pause=0.05))
    program.until(lambda: program.turns >= 1, "a turn")
    (tmp_path / "holder").mkdir()
    holder = Holder(tmp_path / "holder", tmp_path / "traces.duckdb")
    program.interrupt()
    program.until(lambda: "again to quit now" in program.errors, "its word")
    program.interrupt()
    try:
        assert program.wait() == 130
    finally:
        holder.kill()
