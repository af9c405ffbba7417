"""`kill -9` at random moments and at system calls; then the same command, until it is done.

Every table must equal those of a run that nobody disturbed, and an answer that a journal had
must not be asked for again. At a system call: strace lets the process die when it makes that
call for the n-th time.
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

from .processes import code_of, start_assay
from .tried import Tried, times

__all__ = ["attack", "lost_after", "start_run"]

_RANDOM = 12
_AT_CALLS = {"pwrite64": 6, "fdatasync": 4, "fsync": 4, "rename": 3, "unlink": 4, "write": 6}
"""How often a kill is tried at each."""


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Random moments, then system calls."""
    plain = folder / "plain"
    began = time.monotonic()
    code_of(start_run(plain))
    seconds = time.monotonic() - began
    undisturbed = contents(plain / "traces.duckdb")
    tried = Tried("kill -9 at a random moment")
    met = 0
    for number in times(_RANDOM):
        process = start_run(where := folder / f"random-{number}")
        time.sleep(seconds * chance.uniform(0.2, 1.0))
        met += process.poll() is None
        process.kill()
        process.wait()
        tried.count(lost_after(where, undisturbed))
    tried.note = f"{met} met it alive; tables equal, no answer asked for again"
    yield tried
    if shutil.which("strace") is None:
        return
    for call, often in _AT_CALLS.items():
        tried = Tried(f"kill -9 at {call}")
        met = 0
        for number in times(often):
            where = folder / f"{call}-{number}"
            at = chance.randrange(1, 12 * (number + 1))
            process = start_run(where, _killed_at(call, at))
            code = code_of(process)
            met += bool(code)
            tried.count("it hangs" if code is None else lost_after(where, undisturbed))
        tried.note = f"{met} came so far; the same"
        yield tried


def _killed_at(call: str, at: int) -> list[str]:
    """What starts a process that dies when it makes a system call for the n-th time."""
    return [
        *("strace", "-f", "-qq", "-o", "/dev/null"),
        *("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={at}"),
    ]


def start_run(folder: Path, before: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """Start the run that is disturbed, or go on with it."""
    folder.mkdir(exist_ok=True)
    more = ("--models", "builtin/random", "builtin/forager", "--run-id", RUN)
    arguments = run_arguments(folder, *more, episodes=8, pause=0.005)
    return start_assay(folder, *arguments, before=before)


def lost_after(folder: Path, undisturbed: object) -> str:
    """What is not as it should be after the same command was given again."""
    database = folder / "traces.duckdb"
    # A kill before the folder of the run exists may leave an empty database.
    ended = database.exists() and not (journal_root(database) / RUN).exists()
    if ended and (found := contents(database))["runs"]:
        return "" if found == undisturbed else "other tables, without a kill"
    before = journaled(folder)
    code = code_of(start_run(folder))
    if code != 0:
        return f"exit code {code} on resume"
    after = journaled(folder)
    asked = [call for call, at in before.items() if after.get(call) != at]
    if asked:
        return f"{len(asked)} answers were asked for again"
    return "" if contents(database) == undisturbed else "other tables"
