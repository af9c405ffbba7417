"""`kill -9` at random moments and at system calls; then the same command, until it is done.

Every table must equal those of a run that nobody disturbed, and an answer that a journal had
must not be asked for again. At a system call: strace lets the process die when it makes that
call for the n-th time.
"""

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.runs.programs import run_arguments
from tests.runs.tables import contents
from tests.runs.test_kills import RUN, journaled

from .tried import Tried

__all__ = ["attack"]

_RANDOM = 12
_AT_CALLS = {"pwrite64": 8, "fdatasync": 6, "fsync": 4, "rename": 4, "unlink": 4, "write": 8}
_PATIENCE_S = 120


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Random moments, then system calls."""
    plain = folder / "plain"
    began = time.monotonic()
    _started(plain).wait(_PATIENCE_S)
    seconds = time.monotonic() - began
    undisturbed = contents(plain / "traces.duckdb")
    tried = Tried("kill -9 at a random moment", note="tables equal, no answer asked again")
    for number in range(_RANDOM):
        process = _started(where := folder / f"random-{number}")
        time.sleep(seconds * chance.uniform(0.2, 1.0))
        process.kill()
        process.wait()
        tried.count(_lost(where, undisturbed))
    yield tried
    if shutil.which("strace") is None:
        return
    for call, times in _AT_CALLS.items():
        tried = Tried(f"kill -9 at {call}", note="the same")
        landed = 0
        for number in range(times):
            at = chance.randrange(1, 12 * (number + 1))
            inject = f"inject={call}:signal=SIGKILL:when={at}"
            strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
            process = _started(where := folder / f"{call}-{number}", [*strace, "-e", inject])
            process.wait(_PATIENCE_S)
            landed += process.returncode != 0
            tried.count(_lost(where, undisturbed))
        tried.note = f"the same; {landed} were killed there"
        yield tried


def _started(folder: Path, before: list[str] | None = None) -> "subprocess.Popen[bytes]":
    folder.mkdir(exist_ok=True)
    more = ("--models", "builtin/random", "builtin/forager", "--run-id", RUN)
    arguments = run_arguments(folder, *more, episodes=8, pause=0.005)
    with (folder / "printed").open("ab") as printed:
        return subprocess.Popen(
            [*(before or ()), sys.executable, "-m", "assay", *arguments],
            cwd=folder,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )


def _lost(folder: Path, undisturbed: object) -> str:
    """What is not as it should be after the same command was given again."""
    database = folder / "traces.duckdb"
    if database.exists() and not (folder / "traces.duckdb.journal" / RUN).exists():
        # It had come to its end.
        return "" if contents(database) == undisturbed else "other tables, without a kill"
    before = journaled(folder)
    again = _started(folder)
    code = again.wait(_PATIENCE_S)
    if code != 0:
        return f"exit code {code} on resume"
    after = journaled(folder)
    asked = [call for call, at in before.items() if after.get(call) != at]
    if asked:
        return f"{len(asked)} answers were asked for again"
    return "" if contents(database) == undisturbed else "other tables"
