"""An environment of the user's own as the world of an episode.

It runs in a thread, so that one that hangs stops nobody else. A digest of what is shown after
each step lets an episode be verified where the environment is deterministic.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from assay._util.user_threads import UserThread
from assay.errors import UserCodeError
from assay.metrics import EpisodeTotals
from assay.traces.records import StepRecord
from assay.types import StopReason

from .environments import OwnEnvironment, first_observation
from .worlds import Stepped

__all__ = ["OwnWorld", "Seen", "digest_of"]


class Seen(NamedTuple):
    """What can be seen after a step."""

    observation: Any
    """As the environment shows it."""
    text: str | None
    """The same for a language model; None if there is no such text."""


class OwnWorld:
    """An environment of the user's own as the world of an episode, in a thread."""

    has_achievements = False

    def __init__(self, environment: OwnEnvironment, seed: int, limit_s: float) -> None:
        self._environment, self._seed = environment, seed
        self._thread = UserThread(environment.name, limit_s)
        self._made: Any = None
        self.declared: dict[str, float] = {}
        """What its outcomes are after the last step."""

    async def begin(self) -> tuple[Seen, Mapping[str, int]]:
        """Make it, and see what it shows first."""
        return await self._thread.call(self._begin), {}

    def _begin(self) -> Seen:
        self._made = self._environment.make()
        return self._seen(first_observation(self._made.reset(seed=self._seed)))

    async def step(self, actions: Sequence[str], made: int) -> Stepped:
        """Carry out actions until one ends it."""
        stepped: Stepped = await self._thread.call(lambda: self._step(actions, made))
        return stepped

    def _step(self, actions: Sequence[str], made: int) -> Stepped:
        steps: list[StepRecord] = []
        ended = None
        observation: Any = None
        for index, action in enumerate(actions, start=made + 1):
            result = self._made.step(self._environment.meant(action))
            observation, reward, terminated, truncated = _result(self._environment, result)
            digest = None
            if self._environment.deterministic:
                digest = digest_of([observation, reward, terminated, truncated])
            steps.append(
                StepRecord(
                    index=index,
                    action=action,
                    reward=reward,
                    digest=digest,
                    terminated=terminated,
                    truncated=truncated,
                )
            )
            if terminated or truncated:
                ended = StopReason.DONE if terminated else StopReason.LENGTH
                break
        self.declared = self._outcomes()
        return Stepped(tuple(steps), self._seen(observation), ended)

    def _seen(self, observation: Any) -> Seen:
        tell = getattr(self._made, "text", None)
        if callable(tell):
            return Seen(observation, str(tell(observation)))
        return Seen(observation, observation if isinstance(observation, str) else None)

    def _outcomes(self) -> dict[str, float]:
        return {
            name: _number(self._environment, name, getattr(self._made, name, None))
            for name in self._environment.outcomes
        }

    def outcomes(self, totals: EpisodeTotals, seconds: float) -> dict[str, float]:
        """What any episode earns, and what the environment declares."""
        return totals.common_outcomes(seconds) | self.declared

    async def leave(self) -> None:
        """Let the thread end."""
        close = getattr(self._made, "close", None)
        if callable(close):
            with suppress(UserCodeError):  # the episode is over, whatever it says
                await self._thread.call(close)
        self._thread.leave()


def _result(environment: OwnEnvironment, result: Any) -> tuple[Any, float, bool, bool]:
    if isinstance(result, tuple) and len(result) == 3:
        observation, reward, terminated = result
        truncated = False
    elif isinstance(result, tuple) and len(result) == 5:
        observation, reward, terminated, truncated, _ = result
    else:
        several = isinstance(result, tuple)
        what = f"a tuple of {len(result)}" if several else repr(type(result).__name__)
        raise UserCodeError(
            f"{environment.name}.step gave {what}; give observation, reward "
            "and done, or observation, reward, terminated, truncated and info"
        )
    return (
        observation,
        _number(environment, "reward", reward),
        bool(terminated),
        bool(truncated),
    )


def _number(environment: OwnEnvironment, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not isfinite(number):
        raise UserCodeError(
            f"{environment.name}: {name} is {value!r}; give a number that is finite"
        )
    return number


def digest_of(shown: Any) -> str | None:
    """A short hash of what was shown; None where nothing tells two of them apart."""
    state = sha256()
    try:
        _feed(state.update, shown)
    except TypeError:
        return None
    return state.hexdigest()[:16]


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    match value:
        case np.ndarray() | np.generic():
            update(f"{value.dtype.str}{value.shape}".encode())
            update(np.ascontiguousarray(value).tobytes())
        case dict():
            update(b"{")
            for name in sorted(value, key=str):
                _feed(update, str(name))
                _feed(update, value[name])
        case list() | tuple():
            update(f"[{len(value)}".encode())
            for item in value:
                _feed(update, item)
        case str() | bytes() | int() | float() | None:
            update(f"{type(value).__name__}{value!r}".encode())
        case _:
            raise TypeError(type(value).__name__)
