"""The states of the world at which calls were made, and what was earned from there on.

The world is made again from its seed and its recorded actions; a session that cannot be played
again, or that differs from its trace, has no states.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple

from assay.errors import EpisodeOver, ReplayError, WorldFull
from assay.metrics import Replay
from assay.traces.records import SessionRecord

__all__ = ["CallState", "call_states", "returns_of"]


class CallState(NamedTuple):
    """The world before a turn."""

    step: int
    """Steps made so far."""
    snapshot: str
    """For `World.restore`, in base64."""
    digest: str
    """In hexadecimal."""


def call_states(session: SessionRecord, *, snapshots: bool = True) -> Mapping[int, CallState]:
    """The state before each turn that was played; empty if the world cannot be played again."""
    try:
        replay = Replay(session)
        states: dict[int, CallState] = {}
        world = replay.world
        for played in session.played:
            saved = base64.b64encode(world.snapshot()).decode() if snapshots else ""
            states[played.turn] = CallState(world.steps, saved, f"{world.digest():016x}")
            for step in played.steps:
                world.step(step.action)
                if step.digest is not None and step.digest != f"{world.digest():016x}":
                    return {}
    except (EpisodeOver, ReplayError, WorldFull):
        return {}
    return states


def returns_of(session: SessionRecord) -> Mapping[int, float]:
    """What was earned from each turn on to the end of the episode."""
    total, returns = 0.0, dict[int, float]()
    for played in reversed(session.played):
        total += sum(step.reward for step in played.steps)
        returns[played.turn] = round(total, 6)
    return returns
