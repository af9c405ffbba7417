"""`assay serve-models` as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["line_of", "serving"]


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The program on a free port; ended at the end, if it has not ended before."""
    with subprocess.Popen(
        [sys.executable, "-m", "assay", "serve-models", "--port", "0", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.kill()


def line_of(program: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert program.stdout is not None
    return program.stdout.readline().strip()
