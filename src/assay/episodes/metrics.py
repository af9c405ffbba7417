"""Metrics: functions over recorded episodes whose results become outcomes.

`@metric` marks a function. A metric receives one `Episode`, or all episodes of an experiment as
a list, depending on its signature. `measure` and `measure_all` call it and check its results.
An invalid result or an exception becomes a `Problem` with the episode and the line: these
functions never raise because of a metric, and do not access the database.

Every Crafter episode has the built-in metrics, from 0 (worst) to 1 (best). They depend only on
the record of an episode, so a trace always gives the same numbers; `EpisodeTotals` computes
them during play. *Requested actions* are all actions in the replies of the model, including
those that do not exist. *Waste* has four kinds: malformed replies, unknown actions, actions
without effect, and actions ignored while asleep.

User-defined metrics come from a Python file. Loading the file runs it. An invalid file raises
UsageError with the file, the line and the expected content, before anything is played or read.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast, overload

import numpy as np

from assay.core.text import printable, shown
from assay.core.user_code import find_line, run_user_file
from assay.episodes.recorded_episode import Episode
from assay.errors import UsageError, UserCodeError
from assay.judge.outcomes import OUTCOMES, parse_outcome

_MARK = "__assay_metric__"
_MAX_NAME = 100
_LIST_ANNOTATION = re.compile(
    r"^(\w+\.)*(list|List|Sequence|Iterable|Collection|tuple|Tuple)(\[.*\])?$", re.DOTALL
)
_EPISODE_ANNOTATION = re.compile(r"^(\w+\.)*Episode$")
_INPUT_HINT = (
    "call it 'episode' or annotate it Episode for one episode at a time; call it 'episodes' "
    "or annotate it list[Episode] for all of an experiment at once"
)
_F = TypeVar("_F", bound=Callable[..., Any])


class MetricInput(StrEnum):
    """Argument type of a metric."""

    EPISODE = "episode"
    """One episode."""
    EPISODES = "episodes"
    """A list of all completed episodes of an experiment."""


_INPUTS_BY_NAME = {
    "episode": MetricInput.EPISODE,
    "trace": MetricInput.EPISODE,
    "episodes": MetricInput.EPISODES,
    "traces": MetricInput.EPISODES,
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A marked function, and how to call it."""

    name: str
    """Name of its outcome; if the function returns a dictionary, the keys are used instead."""
    function: Callable[[Any], Any]
    takes: MetricInput
    better: str | None = None
    """higher, lower or neither; None if the author did not declare it."""
    low: float | None = None
    """Lowest possible value, if known."""
    high: float | None = None
    unit: str = ""

    @property
    def higher_is_better(self) -> bool:
        """False if lower values are declared to be better."""
        return self.better != "lower"

    @property
    def declared(self) -> dict[str, Any]:
        """The declared properties, for storage."""
        stated = {name: getattr(self, name) for name in ("better", "low", "high", "unit")}
        return {name: value for name, value in stated.items() if value not in (None, "")}

    @property
    def file(self) -> str:
        """File in which it is defined."""
        return _locate_code(self.function)[0]

    @property
    def where(self) -> str:
        """File and line where it is defined."""
        file, line = _locate_code(self.function)
        return f"{file}:{line}"


@overload
def metric(function: _F, /) -> _F: ...


@overload
def metric(
    *,
    name: str | None = None,
    better: str | None = None,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    higher_is_better: bool | None = None,
) -> Callable[[_F], _F]: ...


def metric(
    function: _F | None = None,
    /,
    *,
    name: str | None = None,
    better: str | None = None,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    higher_is_better: bool | None = None,
) -> _F | Callable[[_F], _F]:
    """Mark a function as a metric, so that `load_metrics` takes it from its file.

        import assay

        @assay.metric
        def first_table(episode):
            return episode.achievements.get("place_table", len(episode.steps))

    The function is not changed and can still be called. It takes one argument. The annotation
    of the argument selects its type: `Episode` or `list[Episode]`. Without an annotation its
    name does: `episode` or `trace` for one episode, `episodes` or `traces` for a list.

    It returns a number, or a dictionary of numbers by outcome name. A function that takes a
    list may return a list of the same length, with one result per episode. Any other result
    belongs to the experiment as a whole.

    Args:
        function: Function to mark.
        name: Name of the outcome; default: the name of the function.
        better: `"higher"` or `"lower"`, the direction in which values are better. Without it,
            a comparison calls a difference higher or lower, never better or worse.
        low: Lowest possible value, if there is one.
        high: Highest possible value, if there is one.
        unit: `"$"`, `"s"`, `"%"` (values are fractions), or nothing.
        higher_is_better: Other form of `better`: True is higher, False is lower.

    Raises:
        UsageError: The function cannot be a metric, or the name is invalid.
    """

    def mark(function: _F) -> _F:
        label = getattr(function, "__name__", "") if name is None else name
        takes = _find_input_type(function, label)
        problem = find_name_problem(label)
        if problem:
            raise UsageError(problem)
        way = better
        if way is None and higher_is_better is not None:
            way = "higher" if higher_is_better else "lower"
        made = Metric(label, function, takes, way, low, high, unit)
        parse_outcome(label, made.declared)
        setattr(function, _MARK, made)
        return function

    return mark if function is None else mark(function)


def find_metric(value: object) -> Metric | None:
    """Return the metric that a function was marked as, or None."""
    marked = getattr(value, _MARK, None) if inspect.isfunction(value) else None
    return marked if isinstance(marked, Metric) else None


def find_name_problem(name: object) -> str | None:
    """Return the reason why a text cannot be the name of an outcome, or None."""
    if not isinstance(name, str) or not name:
        return f"metric name {shown(name)} is not allowed; give a text"
    if len(name) > _MAX_NAME:
        return f"metric name {shown(name)} is too long; give at most {_MAX_NAME} characters"
    if not name.isprintable() or name != name.strip() or "," in name:
        return (
            f"metric name {shown(name)} is not allowed; give letters, digits, '_', "
            "'-', '.', '/', without a comma"
        )
    return None


def _find_input_type(function: object, label: object) -> MetricInput:
    """Return the argument type of a function, from its signature."""
    name = f"metric {label!r}"
    if not inspect.isfunction(function):
        raise UsageError(
            f"{name}: {shown(function)} is not a function; put @metric above a def"
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{name} is async; a metric must be a plain function")
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"{name} is a generator; a metric must return a number or a dictionary"
        )
    parameter = _find_parameter(function, name)
    by_name = _INPUTS_BY_NAME.get(parameter.name)
    by_annotation = _find_annotated_type(parameter.annotation)
    if by_name and by_annotation and by_name is not by_annotation:
        raise UsageError(
            f"{name}: {parameter.name!r} is annotated as {by_annotation.value!r}; {_INPUT_HINT}"
        )
    input_type = by_annotation or by_name
    if input_type is None:
        raise UsageError(
            f"{name}: {parameter.name!r} may be one episode or a list; {_INPUT_HINT}"
        )
    return input_type


def _find_parameter(function: Callable[..., Any], name: str) -> inspect.Parameter:
    try:
        signature = inspect.signature(function)
        bound = signature.bind(None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must take one argument; {_INPUT_HINT}") from error
    parameter = signature.parameters[next(iter(bound.arguments))]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise UsageError(f"{name} must take one argument, without a star; {_INPUT_HINT}")
    return parameter


def _find_annotated_type(annotation: object) -> MetricInput | None:
    if annotation is Episode:
        return MetricInput.EPISODE
    if isinstance(annotation, str):
        text = annotation.strip("\"' ")
    elif isinstance(annotation, type) and not hasattr(annotation, "__origin__"):
        text = annotation.__name__
    else:
        text = str(annotation)
    if _EPISODE_ANNOTATION.match(text):
        return MetricInput.EPISODE
    return MetricInput.EPISODES if _LIST_ANNOTATION.match(text) else None


def _locate_code(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("<built in>", 1)


class Problem(NamedTuple):
    """Reason for a missing outcome."""

    metric: str
    about: str
    """Description of the episode or the experiment."""
    where: str
    """File and line."""
    what: str

    def __str__(self) -> str:
        return f"{self.where}: metric {self.metric!r}, {self.about}: {self.what}"


@dataclass(slots=True)
class MetricResult:
    """Results of one call of a metric."""

    trials: dict[str, dict[str, float]] = field(default_factory=dict)
    """Values by session id, then by outcome name."""
    whole: dict[str, float] = field(default_factory=dict)
    """Values of the experiment as a whole, by outcome name."""
    problems: list[Problem] = field(default_factory=list)


CallMetric = Callable[[Metric, Callable[[], object]], object]
"""Calls a metric, possibly in a thread; exceptions of the metric are raised."""


def _call_directly(_: Metric, function: Callable[[], object]) -> object:
    return function()


def measure(
    metric: Metric, episode: Episode, call: CallMetric = _call_directly
) -> MetricResult:
    """Apply a metric to one episode."""
    result = MetricResult()
    value = _call_metric(metric, episode, _describe_episode(episode), result, call)
    if not result.problems:
        _collect_values(
            metric,
            value,
            _describe_episode(episode),
            result.trials.setdefault(episode.id, {}),
            result,
        )
    return result


def measure_all(
    metric: Metric,
    episodes: Sequence[Episode],
    experiment: str,
    call: CallMetric = _call_directly,
) -> MetricResult:
    """Apply a metric to all episodes of an experiment; its name is used in messages."""
    result, about = MetricResult(), f"experiment {printable(experiment)!r}"
    value = _call_metric(metric, list(episodes), about, result, call)
    if result.problems:
        return result
    value = _to_list(value)
    if not isinstance(value, (list, tuple)):
        _collect_values(metric, value, about, result.whole, result)
    elif len(value) != len(episodes):
        problem = (
            f"returned {len(value)} values for {len(episodes)} episodes; return one for each"
        )
        _add_problem(metric, about, problem, result)
    else:
        for episode, item in zip(episodes, value, strict=True):
            values = result.trials.setdefault(episode.id, {})
            _collect_values(metric, item, _describe_episode(episode), values, result)
    return result


def _call_metric(
    metric: Metric, argument: object, about: str, result: MetricResult, call: CallMetric
) -> object:
    try:
        return call(metric, lambda: metric.function(argument))
    except (Exception, SystemExit) as error:
        # A thread wraps the error of the metric; report the original one.
        cause = error.__cause__ if isinstance(error, UserCodeError) else None
        raised = cause or error
        line = find_line(raised, metric.file)
        location = metric.where if line is None else f"{metric.file}:{line}"
        description = f"{type(raised).__name__}: {shown(raised, write=str)}"
        result.problems.append(
            Problem(metric.name, about, location, description.removesuffix(": "))
        )
        return None


def _to_list(value: Any) -> Any:
    """Return arrays and data frame columns of any library as lists."""
    try:
        shape = getattr(value, "shape", None)
        return list(value) if isinstance(shape, tuple) and len(shape) == 1 else value
    except Exception:  # the class may be user-defined
        return value


def _collect_values(
    metric: Metric, value: object, about: str, values: dict[str, float], result: MetricResult
) -> None:
    """Check a number or a dictionary of numbers, and keep the valid ones."""
    if not isinstance(value, Mapping):
        number, problem = _check_number(value)
        if number is None:
            _add_problem(metric, about, problem, result)
        else:
            values[metric.name] = number
        return
    for name, item in _read_items(metric, value, about, result):
        if name_error := find_name_problem(name):
            _add_problem(metric, about, name_error, result)
            continue
        number, problem = _check_number(item)
        if number is None:
            _add_problem(metric, about, f"key {name!r}: {problem}", result)
        else:
            values[str(name)] = number


def _read_items(
    metric: Metric, value: Mapping[Any, Any], about: str, result: MetricResult
) -> Iterable[tuple[object, object]]:
    try:
        return list(value.items())
    except Exception as error:
        _add_problem(metric, about, f"its dictionary raised {type(error).__name__}", result)
        return ()


def _check_number(value: object) -> tuple[float | None, str]:
    """Return a finite number (1 or 0 for a boolean), or None with the problem."""
    if value is None:
        return None, "returned None; return a number, or {} if an episode has no such number"
    if not isinstance(value, (Real, np.bool_)):
        return None, f"returned {shown(value)}, a {type(value).__name__}; return a number"
    try:
        number = float(cast("Any", value))
    except Exception:
        # Any class may be a number, and integers may be too large for a float.
        return None, f"returned {shown(value)}, which does not fit into a float"
    if not math.isfinite(number):
        return None, f"returned {number}, which is not finite"
    return number, ""


def _add_problem(metric: Metric, about: str, what: str, result: MetricResult) -> None:
    result.problems.append(Problem(metric.name, about, metric.where, what))


def _describe_episode(episode: Episode) -> str:
    seed = "no seed" if episode.seed is None else f"seed {episode.seed}"
    return f"episode {printable(episode.id)} ({printable(episode.model)}, {seed})"


@metric
def achievement_rate(episode: Episode) -> float:
    """Share of achievements reached: different achievements unlocked / 22."""
    return episode.tally.achievement_rate


@metric
def efficiency_score(episode: Episode) -> float:
    """Achievements reached with little waste: achievement_rate * time_efficiency.

    It is high only if both are. Half of the achievements with a fifth of the actions wasted
    give 0.5 * 0.8 = 0.4.
    """
    return episode.tally.efficiency_score


@metric
def rule_understanding(episode: Episode) -> float:
    """Share of requested actions that are possible: 1 - (unknown + no effect) / requested.

    It is 1 - invalid_rate, but 0 if no action was requested. Actions ignored while asleep break
    no rule, and malformed replies contain no information about the rules, so neither counts.
    """
    return episode.tally.rule_understanding


@metric
def time_efficiency(episode: Episode) -> float:
    """Share without waste: 1 - waste / (requested actions + malformed replies).

    All four kinds of waste count; a malformed reply counts as one action. 0 if there was
    neither an action nor a malformed reply.
    """
    return episode.tally.time_efficiency


@metric
def time_management(episode: Episode) -> float:
    """How early achievements were reached: share of the 22 unlocked, averaged over all steps.

    With T steps and achievement a unlocked in step t(a), counted from 1:
    sum over a of (T - t(a) + 1) / (22 T), the area under the curve of unlocked achievements.
    It is at most achievement_rate, and equal to it if all came in the first step. Reaching
    more, or the same earlier, always raises it. T is the length of the episode:
    continuing after the last achievement raises it too, so compare episodes with the same
    limits. 0 without steps.
    """
    return episode.tally.time_management


SHIPPED: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        found.name: found
        for function in (
            achievement_rate,
            efficiency_score,
            rule_understanding,
            time_efficiency,
            time_management,
        )
        if (found := find_metric(function)) is not None
    }
)
"""Built-in metrics by name; they are outcomes of every Crafter episode played by assay."""


@dataclass(frozen=True, slots=True)
class MetricSet:
    """A set of metrics, with a hash that identifies it."""

    metrics: tuple[Metric, ...]
    sha: str
    """Hash of the file they come from."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics, in order."""
        return tuple(metric.name for metric in self.metrics)


def load_metrics(path: Path) -> MetricSet:
    """Run a Python file, and return the functions it marked with `@metric`, in order.

    Built-in metrics that the file imports are not included.
    """
    code = run_user_file(path, "metrics")
    metrics = tuple(
        metric
        for metric in map(find_metric, code.values)
        if metric is not None and SHIPPED.get(metric.name) is not metric
    )
    if not metrics:
        raise UsageError(
            f"{str(path)!r} has no metrics; put '@assay.metric' above a function that takes "
            "an episode and returns a number"
        )
    check_names(metrics)
    return MetricSet(metrics, code.sha)


def check_names(metrics: Iterable[Metric]) -> None:
    """Raise UsageError if names of metrics or built-in outcomes clash."""
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        if metric.name in OUTCOMES:
            raise UsageError(
                f"{metric.where}: {metric.name!r} is already an outcome of every episode; give "
                'the metric another name, as in @assay.metric(name="...")'
            )
        if metric.name in by_name:
            raise UsageError(
                f"{metric.where}: metric {metric.name!r} is also defined at "
                f"{by_name[metric.name].where}; give one of them another name"
            )
        by_name[metric.name] = metric
