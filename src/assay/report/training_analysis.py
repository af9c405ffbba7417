"""Report of a comparison of training runs: runs, difference and uncertainty.

Every number is shown with its meaning. The CSV has one header, and each of its rows includes
its provenance, so that a single row can be traced. The formatting helpers are shared with the
other reports of training runs.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assay.judge.looks import AnalysisLook
from assay.judge.power import TargetPlan
from assay.report.comparison.sentences import compared_words
from assay.report.document import (
    Document,
    Figures,
    Items,
    ReportTable,
    Row,
    Section,
    Tone,
    Words,
)
from assay.report.files import jsonable
from assay.report.numbers import DASH, share_text
from assay.report.provenance import made_by, versions
from assay.stats.intervals import Interval, Method
from assay.stats.learning_curves import Summary
from assay.stats.power import Needed
from assay.training.analysis import Analysis
from assay.training.analysis_settings import describe_summary
from assay.training.gather import LoadedRun, SkippedRun

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing


def number(value: float, sign: str = "") -> str:
    """Format a number with four significant digits."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    # Adding zero removes the sign of a zero.
    return f"{value + 0.0:{sign}.4g}"


def span(interval: Interval) -> str:
    """Format the bounds of an interval."""
    if not interval.known:
        return "not known"
    return f"{number(interval.low)} to {number(interval.high)}"


def left_out(unusable: Sequence[SkippedRun]) -> Iterator[Section]:
    """Yield a section of named runs that were not used, if any."""
    if unusable:
        reasons = [f"{run.name}: {run.reason}" for run in unusable]
        yield Section("Not used", [Items(reasons, f"Left out: {len(unusable)} runs")])


def run_sources(runs: Iterable[LoadedRun]) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of each run."""
    for found in runs:
        run = found.run
        parts = [run.source, f"id {run.id}"]
        parts += [f"seed {run.seed}"] if run.seed is not None else []
        parts += [f"commit {run.commit}"] if run.commit else []
        yield found.name, ", ".join(filter(None, parts))


def run_values(used: LoadedRun) -> dict[str, Any]:
    """Return a run for programs."""
    run, curve = used.run, used.curve
    return {
        "name": used.name,
        "id": run.id,
        "seed": run.seed,
        "subject": run.subject,
        "source": run.source,
        "commit": run.commit,
        "configuration": dict(run.configuration),
        "provenance": dict(run.provenance),
        "points": len(curve),
        "dropped": curve.dropped,
        "repeated": curve.repeated,
    }


def needed_values(needed: Needed | None) -> dict[str, Any] | None:
    """Return a number of runs and its range for programs."""
    if needed is None:
        return None
    return {"n": needed.trials, "low": needed.low, "high": needed.high, "level": needed.level}


_SHORT = {
    Summary.AUC: "AUC",
    Summary.LAST_N: "the last points",
    Summary.FINAL: "the final value",
    Summary.SLOPE: "slope",
    Summary.TIME_TO_THRESHOLD: "steps to the threshold",
}
_COLUMNS = (
    *("kind", "name", "arm", "pair", "run", "run_id", "seed", "value", "low", "high"),
    *("p_value", "n", "note", "run_source", "run_commit", "run_configuration"),
    "run_provenance",
)


def analysis_document(analysis: Analysis, deviations: Sequence[str] | None = None) -> Document:
    """Build the report of an analysis: the answer first, then its basis.

    Args:
        analysis: The results.
        deviations: Deviations from the plan; None without a plan.
    """
    settings, design = analysis.settings, analysis.design
    results = ReportTable(
        "",
        ["result", "value", f"about {100 * analysis.level:.4g} % interval"],
        [row for row, _ in _results(analysis)],
    )
    sentences = [Items(lines)] if (lines := [*_sentences(analysis)]) else []
    figures = Figures(lambda: analysis_drawings(analysis).values())
    how = (
        f"Interval of the difference by {_method(analysis)}, {settings.side}, alpha"
        f" {1 - analysis.level:.4g}; {settings.n_resamples:,} resamples, generator seed"
        f" {settings.seed}."
    )
    return Document(
        title=f"{settings.metric}: {describe_summary(settings.summary)}",
        sections=[
            Section("Answer", [Words(analysis.sentence, Tone.CALLOUT), *_compared(analysis)]),
            Section("Runs", [_pairs(analysis) if analysis.paired else _runs(analysis)]),
            Section("Results", [results, *sentences, figures]),
            *left_out(design.unusable),
            *_plan(deviations),
            Section("Method", [Words(how, Tone.NOTE)]),
        ],
        origin=made_by(
            settings.as_dict(),
            run_sources((*design.control, *design.candidate)),
            settings.seed,
        ),
        values=lambda: _values(analysis, deviations),
        rows=lambda: _rows(analysis, deviations),
    )


def analysis_drawings(analysis: Analysis) -> "dict[str, Drawing]":
    """Return the figures of an analysis by file name."""
    from assay.report.figures.curves import learning_curves
    from assay.report.figures.distributions import bootstrap_distribution
    from assay.report.figures.radial import radial, scaled_to_best

    settings, design = analysis.settings, analysis.design
    groups = {
        arm: [(found.curve.steps_P.tolist(), found.curve.values_P.tolist()) for found in runs]
        for arm, runs in (("control", design.control), ("candidate", design.candidate))
    }
    names = [axis.name for axis in analysis.radial]
    raw = {
        "control": [axis.control for axis in analysis.radial],
        "candidate": [axis.candidate for axis in analysis.radial],
    }
    lower = [axis.name for axis in analysis.radial if axis.lower_is_better]
    drawings = {
        "learning_curves.png": learning_curves(groups, settings.metric, level=analysis.level),
        "bootstrap_distribution.png": bootstrap_distribution(
            analysis.estimates_B,
            analysis.difference,
            "candidate minus control",
            level=analysis.level,
            method=_method(analysis),
            title=f"{settings.metric}: bootstrap of the difference in"
            f" {_SHORT[settings.summary.type]}",
        ),
    }
    if any(value is not None for values in raw.values() for value in values):
        drawings["radial.png"] = radial(
            names,
            scaled_to_best(names, raw, lower_is_better=lower),
            raw=raw,
            scale="each axis is scaled to the better arm",
            title=f"{settings.metric}: five summaries of the curves",
        )
    return drawings


def _method(analysis: Analysis) -> str:
    """Return the method of the interval of the difference; proportions have their own."""
    if analysis.has_shares:
        return "Bonett and Price" if analysis.paired else "Newcombe"
    method = analysis.settings.method
    return "Student's t" if method in (Method.AUTO, Method.T) else str(method)


def _pairs(analysis: Analysis) -> ReportTable:
    design = analysis.design
    numbers = zip(analysis.control_R.tolist(), analysis.candidate_R.tolist(), strict=True)
    return ReportTable(
        "",
        ["pair", "seed", "control", "value", "candidate", "value", "difference"],
        [
            [
                str(place + 1),
                _seed(design.seeds[place]),
                design.control[place].name,
                number(control),
                design.candidate[place].name,
                number(candidate),
                number(candidate - control, "+"),
            ]
            for place, (control, candidate) in enumerate(numbers)
        ],
    )


def _runs(analysis: Analysis) -> ReportTable:
    return ReportTable(
        "",
        ["arm", "run", "seed", "value"],
        [
            [arm, found.name, _seed(found.run.seed), number(value)]
            for arm, found, value in _valued(analysis)
        ],
    )


def _valued(analysis: Analysis) -> Iterator[tuple[str, LoadedRun, float]]:
    design = analysis.design
    for arm, runs, values_R in (
        ("control", design.control, analysis.control_R),
        ("candidate", design.candidate, analysis.candidate_R),
    ):
        for found, value in zip(runs, values_R.tolist(), strict=True):
            yield arm, found, value


def _seed(seed: int | None) -> str:
    return DASH if seed is None else str(seed)


def _results(analysis: Analysis) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield each result as a row of the table and as a row of the CSV."""
    controls, candidates = len(analysis.control_R), len(analysis.candidate_R)
    n = controls if analysis.paired else controls + candidates
    for arm, size, mean in (
        ("control", controls, analysis.contrast.mean_baseline),
        ("candidate", candidates, analysis.contrast.mean_candidate),
    ):
        yield _estimate(f"mean of {arm} (n = {size})", mean), _result("mean", arm, mean, size)
    change = _result("difference", "candidate - control", analysis.difference, n)
    yield _estimate("difference, candidate - control", analysis.difference, "+"), change
    percent = Interval(*(100 * share for share in analysis.relative))
    relative = _result("difference", "relative change", analysis.relative, n)
    relative["note"] = analysis.relative_note
    yield _estimate("difference in % of the control", percent, "+"), relative
    for test in analysis.tests:
        exact = "exact" if test.exact else "not exact"
        yield (
            [f"{'exact p' if test.exact else 'p'}, {test.name}", _p_value(test.p_value), ""],
            {
                "kind": "test",
                "name": test.name,
                "value": test.statistic,
                "p_value": test.p_value,
                "n": test.n,
                "note": f"{exact}; {test.note}" if test.note else exact,
            },
        )
    for name, effect in analysis.effects.items():
        if effect is not None:
            yield _estimate(name, effect), _result("effect", name, effect, n)
    if analysis.pairing is not None:
        correlation, saved = analysis.pairing.correlation, analysis.pairing.saved
        row = _result("pairing", "seed correlation", correlation, n)
        yield _estimate("seed correlation", correlation), row
        row = {"kind": "pairing", "name": "variance saved", "value": saved, "n": n}
        row["note"] = analysis.pairing.sentence
        yield ["variance saved by pairing", f"{100 * saved:.0f} %", ""], row
    for name, shape in analysis.normality:
        row, decides = {"kind": "normality", "n": shape.n}, "shown, decides nothing"
        yield (
            [f"Shapiro-Wilk p of {name}", _p_value(shape.p_value), decides],
            row | {"name": f"Shapiro-Wilk of {name}", "p_value": shape.p_value},
        )
        yield (
            [f"skewness of {name}", number(shape.skewness), decides],
            row | {"name": f"skewness of {name}", "value": shape.skewness},
        )
    if analysis.planning is not None:
        yield from _planned(analysis.planning, "pairs" if analysis.paired else "runs per arm")


def _planned(plan: TargetPlan, unit: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    needed, target = plan.needed, f"a difference of {plan.target:g}"
    power = f"power {100 * plan.power:.4g} %"
    note = {"kind": "power", "note": f"for {target} with power {plan.power:g}"}
    low, high = (DASH if end is None else str(end) for end in (needed.low, needed.high))
    bounds = {"value": needed.trials, "low": needed.low, "high": needed.high}
    yield (
        [f"{unit} to find {target} with {power}", str(needed.trials), f"{low} to {high}"],
        {**note, "name": f"{unit} needed", **bounds},
    )
    yield (
        [f"smallest difference found with {power}", number(plan.detectable), ""],
        {"kind": "power", "name": "smallest difference found", "value": plan.detectable},
    )
    yield (
        [f"power for {target}", f"{share_text(plan.achieved)} %", ""],
        {**note, "name": "power at this n", "value": plan.achieved},
    )


def _estimate(label: str, interval: Interval, sign: str = "") -> Row:
    return [label, number(interval.point, sign), span(interval)]


def _result(kind: str, name: str, interval: Interval, n: int) -> dict[str, Any]:
    ends = {"value": interval.point, "low": interval.low, "high": interval.high}
    return {"kind": kind, "name": name, "n": n, **ends}


def _p_value(value: float) -> str:
    if math.isnan(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.3g}"


def _sentences(analysis: Analysis) -> Iterator[str]:
    if analysis.pairing is not None:
        yield analysis.pairing.sentence
    if not analysis.relative.known and analysis.relative_note:
        yield analysis.relative_note
    for test in analysis.tests:
        if test.note:
            yield f"{test.name}: {test.note}"
    yield from analysis.design.warnings
    yield from analysis.notes
    yield from analysis.design.notes


def _compared(analysis: Analysis) -> Iterator[Words]:
    """Yield the look this analysis is, and the settings in which the arms differ."""
    if analysis.look is not None and analysis.look.sentence:
        yield Words(analysis.look.sentence, Tone.NOTE)
    for gap in analysis.design.capacity:
        yield Words(gap.sentence, Tone.WARNING)
    if differing := [one for one in analysis.contrast.design if not one.confounds]:
        yield Words(f"What differs: {compared_words(differing)}.", Tone.NOTE)


def _plan(deviations: Sequence[str] | None) -> Iterator[Section]:
    if deviations:
        title = f"Deviations from the plan: {len(deviations)}"
        yield Section("Plan", [Items(deviations, title)])
    elif deviations is not None:
        yield Section("Plan", [Words("The analysis kept to its plan.")])


def _values(analysis: Analysis, deviations: Sequence[str] | None) -> dict[str, Any]:
    design, settings = analysis.design, analysis.settings
    arms: dict[str, list[dict[str, Any]]] = {"control": [], "candidate": []}
    for arm, found, value in _valued(analysis):
        arms[arm].append({**run_values(found), "value": value})
    planning = analysis.planning
    return {
        "metric": settings.metric,
        "summary": describe_summary(settings.summary),
        "paired": design.paired,
        "n": {arm: len(runs) for arm, runs in arms.items()},
        "verdict": {"word": analysis.verdict.value, "sentence": analysis.sentence},
        "look": analysis.look and _look_values(analysis.look),
        "control": {"mean": jsonable(analysis.contrast.mean_baseline), "runs": arms["control"]},
        "candidate": {
            "mean": jsonable(analysis.contrast.mean_candidate),
            "runs": arms["candidate"],
        },
        "seeds": list(design.seeds) if design.paired else None,
        "difference": jsonable(analysis.difference),
        "relative_change": jsonable(analysis.relative),
        "tests": jsonable(analysis.tests),
        "effects": jsonable(analysis.effects),
        "pairing": jsonable(analysis.pairing),
        "normality": jsonable(dict(analysis.normality)),
        "power": planning and {**jsonable(planning), "needed": needed_values(planning.needed)},
        "radial": jsonable(analysis.radial),
        "left_out": jsonable(design.unusable),
        "differences": jsonable(analysis.contrast.design),
        "capacity": [{**jsonable(gap), "sentence": gap.sentence} for gap in design.capacity],
        "warnings": list(design.warnings),
        "notes": [*design.notes, *analysis.notes],
        "plan_deviations": None if deviations is None else list(deviations),
        "settings": settings.as_dict(),
        "generator_seed": settings.seed,
        "versions": versions(),
    }


def _look_values(look: AnalysisLook) -> dict[str, Any]:
    return {
        "number": look.number,
        "rule": look.rule.value,
        "planned": list(look.planned),
        "earlier": [
            {
                "n": {"control": len(each.control), "candidate": len(each.candidate)},
                "looked_at": jsonable(each.looked_at),
                "alpha": each.alpha,
                "verdict": each.verdict,
                "plan": each.plan,
            }
            for each in look.earlier
        ],
        "alpha": look.alpha,
        "error_of_all_looks": look.error,
        "recorded": look.unrecorded is None,
        "sentence": look.sentence,
    }


def _rows(analysis: Analysis, deviations: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the rows of the CSV: runs, results, then exclusions and notes."""
    settings = analysis.settings
    common = {
        "metric": settings.metric,
        "summary": describe_summary(settings.summary),
        "paired": analysis.paired,
        "method": str(settings.method),
        "side": str(settings.side),
        "alpha": settings.alpha,
        "n_resamples": settings.n_resamples,
        "generator_seed": settings.seed,
        **{f"analysed_by_{name}": value for name, value in versions().items()},
        "settings": _json(settings.as_dict()),
    }
    results = (row for _, row in _results(analysis))
    rows = (*_run_rows(analysis), *results, *_word_rows(analysis, deviations))
    return [{**dict.fromkeys(_COLUMNS), **row, **common} for row in rows]


def _run_rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    places = {"control": 0, "candidate": 0}
    for arm, found, value in _valued(analysis):
        places[arm] += 1
        run = found.run
        yield {
            "kind": "run",
            "name": "summary",
            "arm": arm,
            "pair": places[arm] if analysis.paired else None,
            "run": found.name,
            "run_id": run.id,
            "seed": run.seed,
            "value": value,
            "run_source": run.source,
            "run_commit": run.commit,
            "run_configuration": _json(run.configuration),
            "run_provenance": _json(run.provenance),
        }


def _word_rows(
    analysis: Analysis, deviations: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    design = analysis.design
    yield {"kind": "verdict", "name": analysis.verdict.value, "note": analysis.sentence}
    if analysis.look is not None and analysis.look.sentence:
        about = {"value": analysis.look.alpha, "note": analysis.look.sentence}
        yield {"kind": "look", "name": analysis.look.rule.value, **about}
    for run in design.unusable:
        about = {"run": run.name, "seed": run.seed, "note": run.reason}
        yield {"kind": "left out", "name": "run", **about}
    for gap in design.capacity:
        yield {"kind": "capacity", "name": gap.name, "note": gap.sentence}
    for text in (*design.warnings, *design.notes, *analysis.notes):
        yield {"kind": "note", "note": text}
    for text in deviations or ():
        yield {"kind": "deviation", "name": "from the plan", "note": text}


def _json(value: Any) -> str | None:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else None
