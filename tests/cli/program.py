"""The program, called as people call it, in a directory of its own."""

import json
from typing import Any, NamedTuple

import pytest

from assay.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Program:
    """`assay` with a command in front of every call."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *command: str) -> None:
        self._capsys = capsys
        self._command = command

    def __call__(self, *arguments: str) -> Done:
        code = main([*self._command, *arguments])
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = self(*arguments, "--json")
        assert done.code == code, done.err
        return json.loads(done.out)

    def error(self, *arguments: str, code: int = 2) -> str:
        """The one line with which a wrong command line ends."""
        done = self(*arguments)
        assert (done.code, done.out) == (code, ""), done
        assert done.err.count("\n") == 1
        return done.err
