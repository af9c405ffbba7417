"""Runs on a Ray cluster: from one process to one node, and from one node to two."""

from functools import partial
from typing import Final

from .measure import Row, Topic
from .processes import RAY_PYTHON, run_module

__all__ = ["RAY_SIDES", "TOPIC"]


def _time_episode(nodes: int, turn: int) -> float:
    return run_module(
        "perf.sides.ray_runs", "--nodes", str(nodes), python=RAY_PYTHON, timeout=900
    )["seconds"]


RAY_SIDES: Final = ("one process", "one node", "two nodes")
"""The sides that need Ray."""

TOPIC: Final = Topic(
    name="ray",
    unit="episode",
    sides={
        "one process": partial(_time_episode, 0),
        "one node": partial(_time_episode, 1),
        "two nodes": partial(_time_episode, 2),
    },
    rows=(
        Row(
            name="ray-one-node",
            what="an episode of builtin/expert on a Ray node of one CPU",
            ours="one node",
            peer="one process",
            against="one process, no Ray",
        ),
        Row(
            name="ray-two-nodes",
            what="the same on two nodes of one CPU each",
            ours="two nodes",
            peer="one node",
            against="one node",
        ),
    ),
    notes=("ray: 40 episodes of at most 100 turns minus 8, to exclude the start of workers",),
    rounds_at_most=3,
    warmup=False,
)
