"""Gathers the points of a run, whatever they were read from, into curves."""

from typing import Any

from assay.curves.fields import number_of, some_names
from assay.experiments.training import Curve, make_curve

__all__ = ["Points"]


class Points:
    """Values by metric and step, in the order they were logged."""

    def __init__(self) -> None:
        self._steps: dict[str, list[int]] = {}
        self._values: dict[str, list[float]] = {}
        self._texts: set[str] = set()

    def add(self, metric: str, step: int, value: Any) -> None:
        """A value that was logged: a number, or what is none."""
        number = number_of(value)
        if number is None:
            self._texts.add(metric)
        else:
            self._steps.setdefault(metric, []).append(step)
            self._values.setdefault(metric, []).append(number)

    def forget_from(self, step: int) -> int:
        """Take out what was logged at a step or after it; how many points that were."""
        forgotten = 0
        for metric, steps in self._steps.items():
            kept = [place for place, one in enumerate(steps) if one < step]
            forgotten += len(steps) - len(kept)
            self._steps[metric] = [steps[place] for place in kept]
            self._values[metric] = [self._values[metric][place] for place in kept]
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
