"""The command line. Each module parses one group of commands, calls the API and prints.

Command modules import heavy modules inside functions, so that `assay --help` starts quickly.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .program import app

__all__ = ["app", "main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default from `sys.argv`, and return its exit code."""
    with _exit_quietly_on_interrupt(is_program=arguments is None):
        from assay.cli import program

    return program.main(arguments)


@contextmanager
def _exit_quietly_on_interrupt(*, is_program: bool) -> Iterator[None]:
    """Let Ctrl-C end the process without a message while the program is being imported."""
    if not is_program or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


__getattr__, __dir__ = _lazy_names(__name__)
