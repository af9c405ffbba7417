"""A recorded episode, played again from its seed, its difficulty and its actions.

Needs no model and asks nobody. What the world does now is shown beside what was recorded;
whether the two agree is for `verify_session` to say.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from assay.crafter import ACTIONS, StepResult, World
from assay.crafter.rules import TASK, WORLD_LENGTH
from assay.errors import ReplayError, UsageError, WorldFull
from assay.traces.records import SessionHeader, SessionRecord, StepRecord

__all__ = ["Replay", "Replayed", "replay_session"]


class Replayed(NamedTuple):
    """One step, as it was recorded and as it came out again."""

    turn: int
    recorded: StepRecord
    result: StepResult
    """What the world did this time."""


class Replay:
    """Plays when iterated over, and sums up what was played so far.

    A session that says too little to be played again is a ReplayError with the reason.
    """

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.world = _world(session.header)
        _require_actions(session)
        self.reward = 0.0
        """The sum of all rewards."""
        self.unlocked: dict[str, int] = {}
        """The achievements in the order they came, each with its step."""
        self.steps = sum(len(played.steps) for played in session.played)
        """How many steps were recorded."""

    def __iter__(self) -> Iterator[Replayed]:
        """Yield the steps as they are made; EpisodeOver if the world ends before they do."""
        for played in self.session.played:
            for recorded in played.steps:
                result = self.world.step(recorded.action)
                self.reward = round(self.reward + result.reward, 6)
                self.unlocked.update(dict.fromkeys(result.unlocked, self.world.steps))
                yield Replayed(played.turn, recorded, result)


def _require_actions(session: SessionRecord) -> None:
    for played in session.played:
        for step in played.steps:
            if step.action not in ACTIONS:
                raise ReplayError(
                    f"step {step.index} is {step.action[:80]!r}, "
                    "which is no action of this world"
                )


def replay_session(session: SessionRecord) -> Iterator[Replayed]:
    """Play a recorded session again, step by step."""
    return iter(Replay(session))


def _world(header: SessionHeader) -> World:
    """The world of a session at its start."""
    if not header.task.startswith(TASK):
        raise ReplayError(
            f"its task is {header.task[:80]!r}; only episodes of Crafter can be played again"
        )
    if header.seed is None:
        raise ReplayError("it has no seed")
    metadata = header.metadata
    difficulty = _difficulty(header)
    try:
        return World(
            header.seed,
            difficulty,
            metadata.get("length", WORLD_LENGTH),
            episode=metadata.get("world_episode", 1),
        )
    except (UsageError, WorldFull) as error:
        raise ReplayError(f"its world cannot be made: {error}") from error


def _difficulty(header: SessionHeader) -> str | Mapping[str, Any]:
    # All numbers of a difficulty are recorded, because its name may come to mean others.
    given = header.metadata.get("difficulty", header.difficulty)
    if isinstance(given, (str, Mapping)):
        return given
    raise ReplayError("it does not say its difficulty")
