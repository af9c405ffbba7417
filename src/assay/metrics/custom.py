"""`@metric`: a function over recorded episodes whose numbers become outcomes.

A metric is given one `Episode`, or all episodes of an experiment as a list; its signature says
which. Only marks functions: `measuring` calls them.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, overload

from assay._util.text import shown
from assay.errors import UsageError

from .evidence import Episode

__all__ = ["Metric", "MetricInput", "metric", "metric_of", "name_problem"]

_MARK = "__assay_metric__"
_LONGEST_NAME = 100
_MANY = re.compile(
    r"^(\w+\.)*(list|List|Sequence|Iterable|Collection|tuple|Tuple)(\[.*\])?$", re.DOTALL
)
_ONE = re.compile(r"^(\w+\.)*Episode$")
_HOW = (
    "call it 'episode' or annotate it Episode for one episode at a time; call it 'episodes' "
    "or annotate it list[Episode] for all of an experiment at once"
)
_F = TypeVar("_F", bound=Callable[..., Any])


class MetricInput(StrEnum):
    """What a metric is called with."""

    EPISODE = "episode"
    """One episode."""
    EPISODES = "episodes"
    """A list of all episodes of an experiment that completed."""


_NAMES = {
    "episode": MetricInput.EPISODE,
    "trace": MetricInput.EPISODE,
    "episodes": MetricInput.EPISODES,
    "traces": MetricInput.EPISODES,
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A function that was marked, and how it is called."""

    name: str
    """Of its outcome; a dictionary that it returns brings names of its own."""
    function: Callable[[Any], Any]
    takes: MetricInput
    higher_is_better: bool = True

    @property
    def file(self) -> str:
        """Where it is defined."""
        return _code_place(self.function)[0]

    @property
    def where(self) -> str:
        """The file and the line it is defined at."""
        file, line = _code_place(self.function)
        return f"{file}:{line}"


@overload
def metric(function: _F, /) -> _F: ...


@overload
def metric(*, name: str | None = None, higher_is_better: bool = True) -> Callable[[_F], _F]: ...


def metric(
    function: _F | None = None, /, *, name: str | None = None, higher_is_better: bool = True
) -> _F | Callable[[_F], _F]:
    """Mark a function as a metric, so that `load_metrics` takes it from its file.

        import assay

        @assay.metric
        def first_table(episode):
            return episode.achievements.get("place_table", len(episode.steps))

    The function stays what it is and may be called. It takes one argument. Its annotation
    says what that is, `Episode` or `list[Episode]`; or else its name does, `episode` and
    `trace` for one, `episodes` and `traces` for a list.

    It returns a number, or a dictionary of numbers whose keys are names of outcomes. One that
    takes a list may return as many of these as it was given episodes, and then each belongs
    to its episode; else the number belongs to the experiment as a whole.

    Args:
        function: What to mark.
        name: Of the outcome; the name of the function if not given.
        higher_is_better: False if less of it is better.

    Raises:
        UsageError: It cannot be a metric, or its name is not allowed.
    """

    def mark(function: _F) -> _F:
        label = getattr(function, "__name__", "") if name is None else name
        takes = _takes(function, label)
        problem = name_problem(label)
        if problem:
            raise UsageError(problem)
        setattr(function, _MARK, Metric(label, function, takes, bool(higher_is_better)))
        return function

    return mark if function is None else mark(function)


def metric_of(value: object) -> Metric | None:
    """The metric that a function was marked as, if it was."""
    found = getattr(value, _MARK, None) if inspect.isfunction(value) else None
    return found if isinstance(found, Metric) else None


def name_problem(name: object) -> str | None:
    """What keeps a text from being the name of an outcome, if anything does."""
    if not isinstance(name, str) or not name:
        return f"metric name {shown(name)} is not allowed; give a text"
    if len(name) > _LONGEST_NAME:
        return f"metric name {shown(name)} is too long; give {_LONGEST_NAME} letters"
    if not name.isprintable() or name != name.strip() or "," in name:
        return (
            f"metric name {shown(name)} is not allowed; give letters, digits, '_', "
            "'-', '.', '/', without a comma"
        )
    return None


def _takes(function: object, label: object) -> MetricInput:
    """What a function wants to be called with, by its signature."""
    name = f"metric {label!r}"
    if not inspect.isfunction(function):
        raise UsageError(f"{name}: {shown(function)} is no function; put @metric above a def")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{name} is async; a metric is called as a plain function")
    if inspect.isgeneratorfunction(function):
        raise UsageError(f"{name} yields; a metric returns a number or a dictionary")
    parameter = _parameter(function, name)
    by_name = _NAMES.get(parameter.name)
    by_annotation = _annotated(parameter.annotation)
    if by_name and by_annotation and by_name is not by_annotation:
        raise UsageError(
            f"{name}: {parameter.name!r} is annotated as {by_annotation.value!r}; {_HOW}"
        )
    found = by_annotation or by_name
    if found is None:
        raise UsageError(
            f"{name}: nothing says whether {parameter.name!r} is one episode or a list; {_HOW}"
        )
    return found


def _parameter(function: Callable[..., Any], name: str) -> inspect.Parameter:
    try:
        signature = inspect.signature(function)
        bound = signature.bind(None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must take one argument; {_HOW}") from error
    parameter = signature.parameters[next(iter(bound.arguments))]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise UsageError(f"{name} must take one argument, without a star; {_HOW}")
    return parameter


def _annotated(annotation: object) -> MetricInput | None:
    if annotation is Episode:
        return MetricInput.EPISODE
    if isinstance(annotation, str):
        text = annotation.strip("\"' ")
    elif isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        text = annotation.__name__
    else:
        text = str(annotation)
    if _ONE.match(text):
        return MetricInput.EPISODE
    return MetricInput.EPISODES if _MANY.match(text) else None


def _code_place(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("<built in>", 1)
