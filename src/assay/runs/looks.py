"""Looks at a run that goes on until it is decided: who may still play, and what was found.

The first model is the baseline, the others are candidates. Pairs are looked at strictly in
the order of their worlds, whatever ended first, so that looks follow from the outcomes alone
and are the same after a resume. Sees events and values; opens nothing.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from assay.core.canonical_json import derived_id
from assay.judge.outcomes import outcome_of
from assay.judge.subjects import Look
from assay.runs.events import Event, TrialEnded
from assay.runs.kind import PreparedRun, RunConfiguration, TrialEnd
from assay.runs.plan import Admission, Plan, Trial
from assay.stats.intervals import Interval
from assay.stats.sequential import LookResult, SequentialDesign, decide, looks
from assay.types import TrialState, Verdict

AHEAD: Final = 5
"""Worlds that may be played before those in front of them have been looked at, at least."""
_AHEAD_SHARE: Final = 4
"""A quarter as many as have been looked at may be ahead, if that is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """What the looks at one candidate came to."""

    model: str
    baseline: str
    metric: str
    decision: Verdict | None
    """None while it is open: the run is unfinished."""
    pairs: int
    """Pairs that were looked at."""
    left_out: int
    """Pairs without a number on both sides, because an episode failed."""
    difference: Interval
    """Mean of candidate minus baseline, with the interval that holds at every look."""
    design: SequentialDesign
    looks: int
    """How often it was looked at."""

    @property
    def sentence(self) -> str:
        """The same in words; names of models are in it as they are."""
        said = {
            Verdict.BETTER: "is better than {0} in {1}",
            Verdict.WORSE: "is worse than {0} in {1}",
            Verdict.NO_DIFFERENCE: "has no difference to {0} that matters in {1}",
            Verdict.UNDECIDED: "and {0} are undecided in {1}",
            None: "and {0} are not decided yet in {1}",
        }[self.decision].format(self.baseline, self.metric)
        left_out = f", {self.left_out} left out without a number" if self.left_out else ""
        return f"{self.model} {said}, after {self.pairs} pairs{left_out}{self._figures()}"

    def _figures(self) -> str:
        if not self.pairs:
            return ""
        mean, low, high = self.difference
        if not self.difference.known:
            return f": {mean:+.3g} on average, too few for an interval"
        level = f"{1 - self.design.alpha:.0%}".replace("%", " %")
        together = " and candidates" if self.design.comparisons > 1 else ""
        return (
            f": {mean:+.3g} on average, {level} interval over all looks{together} "
            f"[{low:+.3g}, {high:+.3g}]"
        )

    def as_json(self) -> dict[str, Any]:
        """The same for a program; what is not known is null."""
        known = self.difference.known
        return {
            "model": self.model,
            "baseline": self.baseline,
            "metric": self.metric,
            "decision": self.decision,
            "pairs": self.pairs,
            "left_out": self.left_out,
            "looks": self.looks,
            "difference": {
                "mean": self.difference.point if self.pairs else None,
                "low": self.difference.low if known else None,
                "high": self.difference.high if known else None,
            },
            "design": self.design.stored(),
            "sentence": self.sentence,
        }


@dataclass(slots=True)
class _Candidate:
    """How far one candidate has come."""

    model: str
    worlds: int = 0
    """Worlds in front, without a gap, in which both have ended."""
    differences: list[float] = field(default_factory=list)
    looks: list[tuple[LookResult, float]] = field(default_factory=list)
    """Each with the time it was made at."""

    @property
    def decision(self) -> Verdict | None:
        return self.looks[-1][0].decision if self.looks else None

    @property
    def reach(self) -> int:
        """How many worlds it may have begun."""
        return self.worlds + max(AHEAD, self.worlds // _AHEAD_SHARE)


class SequentialMonitor:
    """Looks at pairs as their episodes end, and says which episodes may start."""

    def __init__(
        self,
        run: PreparedRun[RunConfiguration],
        plan: Plan[Any],
        *,
        known: Mapping[str, float | None],
        begun: Iterable[str] = (),
    ) -> None:
        """Begin with what earlier attempts at the run have left.

        Args:
            run: The run; its `until_decided` names the metric.
            plan: Its trials; a world has the same index in every group.
            known: Sessions that have ended, and what they earned; None if nothing.
            begun: Sessions that have a journal and no end: they are played to it.
        """
        settings = run.settings
        assert settings.until_decided is not None, "the run has a fixed number of episodes"
        self._run_id, self._metric = run.record.id, settings.until_decided
        self._groups = {group.name: group for group in plan.groups}
        self._baseline, *rivals = [arm.label for arm in run.arms if arm.is_compared]
        self._worlds = self._groups[self._baseline].size
        self._design = SequentialDesign(
            most=self._worlds,
            comparisons=len(rivals),
            min_effect=settings.min_effect,
            lower_is_better=settings.less_is_better,
            shares=outcome_of(self._metric).share,
        )
        self._candidates = {model: _Candidate(model) for model in rivals}
        self._begun = frozenset(begun)
        self._earned = dict(known)
        # Worked out here, and not while episodes wait.
        self._design.bounds([self._worlds])
        for candidate in self._candidates.values():
            self._look(candidate)

    def on_event(self, event: Event) -> None:
        """Take in how an episode ended; one that has to be played again has not ended."""
        if not isinstance(event, TrialEnded):
            return
        verdict = event.verdict
        if verdict.state is TrialState.INFRASTRUCTURE:
            return
        end = verdict.value
        earned = end.outcomes.get(self._metric) if isinstance(end, TrialEnd) else None
        self._earned[event.trial.id] = earned
        for candidate in self._candidates.values():
            if event.trial.group in (candidate.model, self._baseline):
                self._look(candidate)

    def admit(self, trial: Trial[Any]) -> Admission:
        """Whether an episode may start.

        A candidate that is decided stops, and the baseline goes on while one is open. Models
        that play only as rows of reference follow, in worlds that have been looked at.
        """
        if trial.id in self._begun:
            return Admission.NOW
        limit, more = self._limit(trial.group)
        if trial.index < limit:
            return Admission.NOW
        return Admission.LATER if more else Admission.NEVER

    def _limit(self, model: str) -> tuple[int, bool]:
        """How many worlds a model may have begun, and whether there may be more of them."""
        going = [one for one in self._candidates.values() if one.decision is None]
        if model in self._candidates:
            candidate = self._candidates[model]
            return (candidate.reach, True) if candidate in going else (0, False)
        if model == self._baseline:
            return max((one.reach for one in going), default=0), bool(going)
        return max(one.worlds for one in self._candidates.values()), bool(going)

    def _look(self, candidate: _Candidate) -> None:
        """Look at every pair that is complete in front, until it is decided."""
        while candidate.decision is None and candidate.worlds < self._worlds:
            pair = [
                self._groups[arm].make(candidate.worlds).id
                for arm in (self._baseline, candidate.model)
            ]
            if not all(session in self._earned for session in pair):
                return
            candidate.worlds += 1
            before, after = (self._earned[session] for session in pair)
            if before is None or after is None:
                continue
            candidate.differences.append(after - before)
            if self._design.is_look(len(candidate.differences)):
                look = decide(candidate.differences, self._design)
                candidate.looks.append((look, time.time()))
        if candidate.decision is None:
            # Some pairs were left out, so that the last planned look does not come.
            last = looks(candidate.differences, self._design, ended=True)[-1]
            if len(candidate.looks) and candidate.looks[-1][0].pairs == last.pairs:
                candidate.looks.pop()
            candidate.looks.append((last, time.time()))

    def comparisons(self) -> tuple[CandidateResult, ...]:
        """What was found so far, a candidate after the other."""
        return tuple(map(self._comparison, self._candidates.values()))

    def _comparison(self, candidate: _Candidate) -> CandidateResult:
        found = candidate.differences
        mean = sum(found) / len(found) if found else float("nan")
        unknown = Interval(mean, float("nan"), float("nan"))
        return CandidateResult(
            model=candidate.model,
            baseline=self._baseline,
            metric=self._metric,
            decision=candidate.decision,
            pairs=len(found),
            left_out=candidate.worlds - len(found),
            difference=candidate.looks[-1][0].interval if candidate.looks else unknown,
            design=self._design,
            looks=len(candidate.looks),
        )

    def records(self) -> list[Look]:
        """All looks, as they are stored."""
        design = self._design.stored() | {"level": self._design.level}
        return [
            Look(
                experiment_id=derived_id(self._run_id, candidate.model),
                baseline_id=derived_id(self._run_id, self._baseline),
                metric=self._metric,
                look=number,
                pairs=look.pairs,
                estimate=look.interval.point,
                low=look.interval.low,
                high=look.interval.high,
                decision=look.decision,
                design=design,
                looked_at=at,
            )
            for candidate in self._candidates.values()
            for number, (look, at) in enumerate(candidate.looks, start=1)
        ]
