"""Which runs are compared with which: pairs, or two groups.

Pairing is checked and not assumed: two runs of a pair have one seed, as far as seeds are known.
A pair of which one run cannot be used is left out as a whole, and named. What is better may
only be larger: parameters and FLOPs per step are compared before curves are.
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
"""A difference above this share of the control's is told."""
_WORDS = {"parameters": "parameters", "flops_per_step": "FLOPs per step"}
"""Fields of a run's configuration, and what people call them."""


class SizedWidth(NamedTuple):
    """A width of a model, and how large it makes it."""

    width: int
    parameters: int
    flops_per_step: int


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


_FORM = '{"control": "RUN", "candidate": "RUN", "seed": 1072}'
_KEYS = {"control", "candidate", "seed"}


class PairNames(NamedTuple):
    """The names of two runs that belong together."""

    control: str
    candidate: str
    seed: int | None = None
    """What the user says their seed is."""


@dataclass(frozen=True, slots=True)
class Design:
    """The runs of both arms; paired ones stand at the same place."""

    paired: bool
    control: tuple[FoundRun, ...]
    candidate: tuple[FoundRun, ...]
    seeds: tuple[int | None, ...] = ()
    """The seed of each pair, as far as it is known; empty where nothing is paired."""
    unusable: tuple[Unusable, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    configurations: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    """Settings of each arm, of all its runs; None: not known."""
    allow_different: frozenset[str] = frozenset()
    """Settings of the task side that may differ."""
    capacity: tuple[CapacityGap, ...] = ()
    """Sizes of the models in which the arms differ."""
    copies: tuple[str, ...] = ()
    """Runs that have the curve of another to the last digit, in words."""

    @property
    def run_ids(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids of the runs of both arms, sorted."""
        control, candidate = (
            tuple(sorted(found.run.id for found in arm))
            for arm in (self.control, self.candidate)
        )
        return control, candidate

    @property
    def extended_from(self) -> int:
        """Of how many runs an arm was before it was extended; 0 if it never was."""
        return max(map(_extended_from, (*self.control, *self.candidate)))


def with_width_advice(design: Design) -> Design:
    """Return the design; its first gap says which width would close it, if that is known."""
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
    """Pairs from JSON: an object per text, or lists of them.

    Raises:
        UsageError: A text is no JSON, or no pair.
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
    """Find the runs of pairs, and check that each pair has one seed.

    Raises:
        UsageError: Seeds differ, a run comes twice, or lacks the metric.
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
    """Find the runs of two groups, and pair those that have one seed.

    A run whose seed nobody shares, or is not known, is left out and named.

    Raises:
        UsageError: Two runs of an arm have one seed, a run comes twice, or lacks the metric.
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
    """Return the design with these pairs, each with its seed."""
    return replace(
        design,
        paired=True,
        control=tuple(a for a, _, _ in pairs),
        candidate=tuple(b for _, b, _ in pairs),
        seeds=tuple(seed for _, _, seed in pairs),
    )


def _by_seed(arm: Gathered, name: str) -> dict[int, FoundRun]:
    """The runs of an arm by their seeds; those without one are left out."""
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
    """The runs of an arm that have no partner, and why."""
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
    """Find the runs of two groups; nothing is paired, even where seeds would allow it.

    Raises:
        UsageError: A run comes twice, or lacks the metric.
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
    """Return the design of two groups, with what it says of the arms however they are paired.

    Raises:
        UsageError: A run is in both arms, or no setting has a name that is allowed to differ.
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
            # Whole numbers may be equal by chance.
            continue
        known = first.setdefault(steps_P.tobytes() + values_P.tobytes(), one.name)
        if known != one.name:
            found.append(f"{one.name} is a copy of {known}")
    return tuple(found)


def _configuration(arm: Gathered) -> dict[str, Any]:
    """Return each setting of an arm: its value, or its values where runs differ."""
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
    """How long a run was: what it says, unless its curve ends elsewhere.

    A metric may miss the last update, such as the reward where no episode ended in it.
    """
    steps_P = one.curve.steps_P
    end, gap = int(steps_P[-1]), int(np.diff(steps_P).max())
    said = number_of(one.run.configuration.get("total_steps"))
    return int(said) if said is not None and abs(said - end) <= gap else end


def _broken(pair: PairNames, controls: Gathered, candidates: Gathered) -> list[Unusable]:
    """A pair that is left out: the run that is to blame, and its partner."""
    found = []
    for name, partner, arm in (
        (pair.control, pair.candidate, controls),
        (pair.candidate, pair.control, candidates),
    ):
        one = next((each for each in arm.unusable if each.name == name), None)
        found.append(one or Unusable(name, f"its partner {partner!r} cannot be used"))
    return found
