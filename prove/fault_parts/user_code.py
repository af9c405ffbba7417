"""Code of users that ends, hangs, floods or moves what it can: nothing ends silently.

After each attack the process has ended by itself, its exit code is 0 only if every episode is
stored as a result or a failure, it printed no traceback and little else, and the database holds
what it says.
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

from .processes import PATIENCE_S, code_of, printed, start_assay
from .tried import Tried

__all__ = ["attack"]

_KINDS = {
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
_LOADED = ("import of a hook",)
"""Where nothing limits how long it takes."""
_MOST_OUTPUT = 64_000
_HANGING = {
    "an endless loop": "[@MARK.close() for _ in iter(int, 1)]",
    "an endless sleep": "@MARK; import time; time.sleep(10**6)",
}
"""What says that it has begun, and does not end."""


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Ctrl-C twice while code of a user hangs, then every kind in every place."""
    leaving = Tried("Ctrl-C twice while code of a user hangs", note="left within seconds")
    for place, (option, text) in _PLACES.items():
        for kind in _HANGING:
            where = folder / f"leaving-{place.replace(' ', '-')}-{kind[11:]}"
            lost = _leaves(where, option, text.format(body=_HANGING[kind]), chance)
            leaving.count(lost and f"{place}, {kind}: {lost}")
    yield leaving
    for place, (option, text) in _PLACES.items():
        kinds = [name for name in _KINDS if not (place in _LOADED and name in _HANGING)]
        tried = Tried(f"{place}: {len(kinds)} kinds", note="never silent, never hangs")
        for number, kind in enumerate(kinds):
            where = folder / f"{place.replace(' ', '-')}-{number}"
            lost = _lost(where, option, text.format(body=_KINDS[kind]))
            tried.count(lost and f"{kind}: {lost}")
        yield tried


def _started(folder: Path, option: str, text: str, *more: str) -> "subprocess.Popen[bytes]":
    folder.mkdir()
    (folder / "mine.py").write_text(text, "utf-8")
    who = ["mine.py:act"] if option == "--agents" else ["mine.py", "--models", "builtin/noop"]
    return start_assay(
        folder,
        *("run", option, *who, "--no-baselines", "--episodes", "2", "--max-turns", "3"),
        *("--database", "traces.duckdb", *more),
    )


def _lost(folder: Path, option: str, text: str) -> str:
    code = code_of(_started(folder, option, text, "--decision-limit", "2"))
    if code is None:
        return "it hangs"
    said = printed(folder)
    if len(said) > _MOST_OUTPUT:
        return f"{len(said):,} characters printed"
    if "Traceback" in said:
        return f"a traceback, exit code {code}"
    if not said.strip():
        return f"not a word, exit code {code}"
    stored = _stored(folder / "traces.duckdb")
    return f"exit code 0 with {stored} of 2 episodes" if code == 0 and stored != 2 else ""


def _stored(database: Path) -> int:
    if not database.exists():
        return 0
    with Store(database).reading() as connection:
        return len(episodes(connection))


def _leaves(folder: Path, option: str, text: str, chance: random.Random) -> str:
    started = folder / "started"
    process = _started(folder, option, text.replace("@MARK", f"open({str(started)!r}, 'w')"))
    end = time.monotonic() + PATIENCE_S
    while not started.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    for _ in range(2):
        time.sleep(0.3 + chance.random())
        if process.poll() is None:
            os.kill(process.pid, signal.SIGINT)
    code = code_of(process, 15)
    if code is None:
        return "two Ctrl-C did not end it within 15 s"
    if "Traceback" in printed(folder):
        return "a traceback"
    return "" if code == 130 else f"exit code {code}"
