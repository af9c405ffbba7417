"""A budget under kills, lost journals and a lost ledger: the provider never bills more."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from assay.serving import Faults, ModelServerSettings, RunningModels, running
from tests.runs.test_budget import MODEL, PRICE, billed

from .tried import Tried

__all__ = ["attack"]

_CAP = 0.4
_RUNS, _KILLS = 4, 4
_PATIENCE_S = 120


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Runs that are killed again and again, with and without their journals."""
    with running(ModelServerSettings(port=0, faults=Faults(latency=0.1, jitter=0.1))) as server:
        for executor in ("asyncio", "processes"):
            for loses in (False, True):
                what = " and journals are deleted" if loses else ""
                tried = Tried(f"{_KILLS} kills of a run with a budget{what}, {executor}")
                most = 0.0
                for number in range(_RUNS // 2):
                    server.reset()
                    where = folder / f"{executor}-{loses}-{number}"
                    _killed(where, server, chance, executor, loses=loses)
                    most = max(most, billed(server))
                    over = billed(server) > _CAP
                    tried.count(f"${billed(server):.4f} of ${_CAP:g}" if over else "")
                tried.note = f"at most ${most:.3f} of ${_CAP:g} billed"
                yield tried


def _killed(
    folder: Path, server: RunningModels, chance: random.Random, executor: str, *, loses: bool
) -> None:
    folder.mkdir()
    for _ in range(_KILLS):
        process = _started(folder, server, executor)
        calls, end = server.stats()["calls"] + chance.randrange(1, 30), time.monotonic() + 30
        while server.stats()["calls"] < calls and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
        process.wait()
        for journal in folder.glob("*.journal/*/*.jsonl") if loses else ():
            journal.unlink()
    _started(folder, server, executor).wait(_PATIENCE_S)


def _started(folder: Path, server: RunningModels, executor: str) -> "subprocess.Popen[bytes]":
    arguments = (
        *("run", *MODEL, "--openai-base-url", server.base_url, "--price", PRICE),
        *("--episodes", "8", "--max-turns", "60", "--no-save-traces", "--run-id", "spent"),
        *("--budget", str(_CAP), "--executor", executor, "--workers", "2"),
    )
    with (folder / "printed").open("ab") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            cwd=folder,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
