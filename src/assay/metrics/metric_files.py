"""Metrics from a user's Python file.

Loading a file runs it. What is wrong with one is a UsageError that names the file, the line
and what is expected, before anything is played or read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assay._util.user_files import run_user_file
from assay.errors import UsageError
from assay.judge.outcomes import OUTCOMES

from .custom import Metric, metric_of
from .shipped import SHIPPED

__all__ = ["MetricSet", "check_names", "load_metrics"]


@dataclass(frozen=True, slots=True)
class MetricSet:
    """Metrics that belong together, and what tells them from others."""

    metrics: tuple[Metric, ...]
    sha: str
    """A hash of the file they come from."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the metrics, in their order."""
        return tuple(each.name for each in self.metrics)


def load_metrics(path: Path) -> MetricSet:
    """Run a Python file and take the functions it marked with `@metric`, in their order.

    Shipped metrics that it imports stay what they are, and are not taken.
    """
    code = run_user_file(path, "metrics")
    metrics = tuple(
        each
        for each in map(metric_of, code.values)
        if each is not None and SHIPPED.get(each.name) is not each
    )
    if not metrics:
        raise UsageError(
            f"{str(path)!r} has no metrics; put '@assay.metric' above a function that takes "
            "an episode and returns a number"
        )
    check_names(metrics)
    return MetricSet(metrics, code.sha)


def check_names(metrics: Iterable[Metric]) -> None:
    """Raise a UsageError if two metrics, or one and an outcome of every episode, clash."""
    seen: dict[str, Metric] = {}
    for each in metrics:
        if each.name in OUTCOMES:
            raise UsageError(
                f"{each.where}: {each.name!r} is an outcome of every episode; give the metric "
                'another name, as in @assay.metric(name="...")'
            )
        if each.name in seen:
            raise UsageError(
                f"{each.where}: metric {each.name!r} is defined at {seen[each.name].where} "
                "too; give one of them another name"
            )
        seen[each.name] = each
