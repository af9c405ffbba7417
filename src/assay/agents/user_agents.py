"""User agents: functions and classes that get a view and choose actions.

    def act(view):
        return "move_left"

    class Careful:
        def __init__(self, model, seed): ...
        def act(self, view): ...

A class is instantiated for each episode and may keep state. It receives the arguments that its
`__init__` declares: `model`, which it may call any number of times, the `seed` of the world,
and `settings`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from assay.core.canonical_json import content_hash
from assay.core.user_code import parse_object_spec, run_user_file
from assay.errors import UsageError, UserCodeError
from assay.types import ChatReply

CHECKPOINT = "checkpoint:"
"""Prefix of agents trained by 'assay train'; a path follows."""


class AgentModel(Protocol):
    """The model of an agent; calls are recorded, rate-limited and charged to the budget."""

    name: str

    def ask(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        """Call the model and wait for the reply; a string is sent as one user message."""
        ...

    async def ask_async(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        """Call the model from an `act` that is a coroutine; see `ask`."""
        ...


@dataclass(frozen=True, slots=True)
class UserAgent:
    """A user agent that has been loaded."""

    name: str
    sha: str
    """Hash of its file, or of its own source."""
    value: Any
    """A class that is instantiated for each episode, or one object for all of them."""
    parameters: frozenset[str] | None
    """Parameters of the class among model, seed and settings; None for an object."""

    @property
    def takes_model(self) -> bool:
        """Whether it calls a model."""
        return "model" in (self.parameters or ())

    def make_act(self, arguments: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Return the method `act` for one episode."""
        if self.parameters is None:
            agent = self.value
        else:
            agent = self.value(**{name: arguments[name] for name in self.parameters})
        return agent.act  # type: ignore[no-any-return]  # user code


_ARGUMENTS = ("model", "seed", "settings")


def load_agent(spec: str) -> UserAgent:
    """Load the agent specified as `file.py:name`."""
    if "@" in spec and ":" not in spec:
        raise UsageError(
            f"agent {spec!r} is a Python object; resume with the same call of assay.run"
        )
    if (object_spec := parse_object_spec(spec)) is None:
        raise UsageError(
            f"agent {spec!r} is not allowed; give a Python file and the name of a function or "
            "class in it, such as mine.py:act, or checkpoint:FOLDER for a trained policy"
        )
    path, name = object_spec
    code = run_user_file(path, "agents")
    if name not in code.names:
        callables = [key for key, value in code.names.items() if callable(value)]
        available = f"; it has {', '.join(callables)}" if callables else ""
        raise UsageError(f"{path} has no {name!r}{available}")
    return wrap_agent(name, code.names[name], sha=code.sha)


def find_agent_file(spec: str) -> Path | None:
    """Return the file of an agent, if it has one."""
    if spec.startswith(CHECKPOINT):
        return find_checkpoint(Path(spec.removeprefix(CHECKPOINT)))
    object_spec = parse_object_spec(spec)
    return None if object_spec is None else object_spec.path


def find_checkpoint(path: Path) -> Path:
    """Return the weights of a policy; for a run's folder, from the newest checkpoint.

    Args:
        path: The folder of a run of 'assay train', one of its checkpoints, or the weights.

    Raises:
        UsageError: There are none.
    """
    checkpoints = [
        checkpoint for checkpoint in path.glob("checkpoints/step-*") if checkpoint.is_dir()
    ]
    newest = max(
        checkpoints,
        key=lambda checkpoint: int(checkpoint.name.removeprefix("step-")),
        default=path,
    )
    file = newest / "policy.safetensors" if newest.is_dir() else newest
    if not file.is_file():
        raise UsageError(
            f"no checkpoint found at {str(path)!r}; give the folder of a run of 'assay "
            "train', one of its checkpoints, or a file policy.safetensors"
        )
    return file


def wrap_agent(name: str, value: Any, *, sha: str | None = None) -> UserAgent:
    """Check a function `act(view)`, or a class or object with a method `act`, and wrap it.

    Args:
        name: Name of the agent.
        value: The function, class or object.
        sha: Hash of its file (default: hash of its source).
    """
    if isinstance(value, type):
        act = getattr(value, "act", None)
        if not callable(act):
            raise UsageError(f"agent {name!r} is a class without a method act(view)")
        # A plain function also takes `self`; static and class methods do not.
        is_method = inspect.isfunction(inspect.getattr_static(value, "act"))
        _check_takes_view(name, act, 1 + is_method)
        return UserAgent(name, sha or hash_source(value), value, _check_parameters(name, value))
    act = value if callable(value) else getattr(value, "act", None)
    if callable(act):
        _check_takes_view(name, act, 1)
        return UserAgent(name, sha or hash_source(value), SimpleNamespace(act=act), None)
    raise UsageError(
        f"agent {name!r} is {type(value).__name__!r}; give a function act(view), or a "
        "class with a method act(view)"
    )


def _check_takes_view(name: str, act: Callable[..., Any], arguments: int) -> None:
    try:
        signature = inspect.signature(act)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise UsageError(
            f"agent {name!r}: act{signature} must accept the view as its only argument: {error}"
        ) from error


def _check_parameters(name: str, value: type) -> frozenset[str]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    declared = set()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in _ARGUMENTS:
            declared.add(parameter.name)
        elif parameter.default is parameter.empty:
            raise UsageError(
                f"agent {name!r} requires {parameter.name!r}, which is not provided; a class "
                f"may take {', '.join(_ARGUMENTS)}, and other parameters need a default"
            )
    return frozenset(declared)


def hash_source(value: Any) -> str:
    """Return a hash of the source of a function, a class, or an object's class."""
    definition = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    try:
        source = inspect.getsource(definition)
    except (OSError, TypeError):
        source = f"{definition.__module__}.{definition.__qualname__}"
    return content_hash(source.encode())


def convert_actions(agent: str, result: Any, actions: Sequence[str]) -> tuple[str, ...]:
    """Convert the result of `act` (an action or a list, names or indices) to names."""
    results = result if isinstance(result, (list, tuple)) else [result]
    return tuple(_find_action_name(agent, action, actions) for action in results)


def _find_action_name(agent: str, action: Any, actions: Sequence[str]) -> str:
    if isinstance(action, str):
        return action
    if hasattr(action, "__index__") and not isinstance(action, bool):
        index = int(action)
        if 0 <= index < len(actions):
            return actions[index]
    raise UserCodeError(
        f"{agent} returned {action!r}; return the name of an action, its index from 0 to "
        f"{len(actions) - 1}, or a list of them"
    )
