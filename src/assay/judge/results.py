"""What a comparison found, as frozen values: no words, no markup, no files.

Every number comes from a function of `assay.stats`, which cites its source. A number that the
data cannot give is None or NaN, never a guess. Names and notes in it are untrusted text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from assay.judge.options import SUCCESS_ACHIEVEMENTS
from assay.judge.outcomes import LOWER_IS_BETTER
from assay.judge.subjects import SUBJECT_METRICS, Look, Subject
from assay.stats.differences import Pairing
from assay.stats.intervals import Interval, Method, Side
from assay.stats.multiplicity import Correction
from assay.stats.significance import TestResult
from assay.types import Verdict

_EXACT_TESTS = ("McNemar's exact test", "Fisher's exact test")
"""Of shares."""


class TaskRule(StrEnum):
    """What the tasks of a comparison are taken for, which decides how sure it is."""

    WORLDS = "worlds"
    """There is one task, or one world of each: worlds are independent."""
    FIXED = "fixed"
    """They are the ones that are meant: strata. A verdict holds on these tasks."""
    SAMPLE = "sample"
    """They are drawn from many: clusters. A verdict holds for tasks like these."""


class DesignDifference(NamedTuple):
    """Something that two subjects do not share besides their outcomes."""

    name: str
    baseline: str
    """In short, safe to print."""
    candidate: str
    task: bool
    """Whether it is part of what was to be done; else it is part of who did it."""
    allowed: bool = False
    """Whether somebody said that it may differ."""

    @property
    def confounds(self) -> bool:
        """Whether a difference of outcomes may be that of the tasks."""
        return self.task and not self.allowed


class Units(NamedTuple):
    """What a contrast rests on."""

    rule: TaskRule
    tasks: int
    worlds: int
    """Pairs; or worlds of both subjects, where they are not paired."""
    replicates: int
    """The most trials of one subject in one world; they are averaged."""
    partly_shared: int = 0
    """Worlds that both played, where all worlds are used; 0: all are shared, or none."""

    @property
    def worlds_per_task(self) -> int:
        """On average, rounded up."""
        return -(-self.worlds // self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How subjects were compared."""

    metrics: tuple[str, ...]
    """The first is the one that decides."""
    baseline: str
    """The id of the subject that the others are compared with."""
    level: float
    min_effect: float | None = None
    """The smallest difference of the first metric that matters, in its unit."""
    success_achievements: float = SUCCESS_ACHIEVEMENTS
    """An episode with as many achievements is a success."""
    seed: int = 0
    """Of the generator that resampling draws from."""
    method: Method = Method.AUTO
    side: Side = Side.TWO_SIDED
    """Of the difference and its tests."""
    n_resamples: int | None = None
    """Of a bootstrap and a resampling test; None: their defaults."""
    correction: Correction = Correction.HOLM
    lower_is_better: frozenset[str] = LOWER_IS_BETTER
    tasks: TaskRule | None = None
    """What several tasks are; None: that goes by their number."""
    allow_different: frozenset[str] = frozenset()
    """Settings of the task side that may differ."""
    seeds: tuple[int, int] | None = None
    """The first and the last seed of what is compared; None: all."""
    known_metrics: tuple[str, ...] = ()
    """All metrics that could have been chosen."""

    @property
    def primary(self) -> str:
        """The metric that decides."""
        return self.metrics[0]

    @property
    def alpha(self) -> float:
        """The chance of a false finding that is accepted."""
        return 1 - self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The values of one metric over the trials of one subject that have it."""

    n: int
    mean: Interval
    median: float
    sd: float
    """NaN for one value."""
    least: float
    most: float


class LearningCurve(NamedTuple):
    """One learning curve of a subject."""

    metric: str
    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFacts:
    """One subject and what its trials came to."""

    subject: Subject
    judged: bool
    """Whether it takes part in the verdicts; those played only to compare with do not."""
    results: int
    failures: int
    infrastructure: int
    metrics: Mapping[str, Description]
    curves: tuple[LearningCurve, ...] = ()

    @property
    def id(self) -> str:
        """The id of the subject."""
        return self.subject.id

    @property
    def name(self) -> str:
        """The name of the subject."""
        return self.subject.name

    @property
    def whole(self) -> Mapping[str, float]:
        """Numbers of the subject as a whole, made by metrics that take all its trials."""
        numbers = self.subject.facts.get(SUBJECT_METRICS, {})
        return numbers if isinstance(numbers, Mapping) else {}


class LeftOut(NamedTuple):
    """Trials of one side that a comparison could not use, by reason."""

    unpaired: int = 0
    """Nobody on the other side played the same."""
    failures: int = 0
    infrastructure: int = 0
    without_value: int = 0
    """Trials that completed and lack the metric."""


class Losses(NamedTuple):
    """Trials of both sides that have no result, and what the difference would be with them."""

    baseline: int
    of_baseline: int
    candidate: int
    of_candidate: int
    p_value: float
    """Of Fisher's exact test that both lose alike."""
    lowest: Interval
    """The difference with the candidate's lost trials at the least value, the other's at the
    greatest."""
    highest: Interval
    known_ends: bool
    """Whether these values are the ends of the metric; else they are the extremes seen."""
    holds: bool
    """Whether the verdict is the same at both."""


class PairRow(NamedTuple):
    """One pair: both values, averaged where a side played it more than once."""

    pair: str
    baseline: float
    candidate: float

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline


class PairRows(Sequence[PairRow]):
    """Pairs, each made when it is asked for: there may be very many, in every metric."""

    def __init__(
        self,
        names: Sequence[str],
        baseline_P: NDArray[np.float64],
        candidate_P: NDArray[np.float64],
    ) -> None:
        """Say what each pair is called, and what both sides have."""
        self._columns = names, baseline_P, candidate_P

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[PairRow]:
        names, baseline_P, candidate_P = self._columns
        return map(PairRow, names, baseline_P.tolist(), candidate_P.tolist())

    @overload
    def __getitem__(self, place: int) -> PairRow: ...
    @overload
    def __getitem__(self, place: slice) -> "PairRows": ...
    def __getitem__(self, place: int | slice) -> "PairRow | PairRows":
        names, baseline_P, candidate_P = self._columns
        if isinstance(place, slice):
            return PairRows(names[place], baseline_P[place], candidate_P[place])
        return PairRow(names[place], baseline_P.item(place), candidate_P.item(place))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests of one contrast; `p_value` and `p_adjusted` are those the verdict uses."""

    t: TestResult
    resampling: TestResult
    """Sign flips of the pairs, or permutations of two samples."""
    rank: TestResult
    """Wilcoxon's or Mann and Whitney's."""
    p_value: float
    p_adjusted: float
    """Over all candidates of the same metric."""
    spread_known: bool
    """False where all differences are equal: then the verdict uses the resampling test."""
    equivalence_p: float | None = None
    """Of two one-sided tests against the smallest difference that matters, adjusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Sizes of the difference that have no unit."""

    d: Interval
    g: Interval
    delta: Interval
    improvement: Interval
    """How often a trial of the candidate has the larger value; ties count half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPlan:
    """How many trials would find a difference of this size with a power of 80 %."""

    effect: float
    asked: bool
    """Whether the size is the one asked for; else it is the one observed, shrunken."""
    trials: int
    """Pairs; or trials of each subject, where they are not paired."""
    low: int | None
    """The fewest that the spread of so few trials does not rule out."""
    high: int | None
    """The most; None: the data set no limit."""
    dollars: Interval | None
    """Of all these trials of both subjects; None if no price is recorded."""
    hours: Interval | None
    """Of all these trials of both subjects, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A candidate beside the baseline in one metric."""

    baseline: str
    candidate: str
    metric: str
    lower_is_better: bool
    paired: bool
    n_baseline: int
    """Pairs; or trials of the baseline, where they are not paired."""
    n_candidate: int
    mean_baseline: Interval
    mean_candidate: Interval
    difference: Interval
    """Mean of candidate minus baseline; at the last look, where there were looks."""
    naive: Interval
    """Mean of candidate minus baseline without regard to looks."""
    relative: Interval | None
    """The difference over the mean of the baseline; None where that is not clear of 0. Its
    bounds are not known where several tasks have several worlds each."""
    verdict: Verdict
    tests: Tests | None
    """None for fewer than two values on a side."""
    effects: Effects | None
    """None too where nothing varies."""
    pairing: Pairing | None
    skewness: str | None
    """A sentence, where the differences look too skewed for the interval."""
    left_out_baseline: LeftOut
    left_out_candidate: LeftOut
    units: Units
    design: tuple[DesignDifference, ...] = ()
    """What else differs between the two, the task side first."""
    same: str | None = None
    """Words, where both are the same trials: there is nothing to judge."""
    shrunken: float | None = None
    """The difference less the luck that a clear verdict was chosen with; None without one."""
    losses: Losses | None = None
    """Where enough trials were lost to matter."""
    pairs: Sequence[PairRow] = ()
    look: Look | None = None
    """The last look of a run that went on until it was decided; then its verdict holds."""
    settle: PowerPlan | None = None
    """What would settle it, where it is undecided."""
    detectable: float | None = None
    """The smallest difference that this n finds with a power of 80 %."""
    standardised: Interval | None = None
    """The difference in standard deviations of what is tested: of a pair's, or of a trial."""

    @property
    def promised(self) -> bool:
        """Whether intervals of such data hold their level, by what was measured of them.

        docs/design/statistics.md lists the cells. Nothing tells that values are near normal;
        that they look skewed does tell that they are not.
        """
        least, most = sorted((self.n_baseline, self.n_candidate))
        if self.skewness is not None or least < 5:
            return False
        if self.tests is not None and self.tests.t.name in _EXACT_TESTS:
            return self.paired or abs(self.difference.point) <= 0.75
        if self.units.rule is TaskRule.FIXED and self.units.tasks > 4:
            return False
        if self.units.rule is TaskRule.SAMPLE and self.units.tasks < 10:
            return False
        return self.paired or most <= 3 * least

    @property
    def confounds(self) -> tuple[DesignDifference, ...]:
        """What forbids a verdict: the task was not the same."""
        return tuple(one for one in self.design if one.confounds)

    @property
    def neutral_verdict(self) -> Verdict:
        """The verdict on a metric of which neither is better: higher or lower."""
        if self.verdict not in (Verdict.BETTER, Verdict.WORSE):
            return self.verdict
        return Verdict.HIGHER if self.difference.point > 0 else Verdict.LOWER


class Standing(NamedTuple):
    """The place of one subject in the order of means."""

    subject: str
    rank: int
    """1 and the number of subjects that are shown to be better."""
    shared: bool
    """Whether another subject has the same rank."""
    groups: str
    """Letters; subjects that share one cannot be told apart."""
    shrunken: float
    """The mean, moved to that of all by the share of the spread that is luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """All subjects against each other in the metric that decides."""

    pairs: tuple[Contrast, ...]
    """Adjusted over all pairs; without their rows."""
    order: tuple[Standing, ...]


class Timed(NamedTuple):
    """When a trial came to success, or to its end without."""

    seconds: float
    """Of the whole trial; NaN if that is not known."""
    reached: bool
    steps: float | None = None
    """Until it was a success, or to its end; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """One subject on one task."""

    task: str
    subject: str
    n: int
    successes: int
    success: Interval
    times: tuple[Timed, ...]
    unit: str
    """Of the times: steps to the achievement that made it a success, or seconds (s)."""
    median_time: float | None
    """By which half of all trials have come to success; None if fewer than half did."""
    mean_time: Interval | None
    """The restricted mean: who did not come to success stands at the horizon."""
    horizon: float
    """The longest time of all subjects on this task."""
    p_value: float | None = None
    """Of the log-rank test against the first subject; None for that one."""

    @property
    def without(self) -> int:
        """Trials that took time and did not come to success."""
        return sum(not time.reached for time in self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """The Crafter score of one subject."""

    subject: str
    n: int
    interval: Interval
    """Of the mean score at this number of episodes."""
    limit: Interval
    """Of the score of endless episodes."""
    corrected: float
    """A guess at the score of very many episodes; NaN if there is none."""
    at: int
    """The number of episodes at which the scores of all subjects are set beside each other."""
    matched: float
    """The score that so many of its episodes have on average."""


class PassRow(NamedTuple):
    """What k attempts at a world are worth to one subject."""

    subject: str
    k: int
    pass_any: Interval
    """pass@k: the chance that at least one of k attempts succeeds."""
    pass_all: Interval
    """pass^k: the chance that all k attempts succeed."""
    worlds: int
    attempts: int
    """At the world with the fewest."""


class ScoreGap(NamedTuple):
    """The Crafter score of one subject less that of the baseline."""

    subject: str
    interval: Interval
    """Of the difference of their mean scores at so many episodes each."""
    limit: Interval
    """Of the difference of their scores of endless episodes."""
    episodes: int
    """Those of the one who has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything a comparison found."""

    setup: Setup
    subjects: tuple[SubjectFacts, ...]
    contrasts: tuple[Contrast, ...]
    """Every judged candidate in every metric, the metric that decides first."""
    standings: Standings | None
    """With three subjects or more."""
    instances: tuple[InstanceRow, ...] = ()
    passes: tuple[PassRow, ...] = ()
    """Of subjects that played every world more than once."""
    scores: tuple[ScoreRow, ...] = ()
    score_gaps: tuple[ScoreGap, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader has to know; sentences that hold untrusted names."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Subjects that could not be compared, and why."""
    next_seed: int | None = None
    """The first seed beyond all that its subjects have played; None: they have no seeds."""
    planned: bool = False
    """Whether it is the comparison that a plan set down before its trials."""

    @property
    def baseline(self) -> SubjectFacts:
        """The subject that the others are compared with."""
        return self.of(self.setup.baseline)

    @property
    def decisive(self) -> tuple[Contrast, ...]:
        """The contrasts in the metric that decides."""
        return tuple(c for c in self.contrasts if c.metric == self.setup.primary)

    @property
    def family(self) -> int:
        """Comparisons in the metric that decides that share one correction."""
        return len(self.standings.pairs if self.standings else self.decisive)

    @property
    def worse(self) -> tuple[Contrast, ...]:
        """Candidates that are worse in the metric that decides."""
        return tuple(c for c in self.decisive if c.verdict is Verdict.WORSE)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Keys of experiments files that are their authors' own."""
        subjects = (facts.subject for facts in self.subjects)
        return tuple(dict.fromkeys(name for subject in subjects for name in subject.remarks))

    def of(self, subject_id: str) -> SubjectFacts:
        """The facts of one subject."""
        return next(facts for facts in self.subjects if facts.id == subject_id)
