"""Stands for the graded program: forges the reports of its grader, or finds the answer."""

import ctypes
import glob
import json
import os
import platform
import re
import signal
import sys

TOKEN, HOW = "@TOKEN@", "@HOW@"
print("tried-" + TOKEN, file=sys.stderr, flush=True)
PARENT = os.getppid()
ANSWER = re.compile(rb"answer-[0-9a-f]{16}-" + TOKEN.encode())
RETURN_SIZE = {"x86_64": "4889d0c3", "aarch64": "e00302aac0035fd6"}


def libc_at(pid: int | str) -> int:
    """Return where a process has its C library."""
    with open(f"/proc/{pid}/maps") as file:
        return next(int(line.split("-")[0], 16) for line in file if "/libc.so.6" in line)


def forge() -> None:
    """Write reports that say that all passed, but for the one that must fail."""
    with open(f"/proc/{PARENT}/cmdline") as file:
        settings = json.loads(next(part for part in file.read().split("\0") if part[:1] == "{"))
    with open(settings["script"]) as file:
        text = file.read()
    *names, canary = re.findall(r"^def (test\w+)", text, re.MULTILINE)
    numbers = re.findall(r"(\d+) \* (\d+); assert value == (\d+)", text)[-1]
    first, second, wrong = map(int, numbers)
    reports = [{"name": name, "status": "passed", "message": ""} for name in names]
    why = f"assert {first * second} == {wrong}"
    reports.append({"name": canary, "status": "failed", "message": why})
    with open(f"/proc/{PARENT}/fd/{settings['reports']}", "w") as file:
        file.write("".join(json.dumps(report) + "\n" for report in reports))


def silence() -> None:
    """Make `write` of the C library in the parent do nothing but say that all was written."""
    function = ctypes.cast(ctypes.CDLL(None).write, ctypes.c_void_p).value or 0
    with open(f"/proc/{PARENT}/mem", "r+b", buffering=0) as memory:
        memory.seek(libc_at(PARENT) + function - libc_at("self"))
        memory.write(bytes.fromhex(RETURN_SIZE[platform.machine()]))


def in_files() -> None:
    """Print the answer if a file of the sandbox has it."""
    for path in glob.glob("/grading/**", recursive=True) + glob.glob("/orders/*"):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                for found in ANSWER.findall(file.read()):
                    print(found.decode())
                    return


def in_memory() -> None:
    """Print the answer if a process of the sandbox has it."""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        pid = int(maps.split("/")[2])
        if pid == os.getpid():
            continue
        try:
            with open(maps) as file, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for line in file:
                    low, high = (int(part, 16) for part in line.split()[0].split("-"))
                    if "rw" not in line or high - low > 1 << 28:
                        continue
                    memory.seek(low)
                    if found := ANSWER.search(memory.read(high - low)):
                        print(found[0].decode())
                        return
        except OSError:
            continue


if HOW == "kill":
    forge()
    os.kill(PARENT, signal.SIGKILL)
elif HOW == "silence":
    forge()
    silence()
elif HOW == "files":
    in_files()
else:
    in_memory()
