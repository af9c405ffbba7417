"""Which episode to play, and by which rules. Light and picklable; nothing is opened here.

Ids stay the same for good: a part that is added to one later is in it only where it is not
its default.
"""

from dataclasses import asdict, dataclass
from typing import Any

from assay.agents.options import AgentOptions
from assay.core.canonical_json import canonical_json, content_hash, derived_id
from assay.core.settings import written
from assay.crafter.difficulty import DIFFICULTIES, Difficulty
from assay.crafter.rules import WORLD_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One arm in one world; the payload of a trial."""

    run_id: str
    arm: str
    """Its label."""
    episode: int
    """Counted from 0 within the arm."""
    seed: int
    task: int = 0
    """Which of the tasks of the run, counted from 0."""
    replicate: int = 0
    """How often the arm has played this world before."""
    fork: int | None = None
    """Which of the states of the run it is played on from; None for the start of a world."""
    future: int = 0
    """How often the arm has played on from this state before."""

    @property
    def experiment_id(self) -> str:
        """The id of the experiment that it belongs to."""
        return derived_id(self.run_id, self.arm)

    @property
    def session_id(self) -> str:
        """The id of its session, the same in every process."""
        again = (self.replicate,) if self.replicate else ()
        return derived_id(self.run_id, self.arm, self.seed, self.episode, *again)

    @property
    def sampling_seed(self) -> int:
        """The seed of its requests: that of the world, but each future has one of its own.

        It is the same for every arm, and another in every run, so that more futures of a
        state are new ones.
        """
        if self.fork is None:
            return self.seed
        return int(derived_id(self.run_id, self.fork, self.future)[:7], 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """When an episode is stopped from outside; None means never."""

    turns: int
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    """Time of its model and its world; waiting for a turn is not in it."""


def difficulty_name(difficulty: Difficulty) -> str:
    """The name of a difficulty; numbers of the user's own are named by their hash."""
    for name, known in DIFFICULTIES.items():
        if known == difficulty:
            return name
    return f"custom-{content_hash(canonical_json(written(difficulty)))[:8]}"


def episode_metadata(
    difficulty: Difficulty, agent: AgentOptions, limits: EpisodeLimits
) -> dict[str, Any]:
    """All that a replay needs and no column holds."""
    from assay.crafter.engine.digest import (
        DIGEST_VERSION,  # what it comes from loads a compiler
    )

    return {
        "difficulty": asdict(difficulty),
        "length": WORLD_LENGTH,
        "world_episode": 1,
        "digest_version": DIGEST_VERSION,
        "agent": asdict(agent) | {"prompt": agent.prompt is not None},
        "limits": asdict(limits),
    }
