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
from assay.training.gather import LoadedRun, RunSet, RunSources, SkippedRun, gather_runs
from assay.training.readers.tables import parse_number

_MAX_GAP = 0.10
"""Relative difference in size above which it is reported."""
_SIZE_NAMES = {"parameters": "parameters", "flops_per_step": "FLOPs per step"}
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
            f"{'more' if share > 0 else 'fewer'} {_SIZE_NAMES[self.name]} than the control "
            f"({self.candidate:,.0f} against {self.control:,.0f}), so a difference may come "
            "from size. "
            + (
                self.advice.sentence
                if self.advice
                else f"Train models of one size, within {_MAX_GAP:.0%}."
            )
        )


def find_capacity_gaps(
    control: Sequence[TrainingRun], candidate: Sequence[TrainingRun]
) -> tuple[CapacityGap, ...]:
    """Return the sizes in which two arms differ by more than a tenth, if both report them."""
    gaps = []
    for name in _SIZE_NAMES:
        before, after = (
            _average_size(control, name),
            _average_size(candidate, name),
        )
        if before and after and abs(after / before - 1) > _MAX_GAP:
            gaps.append(CapacityGap(name, before, after))
    return tuple(gaps)


def _make_width_advice(
    name: str, arm: str, other: str, nearest: SizedWidth, partners: Sequence[TrainingRun]
) -> WidthAdvice:
    """Return the advice to train an arm again; `name` is the size that was matched."""
    findings = {}
    for size, words in _SIZE_NAMES.items():
        size_here, wanted = getattr(nearest, size), _average_size(partners, size)
        if wanted:
            share = size_here / wanted - 1
            more = "more" if share > 0 else "fewer"
            text = f"{size_here:,} {words}, {100 * abs(share):.1f} % {more} than the {other}"
            findings[size] = (abs(share) <= _MAX_GAP, text)
    matches, sizes = findings.pop(name)
    if matches:
        sentence = f"Train the {arm} with --width {nearest.width}: {sizes}"
    else:
        sentence = (
            f"No width of the {arm} is within {_MAX_GAP:.0%}; the nearest is --width "
            f"{nearest.width}: {sizes}"
        )
    for close, text in findings.values():
        sentence += f", and {text}" if close else f"; different: {text}"
    return WidthAdvice(arm, nearest, matches, f"{sentence}.")


def _average_size(runs: Sequence[TrainingRun], name: str) -> float | None:
    numbers = [parse_number(run.configuration.get(name)) for run in runs]
    known = [number for number in numbers if number is not None and 0 < number < 1e300]
    return sum(known) / len(known) if known else None


_PAIR_FORMAT = '{"control": "RUN", "candidate": "RUN", "seed": 1072}'
_PAIR_KEYS = {"control", "candidate", "seed"}


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
    control: tuple[LoadedRun, ...]
    candidate: tuple[LoadedRun, ...]
    seeds: tuple[int | None, ...] = ()
    """Seed of each pair, None if unknown; empty if unpaired."""
    unusable: tuple[SkippedRun, ...] = ()
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
            tuple(sorted(run.run.id for run in arm)) for arm in (self.control, self.candidate)
        )
        return control, candidate

    @property
    def extended_from(self) -> int:
        """Number of runs an arm had before it was extended; 0 if it never was."""
        return max(map(_read_extended_from, (*self.control, *self.candidate)))


def with_width_advice(design: Design) -> Design:
    """Return the design with advice on its first capacity gap, if a matching width is known."""
    if not design.capacity:
        return design
    from assay.training.architectures import find_width_for_runs

    first, *others = design.capacity
    size = "flops" if first.name == "flops_per_step" else first.name
    control, candidate = (
        [run.run for run in arm] for arm in (design.control, design.candidate)
    )
    for arm, runs, other, partners, wanted in (
        ("candidate", candidate, "control", control, first.control),
        ("control", control, "candidate", candidate, first.candidate),
    ):
        match = find_width_for_runs([run.configuration for run in runs], wanted, size)
        if match is not None:
            nearest = SizedWidth(match.width, *match.capacity)
            advice = _make_width_advice(first.name, arm, other, nearest, partners)
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
                f"--pairs: {shown(text)} is not valid JSON ({error}); give {_PAIR_FORMAT}, "
                "or a list of them"
            ) from error
        pairs += [_parse_pair(pair) for pair in (value if isinstance(value, list) else [value])]
    if not pairs:
        raise UsageError(f"--pairs is empty; give {_PAIR_FORMAT}, or a list of them")
    return pairs


def paired_design(
    pairs: Sequence[PairNames],
    metric: str,
    sources: Store | RunSources,
    allowed: Collection[str] = (),
) -> Design:
    """Find the runs of pairs, and check that both runs of a pair have the same seed.

    Raises:
        UsageError: Seeds differ, a run is named twice, or a run lacks the metric.
    """
    controls = gather_runs([pair.control for pair in pairs], metric, sources, single=True)
    candidates = gather_runs([pair.candidate for pair in pairs], metric, sources, single=True)
    complete: list[tuple[LoadedRun, LoadedRun, int | None]] = []
    unusable: list[SkippedRun] = []
    seeds_unknown: list[str] = []
    seeds_differing: list[str] = []
    for pair in pairs:
        a, b = controls.find(pair.control), candidates.find(pair.candidate)
        if a is None or b is None:
            unusable += _list_broken_pair(pair, controls, candidates)
            continue
        seeds = {seed for seed in (pair.seed, a.run.seed, b.run.seed) if seed is not None}
        if len(seeds) > 1:
            stated = "" if pair.seed is None else f", stated {pair.seed}"
            seeds_differing.append(
                f"{pair.control} has {a.run.seed}, {pair.candidate} has {b.run.seed}{stated}"
            )
        elif pair.seed is None and None in (a.run.seed, b.run.seed):
            seeds_unknown.append(f"{pair.control} / {pair.candidate}")
        complete.append((a, b, min(seeds, default=None)))
    if seeds_differing:
        raise UsageError(
            f"runs of a pair have different seeds: {'; '.join(seeds_differing)}; pair runs "
            "with "
            "the same seed, or compare groups with --control-run-ids and --candidate-run-ids"
        )
    warnings = []
    if seeds_unknown:
        examples = ", ".join(seeds_unknown[:6]) + (", …" if len(seeds_unknown) > 6 else "")
        warnings.append(
            f"the seeds of {len(seeds_unknown)} of {len(pairs)} pairs are unknown, so it "
            f"cannot be checked that both runs of a pair have the same seed: {examples}"
        )
    shared = _make_unpaired_design(controls, candidates, allowed)
    return _with_pairs(
        complete, replace(shared, unusable=tuple(unusable), warnings=tuple(warnings))
    )


def seed_design(
    control: Sequence[str],
    candidate: Sequence[str],
    metric: str,
    sources: Store | RunSources,
    allowed: Collection[str] = (),
) -> Design:
    """Find the runs of two groups, and pair runs with the same seed.

    A run whose seed is unknown or missing in the other arm is left out and reported.

    Raises:
        UsageError: Two runs of an arm have the same seed, a run is named twice, or a run lacks
            the metric.
    """
    controls = gather_runs(control, metric, sources, taken=candidate)
    candidates = gather_runs(candidate, metric, sources, taken=control)
    controls_by_seed = _index_by_seed(controls, "control")
    candidates_by_seed = _index_by_seed(candidates, "candidate")
    complete = [
        (controls_by_seed[seed], candidates_by_seed[seed], seed)
        for seed in controls_by_seed
        if seed in candidates_by_seed
    ]
    unusable = [
        *controls.unusable,
        *_find_unpaired_runs(controls, candidates, "candidate"),
        *candidates.unusable,
        *_find_unpaired_runs(candidates, controls, "control"),
    ]
    shared = _make_unpaired_design(controls, candidates, allowed)
    return _with_pairs(complete, replace(shared, unusable=tuple(unusable)))


def _with_pairs(
    pairs: Sequence[tuple[LoadedRun, LoadedRun, int | None]], design: Design
) -> Design:
    """Return the design with these pairs and their seeds."""
    return replace(
        design,
        paired=True,
        control=tuple(a for a, _, _ in pairs),
        candidate=tuple(b for _, b, _ in pairs),
        seeds=tuple(seed for _, _, seed in pairs),
    )


def _index_by_seed(arm: RunSet, name: str) -> dict[int, LoadedRun]:
    """Return the runs of an arm by seed, without those whose seed is unknown."""
    by_seed: dict[int, LoadedRun] = {}
    for run in arm.runs:
        if run.run.seed is None:
            continue
        other = by_seed.setdefault(run.run.seed, run)
        if other is not run:
            raise UsageError(
                f"{name} runs {other.name!r} and {run.name!r} have the same seed, "
                f"{run.run.seed}, so the pairs are ambiguous; leave one out, or name pairs "
                "with --pairs"
            )
    return by_seed


def _find_unpaired_runs(arm: RunSet, other: RunSet, other_name: str) -> list[SkippedRun]:
    """Return the runs of an arm that have no partner, with the reasons."""
    partners = {run.run.seed for run in other.runs}
    unusable_by_seed = {run.seed: run.name for run in other.unusable if run.seed is not None}
    unpaired = []
    for run in arm.runs:
        seed = run.run.seed
        if seed is None:
            reason = "its seed is unknown, so it has no partner"
        elif seed in unusable_by_seed and seed not in partners:
            reason = f"its partner {unusable_by_seed[seed]!r} cannot be used"
        else:
            reason = f"no {other_name} run has its seed, {seed}"
        if seed is None or seed not in partners:
            unpaired.append(SkippedRun(run.name, reason, seed))
    return unpaired


def unpaired_design(
    control: Sequence[str],
    candidate: Sequence[str],
    metric: str,
    sources: Store | RunSources,
    allowed: Collection[str] = (),
) -> Design:
    """Find the runs of two groups, without pairing them, even if seeds would allow it.

    Raises:
        UsageError: A run is named twice, or lacks the metric.
    """
    controls = gather_runs(control, metric, sources, taken=candidate)
    candidates = gather_runs(candidate, metric, sources, taken=control)
    design = _make_unpaired_design(controls, candidates, allowed)
    seeds = [{run.run.seed for run in arm.runs} for arm in (controls, candidates)]
    same_seeds = seeds[0] == seeds[1] and None not in seeds[0]
    if same_seeds and len(seeds[0]) == len(controls.runs) == len(candidates.runs) > 1:
        note = (
            "every control run has a candidate run with its seed; comparing pairs may "
            "be more precise: add --pair-by-seed"
        )
        design = replace(design, notes=(*design.notes, note))
    return design


def _parse_pair(value: Any) -> PairNames:
    if not isinstance(value, dict):
        raise UsageError(
            f"--pairs: {shown(json.dumps(value))} is not a pair; give {_PAIR_FORMAT}"
        )
    for name in ("control", "candidate"):
        if not isinstance(value.get(name), str) or not value[name]:
            raise UsageError(
                f"--pairs: {shown(json.dumps(value))} has no {name!r}; give {_PAIR_FORMAT}"
            )
    if extra := sorted(value.keys() - _PAIR_KEYS):
        raise UsageError(f"--pairs: unknown key {extra[0]!r}; give {_PAIR_FORMAT}")
    seed = value.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise UsageError(f"--pairs: seed {seed!r} is not a whole number")
    return PairNames(value["control"], value["candidate"], seed)


def _make_unpaired_design(
    controls: RunSet, candidates: RunSet, allowed: Collection[str]
) -> Design:
    """Return the unpaired design of two groups, with notes, capacity gaps and copies.

    Raises:
        UsageError: A run is in both arms, or `allowed` has an unknown setting.
    """
    control_identities = {run.identity for run in controls.runs}
    for run in candidates.runs:
        if run.identity in control_identities:
            raise UsageError(
                f"run {run.name!r} is a control and a candidate; name each run once"
            )
    return Design(
        paired=False,
        control=controls.runs,
        candidate=candidates.runs,
        unusable=controls.unusable + candidates.unusable,
        notes=tuple(dict.fromkeys([*controls.notes, *candidates.notes])),
        configurations=(_merge_configurations(controls), _merge_configurations(candidates)),
        allow_different=allowed_names(allowed),
        capacity=find_capacity_gaps(
            *([run.run for run in arm.runs] for arm in (controls, candidates))
        ),
        copies=_find_copies((*controls.runs, *candidates.runs)),
    )


def _find_copies(runs: Sequence[LoadedRun]) -> tuple[str, ...]:
    names_by_curve: dict[bytes, str] = {}
    copies = []
    for run in runs:
        steps_P, values_P = run.curve.steps_P, run.curve.values_P
        if len(values_P) < 2 or np.array_equal(values_P, np.round(values_P)):
            # Integers may be equal by chance.
            continue
        original = names_by_curve.setdefault(steps_P.tobytes() + values_P.tobytes(), run.name)
        if original != run.name:
            copies.append(f"{run.name} is a copy of {original}")
    return tuple(copies)


def _merge_configurations(arm: RunSet) -> dict[str, Any]:
    """Return each setting of an arm: its value, or a list of values if runs differ."""
    merged: dict[str, list[Any]] = {}
    for run in arm.runs:
        settings = {
            **run.run.configuration,
            "tasks": run.run.task,
            "commit": run.run.provenance.get("commit"),
            "total_steps": _find_total_steps(run),
        }
        for name, value in settings.items():
            values = merged.setdefault(name, [])
            if value is not None and value not in values:
                values.append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in merged.items()}


def _read_extended_from(run: LoadedRun) -> int:
    launch = run.run.provenance.get("launch")
    number = launch.get("extended_from") if isinstance(launch, dict) else None
    return number if type(number) is int else 0


def _find_total_steps(run: LoadedRun) -> int:
    """Return the recorded length of a run, unless its curve ends elsewhere.

    A curve may miss the last update, such as the reward if no episode ended in it.
    """
    steps_P = run.curve.steps_P
    end, gap = int(steps_P[-1]), int(np.diff(steps_P).max())
    recorded = parse_number(run.run.configuration.get("total_steps"))
    return int(recorded) if recorded is not None and abs(recorded - end) <= gap else end


def _list_broken_pair(
    pair: PairNames, controls: RunSet, candidates: RunSet
) -> list[SkippedRun]:
    """Return both runs of a pair that is left out, each with its reason."""
    runs = []
    for name, partner, arm in (
        (pair.control, pair.candidate, controls),
        (pair.candidate, pair.control, candidates),
    ):
        unusable = next((run for run in arm.unusable if run.name == name), None)
        runs.append(unusable or SkippedRun(name, f"its partner {partner!r} cannot be used"))
    return runs
