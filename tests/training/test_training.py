"""A training run is determined by its settings, even if it was stopped or killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.api.policies import plan_training
from assay.api.training_runs import list_curves, load_curves
from assay.errors import UsageError
from assay.training.architectures import ARCHITECTURES, Mlp, register
from assay.training.checkpoints import find_latest, load_policy
from assay.training.config import TrainingConfig
from assay.training.environments import TokenSpace
from assay.training.folder import TrainingFolder, TrainState
from assay.training.training_loop import TrainingProgress, train
from tests.support import run_python

pytestmark = pytest.mark.local

UPDATE = 8 * 32


class Sick(Mlp):
    """An architecture whose values are NaN from the third update on."""

    name = "sick"

    def network(self, space: TokenSpace, width: int, generator: Any) -> Any:
        network = super().network(space, width, generator)
        calls = 0

        def values(module: Any, given: Any, output: Any) -> Any:
            nonlocal calls
            calls += 1
            # An update is 32 steps, a bootstrap value, and 2 x 2 minibatches.
            late = calls > 2 * (32 + 1 + 4) and torch.is_grad_enabled()
            return output._replace(values=output.values * float("nan")) if late else output

        network.register_forward_hook(values)
        return network


def config(architecture: str = "mlp", **settings: Any) -> TrainingConfig:
    """Return a small configuration with five updates that include every kind of event."""
    return TrainingConfig(
        **{
            "architecture": architecture,
            "width": 16,
            "worlds": 8,
            "rollout": 32,
            "minibatches": 2,
            "epochs": 2,
            "total_steps": 5 * UPDATE,
            "length": 60,
            "eval_every": 2 * UPDATE,
            "eval_worlds": 4,
            "checkpoint_every": 2 * UPDATE,
            **settings,
        }
    )


def curve(folder: Path) -> list[dict[str, float]]:
    """Return the logged values, without those that vary."""
    rows = TrainingFolder(folder).read_rows()
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def policy(folder: Path) -> bytes:
    newest = find_latest(folder)
    assert newest is not None
    return (newest / "policy.safetensors").read_bytes()


@pytest.mark.parametrize("architecture", ["mlp", "vit_reset", "trxl"])
def test_a_seed_gives_the_same_curve_and_weights_despite_interruptions(
    architecture: str, tmp_path: Path
) -> None:
    whole, pieces, other = tmp_path / "whole", tmp_path / "pieces", tmp_path / "other"
    assert train(config(architecture), whole).state is TrainState.FINISHED
    stops = 0
    while train(config(architecture), pieces, stop=lambda: True).state is TrainState.STOPPED:
        stops += 1
    assert stops == 4
    assert curve(pieces) == curve(whole)
    assert [row["step"] for row in curve(whole)] == [UPDATE * n for n in range(1, 6)]
    assert policy(pieces) == policy(whole)
    train(config(architecture, seed=2), other)
    assert curve(other) != curve(whole)


def test_a_killed_run_resumes_from_its_checkpoint_and_logs_no_step_twice(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    settings: dict[str, Any] = {"total_steps": 15 * UPDATE, "eval_every": 10**6}
    train(config(**settings), whole)
    program = (
        "import sys; from pathlib import Path\n"
        "from assay.training.config import TrainingConfig\n"
        "from assay.training.training_loop import train\n"
        f"train(TrainingConfig(**{config(**settings).stored()!r}), Path(sys.argv[1]))"
    )
    started = subprocess.Popen([sys.executable, "-c", program, str(killed)])
    metrics = killed / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 5:
        assert started.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    with metrics.open("ab") as file:
        file.write(b'{"step": 99999, "half a li')
    end = train(config(**settings), killed)
    assert end.steps == 15 * UPDATE
    assert curve(killed) == curve(whole)
    assert policy(killed) == policy(whole)


def test_a_run_killed_while_it_writes_its_first_file_starts_again(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "from assay.training.config import TrainingConfig\n"
        "from assay.training.training_loop import train\n"
        "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        f"train(TrainingConfig(**{config().stored()!r}), Path(sys.argv[1]))"
    )
    run_python("-c", program, str(tmp_path), expected=-signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"]
    assert train(config(), tmp_path).state is TrainState.FINISHED


def test_the_folder_has_files_that_other_programs_can_read(tmp_path: Path) -> None:
    updates: list[TrainingProgress] = []
    end = train(config(), tmp_path / "run", watch=updates.append)
    folder = tmp_path / "run"
    assert [progress.step for progress in updates] == [UPDATE * n for n in range(1, 6)]
    assert end.checkpoint == folder / "checkpoints" / f"step-{5 * UPDATE}"
    assert (
        sorted(path.name for path in (folder / "checkpoints").iterdir())
        == [
            f"step-{5 * UPDATE}",
            f"step-{4 * UPDATE}",
        ][::-1]
    )
    assert sorted(path.name for path in end.checkpoint.iterdir()) == [
        "optimiser.safetensors",
        "policy.safetensors",
        "state.json",
    ]
    status = json.loads((folder / "status.json").read_bytes())
    assert (status["state"], status["step"]) == ("finished", 5 * UPDATE)
    assert status["checkpoint"] == f"checkpoints/step-{5 * UPDATE}"
    stored = json.loads((folder / "config.json").read_bytes())
    assert stored["config"]["seed"] == 1
    assert stored["parameters"] == config().capacity.parameters
    assert stored["provenance"]["torch"] == torch.__version__
    row = end.metrics
    assert {"overview/reward", "overview/episode_length", "crafter/score"} <= row.keys()
    assert {"losses/policy", "losses/value", "losses/entropy"} <= row.keys()
    assert {"time/steps_per_second", "time/environment", "eval/score"} <= row.keys()
    assert sum(name.startswith("achievements/") for name in row) == 22
    assert [row["step"] for row in curve(folder) if "eval/score" in row] == [
        *(2 * UPDATE, 4 * UPDATE, 5 * UPDATE)
    ]


def test_a_finished_run_is_not_trained_again_and_other_settings_are_rejected(
    tmp_path: Path,
) -> None:
    first = train(config(), tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert train(config(), tmp_path) == first
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    with pytest.raises(UsageError, match=r"learning_rate: .* -> 0\.1"):
        train(config(learning_rate=0.1), tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and does not contain a training run"):
        train(config(), tmp_path / "elsewhere")


def test_a_run_with_a_nan_loss_ends_immediately_and_names_it(tmp_path: Path) -> None:
    register(Sick)
    try:
        end = train(config("sick", eval_every=10**6), tmp_path / "run")
        again = train(config("sick", eval_every=10**6), tmp_path / "run")
    finally:
        del ARCHITECTURES["sick"]
    assert again == end
    assert (end.state, end.steps) == (TrainState.DIVERGED, 2 * UPDATE)
    assert end.reason == f"losses/value is not finite in the update after step {2 * UPDATE}"
    assert [row["step"] for row in curve(tmp_path / "run")] == [UPDATE, 2 * UPDATE]


def test_two_processes_cannot_train_in_the_same_folder(tmp_path: Path) -> None:
    def meddle(progress: TrainingProgress) -> None:
        with pytest.raises(UsageError, match="another process is training in"):
            train(config(), tmp_path)

    assert train(config(), tmp_path, watch=meddle).state is TrainState.FINISHED


def test_a_damaged_checkpoint_is_reported_with_a_remedy(tmp_path: Path) -> None:
    train(config(), tmp_path, stop=lambda: True)
    newest = find_latest(tmp_path)
    assert newest is not None
    (newest / "optimiser.safetensors").write_bytes(b"half")
    with pytest.raises(UsageError, match=rf"{newest.name}.*remove that folder"):
        train(config(), tmp_path)


def test_foreign_and_missing_weights_are_rejected(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(UsageError, match="no checkpoint found at"):
        load_policy(tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "policy.safetensors")
    with pytest.raises(UsageError, match="was not written by 'assay train'"):
        load_policy(tmp_path)
    (tmp_path / "policy.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(UsageError, match="cannot be read as weights"):
        load_policy(tmp_path)


def test_curves_are_stored_with_their_settings(tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    settings = config().stored()
    result = assay.train(folder=tmp_path / "run7", database=store, **settings)
    [listed] = list_curves(database=store)
    assert (listed.id, listed.subject, listed.seed) == ("run7", "mlp", 1)
    assert (listed.task, listed.last_step) == ("crafter/terrain_2", 5 * UPDATE)
    run = load_curves("run7", database=store)
    assert run.configuration["parameters"] == config().capacity.parameters
    assert run.provenance["assay"]
    assert len(run.curves["overview/reward"]) >= 4
    assert result.worlds == 4
    score = {evaluation.metric: evaluation for evaluation in result.evaluated}["score"]
    assert score.policy.low <= score.policy.point <= score.policy.high
    again = assay.train(resume=tmp_path / "run7", database=store)
    assert again.end.steps == 5 * UPDATE


def test_the_command_trains_stops_at_ctrl_c_and_resumes(tmp_path: Path) -> None:
    words = ["--architecture", "mlp", "--width", "16", "--worlds", "8", "--rollout", "32"]
    words += ["--minibatches", "2", "--total-steps", str(400 * UPDATE), "--eval-worlds", "4"]
    words += ["--length", "60", "--folder", "mine", "--database", "store.duckdb"]
    command = [sys.executable, "-m", "assay", "train", *words]
    started = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "mine" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
        assert started.poll() is None, "it ended before it could be stopped"
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert "Resume: assay train --resume mine" in err
    assert "parameters" in out
    stopped = json.loads((tmp_path / "mine" / "status.json").read_bytes())
    assert stopped["state"] == "stopped"
    resumed = plan_training(resume=tmp_path / "mine")
    assert resumed.done == stopped["step"] > 0
