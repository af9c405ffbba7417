"""Failures around a run: disks, files, services, hooks."""

import resource
from pathlib import Path

import pytest

from assay.api.servers import serve_models
from assay.models.serving.faults import Faults
from assay.store.run_folder import journal_root
from assay.store.store import Store
from tests.support import free_port

from .programs import Program, run_arguments, until
from .tables import contents, rows, sessions

pytestmark = pytest.mark.usefixtures("compiled_engine")


def killed_in_the_middle(folder: Path) -> list[str]:
    arguments = run_arguments(folder, "--run-id", "broken", pause=0.01)
    program = Program(folder, *arguments)
    program.until(lambda: program.turns >= 40, "some turns")
    program.kill()
    return arguments


def with_small_files(limit: str, *arguments: str) -> int:
    """Run the command with a file size limit, as on a full disk."""
    from assay.cli import main

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    return main(arguments)


@pytest.mark.extras
def test_episode_is_played_again_after_its_damaged_journal_is_removed(tmp_path: Path) -> None:
    arguments = killed_in_the_middle(tmp_path)
    root = journal_root(tmp_path / "traces.duckdb")
    path = sorted(root.glob("*/*.jsonl"))[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    program = Program(tmp_path, *arguments)
    assert program.wait() == 2
    assert "is damaged in line" in program.errors
    assert path.read_bytes() == content
    path.rename(tmp_path / path.name)
    program = Program(tmp_path, *arguments)
    assert program.wait() == 0, program.errors
    assert sessions(tmp_path / "traces.duckdb", "broken") == 4


def test_a_damaged_record_of_a_run_is_named(tmp_path: Path) -> None:
    arguments = killed_in_the_middle(tmp_path)
    file = tmp_path / "traces.duckdb.journal" / "broken" / "run.json"
    file.write_bytes(file.read_bytes()[:50])
    program = Program(tmp_path, *arguments)
    assert program.wait() == 2
    assert "run.json cannot be read" in program.errors


@pytest.mark.extras
def test_run_on_a_full_disk_keeps_finished_work_and_resumes(tmp_path: Path) -> None:
    # The journals fit, the database does not.
    arguments = run_arguments(tmp_path, "--run-id", "full", episodes=12, turns=40, pause=0)
    program = Program(tmp_path, "300000", *arguments, main=with_small_files)
    assert program.wait() == 3
    assert "its journal is kept" in program.errors
    assert list(journal_root(tmp_path / "traces.duckdb").glob("full/*.jsonl"))
    again = Program(tmp_path, *arguments)
    assert again.wait() == 0, again.errors
    assert sessions(tmp_path / "traces.duckdb", "full") == 12


def test_disk_without_room_for_a_database_leaves_no_partial_file(tmp_path: Path) -> None:
    arguments = run_arguments(tmp_path)
    program = Program(tmp_path, "3000", *arguments, main=with_small_files)
    assert program.wait() == 2
    assert "the disk is full" in program.errors
    assert Program(tmp_path, *arguments).wait() == 0


@pytest.mark.extras
def test_full_disk_during_journaling_is_an_infrastructure_error(tmp_path: Path) -> None:
    arguments = run_arguments(tmp_path, "--run-id", "full", pause=0)
    with Store(tmp_path / "traces.duckdb").writing():
        pass
    program = Program(tmp_path, "30000", *arguments, main=with_small_files)
    assert program.wait() == 3
    assert "free space" in program.errors
    assert "--resume full" in program.output
    again = Program(tmp_path, *arguments)
    assert again.wait() == 0, again.errors
    assert sessions(tmp_path / "traces.duckdb", "full") == 4


def test_file_that_is_not_a_database_is_rejected_before_the_run_starts(tmp_path: Path) -> None:
    (tmp_path / "traces.duckdb").write_text("a shopping list", "utf-8")
    program = Program(tmp_path, *run_arguments(tmp_path))
    assert program.wait() != 0
    assert "is not a DuckDB file" in program.errors
    assert not journal_root(tmp_path / "traces.duckdb").exists()


def test_hook_that_raises_fails_only_its_episodes(tmp_path: Path) -> None:
    arguments = run_arguments(tmp_path, "--run-id", "hooked", pause=0)
    with (tmp_path / "hooks.py").open("a", encoding="utf-8") as file:
        # In these four worlds the player unlocks 1, 2, 1 and 3 achievements.
        file.write(
            "    unlocked = 0\n"
            "    def on_step(self, seen):\n"
            "        self.unlocked += len(seen.step.unlocked)\n"
            "        if self.unlocked > 1:\n"
            "            raise KeyError('oops')\n"
            "        return ()\n"
        )
    program = Program(tmp_path, *arguments)
    assert program.wait() == 0, program.errors
    assert "HookError: hook 'Slow' raised KeyError" in program.errors
    found = rows(tmp_path / "traces.duckdb", "session_traces")
    states = [row["state"] for row in sorted(found, key=lambda row: row["episode"])]
    assert states == ["result", "failure", "result", "failure"]


@pytest.mark.extras
def test_many_episodes_run_with_a_small_limit(tmp_path: Path) -> None:
    arguments = run_arguments(
        tmp_path, "--run-id", "many", "--no-save-traces", episodes=200, turns=1, pause=0
    )
    program = Program(tmp_path, *arguments, "--max-concurrent-episodes", "3")
    assert program.wait() == 0, program.errors
    assert sessions(tmp_path / "traces.duckdb", "many") == 200


def serve(folder: Path, port: int) -> Program:
    folder.mkdir(exist_ok=True)
    program = Program(folder, "serve", "--port", str(port))
    until(lambda: (folder / "stdout").exists() and "serving" in program.output, "the service")
    return program


@pytest.mark.extras
def test_restarted_service_changes_no_result(tmp_path: Path) -> None:
    for name in ("plain", "served"):
        (tmp_path / name).mkdir()
    plain = Program(
        tmp_path / "plain", *run_arguments(tmp_path / "plain", "--run-id", "same", pause=0.01)
    )
    port = free_port()
    service = serve(tmp_path / "service", port)
    arguments = run_arguments(tmp_path / "served", "--run-id", "same", pause=0.01)
    address = ("--service-url", f"http://127.0.0.1:{port}")
    program = Program(tmp_path / "served", *arguments, *address)
    program.until(lambda: program.turns >= 30, "some turns")
    service.kill()
    service = serve(tmp_path / "service", port)
    assert program.wait() == 0, program.errors
    assert plain.wait() == 0, plain.errors
    service.kill()
    tables = [contents(tmp_path / name / "traces.duckdb") for name in ("plain", "served")]
    assert tables[0] == tables[1]


@pytest.mark.extras
def test_run_exits_with_3_if_the_service_stays_down(tmp_path: Path) -> None:
    port = free_port()
    service = serve(tmp_path / "service", port)
    arguments = run_arguments(tmp_path, "--run-id", "away", pause=0.01)
    arguments += ["--service-url", f"http://127.0.0.1:{port}"]
    program = Program(tmp_path, *arguments)
    program.until(lambda: program.turns >= 30, "some turns")
    service.kill()
    assert program.wait() == 3
    assert "--resume away" in program.output
    service = serve(tmp_path / "service", port)
    again = Program(tmp_path, *arguments)
    assert again.wait() == 0, again.errors
    service.kill()
    assert sessions(tmp_path / "traces.duckdb", "away") == 4


def with_few_files(limit: str, *arguments: str) -> int:
    """Run the command with a low limit on open files and connections."""
    from assay.cli import main

    resource.setrlimit(resource.RLIMIT_NOFILE, (int(limit), int(limit)))
    return main(arguments)


@pytest.mark.extras
def test_file_descriptor_limit_bounds_open_calls(tmp_path: Path) -> None:
    with serve_models(port=0, faults=Faults(latency=0.2)) as server:
        program = Program(
            tmp_path,
            *("64", "run", "--models", "builtin/noop", "--no-baselines", "--max-turns", "1"),
            *("--episodes", "120", "--no-save-traces", "--openai-base-url", server.base_url),
            *("--database", "traces.duckdb", "--run-id", "few"),
            main=with_few_files,
        )
        assert program.wait() == 0, program.errors[-2000:]
        assert server.stats()["calls"] == 120, "none was tried in vain"
    assert sessions(tmp_path / "traces.duckdb", "few") == 120
