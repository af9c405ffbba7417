"""Launches: one training configuration for many seeds, with any trainer, despite failures."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.cli import main
from assay.errors import UsageError
from assay.runs.events import Event
from assay.store.journal import read_journal
from assay.store.run_folder import unfinished_runs
from assay.store.store import Store
from assay.store.training_runs import TrainingRun
from assay.store.training_tables import load_training_runs
from assay.training.launch.kind import SEEDS, resolve_seeds
from assay.training.launch.manifest import read_launch_manifest
from assay.training.launch.run import LaunchResult, prepare_launch
from assay.training.trainers import fill_command
from tests.cli.test_live_view import Terminal
from tests.runs.places import Place
from tests.runs.programs import Program
from tests.support import run_python

TRAINER = Path(__file__).parent / "trainer.py"


def template(pause: float = 0.0, fails: str = "never") -> str:
    words = [sys.executable, str(TRAINER), "{seed}", "{folder}", str(pause), fails]
    return shlex.join(words).replace("'{seed}'", "{seed}").replace("'{folder}'", "{folder}")


def launch(place: Path, **settings: Any) -> LaunchResult:
    chosen: dict[str, Any] = {
        "command": template(),
        "base_run_name": "pilot",
        "architecture": "mine",
        "seeds": (2,),
        "folder": place / "training",
        "database": place / "t.duckdb",
        "retries": 0,
    }
    return assay.launch(**{**chosen, **settings})


def stored(folder: Path) -> dict[str, TrainingRun]:
    with Store(folder / "t.duckdb").reading() as connection:
        return {run.id: run for run in load_training_runs(connection)}


def test_seeds_are_the_fixed_list_its_start_or_the_given_ones() -> None:
    assert resolve_seeds() == SEEDS[:15]
    assert (SEEDS[0], SEEDS[14], SEEDS[15], SEEDS[29]) == (1072, 15866, 16937, 31931)
    assert len(set(SEEDS)) == 30
    assert resolve_seeds([20]) == SEEDS[:20]
    assert resolve_seeds([7, 8]) == (7, 8)
    assert resolve_seeds([31]) == (31,)
    with pytest.raises(UsageError, match="seed 7 is given twice"):
        resolve_seeds([7, 7])
    with pytest.raises(
        UsageError, match="--seeds 0 is not a valid number of seeds; give 1 to 30"
    ):
        resolve_seeds([0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train {folder}", "must contain {seed}; without it every run would be the same"),
        ("train {seed}", "must contain {folder}"),
        ("train {seed} {folder} {sed}", "unknown placeholder {sed}.*allowed are {seed}"),
        ("train {seed} {folder} 'x", "is not a valid template: No closing quotation"),
    ],
)
def test_an_invalid_command_is_rejected(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fill_command(text, {"seed": "1", "folder": "f"})


def test_placeholders_in_a_command_are_filled_in_word_by_word() -> None:
    values = {"seed": "7", "folder": "a folder", "run_id": "x"}
    words = fill_command("python t.py --seed={seed} '{folder}/{{x}}' {run_id}", values)
    assert words == ["python", "t.py", "--seed=7", "a folder/{x}", "x"]


@pytest.mark.extras
def test_a_launch_stores_curves_a_manifest_and_one_experiment(tmp_path: Path) -> None:
    result = launch(tmp_path, command=template(fails="once"), retries=1)
    assert result.run.status == "finished"
    assert result.run_ids == ("pilot.mine.seed1072", "pilot.mine.seed2043")
    runs = stored(tmp_path)
    assert [run.seed for run in runs.values()] == [1072, 2043]
    for run in runs.values():
        assert (run.series, run.subject, run.status) == ("pilot", "mine", "finished")
        assert run.task == "crafter/terrain_2"
        # Both were resumed at step 50, and have no step twice.
        curve = run.curves["overview/reward"]
        assert [*curve.steps_P] == [*range(10, 101, 10)]
        assert curve.repeated == 0
        assert run.configuration["command"] == template(fails="once")
        assert run.provenance["launch"]["base_run_name"] == "pilot"
        place = tmp_path / "training" / "pilot"
        assert (place / run.id / "starts").read_text() == "0\n50\n"
        assert "$ " in (place / "logs" / f"{run.id}.log").read_text("utf-8")
    names = {path.name for path in (tmp_path / "training/pilot/manifest").iterdir()}
    assert names == {
        *("benchmark_git_hash.txt", "dirty.diff", "seeds.txt", "run_ids.txt", "config.json"),
        *("difference.txt", "versions.json", "trainer_changes.diff", "manifest.json"),
    }
    with Store(tmp_path / "t.duckdb").reading() as connection:
        query = "SELECT count(*), count(DISTINCT experiment_id), any_value(kind) FROM trials"
        assert connection.execute(query).fetchone() == (2, 1, "training")
        count = connection.execute("SELECT count(*) FROM experiments").fetchone()
    assert count == (1,)


@pytest.mark.extras
def test_an_extended_benchmark_is_one_set_of_runs(tmp_path: Path) -> None:
    launch(tmp_path)
    with pytest.raises(
        UsageError, match="'pilot' is finished with another configuration: seeds"
    ):
        launch(tmp_path, seeds=(4,))
    where: dict[str, Any] = {"folder": tmp_path / "training", "database": tmp_path / "t.duckdb"}
    result = assay.launch(extend="pilot", seeds=(3,), **where)
    assert result.run_ids == tuple(f"pilot.mine.seed{seed}" for seed in SEEDS[:3])
    with Store(tmp_path / "t.duckdb").reading() as connection:
        query = "SELECT count(*), count(DISTINCT experiment_id) FROM trials"
        assert connection.execute(query).fetchone() == (3, 1)
    facts = [run.provenance["launch"]["extended_from"] for run in stored(tmp_path).values()]
    assert sorted(facts) == [0, 0, 2]
    listed = (tmp_path / "training/pilot/manifest/seeds.txt").read_text()
    assert listed == "1072\n2043\n3014\n"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"seeds": (7, 8)}, "has seed 1072, which is missing in --seeds"),
        ({"seeds": (5,), "architecture": "x"}, "leave out --architecture"),
    ]
    for settings, words in refused:
        with pytest.raises(UsageError, match=words):
            assay.launch(extend="pilot", **where, **settings)
    again = assay.launch(extend="pilot", seeds=(3,), **where)
    assert (again.run_ids, again.run.status) == (result.run_ids, "finished")
    with pytest.raises(UsageError, match=r"no benchmark 'pilo' in .*there are: pilot"):
        assay.launch(extend="pilo", **where)


DIES = """
import os, sys
from assay.training.launch.run import launch_prepared, prepare_launch
prepared = prepare_launch(eval(sys.argv[1]), base_run_name=eval(sys.argv[2]))
assert launch_prepared(prepared).run.status == "finished"
os._exit(9)
"""


@pytest.mark.extras
@pytest.mark.parametrize("name", ["pilot", None])
def test_a_finished_launch_is_shown_and_not_repeated(
    tmp_path: Path, name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        **{"command": template(), "architecture": "mine", "seeds": (2,)},
        **{"folder": f"{tmp_path}/training", "database": f"{tmp_path}/t.duckdb"},
    }
    run_python("-c", DIES, repr(settings), repr(name), expected=9)
    (place,) = (tmp_path / "training").iterdir()
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    words = ["launch", "--command", template(), "--architecture", "mine", "--seeds", "2"]
    words += ["--folder", settings["folder"], "--database", settings["database"]]
    words += ["--base-run-name", name] if name else []
    assert main(words) == 0
    output = capsys.readouterr()
    assert f"2 of 2 runs finished: {place}" in output.out
    assert f"variance {place.name}.mine.seed1072 {place.name}.mine.seed2043" in output.out
    assert f"launch {place.name!r} is already finished; its result follows" in output.err
    del before[place / "unshown"]
    assert before == {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert main([*words, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["base_run_name"] == place.name) is (name is not None)


@pytest.mark.extras
def test_a_failed_seed_is_named_and_retried_by_the_same_command(
    tmp_path: Path,
) -> None:
    first = launch(tmp_path, command=template(fails="always"))
    assert first.failed == ("pilot.mine.seed1072", "pilot.mine.seed2043")
    assert first.run.status == "incomplete"
    assert {run.status for run in stored(tmp_path).values()} == {"crashed"}
    (folder,) = unfinished_runs(tmp_path / "t.duckdb")
    # The journal names the last checkpoint.
    checkpoints = [played.asked for played in read_journal(folder.journals()[0]).played]
    assert checkpoints == [("checkpoints/step-50",)]
    second = launch(tmp_path, command=template(fails="always"))
    assert second.run.resumed
    place = tmp_path / "training" / "pilot" / "pilot.mine.seed1072"
    assert (place / "starts").read_text() == "0\n50\n"


@pytest.mark.extras
def test_a_trainer_without_metrics_fails_with_the_expected_format(tmp_path: Path) -> None:
    events: list[Any] = []
    command = f"{shlex.quote(sys.executable)} -c pass {{seed}} {{folder}}"
    result = launch(tmp_path, command=command, seeds=(1,), listen=events.append)
    assert result.diverged == ("pilot.mine.seed1072",)
    errors = [str(event.verdict.error) for event in events if hasattr(event, "verdict")]
    assert any("it must write metrics.jsonl" in error for error in errors)


@pytest.mark.extras
def test_changes_of_the_trainer_since_the_last_benchmark_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        done = subprocess.run(
            ["git", *identity, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    Path("net.py").write_text("width = 1\n")
    Path(".gitignore").write_text("training\nt.duckdb*\n")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    launch(tmp_path, folder=Path("training"))
    manifest = Path("training/pilot/manifest")
    assert (manifest / "benchmark_git_hash.txt").read_text() == f"{commit}\n"
    Path("net.py").write_text("width = 2\n")
    settings: dict[str, Any] = {"command": template(), "seeds": (2,)}
    settings["architecture"] = "other"
    settings |= {"folder": Path("training"), "database": Path("t.duckdb")}
    prepared = prepare_launch(settings, base_run_name="next", control="pilot")
    assert prepared.changes is not None
    assert prepared.changes.since == commit
    assert "1 file changed" in prepared.changes.stat
    assert prepared.difference == ("architecture: 'mine' -> 'other'",)
    with pytest.raises(UsageError, match="--since 'nowhere' is not a commit"):
        prepare_launch(settings, base_run_name="next", since="nowhere")


@pytest.mark.extras
def test_a_killed_launch_ends_its_trainers_and_can_be_resumed(
    tmp_path: Path,
) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.training.test_launch import *; "
        "launch(Path(sys.argv[1]), command=template(fails='waits'), parallel=2)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=_ROOT)
    place = tmp_path / "training" / "pilot"
    checkpoints = [
        place / f"pilot.mine.seed{seed}" / "checkpoints/step-50" for seed in SEEDS[:2]
    ]
    while not all(path.exists() for path in checkpoints):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (place / "go").touch()
    result = launch(tmp_path, command=template(fails="waits"), parallel=2)
    assert result.run.status == "finished"
    for run in stored(tmp_path).values():
        assert [*run.curves["overview/reward"].steps_P] == [*range(10, 101, 10)]
    for path in checkpoints:
        assert (path.parents[1] / "starts").read_text() == "0\n50\n"


_ROOT = Path(__file__).parents[2]


@pytest.mark.extras
def test_ctrl_c_stops_the_trainers_and_the_printed_command_finishes_the_rest(
    tmp_path: Path,
) -> None:
    words = ["launch", "--command", template(fails="waits"), "--seeds", "3", "--parallel", "2"]
    words += ["--base-run-name", "pilot", "--architecture", "mine", "--database", "t.duckdb"]
    program = Program(tmp_path, *words)
    checkpoint = tmp_path / "training/pilot/pilot.mine.seed1072/checkpoints/step-50"
    program.until(checkpoint.exists, "a checkpoint")
    program.interrupt()
    assert program.wait() == 130, program.errors
    again = "launch --resume pilot.mine --database t.duckdb"
    assert again in program.output
    (tmp_path / "training/pilot/go").touch()
    program = Program(tmp_path, *again.split())
    assert program.wait() == 0, program.errors
    assert "3 of 3 runs finished" in program.output
    assert "variance pilot.mine.seed1072 pilot.mine.seed2043" in program.output
    for run in stored(tmp_path).values():
        assert [*run.curves["overview/reward"].steps_P] == [*range(10, 101, 10)]


def test_a_terminal_shows_the_progress_of_each_run_below_log_lines(tmp_path: Path) -> None:
    terminal = Terminal(
        *("launch", "--command", template(0.05), "--seeds", "2", "--base-run-name", "pilot"),
        *("--architecture", "mine", "--folder", str(tmp_path / "training")),
        *("--database", str(tmp_path / "t.duckdb")),
    )
    assert terminal.end() == 0
    assert "pilot.mine.seed1072 started" in terminal.text
    assert "[2/2] pilot.mine.seed" in terminal.text
    assert "0 of 2 runs ended; pilot.mine.seed1072: st" in terminal.text


@pytest.mark.ray
def test_a_launch_on_a_cluster_has_one_run_per_slot_and_survives_a_kill(
    tmp_path: Path, cluster: Any
) -> None:
    most, notices = 0, list[str]()
    place = Place({}, cluster)
    killed: list[int] = []

    def listen(event: Event) -> None:
        nonlocal most
        most = max(most, len(place.workers()))
        checkpoint = getattr(getattr(event, "payload", None), "checkpoint", None)
        if checkpoint and not killed:
            killed.extend(place.workers())
            os.kill(killed[0], signal.SIGKILL)

    result = launch(
        tmp_path,
        command=template(pause=0.05),
        seeds=(3,),
        executor="ray",
        ray_address=cluster.address,
        listen=listen,
        notice=notices.append,
    )
    assert result.run.status == "finished"
    assert 1 <= most <= 2
    assert any("was killed by SIGKILL" in line for line in notices), notices
    for run in stored(tmp_path).values():
        assert [*run.curves["overview/reward"].steps_P] == [*range(10, 101, 10)]
    assert place.workers() == []


def test_a_launch_never_starts_more_runs_than_the_machine_can_hold() -> None:
    config = prepare_launch(
        {"command": template(), "seeds": (30,)}, base_run_name="many"
    ).config
    assert config.max_parallel <= len(os.sched_getaffinity(0))


def test_settings_of_another_trainer_are_rejected() -> None:
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (
            {"command": template()},
            {"total_steps": 5},
            "--total-steps applies to the built-in trainer",
        ),
        ({}, {"seed": 5}, "a launch has many seeds; give --seeds"),
        ({"architecture": "vit"}, {}, "unknown architecture 'vit'"),
    ]
    for settings, training, words in refused:
        with pytest.raises(UsageError, match=words):
            prepare_launch(settings, training, base_run_name="x")


def test_oversized_manifest_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "pilot" / "manifest" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(UsageError, match="is not a valid launch manifest: maximum recursion"):
        read_launch_manifest(tmp_path, "pilot")
    os.truncate(path, (16 << 20) + 1)
    with pytest.raises(UsageError, match="it has 16,777,217 bytes; the limit is 16,777,216"):
        read_launch_manifest(tmp_path, "pilot")
