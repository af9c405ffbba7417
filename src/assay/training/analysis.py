"""Control against candidate: one number per run, and what the two groups of numbers say.

Every figure comes from a function of `assay.stats`; what is reported never depends on the look
of the data. Differences are candidate minus control. The same runs, settings and generator
seed give the same result. It reads no file and prints nothing.

Five summaries of one metric beside each other: what a radial plot shows.

One number a run, and what becomes of those that never get to a threshold.

Such a run is cut off, not late. To take a threshold that all reach, once the curves were seen,
would choose by the result.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.errors import UsageError
from assay.judge.contrasts import interval_verdict
from assay.judge.looks import AnalysisLook
from assay.stats.differences import (
    Pairing,
    denominator_note,
    paired_difference,
    pairing,
    relative_change,
    unpaired_difference,
)
from assay.stats.effects import cliffs_delta, cohens_d, hedges_g, probability_of_improvement
from assay.stats.intervals import (
    Interval,
    Method,
    Side,
    bootstrap_means,
    mean_interval,
    skewness_note,
)
from assay.stats.learning_curves import Summary, SummarySpec, time_to_threshold
from assay.stats.power import Needed, minimum_detectable_effect, power_of, trials_needed
from assay.stats.significance import (
    Normality,
    TestResult,
    normality,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    welch_t_test,
)
from assay.stats.survival import incidence_test, restricted_times
from assay.training.analysis_settings import AnalysisSettings
from assay.training.design import Design
from assay.training.gather import FoundRun, reasons
from assay.training.variance import summarize_runs
from assay.types import Verdict


@dataclass(frozen=True, slots=True)
class RadialAxis:
    """A summary of the curves, as the mean of each arm."""

    name: str
    control: float | None
    candidate: float | None
    """None where a run has no such number."""
    lower_is_better: bool = False


def radial_axes(design: Design, chosen: SummarySpec) -> tuple[RadialAxis, ...]:
    """The five summaries of the metric.

    The area has the window that was chosen. Without a threshold of the user's, that of the
    time is half of the way from the mean first to the mean last value of all runs. A metric
    that falls on the whole is taken for a loss: less of it is better.
    """
    curves = [one.curve for one in (*design.control, *design.candidate)]
    first, last = (float(np.mean([one.values_P[at] for one in curves])) for at in (0, -1))
    falling = chosen.falling if chosen.threshold is not None else last < first
    threshold = (first + last) / 2 if chosen.threshold is None else chosen.threshold
    n = min(chosen.n, *(len(curve) for curve in curves))
    specs = {
        "AUC": SummarySpec(
            percent=chosen.percent,
            percent_window=chosen.percent_window,
            step_min=chosen.step_min,
            step_max=chosen.step_max,
        ),
        f"last {n}": SummarySpec(type=Summary.LAST_N, n=n),
        "final": SummarySpec(type=Summary.FINAL),
        "slope": SummarySpec(type=Summary.SLOPE),
        f"steps to {threshold:.3g}": SummarySpec(
            type=Summary.TIME_TO_THRESHOLD, threshold=threshold, falling=falling
        ),
    }
    return tuple(
        RadialAxis(
            name,
            _mean(design.control, spec),
            _mean(design.candidate, spec),
            lower_is_better=falling or spec.type is Summary.TIME_TO_THRESHOLD,
        )
        for name, spec in specs.items()
    )


def _mean(runs: Sequence[FoundRun], spec: SummarySpec) -> float | None:
    # A window or a threshold that one of the runs does not reach: the axis has a gap.
    try:
        mean = float(np.mean(summarize_runs(runs, spec)))
    except UsageError:
        return None
    return mean if math.isfinite(mean) else None


Values = NDArray[np.float64]


class LateRuns(NamedTuple):
    """Times to a threshold that some runs never get to: those stand at their ends."""

    control_R: Values
    candidate_R: Values
    reached: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    note: str


def summaries(design: Design, spec: SummarySpec) -> tuple[Values, Values, LateRuns | None]:
    """The summary of each run of both arms.

    A run that never gets to a threshold is not late, it is cut off: it stands at the horizon,
    the shortest end of all such runs, and so does whoever gets there later.
    """
    arms = [summarize_runs(runs, spec) for runs in (design.control, design.candidate)]
    reached = [np.isfinite(arm) for arm in arms]
    late = sum(int((~arm).sum()) for arm in reached)
    if not late:
        return arms[0], arms[1], None
    runs = [*design.control, *design.candidate]
    assert spec.threshold is not None
    if late == len(runs):
        raise UsageError(
            f"no run gets to {spec.threshold:g}, so no time to it is known; choose another "
            "--summary.threshold, or another --summary.type"
        )
    ends = np.array(
        [
            time_to_threshold(
                one.curve.steps_P,
                one.curve.values_P,
                spec.threshold,
                falling=spec.falling,
                **spec.window,
            ).value
            for one in runs
        ]
    )
    horizon = float(ends[~np.concatenate(reached)].min())
    times = np.split(ends, [len(arms[0])])
    a, b = (
        restricted_times(own, there, ~there, horizon=horizon)
        for own, there in zip(times, reached, strict=True)
    )
    note = (
        f"{late} of {len(runs)} runs never get to {spec.threshold:g}: they stand at step"
        f" {horizon:g}, where the first of them ends, and the means are those up to there; the"
        " log-rank test takes all steps"
    )
    return a, b, LateRuns(times[0], times[1], (reached[0], reached[1]), note)


def log_rank(late: LateRuns, settings: AnalysisSettings, paired: bool) -> TestResult:
    """Whether one arm gets there earlier or more often, over all steps."""
    here, there = late.reached
    return incidence_test(
        late.control_R,
        here,
        late.candidate_R,
        there,
        ~here,
        ~there,
        paired=paired,
        side=settings.side,
        rng=np.random.default_rng(settings.seed),
        n_resamples=settings.n_resamples,
    )


_Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What more runs would give, for a difference that was named before."""

    target: float
    """The difference worth finding, in the unit of the summary."""
    power: float
    sd: float
    """Of the paired differences, or within an arm."""
    needed: Needed
    """Pairs, or runs of each arm."""
    achieved: float
    """The power that the runs at hand have for the target."""
    detectable: float
    """The smallest difference that they find with that power."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Analysis:
    """All that was found."""

    settings: AnalysisSettings
    design: Design
    control_R: _Values
    """The summary of each control run."""
    candidate_R: _Values
    control: Interval
    """The mean of the control runs."""
    candidate: Interval
    difference: Interval
    """Candidate minus control."""
    relative: Interval
    """The difference as a share of the control's mean."""
    relative_note: str | None
    verdict: Verdict
    """Of the candidate against the control: higher, lower, undecided or unknown."""
    sentence: str
    """The verdict in words, with the interval it goes by."""
    tests: tuple[TestResult, ...]
    effects: tuple[tuple[str, Interval], ...]
    pairing: Pairing | None
    """What pairing was worth; None where nothing is paired."""
    normality: tuple[tuple[str, Normality], ...]
    planning: Planning | None
    estimates_B: _Values
    """Differences of B resamples, to be drawn."""
    radial: tuple[RadialAxis, ...]
    notes: tuple[str, ...]
    level: float
    """Of all intervals."""
    look: AnalysisLook | None = None
    """Which look at the comparison it is; None where nobody asked."""

    @property
    def paired(self) -> bool:
        """Whether runs were compared pair by pair."""
        return self.design.paired


def analyse(
    design: Design, settings: AnalysisSettings, look: AnalysisLook | None = None
) -> Analysis:
    """Compare the candidate's runs with the control's.

    Args:
        design: Which runs.
        settings: How.
        look: Which look at them this is; its alpha is that of all intervals then.

    Raises:
        UsageError: There are too few runs, or one has no such summary.
    """
    check_enough(design)
    a, b, late = summaries(design, settings.summary)
    alpha = settings.alpha if look is None else look.alpha
    paired, level = design.paired, 1 - alpha
    # Each use has a stream of its own, so that asking for more changes nothing else.
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(settings.seed).spawn(3)]
    compare = paired_difference if paired else unpaired_difference
    difference = compare(
        a,
        b,
        level=level,
        method=settings.method,
        side=settings.side,
        rng=streams[0],
        n_resamples=settings.n_resamples,
    )
    return Analysis(
        settings=settings,
        design=design,
        control_R=a,
        candidate_R=b,
        control=mean_interval(a, level=level),
        candidate=mean_interval(b, level=level),
        difference=difference,
        relative=relative_change(a, b, paired=paired, level=level),
        relative_note=denominator_note(a, level=level),
        verdict=(
            verdict := Verdict.UNKNOWN
            if design.confounds or design.copies
            else interval_verdict(difference)
        ),
        sentence=_sentence(verdict, difference, design, settings.method, level),
        tests=(
            *_tests(a, b, paired, settings, streams[1]),
            *((log_rank(late, settings, paired),) if late else ()),
        ),
        effects=_effects(a, b, paired, level),
        pairing=pairing(a, b, level=level) if paired else None,
        normality=_shapes(a, b, paired),
        planning=_planning(a, b, paired, settings) if settings.power else None,
        estimates_B=_estimates(a, b, paired, settings, streams[2]),
        radial=radial_axes(design, settings.summary),
        notes=(*([late.note] if late else ()), *_notes(a, b, paired, settings, alpha)),
        level=level,
        look=look,
    )


def check_enough(design: Design) -> None:
    """Refuse what has fewer than two runs in an arm.

    Raises:
        UsageError: There are too few.
    """
    counts = {"control": len(design.control), "candidate": len(design.candidate)}
    for arm, count in counts.items():
        if count >= 2:
            continue
        unit = ("pair" if design.paired else f"{arm} run") + ("" if count == 1 else "s")
        raise UsageError(
            f"{count} {unit} can be used, and a comparison takes two; name more"
            f"{reasons(design.unusable)}"
        )


def _sentence(
    verdict: Verdict, difference: Interval, design: Design, method: Method, level: float
) -> str:
    n = len(design.control)
    runs = f"{n} pairs" if design.paired else f"{n} and {len(design.candidate)} runs"
    if design.confounds:
        said = "; ".join(
            f"{one.name} is {one.baseline} for the control, {one.candidate} for the candidate"
            for one in design.confounds
        )
        names = " ".join(f"--allow-different {one.name}" for one in design.confounds)
        return (
            f"Not comparable: {said}. A difference may be that of the task ({runs}). Let both"
            f" arms do the same, or say that this is what you compare: {names}."
        )
    if design.copies:
        return (
            f"No verdict: {'; '.join(design.copies[:6])}, to the last digit. A copy is no run"
            f" of its own, whatever its seed says ({runs})."
        )
    if verdict is Verdict.UNKNOWN:
        return (
            f"{runs} give no interval with method {method}; add runs, or choose "
            "--bootstrap.method t"
        )
    bounds = f"about {100 * level:.4g} % interval {_bounds(difference)}, {runs}"
    change = f"{difference.point:+.4g} ({bounds})"
    if verdict is Verdict.HIGHER:
        return f"The candidate is higher than the control by {change}."
    if verdict is Verdict.LOWER:
        return f"The candidate is lower than the control: {change}."
    return (
        f"No difference is shown: {change}; the interval holds 0, which is no proof that both "
        "are equal."
    )


def _bounds(interval: Interval) -> str:
    if math.isinf(interval.high):
        return f"above {interval.low:.4g}"
    if math.isinf(interval.low):
        return f"below {interval.high:.4g}"
    return f"{interval.low:.4g} to {interval.high:.4g}"


def _tests(
    a: _Values,
    b: _Values,
    paired: bool,
    settings: AnalysisSettings,
    rng: np.random.Generator,
) -> tuple[TestResult, ...]:
    side, count = settings.side, settings.n_resamples
    if paired:
        found = [sign_flip_test(b - a, side=side, rng=rng, n_resamples=count)]
        found += [paired_t_test(a, b, side=side)] if settings.ttest else []
    else:
        found = [permutation_test(a, b, side=side, rng=rng, n_resamples=count)]
        found += [welch_t_test(a, b, side=side)] if settings.ttest else []
    return tuple(found)


def _effects(
    a: _Values, b: _Values, paired: bool, level: float
) -> tuple[tuple[str, Interval], ...]:
    return (
        ("Cohen's d", cohens_d(a, b, paired=paired, level=level)),
        ("Hedges' g", hedges_g(a, b, paired=paired, level=level)),
        ("Cliff's delta", cliffs_delta(a, b, paired=paired, level=level)),
        (
            "probability of improvement",
            probability_of_improvement(a, b, paired=paired, level=level),
        ),
    )


def _shapes(a: _Values, b: _Values, paired: bool) -> tuple[tuple[str, Normality], ...]:
    if paired:
        return (("differences", normality(b - a)),)
    return (("control", normality(a)), ("candidate", normality(b)))


def _planning(a: _Values, b: _Values, paired: bool, settings: AnalysisSettings) -> Planning:
    """What the planning functions say; they are two-sided, so one side has twice the alpha."""
    if paired:
        sd, n = _sd(b - a), float(len(a))
    else:
        # Arms of unequal size have the precision of two arms of their harmonic mean.
        sd = math.sqrt((_sd(a) ** 2 + _sd(b) ** 2) / 2)
        n = 2 / (1 / len(a) + 1 / len(b))
    one_sided = settings.side is not Side.TWO_SIDED
    alpha = min(settings.alpha * (2 if one_sided else 1), 0.999)
    power, target = settings.target_power, settings.target_effect_size
    pilot = len(a) if paired else (len(a) + len(b)) // 2
    return Planning(
        target=target,
        power=power,
        sd=sd,
        needed=trials_needed(
            target, sd, pilot_n=pilot, paired=paired, power=power, alpha=alpha
        ),
        achieved=power_of(n, target, sd, paired=paired, alpha=alpha),
        detectable=minimum_detectable_effect(n, sd, paired=paired, power=power, alpha=alpha),
    )


def _sd(values: _Values) -> float:
    # Equal values have none; a sum of squares would leave rounding.
    return 0.0 if values.min() == values.max() else float(values.std(ddof=1))


def _estimates(
    a: _Values, b: _Values, paired: bool, settings: AnalysisSettings, rng: np.random.Generator
) -> _Values:
    count = settings.n_resamples
    if paired:
        return bootstrap_means(b - a, rng, count)
    return bootstrap_means(b, rng, count) - bootstrap_means(a, rng, count)


def _notes(
    a: _Values, b: _Values, paired: bool, settings: AnalysisSettings, alpha: float
) -> list[str]:
    notes = []
    samples = {"differences": b - a} if paired else {"control": a, "candidate": b}
    if settings.method in (Method.AUTO, Method.T):
        for name, sample in samples.items():
            if note := skewness_note(sample):
                notes.append(f"{name}: {note} (--bootstrap.method studentised)")
    elif min(map(len, samples.values())) < 30 and settings.method is not Method.STUDENTISED:
        notes.append(
            f"method {settings.method} is too short below 30 runs: its interval misses the "
            "truth more often than it says; auto is not"
        )
    if all(sample.min() == sample.max() for sample in samples.values()):
        what = "all pairs differ alike" if paired else "the runs of each arm are all equal"
        notes.append(
            f"{what}, so that nothing tells how a difference could vary: the interval has no "
            "width; check that the runs are not copies, and were made with seeds of their own"
        )
    ways = 2 ** len(a) if paired else math.comb(len(a) + len(b), len(a))
    least = (2 if settings.side is Side.TWO_SIDED else 1) / ways
    if least > alpha:
        unit = "pairs" if paired else "runs"
        notes.append(
            f"with so few {unit} the {'sign-flip' if paired else 'permutation'} test cannot "
            f"give a p-value below {least:.3g}, whatever the difference"
        )
    return notes
