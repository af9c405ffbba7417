"""Design of a comparison of training runs: pairs, or two groups.

Pairing is checked, not assumed: both runs of a pair must have the same seed, if seeds are
known. If one run of a pair cannot be used, the pair is left out and reported. Parameters and
FLOPs per step of the arms are compared, too, because a larger model may be better due to its
size alone.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from assay.core.text import shown
from assay.errors import UsageError
from assay.judge.design import allowed_names
from assay.store.store import Store
from assay.store.training_runs import TrainingRun
from assay.training.gather import FoundRun, Gathered, Places, Unusable, gather_runs
from assay.training.readers.tables import number_of

_LARGEST = 0.10
"""Relative difference in size above which it is reported."""
_WORDS = {"parameters": "parameters", "flops_per_step": "FLOPs per step"}
"""Configuration fields of model sizes, with their names in messages."""


class SizedWidth(NamedTuple):
    """A model width, and the model size it gives."""

    width: int
    parameters: int
    flops_per_step: int


class WidthAdvice(NamedTuple):
    """Advice on how to give both arms the same size."""

    arm: str
    """The arm to train again: the candidate if its widths are known, otherwise the control."""
    nearest: SizedWidth
    matches: bool
    """Whether the size is within 10 % of the other arm at that width."""
    sentence: str


class CapacityGap(NamedTuple):
    """A model size in which the arms differ."""

    name: str
    """"parameters" or "flops_per_step"."""
    control: float
    """Mean over the control runs."""
    candidate: float
    advice: WidthAdvice | None = None
    """Set on the first gap only, if an arm was trained by a trainer whose widths are known."""

    @property
    def sentence(self) -> str:
        """The difference, and the advice."""
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
    """Return the sizes in which two arms differ by more than a tenth, if both report them."""
    gaps = []
    for name in _WORDS:
        before, after = _mean(control, name), _mean(candidate, name)
        if before and after and abs(after / before - 1) > _LARGEST:
            gaps.append(CapacityGap(name, before, after))
    return tuple(gaps)


def _advice(
    name: str, arm: str, other: str, nearest: SizedWidth, partners: Sequence[TrainingRun]
) -> WidthAdvice:
    """Return the advice to train an arm again; `name` is the size that was matched."""
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


_FORM = '{"control": "RUN", "candidate": "RUN", "seed": 1072}'
_KEYS = {"control", "candidate", "seed"}


class PairNames(NamedTuple):
    """Names of the two runs of a pair."""

    control: str
    candidate: str
    seed: int | None = None
    """Seed given by the user."""


@dataclass(frozen=True, slots=True)
class Design:
    """Runs of both arms; in a paired design, equal indices form a pair."""

    paired: bool
    control: tuple[FoundRun, ...]
    candidate: tuple[FoundRun, ...]
    seeds: tuple[int | None, ...] = ()
    """Seed of each pair, None if unknown; empty if unpaired."""
    unusable: tuple[Unusable, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    configurations: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    """Settings of each arm, over all its runs; None if unknown."""
    allow_different: frozenset[str] = frozenset()
    """Names of task settings that may differ between the arms."""
    capacity: tuple[CapacityGap, ...] = ()
    """Model sizes in which the arms differ."""
    copies: tuple[str, ...] = ()
    """Sentences on runs whose curve is identical to another run's."""

    @property
    def run_ids(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Sorted run ids of both arms."""
        control, candidate = (
            tuple(sorted(found.run.id for found in arm))
            for arm in (self.control, self.candidate)
        )
        return control, candidate

    @property
    def extended_from(self) -> int:
        """Number of runs an arm had before it was extended; 0 if it never was."""
        return max(map(_extended_from, (*self.control, *self.candidate)))


def with_width_advice(design: Design) -> Design:
    """Return the design with advice on its first capacity gap, if a matching width is known."""
    if not design.capacity:
        return design
    from assay.training.architectures import width_for_runs

    first, *others = design.capacity
    size = "flops" if first.name == "flops_per_step" else first.name
    control, candidate = (
        [found.run for found in arm] for arm in (design.control, design.candidate)
    )
    for arm, runs, other, partners, wanted in (
        ("candidate", candidate, "control", control, first.control),
        ("control", control, "candidate", candidate, first.candidate),
    ):
        match = width_for_runs([run.configuration for run in runs], wanted, size)
        if match is not None:
            nearest = SizedWidth(match.width, *match.capacity)
            advice = _advice(first.name, arm, other, nearest, partners)
            return replace(design, capacity=(first._replace(advice=advice), *others))
    return design


def parse_pairs(texts: Sequence[str]) -> list[PairNames]:
    """Parse pairs from JSON: each text is an object or a list of objects.

    Raises:
        UsageError: A text is not valid JSON, or not a pair.
    """
    pairs: list[PairNames] = []
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"--pairs: {shown(text)} is no JSON ({error}); give {_FORM}, or a list of such"
            ) from error
        pairs += [_pair(one) for one in (value if isinstance(value, list) else [value])]
    if not pairs:
        raise UsageError(f"--pairs names no pair; give {_FORM}, or a list of such")
    return pairs


def paired_design(
    pairs: Sequence[PairNames],
    metric: str,
    places: Store | Places,
    allowed: Collection[str] = (),
) -> Design:
    """Find the runs of pairs, and check that both runs of a pair have the same seed.

    Raises:
        UsageError: Seeds differ, a run is named twice, or a run lacks the metric.
    """
    controls = gather_runs([pair.control for pair in pairs], metric, places, single=True)
    candidates = gather_runs([pair.candidate for pair in pairs], metric, places, single=True)
    whole: list[tuple[FoundRun, FoundRun, int | None]] = []
    unusable: list[Unusable] = []
    unknown: list[str] = []
    differing: list[str] = []
    for pair in pairs:
        a, b = controls.find(pair.control), candidates.find(pair.candidate)
        if a is None or b is None:
            unusable += _broken(pair, controls, candidates)
            continue
        seeds = {seed for seed in (pair.seed, a.run.seed, b.run.seed) if seed is not None}
        if len(seeds) > 1:
            stated = "" if pair.seed is None else f", stated {pair.seed}"
            differing.append(
                f"{pair.control} has {a.run.seed}, {pair.candidate} has {b.run.seed}{stated}"
            )
        elif pair.seed is None and None in (a.run.seed, b.run.seed):
            unknown.append(f"{pair.control} / {pair.candidate}")
        whole.append((a, b, min(seeds, default=None)))
    if differing:
        raise UsageError(
            "runs of a pair have different seeds: " + "; ".join(differing) + "; pair runs of "
            "the same seed, or compare groups with --control-run-ids and --candidate-run-ids"
        )
    warnings = []
    if unknown:
        some = ", ".join(unknown[:6]) + (", …" if len(unknown) > 6 else "")
        warnings.append(
            f"the seeds of {len(unknown)} of {len(pairs)} pairs are not known, so that they "
            f"were made with the same seed is taken on trust: {some}"
        )
    shared = _two_groups(controls, candidates, allowed)
    return _paired(whole, replace(shared, unusable=tuple(unusable), warnings=tuple(warnings)))


def seed_design(
    control: Sequence[str],
    candidate: Sequence[str],
    metric: str,
    places: Store | Places,
    allowed: Collection[str] = (),
) -> Design:
    """Find the runs of two groups, and pair runs with the same seed.

    A run whose seed is unknown or missing in the other arm is left out and reported.

    Raises:
        UsageError: Two runs of an arm have the same seed, a run is named twice, or a run lacks
            the metric.
    """
    controls = gather_runs(control, metric, places, taken=candidate)
    candidates = gather_runs(candidate, metric, places, taken=control)
    first, second = _by_seed(controls, "control"), _by_seed(candidates, "candidate")
    whole = [(first[seed], second[seed], seed) for seed in first if seed in second]
    unusable = [
        *controls.unusable,
        *_alone(controls, candidates, "candidate"),
        *candidates.unusable,
        *_alone(candidates, controls, "control"),
    ]
    shared = _two_groups(controls, candidates, allowed)
    return _paired(whole, replace(shared, unusable=tuple(unusable)))


def _paired(pairs: Sequence[tuple[FoundRun, FoundRun, int | None]], design: Design) -> Design:
    """Return the design with these pairs and their seeds."""
    return replace(
        design,
        paired=True,
        control=tuple(a for a, _, _ in pairs),
        candidate=tuple(b for _, b, _ in pairs),
        seeds=tuple(seed for _, _, seed in pairs),
    )


def _by_seed(arm: Gathered, name: str) -> dict[int, FoundRun]:
    """Return the runs of an arm by seed, without those whose seed is unknown."""
    found: dict[int, FoundRun] = {}
    for run in arm.runs:
        if run.run.seed is None:
            continue
        other = found.setdefault(run.run.seed, run)
        if other is not run:
            raise UsageError(
                f"{name} runs {other.name!r} and {run.name!r} have the same seed, "
                f"{run.run.seed}, so which of them is paired is not clear; leave one out, or "
                "name pairs with --pairs"
            )
    return found


def _alone(arm: Gathered, other: Gathered, other_name: str) -> list[Unusable]:
    """Return the runs of an arm that have no partner, with the reasons."""
    partners = {run.run.seed for run in other.runs}
    lost = {run.seed: run.name for run in other.unusable if run.seed is not None}
    found = []
    for run in arm.runs:
        seed = run.run.seed
        if seed is None:
            reason = "its seed is not known, so that it has no partner"
        elif seed in lost and seed not in partners:
            reason = f"its partner {lost[seed]!r} cannot be used"
        else:
            reason = f"no {other_name} run has its seed, {seed}"
        if seed is None or seed not in partners:
            found.append(Unusable(run.name, reason, seed))
    return found


def unpaired_design(
    control: Sequence[str],
    candidate: Sequence[str],
    metric: str,
    places: Store | Places,
    allowed: Collection[str] = (),
) -> Design:
    """Find the runs of two groups, without pairing them, even if seeds would allow it.

    Raises:
        UsageError: A run is named twice, or lacks the metric.
    """
    controls = gather_runs(control, metric, places, taken=candidate)
    candidates = gather_runs(candidate, metric, places, taken=control)
    design = _two_groups(controls, candidates, allowed)
    seeds = [{one.run.seed for one in arm.runs} for arm in (controls, candidates)]
    alike = seeds[0] == seeds[1] and None not in seeds[0]
    if alike and len(seeds[0]) == len(controls.runs) == len(candidates.runs) > 1:
        note = (
            "every control run has a candidate run with its seed; compared pair by pair the "
            "seeds they share may tell more: add --pair-by-seed"
        )
        design = replace(design, notes=(*design.notes, note))
    return design


def _pair(value: Any) -> PairNames:
    if not isinstance(value, dict):
        raise UsageError(f"--pairs: {shown(json.dumps(value))} is no pair; give {_FORM}")
    for name in ("control", "candidate"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise UsageError(f"--pairs: {shown(json.dumps(value))} has no {name!r}: {_FORM}")
    if extra := sorted(value.keys() - _KEYS):
        raise UsageError(f"--pairs: a pair has no {extra[0]!r}; give {_FORM}")
    seed = value.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise UsageError(f"--pairs: seed {seed!r} is no whole number")
    return PairNames(value["control"], value["candidate"], seed)


def _two_groups(controls: Gathered, candidates: Gathered, allowed: Collection[str]) -> Design:
    """Return the unpaired design of two groups, with notes, capacity gaps and copies.

    Raises:
        UsageError: A run is in both arms, or `allowed` has an unknown setting.
    """
    taken = {one.identity for one in controls.runs}
    for one in candidates.runs:
        if one.identity in taken:
            raise UsageError(
                f"run {one.name!r} is a control and a candidate; name each run once"
            )
    return Design(
        paired=False,
        control=controls.runs,
        candidate=candidates.runs,
        unusable=controls.unusable + candidates.unusable,
        notes=tuple(dict.fromkeys([*controls.notes, *candidates.notes])),
        configurations=(_configuration(controls), _configuration(candidates)),
        allow_different=allowed_names(allowed),
        capacity=capacity_gaps(
            *([one.run for one in arm.runs] for arm in (controls, candidates))
        ),
        copies=_copies((*controls.runs, *candidates.runs)),
    )


def _copies(runs: Sequence[FoundRun]) -> tuple[str, ...]:
    first: dict[bytes, str] = {}
    found = []
    for one in runs:
        steps_P, values_P = one.curve.steps_P, one.curve.values_P
        if len(values_P) < 2 or np.array_equal(values_P, np.round(values_P)):
            # Integers may be equal by chance.
            continue
        known = first.setdefault(steps_P.tobytes() + values_P.tobytes(), one.name)
        if known != one.name:
            found.append(f"{one.name} is a copy of {known}")
    return tuple(found)


def _configuration(arm: Gathered) -> dict[str, Any]:
    """Return each setting of an arm: its value, or a list of values if runs differ."""
    found: dict[str, list[Any]] = {}
    for one in arm.runs:
        known = {
            **one.run.configuration,
            "tasks": one.run.task,
            "commit": one.run.provenance.get("commit"),
            "total_steps": _total_steps(one),
        }
        for name, value in known.items():
            values = found.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _extended_from(found: FoundRun) -> int:
    launch = found.run.provenance.get("launch")
    known = launch.get("extended_from") if isinstance(launch, dict) else None
    return known if type(known) is int else 0


def _total_steps(one: FoundRun) -> int:
    """Return the recorded length of a run, unless its curve ends elsewhere.

    A curve may miss the last update, such as the reward if no episode ended in it.
    """
    steps_P = one.curve.steps_P
    end, gap = int(steps_P[-1]), int(np.diff(steps_P).max())
    said = number_of(one.run.configuration.get("total_steps"))
    return int(said) if said is not None and abs(said - end) <= gap else end


def _broken(pair: PairNames, controls: Gathered, candidates: Gathered) -> list[Unusable]:
    """Return both runs of a pair that is left out, each with its reason."""
    found = []
    for name, partner, arm in (
        (pair.control, pair.candidate, controls),
        (pair.candidate, pair.control, candidates),
    ):
        one = next((each for each in arm.unusable if each.name == name), None)
        found.append(one or Unusable(name, f"its partner {partner!r} cannot be used"))
    return found
