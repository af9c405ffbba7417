"""The command that starts a worker; light to import, because nodes of clusters do it."""

import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["program"]

_PROGRAM: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "{}; from assay.runs.worker import main; main({}, {})"
)


def program(
    path: Sequence[str], descriptor: int, *, parent: int | None = None, own_path: bool = False
) -> list[str]:
    """The command that starts a worker.

    Args:
        path: Where it finds modules, as `sys.path`.
        descriptor: The socket that it inherits, connected to its driver.
        parent: The process with which it ends; None if its connection is enough.
        own_path: Whether it looks first where Python does there, and in `path` after that.
    """
    where = "sys.path += " if own_path else "sys.path[:] = "
    text = _PROGRAM.format(f"{where}{list(path)!r}", descriptor, parent)
    return [sys.executable, "-c", text]
