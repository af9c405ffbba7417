"""`kill -9` at random moments and at system calls; then the same command, until it is done.

Every table must equal that of an undisturbed run, and a call recorded in a journal must not be
repeated. At a system call: strace kills the process when it makes that call for the n-th
time.
"""

import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.store.run_folder import journal_root
from tests.runs.programs import run_arguments
from tests.runs.tables import contents
from tests.runs.test_kills import RUN, journaled

from .processes import start_assay, wait_for_exit
from .tried import FaultRow, scaled_range

__all__ = ["attack", "find_losses_after_resume", "start_run"]

_RANDOM_KILLS = 12
_KILLS_BY_CALL = {
    "pwrite64": 6,
    "fdatasync": 4,
    "fsync": 4,
    "rename": 3,
    "unlink": 4,
    "write": 6,
}
"""Number of kills at each system call."""


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Kill at random moments, then at system calls."""
    plain = folder / "plain"
    began = time.monotonic()
    wait_for_exit(start_run(plain))
    seconds = time.monotonic() - began
    undisturbed = contents(plain / "traces.duckdb")
    row = FaultRow("kill -9 at a random moment")
    alive_count = 0
    for number in scaled_range(_RANDOM_KILLS):
        process = start_run(run_folder := folder / f"random-{number}")
        time.sleep(seconds * chance.uniform(0.2, 1.0))
        alive_count += process.poll() is None
        process.kill()
        process.wait()
        row.count(find_losses_after_resume(run_folder, undisturbed))
    row.note = f"{alive_count} killed while running; tables equal, no call repeated"
    yield row
    if shutil.which("strace") is None:
        return
    for call, tries in _KILLS_BY_CALL.items():
        row = FaultRow(f"kill -9 at {call}")
        alive_count = 0
        for number in scaled_range(tries):
            run_folder = folder / f"{call}-{number}"
            occurrence = chance.randrange(1, 12 * (number + 1))
            process = start_run(run_folder, _strace_kill_command(call, occurrence))
            code = wait_for_exit(process)
            alive_count += bool(code)
            problem = code if isinstance(code, str) else ""
            row.count(problem or find_losses_after_resume(run_folder, undisturbed))
        row.note = f"{alive_count} reached the call; tables equal, no call repeated"
        yield row


def _strace_kill_command(call: str, occurrence: int) -> list[str]:
    """Return the command prefix that kills a process at its n-th call of this kind."""
    return [
        *("strace", "-f", "-qq", "-o", "/dev/null"),
        *("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={occurrence}"),
    ]


def start_run(folder: Path, before: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """Start the run that is killed, or resume it."""
    folder.mkdir(exist_ok=True)
    more = ("--models", "builtin/random", "builtin/forager", "--run-id", RUN)
    arguments = run_arguments(folder, *more, episodes=8, pause=0.005)
    return start_assay(folder, *arguments, before=before)


def find_losses_after_resume(folder: Path, undisturbed: object) -> str:
    """Repeat the command after a kill; return what is wrong, if anything."""
    database = folder / "traces.duckdb"
    # A kill before the folder of the run exists may leave an empty database.
    ended = database.exists() and not (journal_root(database) / RUN).exists()
    if ended and (tables := contents(database))["runs"]:
        return "" if tables == undisturbed else "the tables differ, without a kill"
    before = journaled(folder)
    code = wait_for_exit(start_run(folder))
    if code != 0:
        return f"exit code {code} on resume"
    after = journaled(folder)
    repeated = [call for call, at in before.items() if after.get(call) != at]
    if repeated:
        return f"{len(repeated)} recorded calls were repeated"
    return "" if contents(database) == undisturbed else "the tables differ"
