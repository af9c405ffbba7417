"""Environments other than Crafter: classes of users, and whatever gymnasium has registered.

Says what can be played and how its actions are kept as text: by their names where there are
names, else as JSON. `own_world` plays.
"""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from assay._util.canonical import canonical_json, content_hash
from assay._util.user_files import run_user_file
from assay.agents import AgentOptions
from assay.agents.own import OwnAgent, source_hash
from assay.errors import UsageError, UserCodeError

from .spec import EpisodeLimits

__all__ = [
    "RANDOM",
    "OwnEnvironment",
    "environment_metadata",
    "first_observation",
    "load_environment",
    "own_environment",
]

GYMNASIUM: Final = "gymnasium:"
RANDOM: Final = "builtin/random"
"""Who draws actions at random, in any environment."""
_BETTER: Final = ("higher", "lower")


@dataclass(frozen=True, slots=True)
class OwnEnvironment:
    """An environment that was found, and what it says of itself."""

    spec: str
    """What the configuration calls it."""
    name: str
    sha: str
    """A hash of the file it is in; of its id and version for one of gymnasium."""
    make: Callable[[], Any]
    actions: tuple[str, ...] | None
    """The names of its actions; None if any value is one."""
    outcomes: Mapping[str, str]
    deterministic: bool
    has_text: bool
    rules: str
    space: Any = None
    """The actions of an environment of gymnasium, which are not named."""

    @property
    def can_be_told(self) -> bool:
        """Whether a language model can be told what there is to see and to do."""
        return self.has_text and self.actions is not None

    def written(self, action: Any) -> str:
        """An action as it is kept."""
        if self.actions is not None:
            return self.actions[int(action)] if not isinstance(action, str) else action
        return canonical_json(self._jsonable(action)).decode()

    def _jsonable(self, action: Any) -> Any:
        if self.space is None:
            return action
        if self.space.shape is None:  # made of other spaces
            return self.space.to_jsonable([action])
        array = np.asarray(action, self.space.dtype)
        if array.shape != self.space.shape:
            raise ValueError(f"an action is one of {self.space}")
        return self.space.to_jsonable([array])[0]

    def meant(self, written: str) -> Any:
        """The action that a text means."""
        if self.space is None:
            if self.actions is None:
                return _json(written)
            return self.actions.index(written) if self.spec.startswith(GYMNASIUM) else written
        kept = _json(written)
        return self.space.from_jsonable([kept] if self.space.shape is not None else kept)[0]

    def random_agent(self) -> OwnAgent:
        """Who draws actions at random."""
        environment = self

        class RandomActions:
            """Draws from all actions alike, with a generator of its own."""

            def __init__(self, seed: int) -> None:
                self._random = np.random.default_rng(seed)
                self._space = deepcopy(environment.space)
                if self._space is not None:
                    self._space.seed(seed)

            def act(self, observation: Any) -> Any:
                """One action."""
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
    """What `file.py:Class` or `gymnasium:ID` means; it is made once, to see that it can be."""
    if spec.startswith(GYMNASIUM):
        return _of_gymnasium(spec)
    if "@" in spec and ":" not in spec:
        raise UsageError(
            f"environment {spec!r} was given as a class by a program; give the class again: "
            f"environment={spec.partition('@')[0]}"
        )
    path, colon, name = spec.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise UsageError(
            f"environment {spec!r} is not allowed; give a Python file and a class in it, such "
            "as maze.py:Maze, or an id of gymnasium, such as gymnasium:CartPole-v1"
        )
    code = run_user_file(Path(path), "environments")
    value = code.names.get(name)
    if not isinstance(value, type):
        classes = [key for key, there in code.names.items() if isinstance(there, type)]
        raise UsageError(f"{path} has no class {name!r}; it has {', '.join(classes) or 'none'}")
    return own_environment(value, spec=spec, sha=code.sha)


def own_environment(
    value: type, *, spec: str | None = None, sha: str | None = None
) -> OwnEnvironment:
    """An environment of a class; UsageError where it lacks something.

    Args:
        value: The class.
        spec: What the configuration calls it; by its name and source unless given.
        sha: A hash of the file it is in; of its source unless given.
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
    except Exception as error:  # gymnasium and whoever registered it raise all sorts
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
    """All that a replay needs and no column holds."""
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
    """The first observation; gymnasium gives it with a dictionary beside it."""
    if isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[1], dict):
        return shown[0]
    return shown


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
