"""Whether two arms have models of the same size, as far as their runs say so.

What is better may only be larger: parameters and FLOPs per step are compared before curves are.
"""

from collections.abc import Sequence
from typing import NamedTuple

from assay.curves.fields import number_of
from assay.experiments.training import TrainingRun

__all__ = ["CapacityGap", "capacity_gaps"]

_LARGEST = 0.10
"""A difference above this share of the control's is told."""
_WORDS = {"parameters": "parameters", "flops_per_step": "FLOPs per step"}
"""Fields of a run's configuration, and what people call them."""


class CapacityGap(NamedTuple):
    """A size in which the arms differ."""

    name: str
    """parameters or flops_per_step."""
    control: float
    """The mean of its runs."""
    candidate: float

    @property
    def sentence(self) -> str:
        """What differs, and what to do."""
        share = self.candidate / self.control - 1
        return (
            f"Capacity differs: the candidate has {abs(share):.0%} "
            f"{'more' if share > 0 else 'fewer'} {_WORDS[self.name]} than the control "
            f"({self.candidate:,.0f} against {self.control:,.0f}), so that a difference may be "
            f"that of size. Train models of one size, within {_LARGEST:.0%}."
        )


def capacity_gaps(
    control: Sequence[TrainingRun], candidate: Sequence[TrainingRun]
) -> tuple[CapacityGap, ...]:
    """The sizes in which two arms differ by more than a tenth, as far as both say them."""
    gaps = []
    for name in _WORDS:
        before, after = _mean(control, name), _mean(candidate, name)
        if before and after and abs(after / before - 1) > _LARGEST:
            gaps.append(CapacityGap(name, before, after))
    return tuple(gaps)


def _mean(runs: Sequence[TrainingRun], name: str) -> float | None:
    numbers = [number_of(run.configuration.get(name)) for run in runs]
    known = [number for number in numbers if number is not None and 0 < number < 1e300]
    return sum(known) / len(known) if known else None
