"""Interim analyses ("looks") that govern a comparison, and their share of alpha.

A run that stopped when it was decided cannot be tested again as if it had a fixed size. Its
looks follow from its outcomes and its configuration, so they are known for a results file or an
export, too.

For analyses of training runs: looking again at the same runs is the same look. Looks named in a
plan share its alpha (alpha spending). An unplanned look comes after one that has already used
the whole alpha, so no later verdict can keep the error rate: all later looks together may add a
tenth of alpha, each half of what is left. Reads and writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from assay.core.text import counted
from assay.errors import UsageError
from assay.judge.outcomes import LOWER_IS_BETTER, outcome_of
from assay.judge.plans import AnalysisPlan
from assay.judge.results import Contrast
from assay.judge.subjects import Look, Subject
from assay.stats.intervals import Side
from assay.stats.look_bounds import Spending, error_of_looks, next_alpha, planned_alphas
from assay.stats.sequential import SequentialDesign, looks
from assay.types import TrialState, Verdict

_OPPOSITES = ((Verdict.BETTER, Verdict.WORSE), (Verdict.HIGHER, Verdict.LOWER))
_TURNED = {a.value: b for one, other in _OPPOSITES for a, b in ((one, other), (other, one))}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLook:
    """An interim analysis that took place."""

    control: tuple[str, ...]
    """Ids of training runs, sorted."""
    candidate: tuple[str, ...]
    look: int
    """Counted from 1."""
    alpha: float
    """Two-sided alpha of this look's interval alone."""
    estimate: float
    low: float
    high: float
    verdict: str
    plan: str | None
    """The hash of the plan this look belongs to."""
    looked_at: datetime | None = None
    """In UTC; None before the look is recorded."""

    @property
    def runs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ids of the control's and the candidate's runs."""
        return self.control, self.candidate


def last_look(baseline: Subject, candidate: Subject, metric: str) -> Look | None:
    """Return the last look at these two in this metric, from the candidate's side, or None."""
    for first, second in ((baseline, candidate), (candidate, baseline)):
        found = [
            look
            for look in second.looks
            if look.baseline_id == first.id and look.metric == metric
        ]
        last = max(found, key=lambda look: look.look, default=None)
        last = last or _replayed(first, second, metric)
        if last is not None:
            return last if second is candidate else _turned(last)
    return None


def looked_before(contrast: Contrast, baseline: Subject, candidate: Subject) -> list[str]:
    """Return the names of subjects whose run stopped at looks that this contrast ignores."""
    if contrast.look is not None:
        return []
    return [
        subject.name
        for subject in (baseline, candidate)
        if subject.looks or subject.facts.get("until_decided")
    ]


def _replayed(baseline: Subject, candidate: Subject, metric: str) -> Look | None:
    """Recompute the last look of the run that had both the baseline and the candidate."""
    facts = candidate.facts
    models, episodes, seed = (facts.get(key) for key in ("models", "episodes", "seed"))
    if (
        facts.get("until_decided") != metric
        or candidate.run_id is None
        or candidate.run_id != baseline.run_id
        or not (isinstance(models, list) and isinstance(episodes, int))
        or not (isinstance(seed, int) and models and baseline.model == models[0])
        or candidate.model not in models[1:]
    ):
        return None
    values = [
        {
            trial.seed: trial.values.get(metric)
            for trial in subject.trials
            if trial.state is not TrialState.INFRASTRUCTURE
        }
        for subject in (baseline, candidate)
    ]
    gaps = []
    for world in range(seed, seed + episodes):
        before, after = (own.get(world) for own in values)
        if before is not None and after is not None:
            gaps.append(after - before)
    try:
        design = SequentialDesign(
            most=episodes,
            comparisons=len(models) - 1,
            min_effect=facts.get("min_effect"),
            lower_is_better=metric in LOWER_IS_BETTER,
            shares=outcome_of(metric).share,
            ends=outcome_of(metric).ends,
        )
    except UsageError:
        # A file may contain anything; invalid settings mean that its looks are unknown.
        return None
    made = looks(gaps, design, ended=True)
    return Look(
        experiment_id=candidate.id,
        baseline_id=baseline.id,
        metric=metric,
        look=len(made),
        pairs=made[-1].pairs,
        estimate=made[-1].interval.point,
        low=made[-1].interval.low,
        high=made[-1].interval.high,
        decision=made[-1].decision,
        design=design.stored() | {"level": design.level},
    )


def _turned(look: Look) -> Look:
    return replace(
        look,
        estimate=-look.estimate,
        low=-look.high,
        high=-look.low,
        decision=_TURNED.get(look.decision or "", look.decision),
    )


LATER_LOOKS = 0.1
"""Fraction of the first look's alpha that all later unplanned looks may add."""


class LookRule(StrEnum):
    """The rule that determines the alpha of a look."""

    SINGLE = "single"
    """The only look: it has the whole alpha."""
    OBRIEN_FLEMING = "obrien-fleming"
    """Planned: hardly any alpha at first, almost all at the last look."""
    POCOCK = "pocock"
    """Planned: about the same alpha at each look."""
    UNPLANNED = "unplanned"
    """Unplanned: what the earlier looks left."""


_NAMES = {LookRule.OBRIEN_FLEMING: "O'Brien-Fleming", LookRule.POCOCK: "Pocock"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisLook:
    """One look at a comparison, and its position among past and planned looks."""

    number: int
    """Counted from 1."""
    rule: LookRule
    planned: tuple[int, ...]
    """Numbers of pairs, or of runs of each arm, after which the plan has looks."""
    plan: str | None
    """The hash of the plan that governs this look."""
    repeated: bool
    """Whether the same runs were analysed before, which makes this the same look."""
    earlier: tuple[RecordedLook, ...]
    alpha: float
    """One minus the level of its intervals."""
    two_sided: float
    """The two-sided equivalent of its alpha."""
    error: float
    """Probability that any look so far shows a difference where there is none, for normal
    values.
    """
    paired: bool
    total: float
    """The alpha of the settings, for all looks together."""
    extended_from: int = 0
    """Size of an arm before it was extended; 0 if it never was."""
    unrecorded: str | None = None
    """Why the database does not record this look."""

    @property
    def sentence(self) -> str | None:
        """Description of the look; None for a first look at arms that were never extended."""
        parts = []
        about = f"has a level of {100 * (1 - self.alpha):.4g} % instead of"
        about += f" {100 * (1 - self.total):.4g} %, and p-values count below {self.alpha:.2g}"
        wrong = "all looks together show a difference where there is none in"
        if self.rule in _NAMES:
            when = " and ".join(map(str, self.planned))
            unit = "pairs" if self.paired else "runs of each arm"
            parts.append(
                f"Look {self.number} of {max(self.number, len(self.planned))}, planned after"
                f" {when} {unit}: its interval {about} ({_NAMES[self.rule]}), so that"
                f" {wrong} about {100 * self.total:.3g} % of cases at most."
            )
        elif self.rule is LookRule.UNPLANNED:
            before = ", ".join(_told(look, self.paired) for look in self.earlier)
            parts.append(
                f"Look {self.number} at this comparison, not planned; earlier: {before}. Its"
                f" interval {about}, so that {wrong} about {100 * self.error:.3g} % of cases."
                f" Looks that a plan names beforehand keep to {100 * self.total:.3g} %."
            )
        elif self.extended_from:
            parts.append(
                f"An arm was extended from {counted(self.extended_from, 'run')}, and no look at"
                " those is on record; if there was one, this interval is too short."
            )
        if parts and self.unrecorded:
            parts.append(
                f"This look is not recorded, because {self.unrecorded}: later ones do not know"
                " of it."
            )
        return " ".join(parts) or None


def settle_look(
    runs: tuple[tuple[str, ...], tuple[str, ...]],
    *,
    paired: bool,
    alpha: float,
    side: Side,
    plan: AnalysisPlan | None,
    looks: Sequence[RecordedLook],
    extended_from: int = 0,
    unrecorded: str | None = None,
) -> AnalysisLook:
    """Determine which look this is, and its alpha.

    Args:
        runs: The ids of the control's and the candidate's runs, sorted.
        paired: Whether runs are compared in pairs.
        alpha: One minus the level of intervals, for all looks together.
        side: Side of the intervals.
        plan: The plan, if any.
        looks: All looks at this summary of this metric, the first one first.
        extended_from: Size of an arm before it was extended; 0 if it never was.
        unrecorded: Why this look will not be recorded.
    """
    control, candidate = map(set, runs)
    again = next((at for at, look in enumerate(looks) if look.runs == runs), len(looks))
    earlier = [
        look
        for look in looks[:again]
        if control.intersection(look.control) and candidate.intersection(look.candidate)
    ]
    now = _count(paired, runs)
    # Earlier looks at runs that were removed count, but their joint distribution is unknown.
    inside = [
        look
        for look in earlier
        if control.issuperset(look.control) and candidate.issuperset(look.candidate)
    ]
    followed: dict[int, float] = {}
    for look in inside:
        count = _count(paired, look.runs)
        if count < now:
            followed[count] = max(look.alpha, followed.get(count, 0.0))
    before = sorted(followed.items())
    sides = 1 if side is Side.TWO_SIDED else 2
    total = alpha * sides
    number, planned = len(earlier) + 1, () if plan is None else plan.looks
    ends = [each if paired else 2 * each - 1 for each in planned]
    by_plan = None
    if plan and ends and now <= ends[-1] and all(look.plan == plan.hash for look in earlier):
        rule, by_plan = LookRule(plan.boundary), plan.hash
        counts = sorted({now, ends[-1], *followed, *(each for each in ends if each < now)})
        number = counts.index(now) + 1
        own = planned_alphas(Spending(plan.boundary), counts, total)[number - 1]
    elif earlier:
        rule = LookRule.UNPLANNED
        own = min(total, next_alpha(before, now, total * LATER_LOOKS / 2 ** (number - 1)))
    else:
        rule, own = LookRule.SINGLE, total
    error = error_of_looks([*before, (now, own)]) if earlier or by_plan else own
    error += sum(look.alpha for look in earlier if look not in inside)
    return AnalysisLook(
        number=number,
        rule=rule,
        planned=planned,
        plan=by_plan,
        repeated=again < len(looks),
        earlier=tuple(earlier),
        alpha=own / sides,
        two_sided=own,
        error=min(1.0, error / sides),
        paired=paired,
        total=alpha,
        extended_from=extended_from,
        unrecorded=unrecorded,
    )


def _count(paired: bool, runs: tuple[Sequence[str], Sequence[str]]) -> int:
    """Return the pairs, or the number with the degrees of freedom of two groups; at least 3."""
    control, candidate = map(len, runs)
    return max(3, control if paired else control + candidate - 1)


def _told(look: RecordedLook, paired: bool) -> str:
    control, candidate = map(len, look.runs)
    runs = counted(control, "pair") if paired else f"{control} and {candidate} runs"
    return runs if look.looked_at is None else f"{runs} on {look.looked_at:%Y-%m-%d}"
