"""Shell loops from users' scripts, against a service over real HTTP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.store.store import Store

from .conftest import write_rows
from .server import Service

BATCH = """
for model in "7b" "14b" "32b"; do
    assay finetune start --backend synth crafter_quality_sft.jsonl \\
      --model "Qwen/Qwen2.5-${model}-Instruct" \\
      --epochs 3 \\
      --suffix "batch-${model}"
done
"""
PIPELINE = """
for model in "7b" "14b"; do
    assay finetune start --backend synth crafter_quality_sft.jsonl \\
      --model "Qwen/Qwen2.5-${model}-Instruct"
done
"""


def trained(script: str, folder: Path, service: Service) -> list[tuple[str, str | None]]:
    """Return the model and suffix of each job that a script started, in order."""
    write_rows(folder / "crafter_quality_sft.jsonl")
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "SYNTH_API_KEY": "sk-planted-0123456789abcdef",
        "MODAL_BASE_URL": service.root,
        "XDG_CONFIG_HOME": str(folder),
    }
    # The loops set no poll interval, so a job has to be done at the first status request.
    service.script = ("succeeded",)
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    with Store(folder / "crafter_multi_model_traces.duckdb").reading() as connection:
        found = connection.execute(
            "SELECT model, suffix FROM finetune_jobs WHERE status = 'succeeded'"
            " ORDER BY created_at"
        ).fetchall()
    return [(model, suffix) for model, suffix in found]


@pytest.mark.extras
@pytest.mark.parametrize(
    ("script", "jobs"),
    [
        pytest.param(
            BATCH,
            [(f"Qwen/Qwen2.5-{size}B-Instruct", f"batch-{size}b") for size in (7, 14, 32)],
            id="batch",
        ),
        pytest.param(
            PIPELINE,
            [(f"Qwen/Qwen2.5-{size}B-Instruct", None) for size in (7, 14)],
            id="pipeline",
        ),
    ],
)
def test_a_loop_over_lowercase_sizes_trains_one_model_per_size(
    script: str, jobs: list[tuple[str, str | None]], tmp_path: Path, service: Service
) -> None:
    assert trained(script, tmp_path, service) == jobs
    assert service.count("POST", "files") == 1
