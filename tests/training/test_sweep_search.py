"""A search finds good settings, resumes, and tests the winner on fresh seeds."""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import UsageError
from assay.store.store import Store
from assay.store.training_runs import TrainingRun, make_curve
from assay.store.training_tables import load_training_runs
from assay.training.sweep import search
from assay.training.sweep_space import Pruner, Sampler, SweepPlan, read_space
from assay.training.trainers import Trained
from tests.support import Program
from tests.training.test_sweep_plan import COMMAND, write_space

pytest.importorskip("optuna", reason="Optuna is not installed: pip install '.[train]'")
pytestmark = pytest.mark.extras

METRIC = "overview/reward"
STEPS = range(0, 101, 10)
SPACE = "[fixed]\ndepth = 2\n[space]\nrate = {low = 0.0, high = 1.0}\n"


class Quick:
    """An instant trainer that is best at rate 0.3, plus noise by seed; it records its calls."""

    def __init__(self, breaks_at: int | None = None, step: int = 0) -> None:
        self.calls: list[tuple[str, float, int]] = []
        self._breaks_at, self._step = breaks_at, step

    def __call__(
        self,
        options: Mapping[str, Any],
        *,
        seed: int,
        folder: Path,
        keep: Callable[[int, float], bool],
    ) -> Trained:
        assert options["depth"] == 2
        self.calls.append((folder.name, options["rate"], seed))
        level = 1 - (options["rate"] - 0.3) ** 2 + 0.01 * np.random.default_rng(seed).normal()
        points = []
        for step in STEPS:
            if len(self.calls) == self._breaks_at and step == self._step:
                raise KeyboardInterrupt
            points.append((step, level * step / 100))
            if not keep(*points[-1]):
                break
        steps, values = zip(*points, strict=True)
        return Trained({METRIC: make_curve(steps, values)})


def plan(tmp_path: Path, text: str = SPACE, **more: Any) -> SweepPlan:
    space = read_space(write_space(tmp_path / "space.toml", text))
    return SweepPlan(space=space, **{"total_steps": 100, "trials": 25, **more})


def test_tpe_finds_good_settings_and_the_winner_runs_on_unseen_seeds(
    tmp_path: Path,
) -> None:
    trainer, stored = Quick(), list[TrainingRun]()
    found = search(plan(tmp_path), tmp_path / "trxl", trainer, record=stored.append)
    assert found.winner is not None
    assert abs(found.winner.options["rate"] - 0.3) < 0.1
    assert {trial.state for trial in found.trials} == {"complete", "pruned"}
    assert found.steps < found.plan.budget
    assert len(found.trials) == 25
    fresh = trainer.calls[25:]
    assert [seed for _, _, seed in fresh] == [2, 3, 4, 5, 6]
    assert {rate for _, rate, _ in fresh} == {found.winner.options["rate"]}
    assert {seed for _, _, seed in trainer.calls[:25]} == {1}
    mean = found.fresh_mean
    assert mean is not None
    assert mean.low < mean.point < mean.high
    assert mean.point == pytest.approx(np.mean([trial.value for trial in found.fresh]))
    assert [run.id for run in stored][-1] == "trxl/winner.seed6"
    assert {run.series for run in stored} == {"trxl", "trxl.winner"}
    pruned = next(trial for trial in found.trials if trial.state == "pruned")
    [lost] = [run for run in stored if run.id == f"trxl/{pruned.folder}"]
    assert lost.status == "crashed"
    assert lost.configuration == {"depth": 2, **pruned.options, "total_steps": 100}


def test_an_interrupted_sweep_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    first = Quick(breaks_at=4)
    with pytest.raises(KeyboardInterrupt):
        search(plan(tmp_path, trials=6), tmp_path / "a", first)
    second = Quick()
    found = search(plan(tmp_path, trials=6), tmp_path / "a", second)
    assert second.calls[0] == first.calls[3], "the one that was cut off, in its folder"
    names = [name for name, _, _ in second.calls[:3]]
    assert names == ["trial-003", "trial-004", "trial-005"]
    assert len({trial.options["rate"] for trial in found.trials}) == 6
    third = Quick()
    again = search(plan(tmp_path, trials=6), tmp_path / "a", third)
    assert third.calls == []
    assert again.trials == found.trials
    assert json.loads((tmp_path / "a" / "sweep.json").read_text("utf-8"))["trials"] == 6


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.RANDOM])
@pytest.mark.parametrize("pruner", [Pruner.MEDIAN, Pruner.HALVING])
def test_a_sweep_interrupted_in_every_trial_tries_the_same_values(
    tmp_path: Path, sampler: Sampler, pruner: Pruner
) -> None:
    settings = plan(tmp_path, trials=20, sampler=sampler, pruner=pruner, fresh_seeds=2)
    undisturbed = search(settings, tmp_path / "a", Quick())
    for number in range(40):
        # Each process finishes one trial and is interrupted in the next one.
        with suppress(KeyboardInterrupt):
            search(settings, tmp_path / "b", Quick(2, step=10 * (number % 4)))
    disturbed = search(settings, tmp_path / "b", Quick())
    assert disturbed.trials == undisturbed.trials
    assert "pruned" in {trial.state for trial in disturbed.trials}
    assert disturbed.fresh == undisturbed.fresh


def test_a_sweep_of_an_earlier_version_resumes(tmp_path: Path) -> None:
    """The sweep was killed in its fifth trial, whose values were drawn differently."""
    shutil.copytree(Path(__file__).parent / "kept", tmp_path / "a")
    before = json.loads((tmp_path / "a" / "results.json").read_text("utf-8"))["trials"]
    trainer = Quick()
    found = search(plan(tmp_path, trials=8), tmp_path / "a", trainer)
    assert [asdict(trial) for trial in found.trials[:4]] == before
    assert trainer.calls[0] == ("trial-004", 0.14675589081711304, 1)
    assert len({trial.options["rate"] for trial in found.trials}) == 8


def test_a_grid_is_run_in_order_and_resumed(tmp_path: Path) -> None:
    text = "[fixed]\ndepth = 2\n[space]\nrate = [0.1, 0.2, 0.3, 0.9]\n"
    grid = plan(tmp_path, text, sampler=Sampler.GRID, pruner=Pruner.NONE, minimize=True)
    with pytest.raises(KeyboardInterrupt):
        search(grid, tmp_path / "a", Quick(breaks_at=2))
    found = search(grid, tmp_path / "a", Quick())
    assert [trial.options["rate"] for trial in found.trials] == [0.1, 0.2, 0.3, 0.9]
    assert found.winner == found.trials[-1], "less is better here"


def test_a_folder_of_another_sweep_is_rejected(tmp_path: Path) -> None:
    search(plan(tmp_path, trials=2, fresh_seeds=2), tmp_path / "a", Quick())
    with pytest.raises(UsageError, match="a different trials, metric"):
        search(plan(tmp_path, trials=3, fresh_seeds=2, metric="x"), tmp_path / "a", Quick())


def test_the_command_works_with_any_program_and_stores_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_DATABASE", "t.duckdb")
    write_space(Path("space.toml"), "[space]\nrate = [-1.0, 0.25, 0.9]\n")
    sweep = Program("sweep", "space.toml", "--folder", "sweeps/quick")
    arguments = ["--sampler", "grid", "--total-steps", "100", "--fresh-seeds", "2"]
    done = sweep(*arguments, "--command", COMMAND)
    assert done.code == 0, done.errors
    assert "trial-000: failed, exit code 3: rate is negative (rate -1)" in done.errors
    words = " ".join(done.output.split())
    assert "trial-001 was the best of 3" in words
    assert "On 2 new seeds its mean is" in words
    found = sweep.json(*arguments, "--command", COMMAND)
    assert [trial["state"] for trial in found["trials"]] == ["failed", "complete", "complete"]
    with Store(tmp_path / "t.duckdb").reading() as connection:
        runs = {run.id: run for run in load_training_runs(connection)}
    assert set(runs) == {
        *(f"quick/trial-00{at}" for at in range(3)),
        *("quick/winner.seed2", "quick/winner.seed3"),
    }
    assert runs["quick/trial-001"].configuration == {"rate": 0.25, "total_steps": 100}
    broken = sweep.error("--sampler", "grid", "--trials", "2", "--command", COMMAND)
    assert "contains a sweep with a different" in broken
