"""How episodes ended, seen in their worlds: played again from what was recorded.

Only episodes of Crafter can be played again. Of very many, some are enough: they are chosen
evenly, and whoever asks says how many.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from assay.analyses.episodes import EpisodeFacts, evenly
from assay.crafter.rules import TASK
from assay.errors import EpisodeOver, ReplayError, WorldFull
from assay.metrics import Replay
from assay.traces.load import load_sessions
from assay.traces.records import SessionRecord
from assay.traces.store import Store

__all__ = ["LAST", "Ending", "LastStep", "play_endings", "play_to_the_end"]

LAST: Final = 40
"""Steps before the end that are looked at."""
_MOST: Final = 1_000
_BATCH: Final = 64
_DARK: Final = 0.3
"""Below this daylight it is night."""


class LastStep(NamedTuple):
    """The player after one of the last steps."""

    action: str
    health: int
    food: int
    drink: int
    energy: int
    asleep: bool
    night: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one episode."""

    inventory: Mapping[str, int]
    """What the player had at the end, vitals included."""
    moments: tuple[LastStep, ...]
    """The last steps, the last one last."""


def play_endings(
    store: Store, facts: Sequence[EpisodeFacts], most: int = _MOST
) -> dict[str, Ending]:
    """The ends of those episodes that can be played again, at most so many, by session."""
    able = [one for one in facts if one.row.task.startswith(TASK) and one.row.steps]
    ids = [one.id for one in evenly(able, most)]
    endings: dict[str, Ending] = {}
    # The store is let go between two batches: a run that goes on must be able to write.
    for start in range(0, len(ids), _BATCH):
        with store.reading() as connection:
            batch = list(load_sessions(connection, ids[start : start + _BATCH], messages=False))
        for session in batch:
            ending = play_to_the_end(session)
            if ending is not None:
                endings[session.header.session_id] = ending
    return endings


def play_to_the_end(session: SessionRecord) -> Ending | None:
    """Play a recorded episode again; None if it cannot be, or comes out otherwise."""
    try:
        replay = Replay(session)
        moments: deque[LastStep] = deque(maxlen=LAST)
        world, first = replay.world, replay.steps - LAST
        for number, (_, recorded, result) in enumerate(replay):
            if number < first:
                continue
            had = world.inventory
            moments.append(
                LastStep(
                    recorded.action,
                    had["health"],
                    had["food"],
                    had["drink"],
                    had["energy"],
                    world.sleeping,
                    world.daylight < _DARK,
                )
            )
            if result.unlocked != recorded.unlocked:
                return None
        return Ending(world.inventory, tuple(moments))
    except (ReplayError, EpisodeOver, WorldFull):
        return None
