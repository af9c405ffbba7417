"""Metrics, called; and what they give, checked.

Whatever a metric returns is checked before anybody uses it, and what is wrong with it, or
what it raises, is a `Problem` that names the episode and the line. Never raises for what a
metric does. Reads and writes no store.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np

from assay._util.text import printable, shown
from assay._util.user_files import line_in
from assay.errors import UserCodeError

from .custom import Metric, name_problem
from .evidence import Episode

__all__ = ["Call", "Measured", "Problem", "measure", "measure_all"]


class Problem(NamedTuple):
    """Why an outcome is missing."""

    metric: str
    about: str
    """The episode or the experiment, in words."""
    where: str
    """File and line."""
    what: str

    def __str__(self) -> str:
        return f"{self.where}: metric {self.metric!r}, {self.about}: {self.what}"


@dataclass(slots=True)
class Measured:
    """What one call of a metric came to."""

    trials: dict[str, dict[str, float]] = field(default_factory=dict)
    """By session id, then by name of the outcome."""
    whole: dict[str, float] = field(default_factory=dict)
    """Numbers of the experiment as a whole, by name."""
    problems: list[Problem] = field(default_factory=list)


Call = Callable[[Metric, Callable[[], object]], object]
"""Has a metric called, wherever that is; what it raises is the metric's."""


def _here(_: Metric, function: Callable[[], object]) -> object:
    return function()


def measure(metric: Metric, episode: Episode, call: Call = _here) -> Measured:
    """Ask a metric about one episode."""
    found = Measured()
    value = _called(metric, episode, _words(episode), found, call)
    if not found.problems:
        _take(metric, value, _words(episode), found.trials.setdefault(episode.id, {}), found)
    return found


def measure_all(
    metric: Metric, episodes: Sequence[Episode], experiment: str, call: Call = _here
) -> Measured:
    """Ask a metric about all episodes of an experiment, which is named for messages."""
    found, about = Measured(), f"experiment {printable(experiment)!r}"
    value = _called(metric, list(episodes), about, found, call)
    if found.problems:
        return found
    value = _listed(value)
    if not isinstance(value, (list, tuple)):
        _take(metric, value, about, found.whole, found)
    elif len(value) != len(episodes):
        words = f"gave {len(value)} values for {len(episodes)} episodes; give one for each"
        _object(metric, about, words, found)
    else:
        for episode, each in zip(episodes, value, strict=True):
            earned = found.trials.setdefault(episode.id, {})
            _take(metric, each, _words(episode), earned, found)
    return found


def _called(
    metric: Metric, argument: object, about: str, found: Measured, call: Call
) -> object:
    try:
        return call(metric, lambda: metric.function(argument))
    except (Exception, SystemExit) as error:
        # A thread says of an error where it was raised; what counts is the error itself.
        cause = error.__cause__ if isinstance(error, UserCodeError) else None
        raised = cause or error
        line = line_in(raised, metric.file)
        where = metric.where if line is None else f"{metric.file}:{line}"
        words = f"{type(raised).__name__}: {shown(raised, write=str)}"
        found.problems.append(Problem(metric.name, about, where, words.removesuffix(": ")))
        return None


def _listed(value: Any) -> Any:
    """Arrays and columns of data frames as lists, whatever library made them."""
    try:
        shape = getattr(value, "shape", None)
        return list(value) if isinstance(shape, tuple) and len(shape) == 1 else value
    except Exception:  # the class may be anybody's
        return value


def _take(
    metric: Metric, value: object, about: str, earned: dict[str, float], found: Measured
) -> None:
    """Check a number, or a dictionary of them, and keep what can be stored."""
    if not isinstance(value, Mapping):
        number, problem = _number(value)
        if number is None:
            _object(metric, about, problem, found)
        else:
            earned[metric.name] = number
        return
    for name, each in _items(metric, value, about, found):
        if wrong := name_problem(name):
            _object(metric, about, wrong, found)
            continue
        number, problem = _number(each)
        if number is None:
            _object(metric, about, f"key {name!r}: {problem}", found)
        else:
            earned[str(name)] = number


def _items(
    metric: Metric, value: Mapping[Any, Any], about: str, found: Measured
) -> Iterable[tuple[object, object]]:
    try:
        return list(value.items())
    except Exception as error:
        _object(metric, about, f"its dictionary raised {type(error).__name__}", found)
        return ()


def _number(value: object) -> tuple[float | None, str]:
    """A finite number, 1 or 0 for a truth value, or None and what is wrong."""
    if value is None:
        return None, "gave None; return a number, or {} where an episode has no such number"
    if not isinstance(value, (Real, np.bool_)):
        return None, f"gave {shown(value)}, a {type(value).__name__}; give a number"
    try:
        number = float(cast("Any", value))
    except Exception:
        # Numbers may be of any class, and integers too large for a float.
        return None, f"gave {shown(value)}, which does not fit into a float"
    if not math.isfinite(number):
        return None, f"gave {number}, which is no finite number"
    return number, ""


def _object(metric: Metric, about: str, what: str, found: Measured) -> None:
    found.problems.append(Problem(metric.name, about, metric.where, what))


def _words(episode: Episode) -> str:
    seed = "no seed" if episode.seed is None else f"seed {episode.seed}"
    return f"episode {printable(episode.id)} ({printable(episode.model)}, {seed})"
