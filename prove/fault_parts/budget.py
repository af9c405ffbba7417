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

from .processes import EXIT_LIMIT_S, read_output, start_assay, wait_for_exit
from .tried import FaultRow, scaled_range

__all__ = ["attack"]

_BUDGET_USD = 0.4
_RUNS, _KILLS = 2, 4
_BUDGET_EXIT_CODE = 130
"""Exit code of a run that stops because the budget is spent."""


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Kill runs repeatedly, with and without their journals and ledgers."""
    with serve_models(port=0, faults=Faults(latency=0.1, jitter=0.1)) as server:
        for executor in ("processes", "asyncio"):
            for deletes_journals in (True, False):
                suffix = " and journals are deleted" if deletes_journals else ""
                kills = len(scaled_range(_KILLS))
                row = FaultRow(f"{kills} kills of a run with a budget{suffix}, {executor}")
                max_billed, alive_count = 0.0, 0
                for number in scaled_range(_RUNS):
                    server.reset()
                    run_folder = folder / f"{executor}-{deletes_journals}-{number}"
                    problem, alive = _kill_and_resume(
                        run_folder, server, chance, executor, deletes_journals=deletes_journals
                    )
                    alive_count, max_billed = (
                        alive_count + alive,
                        max(max_billed, billed(server)),
                    )
                    overspent = (
                        billed(server) > _BUDGET_USD
                        and f"${billed(server):.4f} of ${_BUDGET_USD:g}"
                    )
                    row.count(problem or overspent or "")
                row.note = (
                    f"{alive_count} killed while running;"
                    f" at most ${max_billed:.3f} of ${_BUDGET_USD:g} billed"
                )
                yield row
        missing_ledger = FaultRow(
            "the ledger is deleted after a kill", note="the run is refused, nothing is spent"
        )
        for executor in ("asyncio", "processes"):
            missing_ledger.count(
                _resume_without_ledger(folder / f"gone-{executor}", server, executor)
            )
        yield missing_ledger


def _kill_and_resume(
    folder: Path,
    server: RunningModels,
    chance: random.Random,
    executor: str,
    *,
    deletes_journals: bool,
) -> tuple[str, int]:
    """Return what went wrong, and the number of kills that hit a running process."""
    alive = 0
    for _ in scaled_range(_KILLS):
        process = _start_run(folder, server, executor)
        _wait_for_calls(server, process, chance.randrange(1, 30))
        alive += process.poll() is None
        process.kill()
        process.wait()
        for journal in folder.glob("*.journal/*/*.jsonl") if deletes_journals else ():
            journal.unlink()
    code = wait_for_exit(_start_run(folder, server, executor))
    if code not in (0, _BUDGET_EXIT_CODE) or "Traceback" in read_output(folder):
        return f"exit code {code} at the end, or a traceback", alive
    return "", alive


def _resume_without_ledger(folder: Path, server: RunningModels, executor: str) -> str:
    process = _start_run(folder, server, executor)
    _wait_for_calls(server, process, 5)
    process.kill()
    process.wait()
    (ledger,) = folder.glob("*.journal/*/ledger")
    ledger.unlink()
    # Calls that were under way may still arrive.
    time.sleep(0.5)
    calls = server.stats()["calls"]
    code = wait_for_exit(_start_run(folder, server, executor))
    new_calls = server.stats()["calls"] - calls
    return "" if (code, new_calls) == (2, 0) else f"exit code {code}, {new_calls} calls"


def _wait_for_calls(
    server: RunningModels, process: "subprocess.Popen[bytes]", calls: int
) -> None:
    """Wait until this many more calls were made, or the process has exited."""
    target, end = server.stats()["calls"] + calls, time.monotonic() + EXIT_LIMIT_S
    while server.stats()["calls"] < target and process.poll() is None:
        if time.monotonic() > end:
            return
        time.sleep(0.01)


def _start_run(folder: Path, server: RunningModels, executor: str) -> "subprocess.Popen[bytes]":
    return start_assay(
        folder,
        *("run", *MODEL, "--openai-base-url", server.base_url, "--price", PRICE),
        *("--episodes", "8", "--max-turns", "60", "--no-save-traces", "--run-id", "spent"),
        *("--budget", str(_BUDGET_USD), "--executor", executor, "--workers", "2"),
    )
