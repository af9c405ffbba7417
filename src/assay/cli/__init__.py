"""The command line: each file parses one group of commands, calls, and prints.

Command files import what is heavy inside the function that needs it, so that
`assay --help` answers at once.
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
    """Run one command, that of the process unless one is given, and return its exit code."""
    with _left_quietly(is_program=arguments is None):
        from assay.cli import program

    return program.main(arguments)


@contextmanager
def _left_quietly(*, is_program: bool) -> Iterator[None]:
    """Let Ctrl-C end the process without a word, as long as there is nothing to tell of."""
    if not is_program or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


__getattr__, __dir__ = _lazy_names(__name__)
