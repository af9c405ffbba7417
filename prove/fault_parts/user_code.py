"""User code that exits, hangs, floods the output or changes the process state.

After each attack the process has exited by itself. Its exit code is 0 only if every episode is
stored as a result or a failure, and it printed a message without a traceback.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from assay.store.queries import episodes
from assay.store.store import Store

from .processes import EXIT_LIMIT_S, read_output, start_assay, wait_for_exit
from .tried import FaultRow

__all__ = ["attack"]

_FAULTS = {
    "sys.exit(0)": "import sys; sys.exit(0)",
    "os._exit(0)": "import os; os._exit(0)",
    "quit()": "quit()",
    "a BaseException": "raise type('Odd', (BaseException,), {})('odd')",
    "GeneratorExit": "raise GeneratorExit",
    "CancelledError": "import asyncio; raise asyncio.CancelledError",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "an endless loop": "while True: pass",
    "an endless sleep": "import time; time.sleep(10**6)",
    "recursion without end": "f = lambda: f(); f()",
    "another working directory": "import os; os.chdir('/')",
    "200 MB printed": "print('x' * 200_000_000)",
    "10 MB in lines": "print('spam\\n' * 2_000_000)",
    "a thread left behind": (
        "import threading, time; threading.Thread(target=time.sleep, args=(10**6,)).start()"
    ),
    "closed files": "import os; os.closerange(20, 64)",
}
_PLACES = {
    "import of a hook": (
        "--hooks",
        "from assay.metrics import BaseHook, hook\n{body}\n@hook\nclass Mine(BaseHook):\n"
        "    def on_turn(self, played):\n        return ()\n",
    ),
    "hook": (
        "--hooks",
        "from assay.metrics import BaseHook, hook\n"
        "@hook\nclass Mine(BaseHook):\n    def on_turn(self, played):\n"
        "        {body}\n        return ()\n",
    ),
    "metric": (
        "--metrics-from",
        "import assay\n@assay.metric\ndef mine(episode):\n    {body}\n    return 1.0\n",
    ),
    "agent": ("--agents", "def act(view):\n    {body}\n    return 'noop'\n"),
}
_UNLIMITED_PLACES = ("import of a hook",)
"""Places without a time limit for user code."""
_MAX_OUTPUT = 64_000
_HANGING_FAULTS = {
    "an endless loop": "[@MARK.close() for _ in iter(int, 1)]",
    "an endless sleep": "@MARK; import time; time.sleep(10**6)",
}
"""Code that marks its start in a file and does not end."""


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Press Ctrl-C twice while user code hangs, then try every fault in every place."""
    interrupts = FaultRow("Ctrl-C twice while user code hangs", note="exits within seconds")
    for location, (option, text) in _PLACES.items():
        for fault in _HANGING_FAULTS:
            run_folder = folder / f"leaving-{location.replace(' ', '-')}-{fault[11:]}"
            problem = _interrupt_twice(
                run_folder, option, text.format(body=_HANGING_FAULTS[fault]), chance
            )
            interrupts.count(problem and f"{location}, {fault}: {problem}")
    yield interrupts
    for location, (option, text) in _PLACES.items():
        faults = [
            name
            for name in _FAULTS
            if not (location in _UNLIMITED_PLACES and name in _HANGING_FAULTS)
        ]
        row = FaultRow(f"{location}: {len(faults)} faults", note="never silent, never hangs")
        for number, fault in enumerate(faults):
            run_folder = folder / f"{location.replace(' ', '-')}-{number}"
            problem = _find_losses(run_folder, option, text.format(body=_FAULTS[fault]))
            row.count(problem and f"{fault}: {problem}")
        yield row


def _start_run(folder: Path, option: str, text: str, *more: str) -> "subprocess.Popen[bytes]":
    folder.mkdir()
    (folder / "mine.py").write_text(text, "utf-8")
    entry_options = (
        ["mine.py:act"] if option == "--agents" else ["mine.py", "--models", "builtin/noop"]
    )
    return start_assay(
        folder,
        *(
            "run",
            option,
            *entry_options,
            "--no-baselines",
            "--episodes",
            "2",
            "--max-turns",
            "3",
        ),
        *("--database", "traces.duckdb", *more),
    )


def _find_losses(folder: Path, option: str, text: str) -> str:
    code = wait_for_exit(_start_run(folder, option, text, "--decision-limit", "2"))
    if isinstance(code, str):
        return code
    output = read_output(folder)
    if len(output) > _MAX_OUTPUT:
        return f"{len(output):,} characters printed"
    if "Traceback" in output:
        return f"a traceback, exit code {code}"
    if not output.strip():
        return f"no output, exit code {code}"
    stored = _count_stored_episodes(folder / "traces.duckdb")
    return f"exit code 0 with {stored} of 2 episodes" if code == 0 and stored != 2 else ""


def _count_stored_episodes(database: Path) -> int:
    if not database.exists():
        return 0
    with Store(database).reading() as connection:
        return len(episodes(connection))


def _interrupt_twice(folder: Path, option: str, text: str, chance: random.Random) -> str:
    started_file = folder / "started"
    process = _start_run(
        folder, option, text.replace("@MARK", f"open({str(started_file)!r}, 'w')")
    )
    end = time.monotonic() + EXIT_LIMIT_S
    while not started_file.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    for _ in range(2):
        time.sleep(0.3 + chance.random())
        if process.poll() is None:
            os.kill(process.pid, signal.SIGINT)
    code = wait_for_exit(process, 15)
    if isinstance(code, str):
        return f"two Ctrl-C did not end it: {code}"
    if "Traceback" in read_output(folder):
        return "a traceback"
    return "" if code == 130 else f"exit code {code}"
