"""Running totals of one episode, and the outcomes computed from them.

Calls and turns are added in order. Equal records in equal order always give equal numbers, so
outcomes can be recomputed from a trace.
"""

from assay.crafter.rules import ACHIEVEMENTS, NoEffect
from assay.runs.model_calls import CallTotals
from assay.store.records import PlayedRecord, SessionRecord


class EpisodeTotals(CallTotals):
    """Totals of one episode so far."""

    __slots__ = (
        *("asked", "asleep", "malformed", "no_effect", "steps"),
        *("_reward", "unknown", "unlocked"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        """Number of environment steps."""
        self.asked = 0
        """Number of requested actions, including unknown ones."""
        self.unknown = 0
        """Number of requested actions that do not exist."""
        self.no_effect = 0
        """Number of executed actions without effect, except while asleep."""
        self.asleep = 0
        """Number of actions ignored while the player was asleep."""
        self.malformed = 0
        """Number of replies that could not be parsed."""
        self.unlocked: dict[str, int] = {}
        """Step index of each unlocked achievement, in order."""
        self._reward = 0.0

    @classmethod
    def of(cls, session: SessionRecord) -> "EpisodeTotals":
        """Return the totals of a recorded session."""
        totals = cls()
        for call in session.calls:
            totals.add_call(call)
        for played in session.played:
            totals.add_played(played)
        return totals

    def add_played(self, played: PlayedRecord) -> None:
        """Add the actions and steps of one turn."""
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
        """Number of different unlocked achievements."""
        return len(self.unlocked)

    @property
    def reward(self) -> float:
        """Sum of all rewards."""
        # Rewards are multiples of 0.1; rounding removes the floating-point error of the sum.
        return round(self._reward, 6)

    @property
    def invalid(self) -> int:
        """Number of actions that do not exist or had no effect."""
        return self.unknown + self.no_effect

    @property
    def invalid_rate(self) -> float:
        """`invalid` divided by `asked`; 0 if no action was requested."""
        return self.invalid / self.asked if self.asked else 0.0

    @property
    def waste(self) -> int:
        """Number of malformed replies and wasted actions (unknown, no effect, asleep)."""
        return self.malformed + self.unknown + self.no_effect + self.asleep

    @property
    def achievement_rate(self) -> float:
        """Proportion of the 22 achievements that were unlocked."""
        return sum(name in self.unlocked for name in ACHIEVEMENTS) / len(ACHIEVEMENTS)

    @property
    def efficiency_score(self) -> float:
        """`achievement_rate` times `time_efficiency`."""
        return self.achievement_rate * self.time_efficiency

    @property
    def rule_understanding(self) -> float:
        """Proportion of `asked` that is not `invalid`; 0 if no action was requested."""
        return (self.asked - self.invalid) / self.asked if self.asked else 0.0

    @property
    def time_efficiency(self) -> float:
        """Proportion of actions and malformed replies that are not `waste`, or 0."""
        attempts = self.asked + self.malformed
        return (attempts - self.waste) / attempts if attempts else 0.0

    @property
    def time_management(self) -> float:
        """Proportion of unlocked achievements, averaged over all steps."""
        unlocked_steps = sum(
            self.steps - self.unlocked[name] + 1
            for name in ACHIEVEMENTS
            if name in self.unlocked
        )
        return unlocked_steps / (len(ACHIEVEMENTS) * self.steps) if self.steps else 0.0

    def common_outcomes(self, duration_s: float) -> dict[str, float]:
        """Return the outcomes that exist in every environment."""
        outcomes = {
            "reward": self.reward,
            "steps": float(self.steps),
            "turns": float(self.turns),
            "invalid_rate": self.invalid_rate,
            "tokens": float(self.tokens),
            "duration_s": duration_s,
        }
        if self.cost_usd is not None:
            outcomes["cost_usd"] = self.cost_usd
        return outcomes

    def outcomes(self, duration_s: float) -> dict[str, float]:
        """Return the outcomes, by the names in `assay.judge.outcomes.OUTCOMES`."""
        outcomes = {
            "achievements": float(self.achievements),
            **self.common_outcomes(duration_s),
            "achievement_rate": self.achievement_rate,
            "efficiency_score": self.efficiency_score,
            "rule_understanding": self.rule_understanding,
            "time_efficiency": self.time_efficiency,
            "time_management": self.time_management,
        }
        for name in ACHIEVEMENTS:
            outcomes[f"unlocked/{name}"] = 1.0 if name in self.unlocked else 0.0
        return outcomes
