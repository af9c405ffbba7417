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
from assay.report.comparison.sentences import describe_differences
from assay.report.document import (
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Row,
    Section,
    Tone,
)
from assay.report.files import to_json_value
from assay.report.numbers import DASH, share_text
from assay.report.provenance import provenance_lines, software_versions
from assay.stats.intervals import Interval, Method
from assay.stats.learning_curves import Summary
from assay.stats.power import Needed
from assay.training.analysis import Analysis
from assay.training.analysis_settings import describe_summary
from assay.training.gather import LoadedRun, SkippedRun

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing


def format_number(value: float, sign: str = "") -> str:
    """Format a number with four significant digits."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    # Adding zero removes the sign of a zero.
    return f"{value + 0.0:{sign}.4g}"


def format_bounds(interval: Interval) -> str:
    """Format the bounds of an interval."""
    if not interval.known:
        return "unknown"
    return f"{format_number(interval.low)} to {format_number(interval.high)}"


def skipped_runs_section(unusable: Sequence[SkippedRun]) -> Iterator[Section]:
    """Yield a section of named runs that were not used, if any."""
    if unusable:
        reasons = [f"{run.name}: {run.reason}" for run in unusable]
        yield Section("Unused runs", [Items(reasons, f"Excluded: {len(unusable)} runs")])


def run_sources(runs: Iterable[LoadedRun]) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of each run."""
    for loaded in runs:
        run = loaded.run
        parts = [run.source, f"id {run.id}"]
        parts += [f"seed {run.seed}"] if run.seed is not None else []
        parts += [f"commit {run.commit}"] if run.commit else []
        yield loaded.name, ", ".join(filter(None, parts))


def run_values(loaded: LoadedRun) -> dict[str, Any]:
    """Return a run for programs."""
    run, curve = loaded.run, loaded.curve
    return {
        "name": loaded.name,
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


_SUMMARY_NAMES = {
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
        [row for row, _ in _result_rows(analysis)],
    )
    sentences = [Items(lines)] if (lines := [*_collect_sentences(analysis)]) else []
    figures = Figures(lambda: analysis_drawings(analysis).values())
    how = (
        f"Interval of the difference by {_name_method(analysis)}, {settings.side}, alpha"
        f" {1 - analysis.level:.4g}; {settings.n_resamples:,} resamples, generator seed"
        f" {settings.seed}."
    )
    return Document(
        title=f"{settings.metric}: {describe_summary(settings.summary)}",
        sections=[
            Section(
                "Answer",
                [Paragraph(analysis.sentence, Tone.CALLOUT), *_describe_design(analysis)],
            ),
            Section(
                "Runs", [_pairs_table(analysis) if analysis.paired else _runs_table(analysis)]
            ),
            Section("Results", [results, *sentences, figures]),
            *skipped_runs_section(design.unusable),
            *_plan_section(deviations),
            Section("Method", [Paragraph(how, Tone.NOTE)]),
        ],
        origin=provenance_lines(
            settings.as_dict(),
            run_sources((*design.control, *design.candidate)),
            settings.seed,
        ),
        values=lambda: _json_values(analysis, deviations),
        rows=lambda: _csv_rows(analysis, deviations),
    )


def analysis_drawings(analysis: Analysis) -> "dict[str, Drawing]":
    """Return the figures of an analysis by file name."""
    from assay.report.figures.curves import draw_learning_curves
    from assay.report.figures.distributions import draw_bootstrap_distribution
    from assay.report.figures.radial import draw_radial, scale_to_best

    settings, design = analysis.settings, analysis.design
    groups = {
        arm: [
            (loaded.curve.steps_P.tolist(), loaded.curve.values_P.tolist()) for loaded in runs
        ]
        for arm, runs in (("control", design.control), ("candidate", design.candidate))
    }
    names = [axis.name for axis in analysis.radial]
    raw = {
        "control": [axis.control for axis in analysis.radial],
        "candidate": [axis.candidate for axis in analysis.radial],
    }
    lower = [axis.name for axis in analysis.radial if axis.lower_is_better]
    drawings = {
        "learning_curves.png": draw_learning_curves(
            groups, settings.metric, level=analysis.level
        ),
        "bootstrap_distribution.png": draw_bootstrap_distribution(
            analysis.estimates_B,
            analysis.difference,
            "candidate minus control",
            level=analysis.level,
            method=_name_method(analysis),
            title=f"{settings.metric}: bootstrap of the difference in"
            f" {_SUMMARY_NAMES[settings.summary.type]}",
        ),
    }
    if any(value is not None for values in raw.values() for value in values):
        drawings["radial.png"] = draw_radial(
            names,
            scale_to_best(names, raw, lower_is_better=lower),
            raw=raw,
            scale="each axis is scaled to the better arm",
            title=f"{settings.metric}: five summaries of the curves",
        )
    return drawings


def _name_method(analysis: Analysis) -> str:
    """Return the method of the interval of the difference; proportions have their own."""
    if analysis.has_shares:
        return "Bonett and Price" if analysis.paired else "Newcombe"
    method = analysis.settings.method
    return "Student's t" if method in (Method.AUTO, Method.T) else str(method)


def _pairs_table(analysis: Analysis) -> ReportTable:
    design = analysis.design
    numbers = zip(analysis.control_R.tolist(), analysis.candidate_R.tolist(), strict=True)
    return ReportTable(
        "",
        ["pair", "seed", "control", "value", "candidate", "value", "difference"],
        [
            [
                str(index + 1),
                _format_seed(design.seeds[index]),
                design.control[index].name,
                format_number(control),
                design.candidate[index].name,
                format_number(candidate),
                format_number(candidate - control, "+"),
            ]
            for index, (control, candidate) in enumerate(numbers)
        ],
    )


def _runs_table(analysis: Analysis) -> ReportTable:
    return ReportTable(
        "",
        ["arm", "run", "seed", "value"],
        [
            [arm, loaded.name, _format_seed(loaded.run.seed), format_number(value)]
            for arm, loaded, value in _runs_with_values(analysis)
        ],
    )


def _runs_with_values(analysis: Analysis) -> Iterator[tuple[str, LoadedRun, float]]:
    design = analysis.design
    for arm, runs, values_R in (
        ("control", design.control, analysis.control_R),
        ("candidate", design.candidate, analysis.candidate_R),
    ):
        for loaded, value in zip(runs, values_R.tolist(), strict=True):
            yield arm, loaded, value


def _format_seed(seed: int | None) -> str:
    return DASH if seed is None else str(seed)


def _result_rows(analysis: Analysis) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield each result as a row of the table and as a row of the CSV."""
    controls, candidates = len(analysis.control_R), len(analysis.candidate_R)
    n = controls if analysis.paired else controls + candidates
    for arm, size, mean in (
        ("control", controls, analysis.contrast.mean_baseline),
        ("candidate", candidates, analysis.contrast.mean_candidate),
    ):
        yield (
            _estimate_row(f"mean of {arm} (n = {size})", mean),
            _csv_result("mean", arm, mean, size),
        )
    change = _csv_result("difference", "candidate - control", analysis.difference, n)
    yield _estimate_row("difference, candidate - control", analysis.difference, "+"), change
    percent = Interval(*(100 * share for share in analysis.relative))
    relative = _csv_result("difference", "relative change", analysis.relative, n)
    relative["note"] = analysis.relative_note
    yield _estimate_row("difference in % of the control", percent, "+"), relative
    for test in analysis.tests:
        exact = "exact" if test.exact else "not exact"
        yield (
            [
                f"{'exact p' if test.exact else 'p'}, {test.name}",
                _format_p_value(test.p_value),
                "",
            ],
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
            yield _estimate_row(name, effect), _csv_result("effect", name, effect, n)
    if analysis.pairing is not None:
        correlation, saved = analysis.pairing.correlation, analysis.pairing.saved
        row = _csv_result("pairing", "seed correlation", correlation, n)
        yield _estimate_row("seed correlation", correlation), row
        row = {"kind": "pairing", "name": "variance saved", "value": saved, "n": n}
        row["note"] = analysis.pairing.sentence
        yield ["variance saved by pairing", f"{100 * saved:.0f} %", ""], row
    for name, shape in analysis.normality:
        row, decides = {"kind": "normality", "n": shape.n}, "for information only"
        yield (
            [f"Shapiro-Wilk p of {name}", _format_p_value(shape.p_value), decides],
            row | {"name": f"Shapiro-Wilk of {name}", "p_value": shape.p_value},
        )
        yield (
            [f"skewness of {name}", format_number(shape.skewness), decides],
            row | {"name": f"skewness of {name}", "value": shape.skewness},
        )
    if analysis.planning is not None:
        yield from _power_rows(
            analysis.planning, "pairs" if analysis.paired else "runs per arm"
        )


def _power_rows(plan: TargetPlan, unit: str) -> Iterator[tuple[Row, dict[str, Any]]]:
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
        [f"smallest difference found with {power}", format_number(plan.detectable), ""],
        {"kind": "power", "name": "smallest difference found", "value": plan.detectable},
    )
    yield (
        [f"power for {target}", f"{share_text(plan.achieved)} %", ""],
        {**note, "name": "power at this n", "value": plan.achieved},
    )


def _estimate_row(label: str, interval: Interval, sign: str = "") -> Row:
    return [label, format_number(interval.point, sign), format_bounds(interval)]


def _csv_result(kind: str, name: str, interval: Interval, n: int) -> dict[str, Any]:
    ends = {"value": interval.point, "low": interval.low, "high": interval.high}
    return {"kind": kind, "name": name, "n": n, **ends}


def _format_p_value(value: float) -> str:
    if math.isnan(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.3g}"


def _collect_sentences(analysis: Analysis) -> Iterator[str]:
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


def _describe_design(analysis: Analysis) -> Iterator[Paragraph]:
    """Yield the look this analysis is, and the settings in which the arms differ."""
    if analysis.look is not None and analysis.look.sentence:
        yield Paragraph(analysis.look.sentence, Tone.NOTE)
    for gap in analysis.design.capacity:
        yield Paragraph(gap.sentence, Tone.WARNING)
    if differing := [
        difference for difference in analysis.contrast.design if not difference.confounds
    ]:
        yield Paragraph(
            f"Differences in settings: {describe_differences(differing)}.", Tone.NOTE
        )


def _plan_section(deviations: Sequence[str] | None) -> Iterator[Section]:
    if deviations:
        title = f"Deviations from the plan: {len(deviations)}"
        yield Section("Plan", [Items(deviations, title)])
    elif deviations is not None:
        yield Section("Plan", [Paragraph("The analysis follows its plan.")])


def _json_values(analysis: Analysis, deviations: Sequence[str] | None) -> dict[str, Any]:
    design, settings = analysis.design, analysis.settings
    arms: dict[str, list[dict[str, Any]]] = {"control": [], "candidate": []}
    for arm, loaded, value in _runs_with_values(analysis):
        arms[arm].append({**run_values(loaded), "value": value})
    planning = analysis.planning
    return {
        "metric": settings.metric,
        "summary": describe_summary(settings.summary),
        "paired": design.paired,
        "n": {arm: len(runs) for arm, runs in arms.items()},
        "verdict": {"word": analysis.verdict.value, "sentence": analysis.sentence},
        "look": analysis.look and _look_values(analysis.look),
        "control": {
            "mean": to_json_value(analysis.contrast.mean_baseline),
            "runs": arms["control"],
        },
        "candidate": {
            "mean": to_json_value(analysis.contrast.mean_candidate),
            "runs": arms["candidate"],
        },
        "seeds": list(design.seeds) if design.paired else None,
        "difference": to_json_value(analysis.difference),
        "relative_change": to_json_value(analysis.relative),
        "tests": to_json_value(analysis.tests),
        "effects": to_json_value(analysis.effects),
        "pairing": to_json_value(analysis.pairing),
        "normality": to_json_value(dict(analysis.normality)),
        "power": planning
        and {**to_json_value(planning), "needed": needed_values(planning.needed)},
        "radial": to_json_value(analysis.radial),
        "left_out": to_json_value(design.unusable),
        "differences": to_json_value(analysis.contrast.design),
        "capacity": [
            {**to_json_value(gap), "sentence": gap.sentence} for gap in design.capacity
        ],
        "warnings": list(design.warnings),
        "notes": [*design.notes, *analysis.notes],
        "plan_deviations": None if deviations is None else list(deviations),
        "settings": settings.as_dict(),
        "generator_seed": settings.seed,
        "versions": software_versions(),
    }


def _look_values(look: AnalysisLook) -> dict[str, Any]:
    return {
        "number": look.number,
        "rule": look.rule.value,
        "planned": list(look.planned),
        "earlier": [
            {
                "n": {"control": len(earlier.control), "candidate": len(earlier.candidate)},
                "looked_at": to_json_value(earlier.looked_at),
                "alpha": earlier.alpha,
                "verdict": earlier.verdict,
                "plan": earlier.plan,
            }
            for earlier in look.earlier
        ],
        "alpha": look.alpha,
        "error_of_all_looks": look.error,
        "recorded": look.unrecorded is None,
        "sentence": look.sentence,
    }


def _csv_rows(analysis: Analysis, deviations: Sequence[str] | None) -> list[dict[str, Any]]:
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
        **{f"analysed_by_{name}": value for name, value in software_versions().items()},
        "settings": _dump_json(settings.as_dict()),
    }
    results = (row for _, row in _result_rows(analysis))
    rows = (*_csv_run_rows(analysis), *results, *_csv_text_rows(analysis, deviations))
    return [{**dict.fromkeys(_COLUMNS), **row, **common} for row in rows]


def _csv_run_rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    counts = {"control": 0, "candidate": 0}
    for arm, loaded, value in _runs_with_values(analysis):
        counts[arm] += 1
        run = loaded.run
        yield {
            "kind": "run",
            "name": "summary",
            "arm": arm,
            "pair": counts[arm] if analysis.paired else None,
            "run": loaded.name,
            "run_id": run.id,
            "seed": run.seed,
            "value": value,
            "run_source": run.source,
            "run_commit": run.commit,
            "run_configuration": _dump_json(run.configuration),
            "run_provenance": _dump_json(run.provenance),
        }


def _csv_text_rows(
    analysis: Analysis, deviations: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    design = analysis.design
    yield {"kind": "verdict", "name": analysis.verdict.value, "note": analysis.sentence}
    if analysis.look is not None and analysis.look.sentence:
        details = {"value": analysis.look.alpha, "note": analysis.look.sentence}
        yield {"kind": "look", "name": analysis.look.rule.value, **details}
    for run in design.unusable:
        details = {"run": run.name, "seed": run.seed, "note": run.reason}
        yield {"kind": "left out", "name": "run", **details}
    for gap in design.capacity:
        yield {"kind": "capacity", "name": gap.name, "note": gap.sentence}
    for text in (*design.warnings, *design.notes, *analysis.notes):
        yield {"kind": "note", "note": text}
    for text in deviations or ():
        yield {"kind": "deviation", "name": "from the plan", "note": text}


def _dump_json(value: Any) -> str | None:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else None
