"""Helpers for the tests of many packages: run assay, and query a database."""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from assay.cli import main
from assay.store.store import Store

ROOT = Path(__file__).parents[1]
"""The checkout."""
_PATIENCE_S = 600
_NOTHING: Mapping[str, str] = {}


class Finished(NamedTuple):
    """The exit code and output of a command."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)


def call_assay(folder: Path, *arguments: str) -> Finished:
    """Run a command in this process, in a folder."""
    output, errors = StringIO(), StringIO()
    folder.mkdir(exist_ok=True)
    with chdir(folder), redirect_stdout(output), redirect_stderr(errors):
        code = main(arguments)
    return Finished(code, output.getvalue(), errors.getvalue())


class Program:
    """Runs assay commands that start with the same words, in this process."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def __call__(self, *arguments: str) -> Finished:
        return call_assay(Path(), *self._words, *arguments)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Return the output of the command with --json, parsed."""
        done = self(*arguments, "--json")
        assert done.code == code, done.errors
        return done.json

    def error(self, *arguments: str, code: int = 2) -> str:
        """Return the error line that a wrong command line prints."""
        done = self(*arguments)
        assert (done.code, done.output) == (code, ""), done
        assert done.errors.count("\n") == 1, done.errors
        return done.errors


def run_python(
    *arguments: str | Path,
    folder: Path | None = None,
    expected: int | None = 0,
    variables: Mapping[str, str] = _NOTHING,
) -> Finished:
    """Run Python in a subprocess, as in `run_python("-c", code)`.

    Args:
        arguments: The arguments after `python` on the command line.
        folder: Where it runs; by default here.
        expected: The exit code it must end with; None for any.
        variables: Added to the environment.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert expected in (None, done.returncode), (done.returncode, done.stdout, done.stderr)
    return Finished(done.returncode, done.stdout, done.stderr)


@contextmanager
def serve_apart(
    command: str, *arguments: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start an assay server on a free port, and kill it at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "assay", command, "--port", "0", *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.kill()


def read_line(program: subprocess.Popen[str]) -> str:
    """Return the next line that a program prints."""
    assert program.stdout is not None
    return program.stdout.readline().strip()


def free_port() -> int:
    """Return a port that can be used again: below the range that the kernel assigns."""
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def query(store: Store | Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a database query."""
    with (Store(store) if isinstance(store, Path) else store).reading() as connection:
        return connection.execute(sql).fetchall()
