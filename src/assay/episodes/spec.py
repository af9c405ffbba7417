"""Specification of an episode and its limits. Light and picklable; nothing is opened here.

Ids never change: a component that was added to an id later is included only if it differs
from its default.
"""

from dataclasses import asdict, dataclass
from typing import Any

from assay.agents.options import AgentOptions
from assay.core.canonical_json import canonical_json, content_hash, derive_id
from assay.core.settings import to_stored
from assay.crafter.difficulty import DIFFICULTIES, Difficulty
from assay.crafter.rules import WORLD_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One arm in one world; the payload of a trial."""

    run_id: str
    arm: str
    """Label of the arm."""
    episode: int
    """Number within the arm, counted from 0."""
    seed: int
    task: int = 0
    """Index of its task within the run, counted from 0."""
    replicate: int = 0
    """Number of earlier episodes of the arm in this world."""
    fork: int | None = None
    """Index of the fork point in the run's `forks`; None for a whole episode."""
    future: int = 0
    """Number of earlier continuations from this fork point."""

    @property
    def experiment_id(self) -> str:
        """Id of its experiment."""
        return derive_id(self.run_id, self.arm)

    @property
    def session_id(self) -> str:
        """Id of its session, equal in every process."""
        replicate = (self.replicate,) if self.replicate else ()
        return derive_id(self.run_id, self.arm, self.seed, self.episode, *replicate)

    @property
    def sampling_seed(self) -> int:
        """Seed of its model requests: the world seed, or for a fork a seed per continuation.

        A fork seed is equal for all arms of a run and differs between runs, so that another run
        of the same fork points produces new continuations.
        """
        if self.fork is None:
            return self.seed
        return int(derive_id(self.run_id, self.fork, self.future)[:7], 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """Limits of an episode; None means no limit."""

    turns: int
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    """Time in model calls and the world, without waiting for other trials."""


def name_difficulty(difficulty: Difficulty) -> str:
    """Return the name of a difficulty; custom numbers are named by their hash."""
    for name, known in DIFFICULTIES.items():
        if known == difficulty:
            return name
    return f"custom-{content_hash(canonical_json(to_stored(difficulty)))[:8]}"


def make_episode_metadata(
    difficulty: Difficulty, agent: AgentOptions, limits: EpisodeLimits
) -> dict[str, Any]:
    """Return the data that a replay needs and that is not in a column."""
    from assay.crafter.engine.digest import DIGEST_VERSION  # importing it loads a compiler

    return {
        "difficulty": asdict(difficulty),
        "length": WORLD_LENGTH,
        "world_episode": 1,
        "digest_version": DIGEST_VERSION,
        "agent": asdict(agent) | {"prompt": agent.prompt is not None},
        "limits": asdict(limits),
    }
