"""A run of ours, whole, whose model answers over HTTP: prints one JSON line and ends.

    python -m perf.sides.http_turns --episodes 16 --address http://127.0.0.1:8000

As `perf.sides.turns`, with worlds that are stubs; the model is asked as that of any provider
is, at the pace it allows.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from assay.models.pool import ModelPool
from assay.models.registry_file import load_registry
from assay.runs.run import RunResult
from perf.peers import workload
from perf.peers.usage import cpu_seconds
from perf.sides.stubs import stub_run

__all__ = ["play"]


def play(folder: Path, address: str, episodes: int, turns: int) -> RunResult:
    """Play a run into a new database."""
    folder.mkdir()
    settings = {
        "models": ["stub"],
        "baselines": False,
        "database": folder / "traces.duckdb",
        "traces_dir": folder / "traces",
        "save_traces": False,
        "episodes": episodes,
        "max_turns": turns,
    }
    pool = ModelPool(load_registry(), base_url=f"{address}/v1")
    return stub_run(settings, pool.make("stub"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--address", required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-perf-http-") as name:
        folder = Path(name)
        play(folder / "first", asked.address, 2, 10)
        before = cpu_seconds()
        result = play(folder / "run", asked.address, asked.episodes, workload.TURNS)
        cpu = cpu_seconds() - before
    turns = sum(row.turns for row in result.episodes)
    played = sum(row.steps for row in result.episodes)
    if (turns, played) != (asked.episodes * workload.TURNS, 3 * turns):
        sys.exit(f"{turns} turns with {played} steps are not the workload")
    print(json.dumps({"seconds": cpu / turns}))


if __name__ == "__main__":
    main()
