"""Environments other than Crafter: user-defined classes, and registered Gymnasium environments.

Actions are stored as text: by name if they have names, otherwise as JSON. `UserWorld` runs an
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
from assay.agents.user_agents import UserAgent, hash_source
from assay.core.canonical_json import canonical_json, content_hash
from assay.core.user_code import UserThread, parse_object_spec, run_user_file
from assay.episodes.spec import EpisodeLimits
from assay.episodes.totals import EpisodeTotals
from assay.episodes.worlds import StepsResult
from assay.errors import UsageError, UserCodeError
from assay.store.records import StepRecord
from assay.types import StopReason

GYMNASIUM: Final = "gymnasium:"
RANDOM: Final = "builtin/random"
"""Name of the baseline that chooses random actions, in any environment."""
_DIRECTIONS: Final = ("higher", "lower")


@dataclass(frozen=True, slots=True)
class UserEnvironment:
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
    def supports_models(self) -> bool:
        """Whether a language model can play it, because it has texts and action names."""
        return self.has_text and self.actions is not None

    def format_action(self, action: Any) -> str:
        """Return an action as stored."""
        if self.actions is not None:
            return self.actions[int(action)] if not isinstance(action, str) else action
        return canonical_json(self._to_jsonable(action)).decode()

    def _to_jsonable(self, action: Any) -> Any:
        if self.space is None:
            return action
        if self.space.shape is None:  # a composite space
            return self.space.to_jsonable([action])
        array = np.asarray(action, self.space.dtype)
        if array.shape != self.space.shape:
            raise ValueError(f"an action must be in {self.space}")
        return self.space.to_jsonable([array])[0]

    def parse_action(self, text: str) -> Any:
        """Return the action for a stored text."""
        if self.space is None:
            if self.actions is None:
                return _parse_json(text)
            return self.actions.index(text) if self.spec.startswith(GYMNASIUM) else text
        stored = _parse_json(text)
        return self.space.from_jsonable([stored] if self.space.shape is not None else stored)[0]

    def make_random_agent(self) -> UserAgent:
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
                        f"{environment.name} has no action names, so a random action cannot be "
                        "chosen; add `actions` to the class, or leave out the baselines"
                    )
                return int(self._random.integers(len(environment.actions)))

        return UserAgent(RANDOM, "", RandomActions, frozenset({"seed"}))


def load_environment(spec: str) -> UserEnvironment:
    """Load `file.py:Class` or `gymnasium:ID`; an instance is created once as a check."""
    if spec.startswith(GYMNASIUM):
        return _load_gymnasium(spec)
    if "@" in spec and ":" not in spec:
        raise UsageError(
            f"environment {spec!r} is a Python class; pass the class again: "
            f"environment={spec.partition('@')[0]}"
        )
    if (object_spec := parse_object_spec(spec)) is None:
        raise UsageError(
            f"environment {spec!r} is not allowed; give a Python file and a class in it, such "
            "as maze.py:Maze, or a Gymnasium id, such as gymnasium:CartPole-v1"
        )
    path, name = object_spec
    code = run_user_file(path, "environments")
    value = code.names.get(name)
    if not isinstance(value, type):
        classes = [
            key for key, value_in_file in code.names.items() if isinstance(value_in_file, type)
        ]
        raise UsageError(f"{path} has no class {name!r}; it has {', '.join(classes) or 'none'}")
    return wrap_environment(value, spec=spec, sha=code.sha)


def wrap_environment(
    value: type, *, spec: str | None = None, sha: str | None = None
) -> UserEnvironment:
    """Make an environment from a class; raise UsageError if a required method is missing.

    Args:
        value: The class.
        spec: Name in the configuration; default: from its name and source.
        sha: Hash of its file; default: hash of its source.
    """
    name = value.__name__
    sha = sha or hash_source(value)
    spec = spec or f"{name}@{sha[:12]}"
    for method in ("reset", "step"):
        if not callable(getattr(value, method, None)):
            raise UsageError(f"environment {name!r} has no method {method}")
    outcomes = dict(getattr(value, "outcomes", {}))
    for outcome, better in outcomes.items():
        if better not in _DIRECTIONS:
            raise UsageError(
                f"environment {name!r}: outcomes[{outcome!r}] is {better!r}; give 'higher' or "
                "'lower', the direction that is better"
            )
    returns_text = isinstance(_read_first_observation(name, value), str)
    actions = getattr(value, "actions", None)
    return UserEnvironment(
        spec=spec,
        name=name,
        sha=sha,
        make=value,
        actions=None if actions is None else tuple(map(str, actions)),
        outcomes=outcomes,
        deterministic=bool(getattr(value, "deterministic", True)),
        has_text=callable(getattr(value, "text", None)) or returns_text,
        rules=str(getattr(value, "rules", "") or (value.__doc__ or "").strip()),
    )


def _read_first_observation(name: str, value: Any) -> Any:
    try:
        instance = value()
        observation = extract_observation(instance.reset(seed=0))
        getattr(instance, "close", lambda: None)()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"environment {name!r} cannot be started: {type(error).__name__}: {error}"
        ) from error
    return observation


def _load_gymnasium(spec: str) -> UserEnvironment:
    import gymnasium

    name = spec.removeprefix(GYMNASIUM)

    def make() -> Any:
        return gymnasium.make(name)

    try:
        instance = make()
    except Exception as error:  # Gymnasium and registered packages raise many exception types
        raise UsageError(f"environment {spec!r}: {type(error).__name__}: {error}") from error
    space = instance.action_space
    names = None
    if isinstance(space, gymnasium.spaces.Discrete) and int(space.start) == 0:
        names = tuple(map(str, range(int(space.n))))
    instance.close()
    version = f"{name} of gymnasium {gymnasium.__version__}"
    return UserEnvironment(
        spec=spec,
        name=name,
        sha=content_hash(version.encode()),
        make=make,
        actions=names,
        outcomes={},
        deterministic=not instance.spec.nondeterministic,
        has_text=isinstance(instance.observation_space, gymnasium.spaces.Text),
        rules="",
        space=None if names else space,
    )


def make_environment_metadata(
    environment: UserEnvironment, agent: AgentOptions, limits: EpisodeLimits
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


def extract_observation(result: Any) -> Any:
    """Return the first observation; Gymnasium returns it in a tuple with a dictionary."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result[0]
    return result


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class EnvironmentView(NamedTuple):
    """Observation after a step."""

    observation: Any
    """As returned by the environment."""
    text: str | None
    """Text for a language model; None if there is none."""


class UserWorld:
    """A user-defined environment as the world of an episode, in a thread."""

    has_achievements = False

    def __init__(self, environment: UserEnvironment, seed: int, limit_s: float) -> None:
        self._environment, self._seed = environment, seed
        self._thread = UserThread(environment.name, limit_s)
        self._instance: Any = None
        self.declared: dict[str, float] = {}
        """Values of its declared outcomes after the last step."""

    async def begin(self) -> tuple[EnvironmentView, Mapping[str, int]]:
        """Create the environment, and return the first observation."""
        return await self._thread.call(self._create), {}

    def _create(self) -> EnvironmentView:
        self._instance = self._environment.make()
        return self._make_view(extract_observation(self._instance.reset(seed=self._seed)))

    async def step(self, actions: Sequence[str], steps_before: int) -> StepsResult:
        """Execute actions until one ends the episode."""
        stepped: StepsResult = await self._thread.call(
            lambda: self._step(actions, steps_before)
        )
        return stepped

    def _step(self, actions: Sequence[str], steps_before: int) -> StepsResult:
        steps: list[StepRecord] = []
        ended = None
        observation: Any = None
        for index, action in enumerate(actions, start=steps_before + 1):
            result = self._instance.step(self._environment.parse_action(action))
            observation, reward, terminated, truncated = _check_result(
                self._environment, result
            )
            digest = None
            if self._environment.deterministic:
                digest = compute_digest([observation, reward, terminated, truncated])
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
        self.declared = self._read_outcomes()
        return StepsResult(tuple(steps), self._make_view(observation), ended)

    def _make_view(self, observation: Any) -> EnvironmentView:
        describe = getattr(self._instance, "text", None)
        if callable(describe):
            return EnvironmentView(observation, str(describe(observation)))
        return EnvironmentView(
            observation, observation if isinstance(observation, str) else None
        )

    def _read_outcomes(self) -> dict[str, float]:
        return {
            name: _check_number(self._environment, name, getattr(self._instance, name, None))
            for name in self._environment.outcomes
        }

    def compute_outcomes(self, totals: EpisodeTotals, seconds: float) -> dict[str, float]:
        """Return the common outcomes and those declared by the environment."""
        return totals.common_outcomes(seconds) | self.declared

    async def close(self) -> None:
        """Close the environment, and let the thread end."""
        close = getattr(self._instance, "close", None)
        if callable(close):
            with suppress(UserCodeError):  # the episode is over, so its errors do not matter
                await self._thread.call(close)
        self._thread.close()


def _check_result(environment: UserEnvironment, result: Any) -> tuple[Any, float, bool, bool]:
    if isinstance(result, tuple) and len(result) == 3:
        observation, reward, terminated = result
        truncated = False
    elif isinstance(result, tuple) and len(result) == 5:
        observation, reward, terminated, truncated, _ = result
    else:
        is_tuple = isinstance(result, tuple)
        description = f"a tuple of {len(result)}" if is_tuple else repr(type(result).__name__)
        raise UserCodeError(
            f"{environment.name}.step returned {description}; return observation, reward "
            "and done, or observation, reward, terminated, truncated and info"
        )
    return (
        observation,
        _check_number(environment, "reward", reward),
        bool(terminated),
        bool(truncated),
    )


def _check_number(environment: UserEnvironment, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not isfinite(number):
        raise UserCodeError(f"{environment.name}: {name} is {value!r}; give a finite number")
    return number


def compute_digest(values: Any) -> str | None:
    """Return a short hash of values; None if a value has an unsupported type."""
    state = sha256()
    try:
        _update_hash(state.update, values)
    except TypeError:
        return None
    return state.hexdigest()[:16]


def _update_hash(update: Callable[[bytes], None], value: Any) -> None:
    match value:
        case np.ndarray() | np.generic():
            update(f"{value.dtype.str}{value.shape}".encode())
            update(np.ascontiguousarray(value).tobytes())
        case dict():
            update(b"{")
            for name in sorted(value, key=str):
                _update_hash(update, str(name))
                _update_hash(update, value[name])
        case list() | tuple():
            update(f"[{len(value)}".encode())
            for item in value:
                _update_hash(update, item)
        case str() | bytes() | int() | float() | None:
            update(f"{type(value).__name__}{value!r}".encode())
        case _:
            raise TypeError(type(value).__name__)
