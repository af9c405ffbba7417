"""`assay play` in a real terminal of 24 lines and 80 columns."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("compiled_engine")

UPPER_HALF = "▀"
ALTERNATE_SCREEN = "\x1b[?1049h"


class Terminal:
    """A program in a pseudo-terminal, with its output so far."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        clean = {
            k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")
        }
        self.program = subprocess.Popen(
            [sys.executable, "-m", "assay", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**clean, "TERM": "xterm-256color", **environment},
        )
        os.close(slave)
        self._written = b""

    @property
    def text(self) -> str:
        return self._written.decode("utf-8", "replace")

    def read_until(self, wanted: str, seconds: float = 60) -> None:
        """Read until the text appears or the program ends."""
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < deadline, f"no {wanted!r} in {self.text[-2000:]!r}"
            if not self._read_some():
                assert wanted in self.text
                return

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """Read the rest and return the exit code."""
        while self._read_some():
            pass
        os.close(self._master)
        return self.program.wait(timeout=60)

    def _read_some(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 60)
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # Linux reports a closed other side so
            return False
        self._written += data
        return bool(data)


def test_a_terminal_shows_the_world_live_and_keeps_the_last_view(tmp_path: Path) -> None:
    terminal = Terminal(
        *("play", "--seed", "3", "--max-steps", "20", "--fps", "50", "--output", str(tmp_path))
    )
    assert terminal.end() == 0
    live, _, after = terminal.text.partition("\x1b[?1049l")
    assert ALTERNATE_SCREEN in live
    assert "step 20, reward" in live
    assert "health" in live
    assert UPPER_HALF in after
    assert "stopped after 20 steps" in after
    assert (tmp_path / "random-classic-seed3.gif").exists()


@pytest.mark.extras
def test_interrupted_game_is_saved(tmp_path: Path) -> None:
    terminal = Terminal("play", "--fps", "2", "--policy", "noop", "--output", str(tmp_path))
    terminal.read_until("step 2, reward")
    terminal.program.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "interrupted after" in terminal.text
    assert "Traceback" not in terminal.text
    assert (tmp_path / "noop-classic-seed0.gif").exists()


@pytest.mark.extras
@pytest.mark.parametrize(
    ("option", "environment"),
    [
        pytest.param(["--no-live"], {}, id="no-live"),
        pytest.param([], {"TERM": "dumb"}, id="a terminal that can only print"),
        pytest.param([], {"NO_COLOR": "1"}, id="no colours wanted", marks=pytest.mark.extras),
    ],
)
def test_plain_lines_replace_the_live_view(
    option: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    terminal = Terminal(
        *("play", "--seed", "3", "--output", str(tmp_path), "--size", "32", *option),
        **environment,
    )
    assert terminal.end() == 0
    assert UPPER_HALF not in terminal.text
    assert ALTERNATE_SCREEN not in terminal.text
    assert "  collect_" in terminal.text
