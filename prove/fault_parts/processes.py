"""Runs of the program in a separate process, as a user starts it, with its output in a file."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["EXIT_LIMIT_S", "read_output", "start_assay", "wait_for_exit"]

EXIT_LIMIT_S = 600
"""Time limit for a command. On a busy machine some take more than a minute."""


def start_assay(
    folder: Path,
    *arguments: str,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    before_start: Callable[[], None] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a command in a folder.

    Args:
        folder: Working directory; created if it is missing.
        arguments: Arguments of the command.
        before: A program that starts it, such as strace.
        environment: Additional environment variables.
        before_start: Called first in the new process.
    """

    def begin() -> None:
        # Background jobs of a shell ignore Ctrl-C, and their children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if before_start is not None:
            before_start()

    folder.mkdir(exist_ok=True)
    with (folder / "printed").open("ab") as file:
        return subprocess.Popen(
            [*before, sys.executable, "-m", "assay", *arguments],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=begin,
            start_new_session=True,
        )


def wait_for_exit(
    process: "subprocess.Popen[bytes]", seconds: float = EXIT_LIMIT_S
) -> int | str:
    """Return the exit code, or the state of a process that did not exit and was killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        state = f"still running after {seconds:g} s ({_describe_state(process.pid)})"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return state


def _describe_state(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    cpu_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return f"state {status['State']}, {status['Threads']} threads, {cpu_s:.0f} s of CPU"


def read_output(folder: Path) -> str:
    """Return the output of all commands in a folder."""
    return (folder / "printed").read_text("utf-8", "replace")
