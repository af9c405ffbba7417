"""A dry run of a sweep shows its trials and budget without Optuna."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.training.sweep_space import Sampler, SweepPlan, read_space
from assay.training.trainers import TrialCommand
from tests.support import Program

TRAINER = Path(__file__).with_name("quick_trainer.py")
COMMAND = (
    f"{sys.executable} {TRAINER} --seed {{seed}} --total-steps {{total_steps}} "
    "--folder {folder} {options}"
)
SPACE = """
[fixed]
architecture = "trxl"
[space]
learning_rate = {low = 1e-5, high = 1e-2, log = true}
epochs = {low = 1, high = 4}
anneal = [true, false]
"""


def write_space(path: Path, text: str = SPACE) -> Path:
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Program:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_DATABASE", "t.duckdb")
    write_space(Path("space.toml"))
    return Program("sweep", "space.toml", "--folder", "sweeps/trxl")


def test_a_dry_run_shows_the_budget_and_a_command_and_starts_nothing(sweep: Program) -> None:
    done = sweep("--dry-run", "--trials", "8", "--total-steps", "1000")
    assert done.code == 0, done.errors
    words = " ".join(done.output.split())
    assert "8 trials of 1,000 steps, 8,000 at most (tpe, pruner median)" in words
    assert "on 5 new seeds, 5,000 steps" in words
    assert (
        "-m assay train --seed 1 --total-steps 1000 --folder sweeps/trxl/trial-000 --database "
        "sweeps/trxl/trial-000.duckdb --architecture trxl --learning-rate 1e-05 --epochs 1 "
        "--anneal" in words
    )
    plan = sweep.json("--dry-run", "--seed", "10", "--fresh-seeds", "3")
    assert plan["fresh_seeds"] == [11, 12, 13], "none of them is that of the search"
    assert not Path("sweeps").exists()


def test_a_sweep_without_optuna_prints_the_package_to_install(
    sweep: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install '.[train]'" in sweep.error()


def test_a_grid_has_one_trial_per_combination(tmp_path: Path) -> None:
    text = "[space]\nwidth = [64, 128]\nepochs = {low = 1, high = 3}\n"
    plan = SweepPlan(
        space=read_space(write_space(tmp_path / "s.toml", text)),
        sampler=Sampler.GRID,
        total_steps=10,
    )
    assert plan.space.list_combinations()[:3] == [
        {"width": 64, "epochs": epochs} for epochs in (1, 2, 3)
    ]
    assert (plan.planned_trials, plan.budget) == (6, 60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a = 1", "unknown table 'a'", id="table"),
        pytest.param("[space]", "is empty", id="nothing"),
        pytest.param("[space]\na = 5", "space.a is 5; give {low", id="one value"),
        pytest.param(
            "[space]\na = {low = 2, high = 1}", "low must be a number below", id="order"
        ),
        pytest.param("[space]\na = {low = 0, high = 1, log = true}", "no logarithm", id="log"),
        pytest.param("[space]\na = {low = 0, hi = 1}", "give {low", id="mistyped"),
        pytest.param("[space]\na = [[1]]", "give numbers, texts", id="a list in a list"),
        pytest.param("[fixed]\na = 1\n[space]\na = [1]", "remove one", id="twice"),
        pytest.param("space", "is not valid TOML", id="no TOML"),
    ],
)
def test_an_invalid_search_space_is_rejected_with_a_message(
    text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read_space(write_space(tmp_path / "s.toml", text))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trials", "1"], "--trials 1 is too small"),
        (["--fresh-seeds", "1"], "--fresh-seeds 1 is too small; give 2"),
        (["--sampler", "grid"], "a grid needs single values"),
        (["--command", "train.py"], "must contain {folder}"),
        (["--command", "train.py {folder} {lr}"], "choose from: {architecture}"),
    ],
    ids=str,
)
def test_wrong_command_line_gets_a_clear_error(
    arguments: list[str], words: str, sweep: Program
) -> None:
    assert words in sweep.error(*arguments, "--dry-run")


def test_a_program_is_followed_as_it_logs_and_stopped_when_pruned(
    tmp_path: Path,
) -> None:
    trainer = TrialCommand(COMMAND, "overview/reward", 100)
    seen: list[tuple[int, float]] = []

    def keep(step: int, value: float) -> bool:
        seen.append((step, round(value, 6)))
        return step < 30 or len(seen) > 11

    cut = trainer({"rate": 0.3, "pause": 0.2}, seed=0, folder=tmp_path / "a", keep=keep)
    assert cut.failure is None
    assert seen == [(0, 0.0), (10, 0.1), (20, 0.2), (30, 0.3)]
    assert len(cut.curves["overview/reward"]) < 11
    failed = trainer({"rate": -1}, seed=0, folder=tmp_path / "b", keep=keep)
    assert failed.failure == "exit code 3: rate is negative"


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    trainer = TrialCommand("no-such-trainer --out {folder}", "overview/reward", 100)
    with pytest.raises(UsageError, match="'no-such-trainer' cannot be started"):
        trainer({}, seed=0, folder=tmp_path / "a", keep=lambda step, value: True)


def test_a_program_ends_with_its_sweep_even_if_the_sweep_is_killed(
    tmp_path: Path,
) -> None:
    waits = (
        "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    )
    command = shlex.join([sys.executable, "-c", waits, str(tmp_path / "pid"), "{folder}"])
    sweep = (
        "import sys\nfrom pathlib import Path\n"
        "from assay.training.trainers import TrialCommand\n"
        "TrialCommand(sys.argv[1], 'reward', 100)({}, seed=0, folder=Path(sys.argv[2]) / 'a',"
        " keep=lambda step, value: True)"
    )
    process = subprocess.Popen([sys.executable, "-c", sweep, command, str(tmp_path)])
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while Path("/proc", pid.read_text()).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
