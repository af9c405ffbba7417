"""A run of ours, whole: prints one JSON line and ends.

    python -m perf.sides.turns --episodes 16 --turns 100 --open 1000 [--real] [--traces]
        [--bare] [--ledger]

Everything of `assay run` is in it but the display: plan, agent, hooks, journals, the writer
and its database, the results. The model and the worlds are stubs, or with --real those that
come with assay. With --bare the lines of journals have no hash of the line before, and nobody
brings them to disk, which is what both are measured against. With --ledger the model sets
money aside for every call, and what it costs is written to a ledger, as with --budget. A small
run before the clock starts imports and compiles all there is.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from zlib import crc32

from assay.api.run_preparation import prepare
from assay.api.runs import run_prepared
from assay.models.budget import Budget
from assay.runs.run import RunResult
from assay.runs.spending import Ledger
from assay.store.journal import Journal
from assay.types import TrialState
from perf.peers.usage import cpu_seconds, memory_bytes, peak_bytes
from perf.sides.stubs import StubModel, stub_run

__all__ = ["play"]


def play(
    folder: Path, *, real: bool, traces: bool = False, ledger: bool = False, **settings: Any
) -> RunResult:
    """Play a run into a new database."""
    folder.mkdir()
    budget = None
    if ledger:
        log = Ledger(folder / "ledger")
        log.begin(0)
        budget = Budget(1e6, log=log)
    chosen = {
        "models": ["builtin/random" if real else "stub"],
        "baselines": False,
        "database": folder / "traces.duckdb",
        "traces_dir": folder / "traces",
        "save_traces": traces,
        **settings,
    }
    if real:
        return run_prepared(prepare(chosen))
    return stub_run(chosen, StubModel(budget))


def _append_bare(journal: Journal, body: bytes, flags: int = 0) -> None:
    descriptor = os.open(journal.path, os.O_WRONLY | os.O_APPEND | flags, 0o666)
    os.write(descriptor, b"%08x %s\n" % (crc32(body), body))
    os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--open", type=int, required=True)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--traces", action="store_true")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    asked = parser.parse_args()
    if asked.bare:
        Journal.append = _append_bare  # type: ignore[method-assign, assignment]
    kind = {"real": asked.real, "traces": asked.traces, "ledger": asked.ledger}
    with tempfile.TemporaryDirectory(prefix="assay-perf-turns-") as name:
        folder = Path(name)
        play(folder / "first", episodes=2, max_turns=10, **kind)
        memory, before = memory_bytes(), cpu_seconds()
        result = play(
            folder / "run",
            episodes=asked.episodes,
            max_turns=asked.turns,
            max_concurrent_episodes=asked.open,
            **kind,
        )
        cpu = cpu_seconds() - before
        disk = result.database.stat().st_size
    turns = sum(row.turns for row in result.episodes)
    good = sum(row.state is TrialState.RESULT for row in result.episodes)
    if good != asked.episodes:
        sys.exit(f"{good} episodes of {asked.episodes} ended as a result")
    answer = {
        "seconds": cpu / turns,
        "turns": turns,
        "peak_bytes": peak_bytes(),
        "grown_bytes": peak_bytes() - memory,
        "disk_bytes": disk / turns,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
