"""Gathers the points of a run, whatever they were read from, into curves."""

from array import array
from typing import Any, Final

from assay.curves.fields import number_of, some_names
from assay.errors import UsageError
from assay.experiments.training import Curve, make_curve

__all__ = ["Points", "check_size"]

_MOST_METRICS: Final = 10_000
_MOST_POINTS: Final = 20_000_000
"""Of a run: in memory a point has 16 bytes."""


def check_size(metrics: int, points: int) -> None:
    """Refuse a run that is too large to compute with, if possible before it is read.

    Raises:
        UsageError: It is.
    """
    for what, count, most in (
        ("metrics", metrics, _MOST_METRICS),
        ("points", points, _MOST_POINTS),
    ):
        if count > most:
            raise UsageError(
                f"it has {count:,} {what}, and at most {most:,} are read; leave out metrics, "
                "or log every tenth step"
            )


class Points:
    """Values by metric and step, in the order they were logged."""

    def __init__(self) -> None:
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self._texts: set[str] = set()
        self._count = 0

    def add(self, metric: str, step: int, value: Any) -> None:
        """A value that was logged: a number, or what is none."""
        number = number_of(value)
        if number is None:
            self._texts.add(metric)
            return
        if metric not in self._steps:
            check_size(len(self._steps) + 1, 0)
            self._steps[metric], self._values[metric] = array("q"), array("d")
        self._count += 1
        if self._count > _MOST_POINTS:
            check_size(0, self._count)
        self._steps[metric].append(step)
        self._values[metric].append(number)

    def forget_from(self, step: int) -> int:
        """Take out what was logged at a step or after it; how many points that were."""
        forgotten = 0
        for metric, steps in self._steps.items():
            kept = [place for place, one in enumerate(steps) if one < step]
            forgotten += len(steps) - len(kept)
            self._steps[metric] = array("q", (steps[place] for place in kept))
            values = self._values[metric]
            self._values[metric] = array("d", (values[place] for place in kept))
        self._count -= forgotten
        return forgotten

    def curves(self) -> dict[str, Curve]:
        """The curve of each metric; one with words in it is none, whatever else it has."""
        return {
            metric: make_curve(self._steps[metric], values)
            for metric, values in self._values.items()
            if metric not in self._texts
        }

    def notes(self) -> list[str]:
        """What was left out, in sentences."""
        mixed = [metric for metric in self._values if metric in self._texts]
        if not mixed:
            return []
        return [f"{some_names(mixed)} has words beside numbers, so it is no metric"]
