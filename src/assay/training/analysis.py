"""Comparison of training runs, control with candidate, by one number per run.

`assay.judge` computes the difference, its tests and the verdict. This module adds the parts
specific to training runs: the summary of a curve, times to a threshold that some runs never
reach, planning for a target effect, and the five summaries of a radial plot. Differences are
candidate minus control. Equal runs, settings and generator seed give equal results.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.core.text import counted
from assay.errors import StoreError, UsageError
from assay.judge.contrasts import contrast, decided, interval_verdict
from assay.judge.looks import AnalysisLook, RecordedLook, settle_look
from assay.judge.plans import AnalysisPlan, history_of
from assay.judge.power import TargetPlan, plan_for_target
from assay.judge.results import Contrast, Setup
from assay.judge.subjects import Subject, TrialOutcome
from assay.stats.differences import Pairing, denominator_note, pairing, relative_change
from assay.stats.intervals import Interval, Method, bootstrap_means, skewness_note
from assay.stats.learning_curves import Summary, SummarySpec, time_to_threshold
from assay.stats.significance import Normality, TestResult, normality
from assay.stats.survival import incidence_test, restricted_times
from assay.store.looks import load_analysis_looks, record_look
from assay.store.plans import find_plan
from assay.store.store import Store
from assay.training.analysis_settings import AnalysisSettings
from assay.training.design import Design, with_width_advice
from assay.training.gather import LoadedRun, RunPlace, format_reasons
from assay.training.variance import summarize_runs
from assay.types import Verdict

Values = NDArray[np.float64]
_T_METHODS = (Method.AUTO, Method.T)
_EFFECT_NAMES = ("Cohen's d", "Hedges' g", "Cliff's delta", "probability of improvement")


@dataclass(frozen=True, slots=True)
class RadialAxis:
    """A summary of the curves, averaged over each arm."""

    name: str
    control: float | None
    candidate: float | None
    """Either mean is None if a run of that arm has no such summary."""
    lower_is_better: bool = False


def compute_radial_axes(design: Design, chosen: SummarySpec) -> tuple[RadialAxis, ...]:
    """Return the five summaries of the metric for a radial plot.

    The AUC has the chosen window. The default threshold is halfway between the mean first and
    the mean last value of all runs. A metric that falls over the run is treated as a loss:
    lower is better.
    """
    curves = [run.curve for run in (*design.control, *design.candidate)]
    first, last = (float(np.mean([c.values_P[index] for c in curves])) for index in (0, -1))
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
            _average_summary(design.control, spec),
            _average_summary(design.candidate, spec),
            lower_is_better=falling or spec.type is Summary.TIME_TO_THRESHOLD,
        )
        for name, spec in specs.items()
    )


def _average_summary(runs: Sequence[LoadedRun], spec: SummarySpec) -> float | None:
    # If a run does not reach the window or the threshold, the axis is left empty.
    try:
        mean = float(np.mean(summarize_runs(runs, spec)))
    except UsageError:
        return None
    return mean if math.isfinite(mean) else None


class CensoredTimes(NamedTuple):
    """Times to a threshold that some runs never reach; the time of such a run is its end."""

    control_R: Values
    candidate_R: Values
    reached: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    note: str


def summarize_arms(
    design: Design, spec: SummarySpec
) -> tuple[Values, Values, CensoredTimes | None]:
    """Return the summary of each run of both arms.

    A run that never reaches a threshold is censored: its time is the horizon, which is the
    earliest end of all such runs. Runs that reach the threshold later get the horizon, too.
    """
    arms = [summarize_runs(runs, spec) for runs in (design.control, design.candidate)]
    reached = [np.isfinite(arm) for arm in arms]
    censored = sum(int((~arm).sum()) for arm in reached)
    if not censored:
        return arms[0], arms[1], None
    runs = [*design.control, *design.candidate]
    assert spec.threshold is not None
    if censored == len(runs):
        raise UsageError(
            f"no run reaches {spec.threshold:g}, so the time to it is unknown; choose another "
            "--summary.threshold or --summary.type"
        )
    ends = np.array(
        [
            time_to_threshold(
                run.curve.steps_P,
                run.curve.values_P,
                spec.threshold,
                falling=spec.falling,
                **spec.window,
            ).value
            for run in runs
        ]
    )
    horizon = float(ends[~np.concatenate(reached)].min())
    times = np.split(ends, [len(arms[0])])
    a, b = (
        restricted_times(ends_R, reaches, ~reaches, horizon=horizon)
        for ends_R, reaches in zip(times, reached, strict=True)
    )
    note = (
        f"{censored} of {len(runs)} runs never reach {spec.threshold:g}: their time is"
        f" counted as step {horizon:g}, where the first of them ends, and the means are "
        "restricted to that step; the log-rank test uses all steps"
    )
    return a, b, CensoredTimes(times[0], times[1], (reached[0], reached[1]), note)


def compute_log_rank_test(
    censored: CensoredTimes, settings: AnalysisSettings, paired: bool
) -> TestResult:
    """Test whether one arm reaches the threshold earlier or more often, over all steps."""
    control_reached, candidate_reached = censored.reached
    return incidence_test(
        censored.control_R,
        control_reached,
        censored.candidate_R,
        candidate_reached,
        ~control_reached,
        ~candidate_reached,
        paired=paired,
        side=settings.side,
        rng=np.random.default_rng(settings.seed),
        n_resamples=settings.n_resamples,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Analysis:
    """Results of an analysis."""

    settings: AnalysisSettings
    design: Design
    control_R: Values
    """The summary of each control run."""
    candidate_R: Values
    contrast: Contrast
    """Comparison of the candidate with the control, computed by `assay.judge`."""
    relative: Interval
    """The difference relative to the control's mean."""
    relative_note: str | None
    verdict: Verdict
    """Candidate relative to control: higher, lower, undecided or unknown."""
    tests: tuple[TestResult, ...]
    pairing: Pairing | None
    """Gain from pairing; None if unpaired."""
    normality: tuple[tuple[str, Normality], ...]
    planning: TargetPlan | None
    estimates_B: Values
    """Differences of B bootstrap resamples, for plotting."""
    radial: tuple[RadialAxis, ...]
    notes: tuple[str, ...]
    level: float
    """Confidence level of all intervals."""
    look: AnalysisLook | None = None
    """The look (interim analysis) that this is; None if `analyse` got none."""

    @property
    def paired(self) -> bool:
        """Whether runs were compared in pairs."""
        return self.design.paired

    @property
    def difference(self) -> Interval:
        """Mean of the candidate minus mean of the control."""
        return self.contrast.difference

    @property
    def has_shares(self) -> bool:
        """Whether all values are 0 or 1, so that the difference is between proportions."""
        return self.contrast.tests is not None and self.contrast.tests.t.exact

    @property
    def effects(self) -> dict[str, Interval | None]:
        """Standardised effect sizes by name; None if the values do not vary."""
        effects = self.contrast.effects
        sizes = (
            (None,) * 4
            if effects is None
            else (effects.d, effects.g, effects.delta, effects.improvement)
        )
        return dict(zip(_EFFECT_NAMES, sizes, strict=True))

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with its interval."""
        n, difference = len(self.design.control), self.difference
        runs = f"{n} pairs" if self.paired else f"{n} and {len(self.design.candidate)} runs"
        if confounds := self.contrast.confounds:
            differences = "; ".join(
                f"{confound.name} is {confound.baseline} for the control, {confound.candidate} "
                "for the candidate"
                for confound in confounds
            )
            names = " ".join(f"--allow-different {confound.name}" for confound in confounds)
            return (
                f"Not comparable: {differences}. A difference may come from the task "
                f"({runs}). Train both arms on the same task, or allow the difference: {names}."
            )
        if self.design.copies:
            return (
                f"No verdict: {'; '.join(self.design.copies[:6])}, identical to the last "
                f"digit. A copy is not an independent run, even with another seed ({runs})."
            )
        if self.verdict is Verdict.UNKNOWN:
            return (
                f"No interval can be computed from {runs} with method {self.settings.method}; "
                "add runs, or choose --bootstrap.method t"
            )
        bounds = f"about {100 * self.level:.4g} % interval {_format_bounds(difference)}"
        if not difference.known:
            bounds = "no interval, because nothing varies"
        change = f"{difference.point:+.4g} ({bounds}, {runs})"
        if self.verdict is Verdict.HIGHER:
            return f"The candidate is higher than the control by {change}."
        if self.verdict is Verdict.LOWER:
            return f"The candidate is lower than the control: {change}."
        if self.contrast.too_few is not None:
            normal = ", assuming normal differences" if difference.known else ""
            return f"{self.contrast.too_few.replace('trial', 'run')}: {change}{normal}."
        reason = ""
        if difference.low <= 0 <= difference.high:
            reason = "; the interval contains 0, which does not prove that both are equal"
        elif (tests := self.contrast.tests) is not None:
            test = tests.t if tests.spread_known else tests.resampling
            reason = f"; p = {tests.p_value:.3g}, {test.name}"
        return f"No difference is shown: {change}{reason}."


def analyse(
    design: Design, settings: AnalysisSettings, look: AnalysisLook | None = None
) -> Analysis:
    """Compare the candidate's runs with the control's.

    Args:
        design: Runs of both arms.
        settings: Settings of the analysis.
        look: The interim analysis that this is; its alpha replaces the one in the settings.

    Raises:
        UsageError: There are too few runs, or the summary of a run cannot be computed.
    """
    check_run_counts(design)
    a, b, censored = summarize_arms(design, settings.summary)
    alpha = settings.alpha if look is None else look.alpha
    paired, level = design.paired, 1 - alpha
    # Separate streams, so that an additional computation does not change the others.
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(settings.seed).spawn(3)]
    result = _compare_arms(design, settings, (a, b), level, streams[:2])
    tests = result.tests
    assert tests is not None, "there are two runs of each arm"
    verdict = Verdict.UNKNOWN if design.copies else result.neutral_verdict
    if settings.method not in _T_METHODS and not (design.copies or result.confounds):
        # A bootstrap interval may withhold a verdict of the tests, and never decides alone.
        bootstrap = interval_verdict(result.difference)
        if bootstrap is not verdict:
            verdict = bootstrap if bootstrap is Verdict.UNKNOWN else Verdict.UNDECIDED
    samples = {"differences": b - a} if paired else {"control": a, "candidate": b}
    drawn = [
        bootstrap_means(sample, streams[2], settings.n_resamples)
        for sample in reversed(samples.values())
    ]
    return Analysis(
        settings=settings,
        design=design,
        control_R=a,
        candidate_R=b,
        contrast=result,
        relative=relative_change(a, b, paired=paired, level=level),
        relative_note=denominator_note(a, level=level),
        verdict=verdict,
        tests=(
            tests.resampling,
            *((tests.t,) if settings.ttest else ()),
            *((compute_log_rank_test(censored, settings, paired),) if censored else ()),
        ),
        pairing=pairing(a, b, level=level) if paired else None,
        normality=tuple((name, normality(sample)) for name, sample in samples.items()),
        planning=plan_for_target(
            *(a, b),
            paired=paired,
            target=settings.target_effect_size,
            power=settings.target_power,
            alpha=settings.alpha,
            side=settings.side,
        )
        if settings.power
        else None,
        estimates_B=drawn[0] if paired else drawn[0] - drawn[1],
        radial=compute_radial_axes(design, settings.summary),
        notes=(
            *([censored.note] if censored else ()),
            *_list_notes(samples, result, settings),
        ),
        level=level,
        look=look,
    )


def _compare_arms(
    design: Design,
    settings: AnalysisSettings,
    arms: tuple[Values, Values],
    level: float,
    streams: Sequence[np.random.Generator],
) -> Contrast:
    """Compare the arms with `assay.judge`; in a paired design, equal indices form a pair."""
    metric = f"{settings.metric}.{settings.summary.type}"
    sides = zip(
        ("control", "candidate"),
        (design.control, design.candidate),
        arms,
        design.configurations or ({}, {}),
        strict=True,
    )
    control, candidate = (
        Subject(
            id=name,
            name=name,
            facts=facts,
            trials=tuple(
                TrialOutcome(
                    trial_id=":".join(run.identity),
                    pair=str(place) if design.paired else None,
                    values={metric: value},
                    ended=run.run.status,
                )
                for place, (run, value) in enumerate(zip(runs, values.tolist(), strict=True))
            ),
        )
        for name, runs, values, facts in sides
    )
    setup = Setup(
        metrics=(metric,),
        baseline=control.id,
        level=level,
        method=settings.method,
        side=settings.side,
        n_resamples=settings.n_resamples,
        allow_different=design.allow_different,
    )
    return decided([contrast(control, candidate, metric, setup, streams=streams)], setup)[0]


def analyse_and_record(
    design: Design, settings: AnalysisSettings, plan: AnalysisPlan | None, store: Store
) -> Analysis:
    """Analyse runs, and record the look if all of them are in the database.

    Raises:
        UsageError: There are too few runs, or the summary of a run cannot be computed.
    """
    check_run_counts(design)
    design = with_width_advice(design)
    stored = all(run.place is RunPlace.STORE for run in (*design.control, *design.candidate))
    looks = []
    if stored:
        with store.reading() as connection:
            looks = load_analysis_looks(connection, settings.metric, asdict(settings.summary))
    control, candidate = runs = design.run_ids
    look = settle_look(
        runs,
        paired=design.paired,
        alpha=settings.alpha,
        side=settings.side,
        plan=plan,
        looks=looks,
        extended_from=design.extended_from,
        unrecorded=None if stored else "not all runs are in the database",
    )
    analysis = analyse(design, settings, look)
    if not stored or look.repeated:
        return analysis
    record = RecordedLook(
        control=control,
        candidate=candidate,
        look=look.number,
        alpha=look.two_sided,
        estimate=analysis.difference.point,
        low=analysis.difference.low,
        high=analysis.difference.high,
        verdict=analysis.verdict.value,
        plan=look.plan,
    )
    try:
        with store.writing() as connection:
            record_look(connection, settings.metric, asdict(settings.summary), record)
    except StoreError:
        return replace(
            analysis, look=replace(look, unrecorded="the database cannot be written")
        )
    return analysis


def find_deviations(plan: AnalysisPlan, analysis: Analysis, store: Store) -> list[str]:
    """Return the differences between an analysis and its plan, as sentences."""
    planned, used = plan.content, analysis.settings.as_dict()
    pairs = {
        "metric": (planned["metric"], used["metric"]),
        **{
            f"summary.{name}": (value, used["summary"][name])
            for name, value in planned["summary"].items()
        },
        **{name: (planned[name], used[name]) for name in ("method", "side", "alpha")},
    }
    deviations = [
        f"{name}: the plan has {_format_value(wanted)}, the analysis used {_format_value(done)}"
        for name, (wanted, done) in pairs.items()
        if wanted != done
    ]
    if plan.paired is not None and plan.paired != analysis.paired:
        words = {True: "paired", False: "unpaired"}
        deviations.append(
            f"design: the plan says {words[plan.paired]}, this is {words[analysis.paired]}"
        )
    n, m = len(analysis.design.control), len(analysis.design.candidate)
    allowed = plan.looks or (plan.n,)
    if n != m or n not in allowed:
        unit = "pairs" if analysis.paired else "runs per arm"
        actual = str(n) if n == m else f"{n} and {m}"
        sizes = " or ".join(map(str, allowed))
        deviations.append(f"n: the plan says {sizes} {unit}, there are {actual}")
    earlier = () if analysis.look is None or not plan.looks else analysis.look.earlier
    if outside := sum(look.plan != plan.hash for look in earlier):
        deviations.append(
            f"looks: {counted(outside, 'look')} at these runs before this one did not "
            "follow the plan, so this one cannot follow it either"
        )
    registered = None
    if store.path.exists():
        with store.reading() as connection:
            registered = find_plan(connection, plan.hash)
    runs = (*analysis.design.control, *analysis.design.candidate)
    stored = [run.run.id for run in runs if run.place is RunPlace.STORE]
    others = len(runs) - len(stored)
    return deviations + history_of(
        registered, stored, others, what="runs", command="assay analysis"
    )


def _format_value(value: object) -> str:
    return "nothing" if value is None else str(value)


def check_run_counts(design: Design) -> None:
    """Raise UsageError if an arm has fewer than two runs."""
    counts = {"control": len(design.control), "candidate": len(design.candidate)}
    for arm, count in counts.items():
        if count >= 2:
            continue
        unit = ("pair" if design.paired else f"{arm} run") + ("" if count == 1 else "s")
        raise UsageError(
            f"only {count} {unit} can be used, and a comparison needs two; name more"
            f"{format_reasons(design.unusable)}"
        )


def _format_bounds(interval: Interval) -> str:
    if math.isinf(interval.high):
        return f"above {interval.low:.4g}"
    if math.isinf(interval.low):
        return f"below {interval.high:.4g}"
    return f"{interval.low:.4g} to {interval.high:.4g}"


def _list_notes(
    samples: Mapping[str, Values], contrast: Contrast, settings: AnalysisSettings
) -> list[str]:
    notes, paired, tests = [], contrast.paired, contrast.tests
    assert tests is not None, "there are two runs of each arm"
    # Proportions have their own interval, for every method.
    shares, few = tests.t.exact, min(map(len, samples.values())) < 30
    if settings.method in _T_METHODS and not shares:
        for name, sample in samples.items():
            if note := skewness_note(sample):
                notes.append(f"{name}: {note} (--bootstrap.method studentised)")
    elif few and settings.method in (Method.BCA, Method.PERCENTILE) and not shares:
        notes.append(
            f"method {settings.method} gives intervals that are too short below 30 runs: they "
            "miss the true value more often than stated; use auto"
        )
    if not tests.spread_known:
        finding = (
            "all pairs have the same difference"
            if paired
            else "the runs of each arm are all equal"
        )
        width = (
            "the interval has no width" if contrast.difference.known else "there is no interval"
        )
        notes.append(
            f"{finding}, so the variation of a difference cannot be estimated: {width}; "
            "check that the runs are not copies and have different seeds"
        )
    return notes
