"""The program in a process of its own, as a user starts it; what it prints goes to a file."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["PATIENCE_S", "code_of", "printed", "start_assay"]

PATIENCE_S = 60
"""Longer than any of these commands takes; one that is still there hangs."""


def start_assay(
    folder: Path,
    *arguments: str,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    first: Callable[[], None] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a command in a folder.

    Args:
        folder: Where it works; made if it is missing.
        arguments: Those of the command.
        before: A program that starts it, such as strace.
        environment: Variables that it has beside those of this process.
        first: Called in the new process before anything else.
    """

    def begin() -> None:
        # A shell lets what it starts in the background ignore Ctrl-C, and children inherit it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if first is not None:
            first()

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


def code_of(process: "subprocess.Popen[bytes]", seconds: float = PATIENCE_S) -> int | None:
    """The exit code of a process once it has ended; None if it hangs, and then it is killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def printed(folder: Path) -> str:
    """All that commands have printed in a folder."""
    return (folder / "printed").read_text("utf-8", "replace")
