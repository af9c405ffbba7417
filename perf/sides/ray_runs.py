"""A run on a Ray cluster of some nodes on this machine, or in one process: prints a JSON line.

    python -m perf.sides.ray_runs --nodes 2

Each node has one CPU. Two runs are played, a short and a long one; what the long one takes
longer, divided by its further episodes, is left when the start of workers is taken out. With
no nodes, one process plays.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from assay.api.runs import run

_SHORT, _LONG = 8, 40
_STORE_BYTES = 80 << 20


def _start_cluster(nodes: int) -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(**node)
    return cluster


def _time_run(folder: Path, episodes: int, settings: dict[str, Any]) -> float:
    began = time.perf_counter()
    run(
        models=["builtin/expert"],
        episodes=episodes,
        max_turns=100,
        baselines=False,
        save_traces=False,
        fresh=True,
        database=folder / f"{episodes}.duckdb",
        traces_dir=folder / "traces",
        **settings,
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=0)
    nodes = parser.parse_args().nodes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings: dict[str, Any] = {}
        if nodes:
            cluster = _start_cluster(nodes)
            stack.callback(cluster.shutdown)
            settings = {"executor": "ray", "ray_address": cluster.address, "workers": nodes}
        _time_run(folder, 1, settings)
        short, long = (_time_run(folder, count, settings) for count in (_SHORT, _LONG))
    print(json.dumps({"seconds": (long - short) / (_LONG - _SHORT), "start": short}))


if __name__ == "__main__":
    main()
