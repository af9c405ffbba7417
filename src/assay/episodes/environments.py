"""Environments other than Crafter: user-defined classes, and registered Gymnasium environments.

Actions are stored as text: by name if they have names, otherwise as JSON. `OwnWorld` runs an
environment as the world of an episode. It runs in a thread, so that a hanging environment does
not block others. For deterministic environments, a digest of the observation after each step
makes episodes verifiable.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import isfinite
from typing import Any, Final, NamedTuple

import numpy as np

from assay.agents.options import AgentOptions
from assay.agents.user_agents import OwnAgent, source_hash
from assay.core.canonical_json import canonical_json, content_hash
from assay.core.user_code import UserThread, parse_object_spec, run_user_file
from assay.episodes.spec import EpisodeLimits
from assay.episodes.totals import EpisodeTotals
from assay.episodes.worlds import Stepped
from assay.errors import UsageError, UserCodeError
from assay.store.records import StepRecord
from assay.types import StopReason

GYMNASIUM: Final = "gymnasium:"
RANDOM: Final = "builtin/random"
"""Name of the baseline that chooses random actions, in any environment."""
_BETTER: Final = ("higher", "lower")


@dataclass(frozen=True, slots=True)
class OwnEnvironment:
    """A loaded environment and its declared properties."""

    spec: str
    """Name in the configuration."""
    name: str
    sha: str
    """Hash of its file; for Gymnasium, of its id and the Gymnasium version."""
    make: Callable[[], Any]
    actions: tuple[str, ...] | None
    """Names of its actions; None if actions are arbitrary values."""
    outcomes: Mapping[str, str]
    deterministic: bool
    has_text: bool
    rules: str
    space: Any = None
    """Action space of a Gymnasium environment without action names."""

    @property
    def can_be_told(self) -> bool:
        """Whether a language model can play it, because it has texts and action names."""
        return self.has_text and self.actions is not None

    def written(self, action: Any) -> str:
        """Return an action as stored."""
        if self.actions is not None:
            return self.actions[int(action)] if not isinstance(action, str) else action
        return canonical_json(self._jsonable(action)).decode()

    def _jsonable(self, action: Any) -> Any:
        if self.space is None:
            return action
        if self.space.shape is None:  # a composite space
            return self.space.to_jsonable([action])
        array = np.asarray(action, self.space.dtype)
        if array.shape != self.space.shape:
            raise ValueError(f"an action is one of {self.space}")
        return self.space.to_jsonable([array])[0]

    def meant(self, written: str) -> Any:
        """Return the action for a stored text."""
        if self.space is None:
            if self.actions is None:
                return _json(written)
            return self.actions.index(written) if self.spec.startswith(GYMNASIUM) else written
        kept = _json(written)
        return self.space.from_jsonable([kept] if self.space.shape is not None else kept)[0]

    def random_agent(self) -> OwnAgent:
        """Return an agent that chooses random actions."""
        environment = self

        class RandomActions:
            """Chooses uniformly from all actions, with its own generator."""

            def __init__(self, seed: int) -> None:
                self._random = np.random.default_rng(seed)
                self._space = deepcopy(environment.space)
                if self._space is not None:
                    self._space.seed(seed)

            def act(self, observation: Any) -> Any:
                """Return a random action."""
                if self._space is not None:
                    return self._space.sample()
                if environment.actions is None:
                    raise UserCodeError(
                        f"{environment.name} has no names of actions, so nobody can draw one; "
                        "give the class `actions`, or leave out the baselines"
                    )
                return int(self._random.integers(len(environment.actions)))

        return OwnAgent(RANDOM, "", RandomActions, frozenset({"seed"}))


def load_environment(spec: str) -> OwnEnvironment:
    """Load `file.py:Class` or `gymnasium:ID`; an instance is created once as a check."""
    if spec.startswith(GYMNASIUM):
        return _of_gymnasium(spec)
    if "@" in spec and ":" not in spec:
        raise UsageError(
            f"environment {spec!r} was given as a class by a program; give the class again: "
            f"environment={spec.partition('@')[0]}"
        )
    if (found := parse_object_spec(spec)) is None:
        raise UsageError(
            f"environment {spec!r} is not allowed; give a Python file and a class in it, such "
            "as maze.py:Maze, or an id of gymnasium, such as gymnasium:CartPole-v1"
        )
    path, name = found
    code = run_user_file(path, "environments")
    value = code.names.get(name)
    if not isinstance(value, type):
        classes = [key for key, there in code.names.items() if isinstance(there, type)]
        raise UsageError(f"{path} has no class {name!r}; it has {', '.join(classes) or 'none'}")
    return own_environment(value, spec=spec, sha=code.sha)


def own_environment(
    value: type, *, spec: str | None = None, sha: str | None = None
) -> OwnEnvironment:
    """Make an environment from a class; raise UsageError if a required method is missing.

    Args:
        value: The class.
        spec: Name in the configuration; default: from its name and source.
        sha: Hash of its file; default: hash of its source.
    """
    name = value.__name__
    sha = sha or source_hash(value)
    spec = spec or f"{name}@{sha[:12]}"
    for method in ("reset", "step"):
        if not callable(getattr(value, method, None)):
            raise UsageError(f"environment {name!r} has no method {method}")
    outcomes = dict(getattr(value, "outcomes", {}))
    for outcome, better in outcomes.items():
        if better not in _BETTER:
            raise UsageError(
                f"environment {name!r}: outcomes[{outcome!r}] is {better!r}; say which way is "
                "better, 'higher' or 'lower'"
            )
    shows_text = isinstance(_first_shown(name, value), str)
    actions = getattr(value, "actions", None)
    return OwnEnvironment(
        spec=spec,
        name=name,
        sha=sha,
        make=value,
        actions=None if actions is None else tuple(map(str, actions)),
        outcomes=outcomes,
        deterministic=bool(getattr(value, "deterministic", True)),
        has_text=callable(getattr(value, "text", None)) or shows_text,
        rules=str(getattr(value, "rules", "") or (value.__doc__ or "").strip()),
    )


def _first_shown(name: str, value: Any) -> Any:
    try:
        made = value()
        shown = first_observation(made.reset(seed=0))
        getattr(made, "close", lambda: None)()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"environment {name!r} cannot be begun: {type(error).__name__}: {error}"
        ) from error
    return shown


def _of_gymnasium(spec: str) -> OwnEnvironment:
    import gymnasium

    name = spec.removeprefix(GYMNASIUM)

    def make() -> Any:
        return gymnasium.make(name)

    try:
        made = make()
    except Exception as error:  # Gymnasium and registered packages raise many exception types
        raise UsageError(f"environment {spec!r}: {type(error).__name__}: {error}") from error
    space = made.action_space
    names = None
    if isinstance(space, gymnasium.spaces.Discrete) and int(space.start) == 0:
        names = tuple(map(str, range(int(space.n))))
    made.close()
    version = f"{name} of gymnasium {gymnasium.__version__}"
    return OwnEnvironment(
        spec=spec,
        name=name,
        sha=content_hash(version.encode()),
        make=make,
        actions=names,
        outcomes={},
        deterministic=not made.spec.nondeterministic,
        has_text=isinstance(made.observation_space, gymnasium.spaces.Text),
        rules="",
        space=None if names else space,
    )


def environment_metadata(
    environment: OwnEnvironment, agent: AgentOptions, limits: EpisodeLimits
) -> dict[str, Any]:
    """Return the data that a replay needs and that is not in a column."""
    return {
        "environment": {
            "spec": environment.spec,
            "sha": environment.sha,
            "deterministic": environment.deterministic,
        },
        "agent": asdict(agent) | {"prompt": agent.prompt is not None},
        "limits": asdict(limits),
    }


def first_observation(shown: Any) -> Any:
    """Return the first observation; Gymnasium returns it in a tuple with a dictionary."""
    if isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[1], dict):
        return shown[0]
    return shown


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Seen(NamedTuple):
    """Observation after a step."""

    observation: Any
    """As returned by the environment."""
    text: str | None
    """Text for a language model; None if there is none."""


class OwnWorld:
    """A user-defined environment as the world of an episode, in a thread."""

    has_achievements = False

    def __init__(self, environment: OwnEnvironment, seed: int, limit_s: float) -> None:
        self._environment, self._seed = environment, seed
        self._thread = UserThread(environment.name, limit_s)
        self._made: Any = None
        self.declared: dict[str, float] = {}
        """Values of its declared outcomes after the last step."""

    async def begin(self) -> tuple[Seen, Mapping[str, int]]:
        """Create the environment, and return the first observation."""
        return await self._thread.call(self._begin), {}

    def _begin(self) -> Seen:
        self._made = self._environment.make()
        return self._seen(first_observation(self._made.reset(seed=self._seed)))

    async def step(self, actions: Sequence[str], made: int) -> Stepped:
        """Execute actions until one ends the episode."""
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
        """Return the common outcomes and those declared by the environment."""
        return totals.common_outcomes(seconds) | self.declared

    async def leave(self) -> None:
        """Close the environment, and let the thread end."""
        close = getattr(self._made, "close", None)
        if callable(close):
            with suppress(UserCodeError):  # the episode is over, so its errors do not matter
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
    """Return a short hash of values; None if a value has an unsupported type."""
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
