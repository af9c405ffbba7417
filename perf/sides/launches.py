"""`assay launch` with so many runs at once: prints a JSON line.

    python -m perf.sides.launches --parallel 2

Two launches are made, a short and a long one; what the long one takes longer, divided by its
further seeds, is left when the start of workers, which import torch once each, is taken out.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from assay.training.launch.run import launch

_SHORT, _LONG = 2, 8
_TRAINING = {"architecture": "vit_reset", "curriculum": "terrain_2", "total_steps": 12_288}


def _time_launch(folder: Path, seeds: int, parallel: int) -> float:
    began = time.perf_counter()
    done = launch(
        training={**_TRAINING, "eval_worlds": 8, "length": 200},
        base_run_name=f"of{seeds}",
        seeds=(seeds,),
        parallel=parallel,
        folder=folder / "training",
        database=folder / "launches.duckdb",
    )
    assert len(done.run_ids) == seeds
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", type=int, required=True)
    parallel = parser.parse_args().parallel
    with tempfile.TemporaryDirectory() as folder:
        short, long = (_time_launch(Path(folder), seeds, parallel) for seeds in (_SHORT, _LONG))
    print(json.dumps({"seconds": (long - short) / (_LONG - _SHORT), "start": short}))


if __name__ == "__main__":
    main()
