"""Results of a comparison as frozen values: no text, markup or files.

Every number comes from a function of `assay.stats`, which cites its source. A number that the
data cannot provide is None or NaN, never a guess. Names and notes in it are untrusted text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from assay.judge.options import SUCCESS_ACHIEVEMENTS
from assay.judge.outcomes import LOWER_IS_BETTER, Direction, Outcome, outcome_of
from assay.judge.subjects import SUBJECT_METRICS, Look, Subject
from assay.stats.differences import Pairing
from assay.stats.intervals import Interval, Method, Side
from assay.stats.multiplicity import Correction
from assay.stats.significance import TestResult
from assay.types import Verdict

DIFFERENT = (Verdict.BETTER, Verdict.WORSE, Verdict.HIGHER, Verdict.LOWER)
"""Verdicts that a difference is shown."""
_EXACT_TESTS = ("McNemar's exact test", "Fisher's exact test")
"""Names of exact tests of proportions."""


class TaskRule(StrEnum):
    """Interpretation of the tasks of a comparison, which determines its uncertainty."""

    WORLDS = "worlds"
    """There is one task, or one world per task: worlds are independent."""
    FIXED = "fixed"
    """The tasks are the only ones of interest: strata. A verdict holds for these tasks."""
    SAMPLE = "sample"
    """The tasks are a sample of many: clusters. A verdict holds for similar tasks."""


class DesignDifference(NamedTuple):
    """A setting in which two subjects differ."""

    name: str
    baseline: str
    """Short and safe to print."""
    candidate: str
    task: bool
    """Whether it belongs to the task; if not, it belongs to the subject."""
    allowed: bool = False
    """Whether the user allowed it to differ."""

    @property
    def confounds(self) -> bool:
        """Whether it could explain a difference of outcomes."""
        return self.task and not self.allowed


class Units(NamedTuple):
    """Units on which a contrast is based."""

    rule: TaskRule
    tasks: int
    worlds: int
    """Number of pairs, or of worlds of both subjects if they are not paired."""
    replicates: int
    """The largest number of trials of one subject in one world; they are averaged."""
    partly_shared: int = 0
    """Number of shared worlds if unshared ones are used, too; 0 if all are shared, or none."""

    @property
    def worlds_per_task(self) -> int:
        """Average number, rounded up."""
        return -(-self.worlds // self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of a comparison."""

    metrics: tuple[str, ...]
    """The first is the primary metric."""
    baseline: str
    """The id of the baseline."""
    level: float
    min_effect: float | None = None
    """The smallest difference in the primary metric that matters, in its unit."""
    success_achievements: float = SUCCESS_ACHIEVEMENTS
    """An episode with at least this many achievements is a success."""
    seed: int = 0
    """Seed of the generator for resampling."""
    method: Method = Method.AUTO
    side: Side = Side.TWO_SIDED
    """Side of the difference and its tests."""
    n_resamples: int | None = None
    """Number of resamples of bootstraps and resampling tests; None: their defaults."""
    correction: Correction = Correction.HOLM
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Declared properties of user-defined metrics, by name."""
    tasks: TaskRule | None = None
    """Rule for several tasks; None means that their number decides."""
    allow_different: frozenset[str] = frozenset()
    """Settings of the task side that may differ."""
    seeds: tuple[int, int] | None = None
    """First and last seed of the compared trials; None: all."""
    known_metrics: tuple[str, ...] = ()
    """All metrics that could have been chosen."""

    @property
    def primary(self) -> str:
        """The primary metric."""
        return self.metrics[0]

    @property
    def alpha(self) -> float:
        """Accepted false-positive rate."""
        return 1 - self.level

    @property
    def lower_is_better(self) -> frozenset[str]:
        """Metrics where lower values are better: built-in and declared ones."""
        names = {*LOWER_IS_BETTER, *self.outcomes, *self.metrics}
        return frozenset(name for name in names if self.direction(name) is Direction.LOWER)

    def direction(self, metric: str) -> Direction:
        """Return the direction in which values of a metric are better."""
        return outcome_of(metric, self.outcomes).direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Summary of one metric over the trials of one subject that have it."""

    n: int
    mean: Interval
    median: float
    sd: float
    """NaN for a single value."""
    least: float
    most: float


class LearningCurve(NamedTuple):
    """One learning curve of a subject."""

    metric: str
    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectFacts:
    """One subject and the summary of its trials."""

    subject: Subject
    judged: bool
    """Whether it is included in the verdicts; reference entries are not."""
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
        """Values for the whole subject, from metrics that take all its trials."""
        numbers = self.subject.facts.get(SUBJECT_METRICS, {})
        return numbers if isinstance(numbers, Mapping) else {}


class LeftOut(NamedTuple):
    """Trials of one side that a comparison could not use, by reason."""

    unpaired: int = 0
    """The other side has no trial in this world."""
    failures: int = 0
    infrastructure: int = 0
    without_value: int = 0
    """Completed trials that lack the metric."""


class Losses(NamedTuple):
    """Trials of both sides without a value, and bounds of the difference that include them."""

    baseline: int
    of_baseline: int
    candidate: int
    of_candidate: int
    p_value: float
    """Fisher's exact test that both sides lose trials equally often."""
    lowest: Interval
    """The difference with the candidate's lost trials at the lowest value and the baseline's at
    the highest.
    """
    highest: Interval
    known_ends: bool
    """Whether the range of the metric is known; if not, both bounds ignore the lost trials."""
    holds: bool
    """Whether the verdict does not depend on the lost trials; if not, it is withheld."""
    tipping: float | None = None
    """Without a range: the distance from the mean of their side at which the lost trials would
    change the verdict.
    """


class PairRow(NamedTuple):
    """One pair with both values; several trials of a side are averaged."""

    pair: str
    baseline: float
    candidate: float

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline


class PairRows(Sequence[PairRow]):
    """Pairs, created on access: there may be very many, in every metric."""

    def __init__(
        self,
        names: Sequence[str],
        baseline_P: NDArray[np.float64],
        candidate_P: NDArray[np.float64],
    ) -> None:
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
    """Tests of one contrast; the verdict uses `p_value` and `p_adjusted`."""

    t: TestResult
    resampling: TestResult
    """Sign-flip test of pairs, or permutation test of two samples."""
    rank: TestResult
    """Wilcoxon signed-rank test, or Mann-Whitney test."""
    p_value: float
    p_adjusted: float
    """Adjusted over all candidates in the same metric."""
    spread_known: bool
    """False if all differences are equal; then the verdict uses the resampling test."""
    equivalence_p: float | None = None
    """Adjusted p value of two one-sided tests against the smallest difference that matters."""
    equivalence_needs: int | None = None
    """About how many units it takes to show that no difference matters; 0 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Effect sizes without a unit."""

    d: Interval
    g: Interval
    delta: Interval
    improvement: Interval
    """Probability that a trial of the candidate has the higher value; ties count half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPlan:
    """Sample size that finds a difference of this size with a power of 80 %."""

    effect: float
    asked: bool
    """Whether the user gave the effect; if not, it is the observed difference, shrunk."""
    trials: int
    """Number of pairs, or of trials of each subject if they are not paired."""
    low: int | None
    """Lower bound, given the uncertainty of the estimated spread."""
    high: int | None
    """Upper bound; None if the data imply no limit."""
    dollars: Interval | None
    """Cost of all these trials of both subjects; None if no price is recorded."""
    hours: Interval | None
    """Duration of all these trials of both subjects, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A candidate compared with the baseline in one metric."""

    baseline: str
    candidate: str
    metric: str
    outcome: Outcome
    """Direction, range and unit of the metric."""
    paired: bool
    n_baseline: int
    """Number of pairs, or of trials of the baseline if they are not paired."""
    n_candidate: int
    mean_baseline: Interval
    mean_candidate: Interval
    difference: Interval
    """Mean of candidate minus baseline; at the last interim analysis if there were any."""
    naive: Interval
    """Mean of candidate minus baseline, ignoring interim analyses."""
    relative: Interval | None
    """The difference divided by the baseline's mean; None if that mean is not clearly different
    from 0. Its bounds are NaN if several tasks have several worlds each.
    """
    verdict: Verdict
    tests: Tests | None
    """None if a side has fewer than two values."""
    effects: Effects | None
    """None if a side has fewer than two values, or if nothing varies."""
    pairing: Pairing | None
    skewness: str | None
    """A sentence if the differences look too skewed for the interval."""
    left_out_baseline: LeftOut
    left_out_candidate: LeftOut
    units: Units
    design: tuple[DesignDifference, ...] = ()
    """Settings in which the two differ, the task side first."""
    same: str | None = None
    """A sentence if both sides are the same trials, so that no verdict is possible."""
    shrunken: float | None = None
    """The difference shrunk for the winner's curse; None without a clear verdict."""
    losses: Losses | None = None
    """Bounds that include lost trials, if enough were lost to matter."""
    pairs: Sequence[PairRow] = ()
    look: Look | None = None
    """The last look of a run with `--until-decided`; it determines the verdict."""
    settle: PowerPlan | None = None
    """Sample size that would decide it, if it is undecided."""
    detectable: float | None = None
    """The smallest difference that this sample size finds with a power of 80 %."""
    standardised: Interval | None = None
    """The difference in standard deviations of the tested values: of pairs, or of trials."""
    fewest: int | None = None
    """The number of units of each side that a verdict takes, if there are fewer."""

    @property
    def promised(self) -> bool:
        """Whether the interval is known to keep its level for data of this kind.

        docs/design/statistics.md lists the measured cases. Near-normality cannot be verified,
        but values that look skewed are not near normal.
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
    def unit_counts(self) -> tuple[int, int, bool, str]:
        """Independent units of both sides, whether they are paired, and their name."""
        if self.units.rule is TaskRule.SAMPLE:
            return self.units.tasks, self.units.tasks, True, "task"
        return (
            self.n_baseline,
            self.n_candidate,
            self.paired,
            "pair" if self.paired else "trial",
        )

    @property
    def too_few(self) -> str | None:
        """That there are too few units for a verdict, in words; None if there are enough."""
        if self.fewest is None:
            return None
        n_a, n_b, paired, unit = self.unit_counts
        n, each = (f"{n_a:,}", "") if paired else (f"{n_b:,} and {n_a:,}", " each")
        return f"Too few {unit}s for a verdict ({n}; at least {self.fewest:,}{each})"

    @property
    def confounds(self) -> tuple[DesignDifference, ...]:
        """Differences of the task, which forbid a verdict."""
        return tuple(one for one in self.design if one.confounds)

    @property
    def lower_is_better(self) -> bool:
        """Whether lower values of the metric are better."""
        return self.outcome.direction is Direction.LOWER

    @property
    def withheld(self) -> bool:
        """Whether there is no verdict because it would depend on lost trials."""
        lost = self.losses
        return lost is not None and not lost.holds and self.verdict is Verdict.UNKNOWN

    @property
    def shows_difference(self) -> bool:
        """Whether the verdict is that the two differ, in whichever direction."""
        return self.verdict in DIFFERENT

    @property
    def neutral_verdict(self) -> Verdict:
        """The verdict with higher or lower in place of better or worse."""
        if self.shows_difference:
            return Verdict.HIGHER if self.difference.point > 0 else Verdict.LOWER
        return self.verdict


class Standing(NamedTuple):
    """Rank of one subject by its mean."""

    subject: str
    rank: int
    """1 plus the number of subjects that are shown to be better."""
    shared: bool
    """Whether another subject has the same rank."""
    groups: str
    """Letters; subjects that share a letter do not differ significantly."""
    shrunken: float
    """The mean, shrunk towards the overall mean by the fraction of the spread due to chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """All subjects compared with each other in the primary metric."""

    pairs: tuple[Contrast, ...]
    """Contrasts adjusted over all pairs, without their rows."""
    order: tuple[Standing, ...]


class Timed(NamedTuple):
    """Time at which a trial succeeded, or at which it ended without success."""

    seconds: float
    """Duration of the whole trial; NaN if unknown."""
    reached: bool
    steps: float | None = None
    """Steps until its success or its end; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """Results of one subject on one task."""

    task: str
    subject: str
    n: int
    successes: int
    success: Interval
    times: tuple[Timed, ...]
    unit: str
    """Unit of the times: steps to the achievement that made it a success, or seconds (s)."""
    median_time: float | None
    """Time at which half of all trials have succeeded; None if fewer than half did."""
    mean_time: Interval | None
    """Restricted mean: a trial without success counts as the horizon."""
    horizon: float
    """The longest time of all subjects on this task."""
    p_value: float | None = None
    """p value of the log-rank test against the first subject; None for the first."""

    @property
    def without(self) -> int:
        """Number of timed trials without success."""
        return sum(not time.reached for time in self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """The Crafter score of one subject."""

    subject: str
    n: int
    interval: Interval
    """Interval of the mean score at this number of episodes."""
    limit: Interval
    """Interval of the score in the limit of infinitely many episodes."""
    corrected: float
    """Estimated score of very many episodes; NaN if unavailable."""
    at: int
    """Number of episodes at which the scores of all subjects are compared."""
    matched: float
    """Mean score of that many of its episodes."""


class PassRow(NamedTuple):
    """Success rates of one subject in k attempts at a world."""

    subject: str
    k: int
    pass_any: Interval
    """pass@k: the probability that at least one of k attempts succeeds."""
    pass_all: Interval
    """pass^k: the probability that all k attempts succeed."""
    worlds: int
    attempts: int
    """Smallest number of attempts at a world."""


class ScoreGap(NamedTuple):
    """Difference in Crafter score between one subject and the baseline."""

    subject: str
    interval: Interval
    """Difference of the mean scores at this number of episodes each."""
    limit: Interval
    """Difference of the scores in the limit of infinitely many episodes."""
    episodes: int
    """The smaller of the two numbers of episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All results of a comparison."""

    setup: Setup
    subjects: tuple[SubjectFacts, ...]
    contrasts: tuple[Contrast, ...]
    """Every judged candidate in every metric, the primary metric first."""
    standings: Standings | None
    """None for fewer than three judged subjects."""
    instances: tuple[InstanceRow, ...] = ()
    passes: tuple[PassRow, ...] = ()
    """Rows of the subjects that played every world more than once."""
    scores: tuple[ScoreRow, ...] = ()
    score_gaps: tuple[ScoreGap, ...] = ()
    notes: tuple[str, ...] = ()
    """Caveats; the sentences contain untrusted names."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Subjects that could not be compared, with the reason."""
    next_seed: int | None = None
    """The first seed above all those played; None if the subjects have no seeds."""
    planned: bool = False
    """Whether the comparison was pre-registered in a plan."""

    @property
    def baseline(self) -> SubjectFacts:
        """The baseline, with its summaries."""
        return self.of(self.setup.baseline)

    @property
    def decisive(self) -> tuple[Contrast, ...]:
        """The contrasts in the primary metric."""
        return tuple(c for c in self.contrasts if c.metric == self.setup.primary)

    @property
    def family(self) -> int:
        """Number of comparisons in the primary metric that share one correction."""
        return len(self.standings.pairs if self.standings else self.decisive)

    @property
    def worse(self) -> tuple[Contrast, ...]:
        """Contrasts of the candidates that are worse in the primary metric."""
        return tuple(c for c in self.decisive if c.verdict is Verdict.WORSE)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Author-defined keys of experiments files."""
        subjects = (facts.subject for facts in self.subjects)
        return tuple(dict.fromkeys(name for subject in subjects for name in subject.remarks))

    def of(self, subject_id: str) -> SubjectFacts:
        """Return the facts of one subject."""
        return next(facts for facts in self.subjects if facts.id == subject_id)
