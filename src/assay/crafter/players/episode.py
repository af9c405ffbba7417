"""An episode of one policy in one world, step by step. Draws nothing and stores nothing."""

from collections.abc import Iterator
from typing import NamedTuple

from assay.crafter.players.policies import Policy
from assay.crafter.world import StepResult, World
from assay.errors import UsageError
from assay.types import StopReason


class Moment(NamedTuple):
    """One completed step of an episode."""

    step: int
    """Number of steps the world has made."""
    action: int
    """The chosen action, an index into `ACTIONS`."""
    result: StepResult


class PolicyEpisode:
    """An episode that is played while it is iterated over; its attributes are totals so far."""

    def __init__(self, world: World, policy: Policy, max_steps: int | None = None) -> None:
        if max_steps is not None and max_steps < 1:
            raise UsageError(f"max_steps {max_steps!r} is not allowed; give a number from 1")
        self.world = world
        self.policy = policy
        self.reward = 0.0
        self.unlocked: dict[str, int] = {}
        """Step of each achievement, in the order they were unlocked."""
        self.ended: str | None = None
        """None while the episode is running, else `died`, `length` or `max_steps`."""
        self._last = None if max_steps is None else world.steps + max_steps

    def __iter__(self) -> Iterator[Moment]:
        """Play until the episode ends, and yield each step."""
        while self.ended is None:
            action = self.policy.act(self.world.view())
            result = self.world.step(action)
            step = self.world.steps
            self.reward += result.reward
            self.unlocked.update(dict.fromkeys(result.unlocked, step))
            self.ended = result.ended
            if self.ended is None and step == self._last:
                self.ended = StopReason.MAX_STEPS
            yield Moment(step, action, result)
