"""Settings of training, and the dry run without torch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.api.policies import plan_training
from assay.errors import UsageError
from assay.training.config import TrainingConfig


def test_options_override_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[training]\narchitecture = "mlp"\nseed = 3\n[ppo]\nworlds = 16\n')
    plan = plan_training(file, seed=7, minibatches=4)
    config = plan.config
    assert (config.architecture, config.seed, config.worlds) == ("mlp", 7, 16)
    assert plan.sources["seed"] == "command line"
    assert plan.sources["worlds"] == f"{file} [ppo] worlds"
    assert plan.folder == Path("training/terrain_2.mlp.seed7")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"architecture": "vit_rest"}, "did you mean 'vit_reset'", id="name"),
        pytest.param({"curriculum": "terrain_9"}, "unknown curriculum", id="curriculum"),
        pytest.param({"gamma": 1.5}, "a number from 0 to 1", id="bounds"),
        pytest.param({"minibatches": 7}, "does not divide 64 worlds", id="minibatches"),
        pytest.param({"width": 33}, "a multiple of 8", id="width"),
        pytest.param({"wandb": "on"}, "'off' or 'offline' or 'online'", id="wandb"),
    ],
)
def test_invalid_settings_are_rejected_with_the_allowed_values(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        TrainingConfig(**settings)


def test_a_dry_run_shows_size_and_settings_without_loading_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from assay.cli import main\n"
        "code = main(['train', '--dry-run', '--json', '--architecture', 'trxl'])\n"
        "assert 'torch' not in sys.modules and 'numba' not in sys.modules\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=tmp_path, check=True
    )
    plan = json.loads(done.stdout)
    assert plan["config"]["width"] == 32
    assert plan["parameters"] > 100_000
    assert plan["training_flops_per_step"] == 10 * plan["flops_per_step"]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_later_version_is_rejected_by_name(tmp_path: Path) -> None:
    config = {"format": "assay-training/1", "config": {"colour": "red"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        UsageError, match=r"settings that this version of assay does not support.*'colour'"
    ):
        plan_training(resume=tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a valid file of a training run"):
        plan_training(resume=tmp_path)


def test_resuming_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not contain a training run"):
        plan_training(resume=tmp_path)
    with pytest.raises(UsageError, match="omit the file"):
        plan_training(resume=tmp_path, folder=tmp_path)
