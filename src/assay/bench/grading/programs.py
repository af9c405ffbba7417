"""The module `assay_grading` for hidden tests: `run_program` runs the program under test.

A script that imports it never loads the agent's code into its own process: the driver starts
the program in another process and returns its result. Needs only Python.
"""

import json
import os
import resource
import subprocess
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

_connection: Connection | None = None
_lock = threading.Lock()


class ProgramEnd(NamedTuple):
    """Result of a program."""

    exit_code: int
    """Negative if it was ended by a signal; 127 if the program could not be started."""
    stdout: str
    stderr: str
    cpu_s: float
    """CPU seconds of the program and its descendants, measured from outside."""


def run_program(
    argv: Sequence[str | os.PathLike[str]],
    *,
    stdin: str | bytes = b"",
    timeout: float = 20.0,
    cwd: str | os.PathLike[str] = ".",
) -> ProgramEnd:
    """Run a program outside the test process until it ends; all its processes are then dead.

    The program can read neither the tests nor the files next to them, and cannot reach
    processes of the grader. Outside grading it runs without these restrictions, so that tests
    can be tried with pytest alone.

    Args:
        argv: The program and its arguments.
        stdin: Its standard input; text is encoded as UTF-8.
        timeout: Time limit in seconds.
        cwd: Its working directory, relative to the top of the repository.

    Returns:
        Its exit code, the first 4 MB of its output and of its errors, as UTF-8, and its CPU
        time.

    Raises:
        TimeoutError: It did not end in time.
    """
    request: dict[str, Any] = {
        "argv": [os.fspath(part) for part in argv],
        "stdin": (stdin.encode() if isinstance(stdin, str) else stdin).hex(),
        "timeout": timeout,
        "cwd": os.fspath(cwd),
    }
    end = _run_locally(request) if _connection is None else _send_request(_connection, request)
    if end.pop("timed_out"):
        raise TimeoutError(f"{request['argv'][0]} did not end within {timeout:g} s")
    return ProgramEnd(**end)


def connect(handle: int) -> None:
    """Run programs through the process at the other end of a socket."""
    global _connection
    os.set_inheritable(handle, False)
    _connection = Connection(handle)


def _send_request(connection: Connection, request: dict[str, Any]) -> dict[str, Any]:
    with _lock:
        connection.send_bytes(json.dumps(request).encode())
        end: dict[str, Any] = json.loads(connection.recv_bytes())
    return end


def _run_locally(request: dict[str, Any]) -> dict[str, Any]:
    before = _measure_children_cpu()
    try:
        process = subprocess.run(
            request["argv"],
            input=bytes.fromhex(request["stdin"]),
            capture_output=True,
            timeout=request["timeout"],
            cwd=request["cwd"],
            check=False,
        )
        code, out, errors, timed_out = process.returncode, process.stdout, process.stderr, False
    except subprocess.TimeoutExpired:
        code, out, errors, timed_out = -9, b"", b"", True
    except OSError as error:
        code, out, errors, timed_out = 127, b"", f"{error}\n".encode(), False
    return {
        "exit_code": code,
        "stdout": out.decode("utf-8", "replace"),
        "stderr": errors.decode("utf-8", "replace"),
        "cpu_s": _measure_children_cpu() - before,
        "timed_out": timed_out,
    }


def _measure_children_cpu() -> float:
    # `os.times` has a resolution of 10 ms, which is too coarse for a small program.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
