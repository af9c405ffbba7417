"""Runs of `assay run` against a server of models, each in a separate process.

Models do nothing, one action in a turn, in worlds without enemies: an episode has exactly as
many turns as it may have, and takes as long as its answers do.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf.processes import PeerFailed, run_code

__all__ = ["Load", "running_load", "wall_time"]

_NO_ENEMIES: Final = """\
[difficulty]
zombie_chance = 0.0
zombie_spawn_chance = 0.0
zombies_by_night = 0.0
zombies_by_day = 0.0
skeleton_chance = 0.0
skeleton_spawn_chance = 0.0
skeletons_at_most = 0.0
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is played, and how much of it at once."""

    models: Sequence[str]
    episodes: int
    turns: int
    at_once: int = 1
    """Models that play at the same time."""
    episodes_at_once: int = 1000

    def options(self, address: str, folder: Path) -> list[str]:
        """The command line for a server of models, with files in a folder."""
        config = folder / "no_enemies.toml"
        config.write_text(_NO_ENEMIES)
        given = {
            "config": config,
            "openai-base-url": f"{address}/v1",
            "episodes": self.episodes,
            "max-turns": self.turns,
            "max-concurrent-models": self.at_once,
            "max-concurrent-episodes": self.episodes_at_once,
            "actions-per-turn": 1,
            "database": folder / "traces.duckdb",
            "traces-dir": folder / "traces",
        }
        options = [f"--{name}={value}" for name, value in given.items()]
        flags = ("--no-baselines", "--concurrent-models", "--json")
        return ["-m", "assay", "run", "--models", *self.models, *options, *flags]


def wall_time(address: str, load: Load, timeout: float) -> float:
    """Seconds from the start of the command to its end; every turn must have been played."""
    with tempfile.TemporaryDirectory(prefix="assay-perf-models-") as name:
        command = load.options(address, Path(name))
        began = time.perf_counter()
        output = run_code(*command, timeout=timeout)
        seconds = time.perf_counter() - began
    rows = json.loads(output)["models"]
    played = [(row["model"], row["results"], row["turns"]["mean"]) for row in rows]
    if played != [(name, load.episodes, load.turns) for name in load.models]:
        raise PeerFailed(f"not all turns were played: {played}")
    return seconds


@contextmanager
def running_load(address: str, load: Load) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a run going during the block, unless it ends before."""
    with tempfile.TemporaryDirectory(prefix="assay-perf-models-") as name:
        command = [sys.executable, *load.options(address, Path(name))]
        null = subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=null, stderr=null)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
