"""Sides that run in a separate process, and the paths of their Python."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = [
    "INSPECT_PYTHON",
    "LOCAL_PYTHON",
    "ORACLES_PYTHON",
    "PATH",
    "PEERS_PYTHON",
    "RAY_PYTHON",
    "ROOT",
    "TRL_PYTHON",
    "PeerFailed",
    "run_code",
    "run_module",
    "run_peer_script",
    "wall_time",
]

ROOT: Final = Path(__file__).resolve().parents[1]
PATH: Final = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
"""PYTHONPATH with which a process imports this tree instead of installed packages."""
PEERS_PYTHON: Final = Path(
    os.environ.get("ASSAY_PEERS_PYTHON") or ROOT / ".venv-peers" / "bin" / "python"
)
"""The Python that has Craftax; `make install-peers` makes it."""
INSPECT_PYTHON: Final = Path(
    os.environ.get("ASSAY_INSPECT_PYTHON") or ROOT / ".venv-inspect" / "bin" / "python"
)
"""The Python that has Inspect AI; `make install-peers` makes it."""
ORACLES_PYTHON: Final = Path(
    os.environ.get("ASSAY_ORACLES_PYTHON") or ROOT / ".venv-oracles" / "bin" / "python"
)
"""The Python that has rliable and AdaStop; `make install-oracles` makes it."""
LOCAL_PYTHON: Final = Path(
    os.environ.get("ASSAY_LOCAL_PYTHON") or ROOT / ".venv-local" / "bin" / "python"
)
"""The Python that has torch and the weights of SmolLM2; `make install-local` makes it."""
TRL_PYTHON: Final = Path(
    os.environ.get("ASSAY_TRL_PYTHON") or ROOT / ".venv-trl" / "bin" / "python"
)
"""The Python that has TRL, peft and transformers; `make install-peers` makes it."""

RAY_PYTHON: Final = Path(
    os.environ.get("ASSAY_RAY_PYTHON") or ROOT / ".venv-ray" / "bin" / "python"
)
"""The Python that has Ray; `make install-ray` makes it."""

_SCRIPTS: Final = Path(__file__).resolve().parent / "peers"


class PeerFailed(Exception):
    """A side cannot be measured; the message has the reason."""


def run_peer_script(
    script: str,
    *arguments: str,
    python: Path | str = sys.executable,
    environment: Mapping[str, str] | None = None,
    timeout: float,
) -> float:
    """Return the seconds that a script of `perf/peers` measured in a new process."""
    command = [str(python), str(_SCRIPTS / script), *arguments]
    output = _run_process(command, environment, timeout)
    try:
        return float(json.loads(output.splitlines()[-1])["seconds"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise PeerFailed(f"{script} printed {output[-200:]!r} instead of seconds") from None


def run_module(
    module: str,
    *arguments: str,
    python: Path | str = sys.executable,
    environment: Mapping[str, str] | None = None,
    timeout: float,
) -> dict[str, float]:
    """Return the values that a module of `perf` measured in a new process, by name."""
    command = [str(python), "-m", module, *arguments]
    output = _run_process(command, {**(environment or {}), "PYTHONPATH": PATH}, timeout)
    try:
        answer = json.loads(output.splitlines()[-1])
        return {name: float(value) for name, value in answer.items()}
    except (IndexError, AttributeError, TypeError, ValueError):
        raise PeerFailed(f"{module} printed {output[-200:]!r} instead of values") from None


def run_code(*command: str, timeout: float) -> str:
    """Return the output of a new Python process."""
    return _run_process([sys.executable, *command], None, timeout)


def wall_time(code: str, environment: Mapping[str, str], timeout: float) -> float:
    """Return the seconds from start to exit of a new Python that runs this code."""
    started = time.perf_counter()
    _run_process([sys.executable, "-c", code], environment, timeout)
    return time.perf_counter() - started


def _run_process(
    command: Sequence[str], environment: Mapping[str, str] | None, timeout: float
) -> str:
    name = command[2] if command[1] in ("-c", "-m") else Path(command[1]).name
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
