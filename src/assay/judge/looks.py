"""The looks that govern a comparison: those a run stored, or those its configuration implies.

A run that stopped when it was decided cannot be tested afresh. Its looks follow from its
outcomes and its configuration, so that a results file or an export knows them too. Opens
nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from assay.errors import UsageError
from assay.judge.facts import Contrast
from assay.judge.outcomes import LOWER_IS_BETTER
from assay.judge.subjects import Look, Subject
from assay.stats.sequential import SequentialDesign, looks
from assay.types import TrialState, Verdict

__all__ = ["RecordedLook", "last_look", "looked_before"]

_TURNED = {Verdict.BETTER.value: Verdict.WORSE, Verdict.WORSE.value: Verdict.BETTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLook:
    """A look that somebody had."""

    control: tuple[str, ...]
    """Ids of training runs, sorted."""
    candidate: tuple[str, ...]
    look: int
    """Counted from 1."""
    alpha: float
    """Two-sided, of its interval by itself."""
    estimate: float
    low: float
    high: float
    verdict: str
    plan: str | None
    """The hash of the plan whose look it was."""
    looked_at: datetime | None = None
    """In UTC; None before it is recorded."""

    @property
    def runs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What was looked at."""
        return self.control, self.candidate


def last_look(baseline: Subject, candidate: Subject, metric: str) -> Look | None:
    """The last look at these two in this metric, seen from the candidate; None: no looks."""
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
    """Which of two subjects stopped by looks that a contrast does not go by, by name."""
    if contrast.look is not None:
        return []
    return [
        subject.name
        for subject in (baseline, candidate)
        if subject.looks or subject.facts.get("until_decided")
    ]


def _replayed(baseline: Subject, candidate: Subject, metric: str) -> Look | None:
    """The last look of a run that had the baseline and the candidate, made again."""
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
            shares=metric == "success" or metric.startswith("unlocked/"),
        )
    except UsageError:
        # A file may say anything; then nothing is known of its looks.
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
