"""`assay run` as a subprocess, which a test may interrupt, kill and start again.

Processes are forked from one that has imported assay, which saves seconds for each.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path

__all__ = ["Holder", "Program", "run_arguments", "until"]

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.runs.preload"])
_PATIENCE_S = 300

_HOOKS = """
import time
from assay.metrics import BaseHook, hook

@hook
class Slow(BaseHook):
    def on_turn(self, played):
        with open("turns", "ab") as file:
            file.write(b".")
        time.sleep({pause})
        return ()
"""


def run_arguments(
    folder: Path, *more: str, episodes: int = 4, turns: int = 20, pause: float = 0.002
) -> list[str]:
    """Return the arguments of a small run of one model.

    Its hooks slow every turn, and append a byte per turn to the file `turns`.
    """
    (folder / "hooks.py").write_text(_HOOKS.format(pause=pause), "utf-8")
    given = [
        *("run", "--no-baselines", "--hooks", "hooks.py", "--database", "traces.duckdb"),
        *("--episodes", str(episodes), "--max-turns", str(turns), *more),
    ]
    if "--models" not in more:
        given += ["--models", "builtin/random"]
    return given


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that another process fulfils; fail after a long time."""
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.001)


class Program:
    """A process in a folder; its output goes to files there."""

    def __init__(
        self, folder: Path, *arguments: str, main: Callable[..., int] | None = None
    ) -> None:
        self.folder = folder
        self._printed = folder / "stdout", folder / "stderr"
        for name in ("turns", "stdout", "stderr"):
            (folder / name).unlink(missing_ok=True)
        self._process = _CONTEXT.Process(
            target=_main_in, args=(folder, arguments, main or _assay), daemon=True
        )
        self._process.start()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def output(self) -> str:
        return self._printed[0].read_text("utf-8")

    @property
    def errors(self) -> str:
        return self._printed[1].read_text("utf-8")

    @property
    def turns(self) -> int:
        """Return the number of turns that its hook has seen."""
        try:
            return (self.folder / "turns").stat().st_size
        except FileNotFoundError:
            return 0

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the program is running."""
        until(lambda: condition() or not self.alive, what)

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the process, as the loss of a machine would."""
        self._process.kill()
        self._process.join(_PATIENCE_S)

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        self._process.join(_PATIENCE_S)
        code = self._process.exitcode
        if code is None:
            self.kill()
            raise AssertionError(f"it hangs; it said {self.errors!r}")
        return code


class Holder(Program):
    """A process that has a database open, so that no other process can write to it."""

    def __init__(self, folder: Path, database: Path) -> None:
        super().__init__(folder, str(database), main=_hold)
        until(lambda: (folder / "stdout").exists() and "held" in self.output, "the holder")


def _hold(database: str) -> int:
    import duckdb

    with duckdb.connect(database, read_only=True):
        print("held", flush=True)
        time.sleep(_PATIENCE_S)
    return 0


def _main_in(folder: Path, arguments: Sequence[str], main: Callable[..., int]) -> None:
    """Run the program in a folder; the body of the subprocess."""
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    code = main(*arguments)
    sys.stdout.flush()
    sys.exit(code)


def _assay(*arguments: str) -> int:
    from assay.cli import main

    sys.argv = ["assay", *arguments]
    return main()
