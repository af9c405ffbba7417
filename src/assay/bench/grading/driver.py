"""Driver that runs hidden tests inside a sandbox and reports how they ended. Needs only Python.

The driver never imports the code it tests: each script runs in a child process, which reports
through a pipe. The driver's answer, the last line it prints, is signed with a key from the
orders file, which it deletes before it starts a child. (A child could read the key again from
standard input, through the parent processes of the driver.) Nothing that a child prints, writes
to files or leaves running changes the answer. The driver also reads all hidden files into
memory and deletes them. Each child gets them in a new folder, and none of an earlier child
remain.

A child that tests a program from outside cannot open the repository. A separate process starts
programs for it, which cannot open the hidden files.
"""

import base64
import contextlib
import ctypes
import hmac
import importlib.util
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

from .landlock import can_confine, confine

ANSWER = "assay-grading"
"""First word of the answer line."""
_MAX_REPORTS_BYTES = 4_000_000
_MAX_OUTPUT_BYTES = 8_000
_MAX_STREAM_BYTES = 4_000_000
_MAX_RESULT_BYTES = 100_000
_MAX_ANSWER_BYTES = 500_000
_DRAIN_S = 0.2
_KILL_S = 5.0
_SET_DUMPABLE, _DROP_BOUNDING, _SUBREAPER, _NO_NEW_PRIVILEGES = 4, 24, 36, 38


class _SandboxPaths(NamedTuple):
    """Paths in the sandbox."""

    hidden: str
    """The folder of hidden files."""
    repository: str
    app: str
    """The folder that contains the repository."""
    orders: str
    """The folder of the orders."""
    is_confined: bool = False
    """Whether the kernel denies some processes access to some of these paths."""


def main() -> None:
    """Read the orders, run the scripts one after another, and print the answer."""
    _restrict_process()
    with open(sys.argv[1], encoding="utf-8") as file:
        orders = json.load(file)
    os.unlink(sys.argv[1])
    key = bytes.fromhex(orders.pop("key"))
    paths = _SandboxPaths(**orders["places"])
    paths = paths._replace(is_confined=can_confine(paths[:4]))
    files = _take_files(paths.hidden)
    deadline = time.monotonic() + orders["timeout_s"]
    jobs, ends = orders["jobs"], []
    for number, job in enumerate(jobs):
        # An equal share of the remaining time: scripts inherit what earlier ones did not use.
        share = (deadline - time.monotonic()) / (len(jobs) - number)
        folder = os.path.join(paths.hidden, str(number))
        _write_files(files, folder)
        ends.append(_run_script(job, folder, paths, max(share, 0.0)))
        shutil.rmtree(folder, ignore_errors=True)
    has_pytest = importlib.util.find_spec("pytest") is not None
    answer = {"has_pytest": has_pytest, "is_confined": paths.is_confined}
    body = _encode({**answer, "ends": _limit_length(ends)})
    signature = hmac.digest(key, body, "sha256").hex()
    sys.stdout.write(f"\n{ANSWER} {signature} {body.decode()}\n")


def _take_files(folder: str) -> dict[str, bytes]:
    """Read all files of a folder into memory, by relative path, and delete them."""
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder)] = file.read()
    for name in os.listdir(folder):
        shutil.rmtree(os.path.join(folder, name))
    return files


def _write_files(files: Mapping[str, bytes], folder: str) -> None:
    """Write files to a new folder; fail if an earlier child created something there."""
    os.mkdir(folder)
    for path, content in files.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "xb") as file:
            file.write(content)


def _limit_length(ends: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Shorten the results to the length of output that a sandbox keeps."""
    if len(_encode(ends)) > _MAX_ANSWER_BYTES:
        ends = [{**end, "output": ""} for end in ends]
    if len(_encode(ends)) > _MAX_ANSWER_BYTES:
        less = {"reports": "", "too_many_reports": True, "result": None}
        ends = [{**end, **less} for end in ends]
    return ends


def _encode(value: Any) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(value).encode()))


def _restrict_process() -> None:
    """Prevent children from inspecting this process, gaining privileges or leaving its tree."""
    if sys.platform != "linux":
        return
    _adopt_orphans()
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    for capability in range(64):
        prctl(_DROP_BOUNDING, capability, 0, 0, 0)
    prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _run_script(
    job: dict[str, Any], folder: str, paths: _SandboxPaths, share_s: float
) -> dict[str, Any]:
    """Run one script until it ends; return its reports, output and exit code."""
    start = time.monotonic()
    # Not in the folder for temporary files, because programs may write there.
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as script_folder:
        result = os.path.join(script_folder, "result.json")
        reader, writer = os.pipe()
        ours, theirs = socket.socketpair()
        broker = None
        if job["separate"] and (broker := os.fork()) == 0:
            for handle in (reader, writer, theirs.detach()):
                os.close(handle)
            _serve_programs(Connection(ours.detach()), paths)
        ours.close()
        handles = {"{reports}": writer, "{programs}": theirs.fileno()}
        child = subprocess.Popen(
            [str(handles.get(part, part)) for part in job["argv"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[handle for name, handle in handles.items() if name in job["argv"]],
            env={**os.environ, "ASSAY_RESULT": result},
            cwd=script_folder if job["separate"] else paths.repository,
            start_new_session=True,
            preexec_fn=lambda: confine(
                [paths.app] if job["separate"] and paths.is_confined else []
            ),
        )
        os.close(writer)
        theirs.close()
        assert child.stdout is not None
        output = child.stdout.fileno()
        limits = {reader: _MAX_REPORTS_BYTES, output: -_MAX_OUTPUT_BYTES}
        contents = _read_pipes(child, limits, start + share_s)
        timed_out = child.poll() is None
        killed = _kill_descendants(child, broker)
        end = {
            "exit_code": None if timed_out else child.returncode,
            "timed_out": timed_out,
            "left_processes": killed,
            "reports": contents[reader].decode("utf-8", "replace"),
            "too_many_reports": len(contents[reader]) >= _MAX_REPORTS_BYTES,
            "output": contents[output].decode("utf-8", "replace"),
            "result": _read_result(result),
            "seconds": time.monotonic() - start,
        }
        os.close(reader)
        child.stdout.close()
        return end


def _serve_programs(connection: Connection, paths: _SandboxPaths) -> NoReturn:
    """Run programs at the request of a child, until the child ends."""
    try:
        _adopt_orphans()
        while True:
            request = json.loads(connection.recv_bytes())
            connection.send_bytes(json.dumps(_run_program(request, paths)).encode())
    finally:
        os._exit(0)


def _run_program(request: Mapping[str, Any], paths: _SandboxPaths) -> dict[str, Any]:
    """Run a program that cannot access the tests; kill what it leaves; return its result."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as stdin_file:
        stdin_file.write(bytes.fromhex(request["stdin"]))
        stdin_file.seek(0)
        try:
            process = subprocess.Popen(
                request["argv"],
                stdin=stdin_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.join(paths.repository, request["cwd"]),
                start_new_session=True,
                preexec_fn=lambda: confine(
                    [paths.hidden, paths.orders] if paths.is_confined else []
                ),
            )
        except OSError as error:
            failed = {"exit_code": 127, "stdout": "", "stderr": f"{error}\n"}
            return {**failed, "cpu_s": 0.0, "timed_out": False}
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = process.stdout.fileno(), process.stderr.fileno()
        limits = {output: _MAX_STREAM_BYTES, errors: _MAX_STREAM_BYTES}
        contents = _read_pipes(process, limits, time.monotonic() + request["timeout"])
        timed_out = process.poll() is None
        _kill_descendants(process)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exit_code": process.returncode,
        "stdout": contents[output].decode("utf-8", "replace"),
        "stderr": contents[errors].decode("utf-8", "replace"),
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "timed_out": timed_out,
    }


def _read_pipes(
    process: subprocess.Popen[bytes], limits: Mapping[int, int], deadline: float
) -> dict[int, bytes]:
    """Read from pipes until a process ends or its time is over.

    A process that it left behind may keep a pipe open, so reading stops when the process ends.

    Args:
        process: The started process.
        limits: Number of bytes kept by pipe: the first ones, or the last ones if negative.
        deadline: End of its time, on the monotonic clock.
    """
    contents = {stream: bytearray() for stream in limits}
    has_ended = False
    with selectors.DefaultSelector() as selector:
        for stream in contents:
            os.set_blocking(stream, False)
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (remaining_s := deadline - time.monotonic()) > 0:
            if not has_ended and process.poll() is not None:
                has_ended, deadline = True, min(deadline, time.monotonic() + _DRAIN_S)
            ready = selector.select(0.0 if has_ended else min(0.05, remaining_s))
            for entry, _ in ready:
                chunk = os.read(entry.fd, 65_536)
                if not chunk:
                    selector.unregister(entry.fd)
                contents[entry.fd] += chunk
                limit = limits[entry.fd]
                del contents[entry.fd][slice(limit, None) if limit > 0 else slice(limit)]
            if has_ended and not ready:
                break
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
    return {stream: bytes(content) for stream, content in contents.items()}


def _kill_descendants(child: subprocess.Popen[bytes], broker: int | None = None) -> int:
    """Kill all descendants of this process; return their number without child and broker."""
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_S
    while (alive := _list_descendants() - {child.pid}) or child.poll() is None:
        killed |= alive
        for process in {child.pid, *alive} if child.returncode is None else alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        # Read the child's exit code first; waiting for any process would discard it.
        child.wait()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            break
    return len(killed - {broker})


def _list_descendants() -> set[int]:
    """Return the pids of the living descendants of this process."""
    parents = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(name)}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(name)] = int(parent)
    descendants = {os.getpid()}
    while (
        children := {child for child, parent in parents.items() if parent in descendants}
        - descendants
    ):
        descendants |= children
    return descendants - {os.getpid()}


def _read_result(path: str) -> str | None:
    """Return the text of a result file; None if it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            return file.read(_MAX_RESULT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


if __name__ == "__main__":
    main()
