"""Sides that run as a process of their own, and where their Python is."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["PEERS_PYTHON", "ROOT", "PeerFailed", "ask", "wall_time"]

ROOT: Final = Path(__file__).resolve().parents[1]
PEERS_PYTHON: Final = Path(
    os.environ.get("ASSAY_PEERS_PYTHON") or ROOT / ".venv-peers" / "bin" / "python"
)
"""The Python that has Craftax; `make install-peers` makes it."""

_SCRIPTS: Final = Path(__file__).resolve().parent / "peers"


class PeerFailed(Exception):
    """A side cannot be measured; the message says why."""


def ask(
    script: str,
    *arguments: str,
    python: Path | str = sys.executable,
    environment: Mapping[str, str] | None = None,
    timeout: float,
) -> float:
    """The seconds that a script of `perf/peers` measured in a fresh process."""
    command = [str(python), str(_SCRIPTS / script), *arguments]
    output = _run(command, environment, timeout)
    try:
        return float(json.loads(output.splitlines()[-1])["seconds"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise PeerFailed(f"{script} answered {output[-200:]!r} instead of seconds") from None


def wall_time(code: str, environment: Mapping[str, str], timeout: float) -> float:
    """How long a fresh Python takes from its start to its end to run a line of code."""
    started = time.perf_counter()
    _run([sys.executable, "-c", code], environment, timeout)
    return time.perf_counter() - started


def _run(command: Sequence[str], environment: Mapping[str, str] | None, timeout: float) -> str:
    name = Path(command[1]).name if command[1] != "-c" else command[2]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{name} did not finish in {timeout:.0f} s") from None
    except OSError as error:
        raise PeerFailed(f"{command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PeerFailed(f"{name} ended with code {done.returncode}: {last}")
    return done.stdout
