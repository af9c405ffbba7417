"""Whether two arms have models of the same size, as far as their runs say so.

What is better may only be larger: parameters and FLOPs per step are compared before curves are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from assay.curves.fields import number_of
from assay.experiments.training import TrainingRun

__all__ = ["CapacityGap", "SizedWidth", "WidthAdvice", "capacity_gaps", "with_width_advice"]

_LARGEST = 0.10
"""A difference above this share of the control's is told."""
_WORDS = {"parameters": "parameters", "flops_per_step": "FLOPs per step"}
"""Fields of a run's configuration, and what people call them."""


class SizedWidth(NamedTuple):
    """A width of a model, and how large it makes it."""

    width: int
    parameters: int
    flops_per_step: int


WidthFor = Callable[[Sequence[TrainingRun], str, float], SizedWidth | None]
"""The width at which models of such runs come nearest to a size: runs, its name, how much."""


class WidthAdvice(NamedTuple):
    """How to give both arms one size."""

    arm: str
    """Which of them is to be trained again: candidate, else control."""
    nearest: SizedWidth
    matches: bool
    """Whether the size in question then is within 10 %."""
    sentence: str


class CapacityGap(NamedTuple):
    """A size in which the arms differ."""

    name: str
    """parameters or flops_per_step."""
    control: float
    """The mean of its runs."""
    candidate: float
    advice: WidthAdvice | None = None
    """On the first gap, where an arm was trained by a trainer whose widths are known."""

    @property
    def sentence(self) -> str:
        """What differs, and what to do."""
        share = self.candidate / self.control - 1
        return (
            f"Capacity differs: the candidate has {abs(share):.0%} "
            f"{'more' if share > 0 else 'fewer'} {_WORDS[self.name]} than the control "
            f"({self.candidate:,.0f} against {self.control:,.0f}), so that a difference may be "
            "that of size. "
            + (
                self.advice.sentence
                if self.advice
                else f"Train models of one size, within {_LARGEST:.0%}."
            )
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


def with_width_advice(
    gaps: Sequence[CapacityGap],
    control: Sequence[TrainingRun],
    candidate: Sequence[TrainingRun],
    width_for: WidthFor,
) -> tuple[CapacityGap, ...]:
    """The same gaps; the first says which width would close it, if that can be known."""
    if not gaps:
        return ()
    first, *others = gaps
    for arm, other, runs, wanted in (
        ("candidate", "control", candidate, first.control),
        ("control", "candidate", control, first.candidate),
    ):
        if nearest := width_for(runs, first.name, wanted):
            partners = control if arm == "candidate" else candidate
            advice = _advice(first.name, arm, other, nearest, partners)
            return (first._replace(advice=advice), *others)
    return tuple(gaps)


def _advice(
    name: str, arm: str, other: str, nearest: SizedWidth, partners: Sequence[TrainingRun]
) -> WidthAdvice:
    """What to train again; the size of this name is the one that was to match."""
    said = {}
    for size, words in _WORDS.items():
        have, wanted = getattr(nearest, size), _mean(partners, size)
        if wanted:
            share = have / wanted - 1
            more = "more" if share > 0 else "fewer"
            about = f"{have:,} {words}, {100 * abs(share):.1f} % {more} than the {other}"
            said[size] = (abs(share) <= _LARGEST, about)
    matches, sizes = said.pop(name)
    if matches:
        sentence = f"Train the {arm} with --width {nearest.width}: {sizes}"
    else:
        sentence = (
            f"No width of the {arm} comes within {_LARGEST:.0%}; the nearest is --width "
            f"{nearest.width}: {sizes}"
        )
    for alike, about in said.values():
        sentence += f", and {about}" if alike else f"; not alike are its {about}"
    return WidthAdvice(arm, nearest, matches, f"{sentence}.")


def _mean(runs: Sequence[TrainingRun], name: str) -> float | None:
    numbers = [number_of(run.configuration.get(name)) for run in runs]
    known = [number for number in numbers if number is not None and 0 < number < 1e300]
    return sum(known) / len(known) if known else None
