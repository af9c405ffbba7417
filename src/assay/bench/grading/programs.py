"""What hidden tests have as `assay_grading`: `run_program` calls the program under test.

A script that imports it never holds the code of the agent in its own process: the driver starts
the program elsewhere, and sends back how it ended. Needs nothing but Python.
"""

import json
import os
import resource
import subprocess
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

_link: Connection | None = None
_turn = threading.Lock()


class ProgramEnd(NamedTuple):
    """How a program ended."""

    exit_code: int
    """Negative if a signal ended it; 127 if there is no such program."""
    stdout: str
    stderr: str
    cpu_s: float
    """Seconds of processor time that it and all it started took, measured from outside."""


def run_program(
    argv: Sequence[str | os.PathLike[str]],
    *,
    stdin: str | bytes = b"",
    timeout: float = 20.0,
    cwd: str | os.PathLike[str] = ".",
) -> ProgramEnd:
    """Run a program to its end, apart from the tests; none of its processes is left then.

    It can read neither the tests nor the files beside them, and reach no process of the
    grader. Outside of grading it is run as it is, so that tests can be tried with pytest alone.

    Args:
        argv: The program and its arguments.
        stdin: What it reads from standard input; text is UTF-8.
        timeout: In seconds.
        cwd: Where it starts, from the top of the repository.

    Returns:
        Its exit code, the first 4 MB of its output and of its errors, as UTF-8, and its
        processor time.

    Raises:
        TimeoutError: It did not end in time.
    """
    request: dict[str, Any] = {
        "argv": [os.fspath(part) for part in argv],
        "stdin": (stdin.encode() if isinstance(stdin, str) else stdin).hex(),
        "timeout": timeout,
        "cwd": os.fspath(cwd),
    }
    end = _run_here(request) if _link is None else _ask(_link, request)
    if end.pop("timed_out"):
        raise TimeoutError(f"{request['argv'][0]} did not end within {timeout:g} s")
    return ProgramEnd(**end)


def connect(handle: int) -> None:
    """Have programs run by the process at the other end of a socket."""
    global _link
    os.set_inheritable(handle, False)
    _link = Connection(handle)


def _ask(link: Connection, request: dict[str, Any]) -> dict[str, Any]:
    with _turn:
        link.send_bytes(json.dumps(request).encode())
        end: dict[str, Any] = json.loads(link.recv_bytes())
    return end


def _run_here(request: dict[str, Any]) -> dict[str, Any]:
    before = _cpu_of_children()
    try:
        done = subprocess.run(
            request["argv"],
            input=bytes.fromhex(request["stdin"]),
            capture_output=True,
            timeout=request["timeout"],
            cwd=request["cwd"],
            check=False,
        )
        code, out, errors, timed_out = done.returncode, done.stdout, done.stderr, False
    except subprocess.TimeoutExpired:
        code, out, errors, timed_out = -9, b"", b"", True
    except OSError as error:
        code, out, errors, timed_out = 127, b"", f"{error}\n".encode(), False
    return {
        "exit_code": code,
        "stdout": out.decode("utf-8", "replace"),
        "stderr": errors.decode("utf-8", "replace"),
        "cpu_s": _cpu_of_children() - before,
        "timed_out": timed_out,
    }


def _cpu_of_children() -> float:
    # `os.times` counts in steps of 10 ms, in which a small program has ended.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
