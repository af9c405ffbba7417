"""Running totals of one episode, and the outcomes they come to.

Fed with calls and turns as they come; the same records in the same order always give the
same numbers, so that outcomes can be made again from a trace.
"""

from assay.crafter.rules import ACHIEVEMENTS, NoEffect
from assay.runs.model_calls import CallTotals
from assay.store.records import PlayedRecord, SessionRecord


class EpisodeTotals(CallTotals):
    """What one episode has come to so far."""

    __slots__ = (
        *("asked", "asleep", "malformed", "no_effect", "steps"),
        *("_reward", "unknown", "unlocked"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        """Steps of the environment."""
        self.asked = 0
        """Actions asked for, unknown ones included."""
        self.unknown = 0
        """Those among them that do not exist."""
        self.no_effect = 0
        """Actions played that changed nothing, not counting those of a sleeper."""
        self.asleep = 0
        """Actions that a sleeping player did not carry out."""
        self.malformed = 0
        """Replies that could not be read."""
        self.unlocked: dict[str, int] = {}
        """Achievements in the order they came, each with the index of its step."""
        self._reward = 0.0

    @classmethod
    def of(cls, session: SessionRecord) -> "EpisodeTotals":
        """The totals of a recorded session."""
        tally = cls()
        for call in session.calls:
            tally.add_call(call)
        for played in session.played:
            tally.add_played(played)
        return tally

    def add_played(self, played: PlayedRecord) -> None:
        """Count what was played in one turn."""
        self._turns.add(played.turn)
        self.asked += len(played.asked)
        self.unknown += len(played.unknown)
        self.malformed += played.malformed is not None
        self.steps += len(played.steps)
        for step in played.steps:
            self._reward += step.reward
            for name in step.unlocked:
                self.unlocked.setdefault(name, step.index)
            if step.no_effect == NoEffect.ASLEEP:
                self.asleep += 1
            elif step.no_effect is not None:
                self.no_effect += 1

    @property
    def achievements(self) -> int:
        """How many different achievements were unlocked."""
        return len(self.unlocked)

    @property
    def reward(self) -> float:
        """The sum of all rewards."""
        # Rewards are tenths, and so are their sums, which floats alone would not keep.
        return round(self._reward, 6)

    @property
    def invalid(self) -> int:
        """Actions that do not exist or had no effect."""
        return self.unknown + self.no_effect

    @property
    def invalid_rate(self) -> float:
        """`invalid` over `asked`; 0 if nothing was asked for."""
        return self.invalid / self.asked if self.asked else 0.0

    @property
    def waste(self) -> int:
        """Malformed replies, and actions unknown, without effect or ignored while asleep."""
        return self.malformed + self.unknown + self.no_effect + self.asleep

    @property
    def achievement_rate(self) -> float:
        """The share of the 22 achievements that was unlocked."""
        return sum(name in self.unlocked for name in ACHIEVEMENTS) / len(ACHIEVEMENTS)

    @property
    def efficiency_score(self) -> float:
        """`achievement_rate` times `time_efficiency`."""
        return self.achievement_rate * self.time_efficiency

    @property
    def rule_understanding(self) -> float:
        """The share of `asked` that is not `invalid`; 0 if nothing was asked for."""
        return (self.asked - self.invalid) / self.asked if self.asked else 0.0

    @property
    def time_efficiency(self) -> float:
        """The share of actions and malformed replies that is not `waste`; 0 if none came."""
        tried = self.asked + self.malformed
        return (tried - self.waste) / tried if tried else 0.0

    @property
    def time_management(self) -> float:
        """The share of the achievements that was unlocked, averaged over all steps."""
        held = sum(
            self.steps - self.unlocked[name] + 1
            for name in ACHIEVEMENTS
            if name in self.unlocked
        )
        return held / (len(ACHIEVEMENTS) * self.steps) if self.steps else 0.0

    def common_outcomes(self, duration_s: float) -> dict[str, float]:
        """What an episode earns in any environment."""
        earned = {
            "reward": self.reward,
            "steps": float(self.steps),
            "turns": float(self.turns),
            "invalid_rate": self.invalid_rate,
            "tokens": float(self.tokens),
            "duration_s": duration_s,
        }
        if self.cost_usd is not None:
            earned["cost_usd"] = self.cost_usd
        return earned

    def outcomes(self, duration_s: float) -> dict[str, float]:
        """What the episode earned, by the names in `assay.judge.outcomes.OUTCOMES`."""
        earned = {
            "achievements": float(self.achievements),
            **self.common_outcomes(duration_s),
            "achievement_rate": self.achievement_rate,
            "efficiency_score": self.efficiency_score,
            "rule_understanding": self.rule_understanding,
            "time_efficiency": self.time_efficiency,
            "time_management": self.time_management,
        }
        for name in ACHIEVEMENTS:
            earned[f"unlocked/{name}"] = 1.0 if name in self.unlocked else 0.0
        return earned
