"""Whole runs: what a turn costs, against Inspect AI and against fewer episodes at once."""

import atexit
import os
import shutil
import tempfile
from functools import cache, lru_cache, partial
from typing import Final

from .measure import QUICK, Row, Topic, size
from .processes import INSPECT_PYTHON, run_module

__all__ = ["INSPECT_SIDES", "MANY", "MEMORY", "OPEN", "TOPIC", "measure_inspect_log"]

_LIMIT: Final = 1200
_EPISODES: Final = size(16, 2)
_MORE_EPISODES: Final = size(64, 4)
_OPEN: Final = size(1000, 20)
_TURNS: Final = 20
"""Of an episode in worlds; more than a model is shown, so that memory has stopped growing."""


@lru_cache(maxsize=64)
def _run_inspect(turn: int, episodes: int) -> dict[str, float]:
    return run_module(
        "perf.peers.inspect_turns",
        *("--episodes", str(episodes)),
        python=INSPECT_PYTHON,
        timeout=_LIMIT,
    )


@lru_cache(maxsize=64)
def _run_ours(
    turn: int, episodes: int, turns: int, at_once: int, *more: str
) -> dict[str, float]:
    return run_module(
        "perf.sides.turns",
        *("--episodes", str(episodes), "--turns", str(turns), "--open", str(at_once)),
        *more,
        environment={"ASSAY_CACHE_DIR": _make_cache_folder()},
        timeout=_LIMIT,
    )


@cache
def _make_cache_folder() -> str:
    """Return a separate cache folder: the engine of this process has an extra entry."""
    if QUICK:
        return os.environ["ASSAY_CACHE_DIR"]
    folder = tempfile.mkdtemp(prefix="assay-perf-runs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _measure_stub_cpu(turn: int, *more: str) -> float:
    return _run_ours(turn, _EPISODES, 100, _EPISODES, *more)["seconds"]


def _measure_inspect_cpu(turn: int) -> float:
    return _run_inspect(turn, _EPISODES)["seconds"]


def measure_inspect_log(turn: int) -> float:
    """Return the bytes of the Inspect log per turn."""
    return _run_inspect(turn, _MORE_EPISODES)["disk_bytes"]


@cache
def _compile_engine() -> None:
    """Compile the engine in a separate process, to exclude it from peak memory."""
    if not QUICK:  # then the engine is compiled already
        _run_ours(0, 1, 1, 1, "--real")


def _run_in_world(turn: int, episodes: int, turns: int, at_once: int) -> dict[str, float]:
    _compile_engine()
    return _run_ours(turn, episodes, turns, at_once, "--real")


def _measure_world_cpu(turn: int, at_once: int) -> float:
    return _run_in_world(turn, _OPEN, _TURNS, at_once)["seconds"]


def _measure_own_memory(turn: int) -> float:
    return _run_in_world(turn, _OPEN, _TURNS, _OPEN)["grown_bytes"] / _OPEN


def _measure_inspect_memory(turn: int) -> float:
    few, many = (
        _run_inspect(turn, count)["peak_bytes"] for count in (_EPISODES, _MORE_EPISODES)
    )
    return (many - few) / (_MORE_EPISODES - _EPISODES)


def _measure_peak(turn: int, episodes: int) -> float:
    return _run_in_world(turn, episodes, 4, 100)["peak_bytes"]


INSPECT_SIDES: Final = ("inspect", "inspect memory", "inspect log")
"""The sides that need Inspect AI."""
_AGAINST: Final = "Inspect AI, mock model"

TOPIC: Final = Topic(
    name="turns",
    unit="turn",
    sides={
        "stub": _measure_stub_cpu,
        "stub traces": lambda turn: _measure_stub_cpu(turn, "--traces"),
        "stub bare": lambda turn: _measure_stub_cpu(turn, "--bare"),
        "stub ledger": lambda turn: _measure_stub_cpu(turn, "--ledger"),
        "inspect": _measure_inspect_cpu,
    },
    rows=(
        Row(
            name="turn",
            what="CPU of a turn, stub model and world",
            ours="stub",
            peer="inspect",
            against=_AGAINST,
            target=5,
        ),
        Row(
            name="turn-traces",
            what="the same, and a trace file of each episode",
            ours="stub traces",
            peer="inspect",
            against=_AGAINST,
        ),
        Row(
            name="turn-kept",
            what="CPU of a turn, stub model and world",
            ours="stub",
            peer="stub bare",
            against="the same, without syncs and line hashes",
            cost="x",
            most=1.1,
            peer_unit="turn",
        ),
        Row(
            name="turn-ledger",
            what="the same, with a budget: two lines of a ledger for each call",
            ours="stub ledger",
            peer="stub",
            against="without a budget",
            cost="x",
            peer_unit="turn",
        ),
    ),
    notes=(
        f"User and system time of all threads, {_EPISODES} episodes of 100 turns at once, each "
        "side in a fresh process, back to back; imports and a first small run are not counted. "
        "A request has a system prompt of 1,500 bytes, an opening of 860 and the last 8 turns: "
        "120 bytes of arguments and an observation of 800 each. Ours is the whole of assay run "
        "but its display: agent, hooks, journals, database, results. Inspect AI has its "
        "default log, and its mock model has prepared answers.",
    ),
    warmup=False,
)

OPEN: Final = Topic(
    name="open-episodes",
    unit="turn",
    sides={
        "one": partial(_measure_world_cpu, at_once=1),
        "thousand": partial(_measure_world_cpu, at_once=_OPEN),
    },
    rows=(
        Row(
            name="open-episodes",
            what="CPU of a turn, builtin/random, 1,000 episodes open at once",
            ours="thousand",
            peer="one",
            against="one open at a time",
            cost="x",
            most=1.3,
            peer_unit="turn",
        ),
    ),
    notes=(
        f"The same {_OPEN:,} episodes of at most {_TURNS} turns in real worlds on both sides, "
        "stored and all; only how many are open differs. Start-up is not counted. Episodes are "
        "short: making a world and storing a session weigh more than in longer ones.",
    ),
    rounds_at_most=3,
    warmup=False,
)

MEMORY: Final = Topic(
    name="open-memory",
    unit="episode",
    sides={"thousand memory": _measure_own_memory, "inspect memory": _measure_inspect_memory},
    rows=(
        Row(
            name="open-memory",
            what="memory of an open episode, of 1,000 in real worlds",
            ours="thousand memory",
            peer="inspect memory",
            against=_AGAINST,
            target=5,
        ),
    ),
    notes=(
        "Ours: how much the resident memory grew at its peak, divided by the open episodes; "
        "the writer, the database and all else that is needed once are in it. Inspect AI: "
        f"what its peak grew from {_EPISODES} to {_MORE_EPISODES} episodes, for each of them.",
    ),
    rounds_at_most=1,
    in_bytes=True,
    warmup=False,
)

MANY: Final = Topic(
    name="many-episodes",
    unit="run",
    sides={
        "1,000": partial(_measure_peak, episodes=size(1_000, 10)),
        "10,000": partial(_measure_peak, episodes=size(10_000, 20)),
    },
    rows=(
        Row(
            name="many-episodes",
            what="peak memory of a run of 10,000 episodes, 100 open",
            ours="10,000",
            peer="1,000",
            against="of 1,000 episodes, 100 open",
            cost="x",
            most=1.2,
            peer_unit="run",
        ),
    ),
    notes=("Episodes of 4 turns in real worlds, stored, in a fresh process for each run.",),
    rounds_at_most=1,
    in_bytes=True,
    warmup=False,
)
