"""Interim analyses (looks) of a run that stops when its comparison is decided.

The first model is the baseline, the others are candidates. Pairs are analysed strictly in
world order, regardless of which trial ended first, so the looks depend only on the outcomes
and are identical after a resume. The monitor also decides which trials may start. It receives
events and values, and opens no files.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from assay.core.canonical_json import derive_id
from assay.judge.outcomes import Direction, outcome_of
from assay.judge.subjects import Look
from assay.runs.events import Event, TrialEnded
from assay.runs.kind import PreparedRun, RunConfiguration, TrialEnd
from assay.runs.plan import Admission, Plan, Trial
from assay.stats.intervals import Interval
from assay.stats.sequential import LookResult, SequentialDesign, decide, looks
from assay.types import TrialState, Verdict

AHEAD: Final = 5
"""Minimum number of worlds that may be played ahead of the worlds analysed so far."""
_AHEAD_SHARE: Final = 4
"""A quarter of the analysed worlds may be ahead, if that is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """Result of the interim analyses of one candidate."""

    model: str
    baseline: str
    metric: str
    decision: Verdict | None
    """None while undecided because the run is unfinished."""
    pairs: int
    """Number of analysed pairs."""
    left_out: int
    """Number of pairs without a value on both sides, because an episode failed."""
    difference: Interval
    """Mean of candidate minus baseline, with an interval that is valid at every look."""
    design: SequentialDesign
    looks: int
    """Number of looks."""

    @property
    def sentence(self) -> str:
        """The result as a sentence; model names are not escaped."""
        statement = {
            Verdict.BETTER: "is better than {0} in {1}",
            Verdict.WORSE: "is worse than {0} in {1}",
            Verdict.HIGHER: "is higher than {0} in {1}",
            Verdict.LOWER: "is lower than {0} in {1}",
            Verdict.NO_DIFFERENCE: "has no difference to {0} that matters in {1}",
            Verdict.UNDECIDED: "and {0} are undecided in {1}",
            None: "and {0} are not decided yet in {1}",
        }[self.decision].format(self.baseline, self.metric)
        left_out = f", {self.left_out} left out without a number" if self.left_out else ""
        pairs = f"after {self.pairs} pairs{left_out}"
        return f"{self.model} {statement}, {pairs}{self._format_difference()}"

    def _format_difference(self) -> str:
        if not self.pairs:
            return ""
        mean, low, high = self.difference
        if not self.difference.known:
            return f": {mean:+.3g} on average, too few for an interval"
        level = f"{1 - self.design.alpha:.0%}".replace("%", " %")
        scope = " and candidates" if self.design.comparisons > 1 else ""
        return (
            f": {mean:+.3g} on average, {level} interval over all looks{scope} "
            f"[{low:+.3g}, {high:+.3g}]"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values; unknown numbers are null."""
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
    """Progress of one candidate."""

    model: str
    worlds: int = 0
    """Number of leading worlds, without a gap, in which both episodes have ended."""
    differences: list[float] = field(default_factory=list)
    looks: list[tuple[LookResult, float]] = field(default_factory=list)
    """Each look with its time."""

    @property
    def decision(self) -> Verdict | None:
        return self.looks[-1][0].decision if self.looks else None

    @property
    def reach(self) -> int:
        """Number of worlds that it may have started."""
        return self.worlds + max(AHEAD, self.worlds // _AHEAD_SHARE)


class SequentialMonitor:
    """Analyses pairs as their episodes end, and decides which episodes may start."""

    def __init__(
        self,
        run: PreparedRun[RunConfiguration],
        plan: Plan[Any],
        *,
        earlier_outcomes: Mapping[str, float | None],
        unfinished: Iterable[str] = (),
    ) -> None:
        """Start with the results of earlier attempts at the run.

        Args:
            run: The run; its `until_decided` names the metric.
            plan: Its trials; a world has the same index in every group.
            earlier_outcomes: Metric values of ended sessions, by id; None if it has no value.
            unfinished: Ids of sessions with an unfinished journal; these are always completed.
        """
        settings = run.settings
        assert settings.until_decided is not None, "the run has a fixed number of episodes"
        self._run_id, self._metric = run.record.id, settings.until_decided
        self._groups = {group.name: group for group in plan.groups}
        self._baseline, *candidates = [arm.label for arm in run.arms if arm.is_compared]
        self._worlds = self._groups[self._baseline].size
        self._design = SequentialDesign(
            most=self._worlds,
            comparisons=len(candidates),
            min_effect=settings.min_effect,
            lower_is_better=settings.less_is_better,
            shares=outcome_of(self._metric).share,
            ends=outcome_of(self._metric).ends,
        )
        self._candidates = {model: _Candidate(model) for model in candidates}
        self._unfinished = frozenset(unfinished)
        self._outcomes = dict(earlier_outcomes)
        # Computed here, so that no episode waits for it.
        self._design.bounds([self._worlds])
        for candidate in self._candidates.values():
            self._analyse_pairs(candidate)

    def on_event(self, event: Event) -> None:
        """Record the result of an ended episode; one that will be retried has not ended."""
        if not isinstance(event, TrialEnded):
            return
        verdict = event.verdict
        if verdict.state is TrialState.INFRASTRUCTURE:
            return
        end = verdict.value
        value = end.outcomes.get(self._metric) if isinstance(end, TrialEnd) else None
        self._outcomes[event.trial.id] = value
        for candidate in self._candidates.values():
            if event.trial.group in (candidate.model, self._baseline):
                self._analyse_pairs(candidate)

    def admit(self, trial: Trial[Any]) -> Admission:
        """Return whether an episode may start.

        A decided candidate stops, and the baseline continues while a candidate is undecided.
        Reference models only play worlds that have been analysed.
        """
        if trial.id in self._unfinished:
            return Admission.NOW
        limit, may_increase = self._find_limit(trial.group)
        if trial.index < limit:
            return Admission.NOW
        return Admission.LATER if may_increase else Admission.NEVER

    def _find_limit(self, model: str) -> tuple[int, bool]:
        """Return how many worlds a model may have started, and whether that may increase."""
        undecided = [
            candidate for candidate in self._candidates.values() if candidate.decision is None
        ]
        if model in self._candidates:
            candidate = self._candidates[model]
            return (candidate.reach, True) if candidate in undecided else (0, False)
        if model == self._baseline:
            return max((candidate.reach for candidate in undecided), default=0), bool(undecided)
        return max(candidate.worlds for candidate in self._candidates.values()), bool(undecided)

    def _analyse_pairs(self, candidate: _Candidate) -> None:
        """Analyse all complete leading pairs, until the candidate is decided."""
        while candidate.decision is None and candidate.worlds < self._worlds:
            pair = [
                self._groups[arm].make(candidate.worlds).id
                for arm in (self._baseline, candidate.model)
            ]
            if not all(session in self._outcomes for session in pair):
                return
            candidate.worlds += 1
            before, after = (self._outcomes[session] for session in pair)
            if before is None or after is None:
                continue
            candidate.differences.append(after - before)
            if self._design.is_look(len(candidate.differences)):
                look = self._directed(decide(candidate.differences, self._design))
                candidate.looks.append((look, time.time()))
        if candidate.decision is None:
            # Pairs were left out, so the last planned look is never reached.
            last = looks(candidate.differences, self._design, ended=True)[-1]
            if len(candidate.looks) and candidate.looks[-1][0].pairs == last.pairs:
                candidate.looks.pop()
            candidate.looks.append((last, time.time()))

    def _directed(self, look: LookResult) -> LookResult:
        """Return a look whose decision is higher or lower if the metric has no direction."""
        clear = look.decision in (Verdict.BETTER, Verdict.WORSE)
        if not clear or outcome_of(self._metric).direction is not Direction.NEITHER:
            return look
        higher = look.interval.point > 0
        return look._replace(decision=Verdict.HIGHER if higher else Verdict.LOWER)

    def comparisons(self) -> tuple[CandidateResult, ...]:
        """Return the current result of each candidate."""
        return tuple(map(self._make_result, self._candidates.values()))

    def _make_result(self, candidate: _Candidate) -> CandidateResult:
        differences = candidate.differences
        mean = sum(differences) / len(differences) if differences else float("nan")
        unknown = Interval(mean, float("nan"), float("nan"))
        return CandidateResult(
            model=candidate.model,
            baseline=self._baseline,
            metric=self._metric,
            decision=candidate.decision,
            pairs=len(differences),
            left_out=candidate.worlds - len(differences),
            difference=candidate.looks[-1][0].interval if candidate.looks else unknown,
            design=self._design,
            looks=len(candidate.looks),
        )

    def records(self) -> list[Look]:
        """Return all looks in their stored form."""
        design = self._design.stored() | {"level": self._design.level}
        return [
            Look(
                experiment_id=derive_id(self._run_id, candidate.model),
                baseline_id=derive_id(self._run_id, self._baseline),
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
