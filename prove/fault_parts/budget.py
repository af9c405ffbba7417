"""A budget under kills, lost journals and a lost ledger: the provider never bills more."""

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from assay.api.servers import serve_models
from assay.models.serving.app import RunningModels
from assay.models.serving.faults import Faults
from tests.runs.test_budget import MODEL, PRICE, billed

from .processes import PATIENCE_S, code_of, printed, start_assay
from .tried import Tried, times

__all__ = ["attack"]

_CAP = 0.4
_RUNS, _KILLS = 2, 4
_SPENT = 130
"""The exit code of a run that stops because nothing is left."""


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Runs that are killed again and again, with and without their journals and ledgers."""
    with serve_models(port=0, faults=Faults(latency=0.1, jitter=0.1)) as server:
        for executor in ("processes", "asyncio"):
            for loses in (True, False):
                what = " and journals are deleted" if loses else ""
                kills = len(times(_KILLS))
                tried = Tried(f"{kills} kills of a run with a budget{what}, {executor}")
                most, met = 0.0, 0
                for number in times(_RUNS):
                    server.reset()
                    where = folder / f"{executor}-{loses}-{number}"
                    lost, alive = _killed(where, server, chance, executor, loses=loses)
                    met, most = met + alive, max(most, billed(server))
                    over = billed(server) > _CAP and f"${billed(server):.4f} of ${_CAP:g}"
                    tried.count(lost or over or "")
                tried.note = f"{met} met it alive; at most ${most:.3f} of ${_CAP:g} billed"
                yield tried
        gone = Tried("the ledger is deleted after a kill", note="asked about, nothing is spent")
        for executor in ("asyncio", "processes"):
            gone.count(_without_ledger(folder / f"gone-{executor}", server, executor))
        yield gone


def _killed(
    folder: Path, server: RunningModels, chance: random.Random, executor: str, *, loses: bool
) -> tuple[str, int]:
    """What went wrong, and how many kills met the run alive."""
    alive = 0
    for _ in times(_KILLS):
        process = _started(folder, server, executor)
        _wait_for(server, process, chance.randrange(1, 30))
        alive += process.poll() is None
        process.kill()
        process.wait()
        for journal in folder.glob("*.journal/*/*.jsonl") if loses else ():
            journal.unlink()
    code = code_of(_started(folder, server, executor))
    if code not in (0, _SPENT) or "Traceback" in printed(folder):
        return f"exit code {code} in the end, or a traceback", alive
    return "", alive


def _without_ledger(folder: Path, server: RunningModels, executor: str) -> str:
    process = _started(folder, server, executor)
    _wait_for(server, process, 5)
    process.kill()
    process.wait()
    (ledger,) = folder.glob("*.journal/*/ledger")
    ledger.unlink()
    # Calls that were under way may still arrive.
    time.sleep(0.5)
    calls = server.stats()["calls"]
    code = code_of(_started(folder, server, executor))
    asked = server.stats()["calls"] - calls
    return "" if (code, asked) == (2, 0) else f"exit code {code}, {asked} calls"


def _wait_for(server: RunningModels, process: "subprocess.Popen[bytes]", calls: int) -> None:
    """Until so many more calls were made, or the process has ended."""
    wanted, end = server.stats()["calls"] + calls, time.monotonic() + PATIENCE_S
    while server.stats()["calls"] < wanted and process.poll() is None:
        if time.monotonic() > end:
            return
        time.sleep(0.01)


def _started(folder: Path, server: RunningModels, executor: str) -> "subprocess.Popen[bytes]":
    return start_assay(
        folder,
        *("run", *MODEL, "--openai-base-url", server.base_url, "--price", PRICE),
        *("--episodes", "8", "--max-turns", "60", "--no-save-traces", "--run-id", "spent"),
        *("--budget", str(_CAP), "--executor", executor, "--workers", "2"),
    )
