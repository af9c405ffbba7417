"""An attack, and the environment in which it is tried.

An attack returns what it got, seen from outside of the sandbox: a file of the host, a server
that was called, a stored value. An empty text says that it got nothing. What an attack itself
prints is only used to know that it was tried at all.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = [
    "KNOB",
    "Attack",
    "DocumentedLimit",
    "FinishedCommand",
    "NotAvailable",
    "Scene",
    "Trial",
    "run_git",
]

KNOB: Final = Path("/proc/sys/fs/lease-break-time")
"""A setting of the whole kernel that hardly anything uses."""
_SCRIPTS: Final = Path(__file__).parent / "scripts"
_PATIENCE_S: Final = 180.0
_TEST: Final = "def test_nothing():\n    assert False\n"


class NotAvailable(Exception):
    """The attack cannot be tried in this environment; the message has the reason."""


class DocumentedLimit(Exception):
    """The attack succeeds, but plan and record state that the limit is not enforced here."""


class FinishedCommand(NamedTuple):
    """Result of a command."""

    code: int | None
    """None if it had to be killed."""
    output: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Files that a benchmark left of its trials."""

    folder: Path
    done: FinishedCommand

    @property
    def log(self) -> str:
        """What the agents printed, as it is stored."""
        return _read_texts(self.folder.glob("data/runs/*/logs/agent.log"))

    @property
    def stored(self) -> str:
        """Logs and results that are kept of the trials, but for what the agent itself wrote."""
        kept = [
            *self.folder.glob("data/runs/*/[!w]*"),
            *self.folder.glob("data/runs/*/[!w]*/*"),
        ]
        return _read_texts(path for path in kept if path.is_file() and path.suffix != ".patch")

    @property
    def results(self) -> list[dict[str, Any]]:
        """The trials, as the manifest has them."""
        files = self.folder.glob("data/rollouts/*/*/manifest.json")
        return [result for file in files for result in json.loads(file.read_text())["results"]]

    @property
    def score(self) -> float:
        """The highest score; 0 where nothing was graded."""
        return max((float(result["score"] or 0) for result in self.results), default=0.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A separate folder for one attack, in one of the environments."""

    folder: Path
    place: str
    """root, user or docker."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """A random text that appears only where an attack put it."""
    notes: list[str] = field(default_factory=list)
    """How the attack was contained, as reported by the program."""

    @property
    def sandbox(self) -> str:
        """Name of the sandbox."""
        return "docker" if self.place == "docker" else "bubblewrap"

    def without_sandbox(self) -> None:
        """Skip an attack that does not depend on the sandbox."""
        if self.place == "docker":
            raise NotAvailable("the attack does not involve a sandbox")

    def is_refused(self, done: FinishedCommand) -> bool:
        """Whether a command ended as one that is not allowed; notes the reason."""
        if done.code == 2:
            self.notes.append(f"refused: {done.output.strip().splitlines()[-1][:200]}")
        return done.code == 2

    def assay(
        self,
        *arguments: str,
        cwd: Path | None = None,
        seconds: float = _PATIENCE_S,
        variables: Mapping[str, str] | None = None,
    ) -> FinishedCommand:
        """Run a command of assay as a user does."""
        process = subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            cwd=cwd or self.folder,
            env={**os.environ, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return FinishedCommand(None, output.decode("utf-8", "replace"))
        return FinishedCommand(process.returncode, output.decode("utf-8", "replace"))

    def task(
        self, files: Mapping[str, str] | None = None, test: str = _TEST, **meta: Any
    ) -> Path:
        """Make a task whose repository has these files, with one hidden test."""
        task = self.folder / "task"
        evaluation = {
            "rubrics": [{"id": "right", "criterion": "It is right"}],
            "test_scripts": [{"path": "test_it.py", "rubric_id": "right", "content": test}],
        }
        whole = {"task_id": "task", "evaluation": evaluation, **meta}
        written = {"LM_INSTRUCTIONS.md": "Do it.\n", "tb_meta.json": json.dumps(whole)}
        if files is not None:
            written |= {f"repo/{path}": text for path, text in files.items()}
        for path, text in written.items():
            (task / path).parent.mkdir(parents=True, exist_ok=True)
            (task / path).write_text(text, "utf-8")
        return task

    def trial(
        self,
        script: str,
        *options: str,
        task: Path | None = None,
        watch: Callable[[], None] | None = None,
        entry: Mapping[str, Any] | None = None,
        may_lose_its_log: bool = False,
        may_be_refused: bool = False,
        **variables: str,
    ) -> Trial:
        """Run a trial with a script as its agent.

        Args:
            script: The name of a file in `scripts`, or a command of the shell.
            options: More of `assay bench run`.
            task: The task; a small one unless given.
            watch: Called all the time while the benchmark runs.
            entry: Keys of the task in the configuration.
            may_lose_its_log: Whether the attack aims at what proves that it was started.
            may_be_refused: Whether the attack is in the task, which need not be run at all.
            variables: Variables of the script.

        Raises:
            RuntimeError: The script was not started, though nothing refused it.
        """
        task = task or self.task({"app.py": "x = 1\n"})
        command = script
        if script.endswith(".py"):
            given = {"TOKEN": self.token, **variables}
            names = " ".join(f"{name}='{value}'" for name, value in given.items())
            text = (_SCRIPTS / script).read_text("utf-8")
            command = f"{names} exec python - {self.token} <<'ATTACK'\n{text}\nATTACK\n"
        keys = {
            "prepared_dir": str(task),
            "agent": "command",
            "command": command,
            "sandbox": self.sandbox,
            "timeout": 60,
            "grading_timeout": 60,
            **(entry or {}),
        }
        lines = ['name = "attack"', "", "[[tasks]]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
        (self.folder / "bench.toml").write_text("\n".join(lines) + "\n", "utf-8")
        with _Watcher(watch):
            done = self.assay("bench", "run", "bench.toml", "--quiet", *options)
        trial = Trial(self.folder, done)
        refused = may_be_refused and self.is_refused(done)
        started = may_lose_its_log or trial.score or f"tried-{self.token}" in trial.stored
        if not (refused or started):
            output = "; ".join(
                f"{result['outcome']} {result['findings']}" for result in trial.results
            )
            raise RuntimeError(f"the attack did not start: {output} {done.output[-600:]}")
        return trial


class _Watcher:
    """Calls a function repeatedly during the block."""

    def __init__(self, look: Callable[[], None] | None) -> None:
        self._look, self._over = look, threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _go(self) -> None:
        while self._look is not None and not self._over.wait(0.02):
            with suppress(OSError):  # a file or process that has just gone
                self._look()


@dataclass(frozen=True, slots=True)
class Attack:
    """A line of the table."""

    name: str
    what: str
    """What is tried."""
    held_by: str
    """What contains it."""
    run: Callable[[Scene], str]
    """Returns what was seen of its success, nothing if it failed; NotHere if it cannot be."""


def run_git(folder: Path, *arguments: str) -> str:
    """Run git without user settings; return its output."""
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "gc.auto=0")
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def _read_texts(paths: Any) -> str:
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in paths)
