"""Runs hidden tests inside a sandbox, and alone says how they ended. Needs nothing but Python.

It is started as `python -I -B driver.py ORDERS` and never imports what it tests: each script
runs in a child, whose reports come over a pipe. Its answer, the last line that it prints, is
signed with a key from the file of orders, which it deletes before there is any child. (From
standard input a child could read it again, through the processes above this one.) Whatever a
child prints, writes to files, or leaves running changes nothing.
"""

import base64
import contextlib
import ctypes
import hmac
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any

__all__ = ["ANSWER", "main"]

ANSWER = "assay-grading"
"""The first word of the line that answers."""
_LONGEST_REPORTS = 4_000_000
_LONGEST_OUTPUT = 8_000
_LONGEST_RESULT = 100_000
_LONGEST_ANSWER = 500_000
_DRAIN_S = 0.2
_KILL_S = 5.0
_SET_DUMPABLE, _DROP_BOUNDING, _SUBREAPER, _NO_NEW_PRIVILEGES = 4, 24, 36, 38


def main() -> None:
    """Read the orders, run the scripts one after another, and answer."""
    _shut_off()
    with open(sys.argv[1], encoding="utf-8") as file:
        orders = json.load(file)
    os.unlink(sys.argv[1])
    key = bytes.fromhex(orders.pop("key"))
    deadline = time.monotonic() + orders["timeout_s"]
    jobs, ends = orders["jobs"], []
    for number, job in enumerate(jobs):
        # An equal share of what is left: what one script does not use, the next ones have.
        share = (deadline - time.monotonic()) / (len(jobs) - number)
        ends.append(_run(job, max(share, 0.0)))
    has_pytest = importlib.util.find_spec("pytest") is not None
    body = _packed({"has_pytest": has_pytest, "ends": _bounded(ends)})
    signature = hmac.digest(key, body, "sha256").hex()
    sys.stdout.write(f"\n{ANSWER} {signature} {body.decode()}\n")


def _bounded(ends: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, small enough for what a sandbox keeps of an output."""
    if len(_packed(ends)) > _LONGEST_ANSWER:
        ends = [{**end, "output": ""} for end in ends]
    if len(_packed(ends)) > _LONGEST_ANSWER:
        less = {"reports": "", "too_many_reports": True, "result": None}
        ends = [{**end, **less} for end in ends]
    return ends


def _packed(value: Any) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(value).encode()))


def _shut_off() -> None:
    """Let no child look into this process, gain privileges, or leave the tree of processes."""
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(_SUBREAPER, 1, 0, 0, 0)
    for capability in range(64):
        prctl(_DROP_BOUNDING, capability, 0, 0, 0)
    prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _run(job: dict[str, Any], share_s: float) -> dict[str, Any]:
    """Run one script to its end; what it said, and how it ended."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="g", ignore_cleanup_errors=True) as place:
        result = os.path.join(place, "result.json")
        reader, writer = os.pipe()
        environment = {**os.environ, "ASSAY_RESULT": result}
        child = subprocess.Popen(
            [part.replace("{reports}", str(writer)) for part in job["argv"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
            env=environment,
            start_new_session=True,
        )
        os.close(writer)
        assert child.stdout is not None
        reports, output = _read(child, reader, child.stdout.fileno(), start + share_s)
        timed_out = child.poll() is None
        left = _kill_descendants(child)
        end = {
            "exit_code": None if timed_out else child.returncode,
            "timed_out": timed_out,
            "left_processes": left,
            "reports": reports.decode("utf-8", "replace"),
            "too_many_reports": len(reports) >= _LONGEST_REPORTS,
            "output": output.decode("utf-8", "replace"),
            "result": _content(result),
            "seconds": time.monotonic() - start,
        }
        os.close(reader)
        child.stdout.close()
        return end


def _read(
    child: subprocess.Popen[bytes], reports: int, output: int, deadline: float
) -> tuple[bytes, bytes]:
    """Its first reports and its last output, until it ends or its time is over.

    Something that it left behind may hold a pipe open: its own end is what counts.
    """
    kept = {reports: bytearray(), output: bytearray()}
    over = False
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            os.set_blocking(stream, False)
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
            if not over and child.poll() is not None:
                over, deadline = True, min(deadline, time.monotonic() + _DRAIN_S)
            ready = selector.select(0.0 if over else min(0.05, left_s))
            for entry, _ in ready:
                chunk = os.read(entry.fd, 65_536)
                if not chunk:
                    selector.unregister(entry.fd)
                kept[entry.fd] += chunk
                del kept[output][:-_LONGEST_OUTPUT], kept[reports][_LONGEST_REPORTS:]
            if over and not ready:
                break
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(max(0.0, deadline - time.monotonic()))
    return bytes(kept[reports]), bytes(kept[output])


def _kill_descendants(child: subprocess.Popen[bytes]) -> int:
    """Kill all that came of this process, in any session; how many beside the child."""
    killed: set[int] = set()
    until = time.monotonic() + _KILL_S
    while (alive := _descendants() - {child.pid}) or child.poll() is None:
        killed |= alive
        for process in {child.pid, *alive} if child.returncode is None else alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        # Its exit code is read before those of orphans, which any wait would take too.
        child.wait()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until:
            break
    return len(killed)


def _descendants() -> set[int]:
    """The living processes below this one."""
    parents = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(name)}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(name)] = int(parent)
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {os.getpid()}


def _content(path: str) -> str | None:
    """The text of a result file; None where there is none that may be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            return file.read(_LONGEST_RESULT).decode("utf-8", "replace")
    except OSError:
        return None


if __name__ == "__main__":
    main()
