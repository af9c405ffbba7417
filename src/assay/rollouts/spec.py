"""Which episode to play, and by which rules. Light and picklable; nothing is opened here.

Ids stay the same for good: a part that is added to one later is in it only where it is not
its default.
"""

from dataclasses import asdict, dataclass
from typing import Any

from assay._util.canonical import canonical_json, content_hash, derived_id
from assay._util.settings import written
from assay.agents import AgentOptions
from assay.crafter import DIFFICULTIES, DIGEST_VERSION, Difficulty
from assay.crafter.rules import WORLD_LENGTH

__all__ = ["EpisodeLimits", "EpisodeSettings", "EpisodeSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One model in one world; the payload of a trial."""

    run_id: str
    model: str
    episode: int
    """Counted from 0 within the model."""
    seed: int

    @property
    def experiment_id(self) -> str:
        """The id of the experiment that it belongs to."""
        return derived_id(self.run_id, self.model)

    @property
    def session_id(self) -> str:
        """The id of its session, the same in every process."""
        return derived_id(self.run_id, self.model, self.seed, self.episode)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """When an episode is stopped from outside; None means never."""

    turns: int
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    """Time of its model and its world; waiting for a turn is not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSettings:
    """What all episodes of a run have in common."""

    difficulty: Difficulty
    agent: AgentOptions
    limits: EpisodeLimits
    length: int = WORLD_LENGTH

    @property
    def difficulty_name(self) -> str:
        """The name of the difficulty; numbers of the user's own are named by their hash."""
        for name, known in DIFFICULTIES.items():
            if known == self.difficulty:
                return name
        return f"custom-{content_hash(canonical_json(written(self.difficulty)))[:8]}"

    def metadata(self) -> dict[str, Any]:
        """All that a replay needs and no column holds."""
        return {
            "difficulty": asdict(self.difficulty),
            "length": self.length,
            "world_episode": 1,
            "digest_version": DIGEST_VERSION,
            "agent": asdict(self.agent) | {"prompt": self.agent.prompt is not None},
            "limits": asdict(self.limits),
        }
