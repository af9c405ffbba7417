"""The training benchmark script runs from the sweeps to the verdict, and resumes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.store.store import Store
from assay.store.training_tables import runs_of_series

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "training"
SPACE = """
[fixed]
architecture = "{architecture}"
curriculum = "terrain_2"
width = 8
worlds = 8
rollout = 16
minibatches = 2
length = 12
eval_worlds = 2

[space]
learning_rate = [0.0005, 0.001]
"""
SMALL = {
    "SEEDS": "3",
    "STEPS": "1024",
    "SWEEP_STEPS": "512",
    "TRIALS": "2",
    "FRESH_SEEDS": "2",
}


def benchmark(folder: Path, config: Path) -> str:
    tools = Path(sys.executable).parent
    environment = {key: value for key, value in os.environ.items() if key != "ASSAY_DATABASE"}
    environment |= SMALL | {"CONFIG": str(config)}
    environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    script = [str(EXAMPLE / "benchmark.sh"), str(folder)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.local
def test_the_benchmark_ends_with_a_paired_verdict_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    config, folder = tmp_path / "config", tmp_path / "benchmark"
    config.mkdir()
    for architecture in ("vit_reset", "trxl"):
        text = SPACE.format(architecture=architecture)
        (config / f"{architecture}.toml").write_text(text)
    plan = (EXAMPLE / "plan.toml").read_text("utf-8")
    (config / "plan.toml").write_text(plan.replace("n = 15 ", "n = 3 "))

    printed = benchmark(folder, config)
    assert "Next: assay launch sweeps/trxl/winner.toml" in printed
    assert "The analysis follows its plan." in printed
    found = json.loads((folder / "analysis" / "analysis.json").read_text("utf-8"))
    assert found["seeds"] == [1072, 2043, 3014]
    for name in ("variance.png", "analysis.html", "analysis/learning_curves.png"):
        assert (folder / name).stat().st_size > 1000
    with Store(folder / "benchmark.duckdb").reading() as connection:
        assert len(runs_of_series(connection, "candidate")) == 3

    curves = folder / "training" / "candidate" / "candidate.trxl.seed1072" / "metrics.jsonl"
    before = curves.stat().st_mtime_ns
    assert "The analysis follows its plan." in benchmark(folder, config)
    assert curves.stat().st_mtime_ns == before
