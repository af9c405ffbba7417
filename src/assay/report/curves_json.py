"""What was found about training runs, as plain values for programs.

A number that is not known, or not finite, is None: JSON has no other word for it.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from assay.curves.analysis import Analysis
from assay.curves.gather import FoundRun, Gathered
from assay.curves.settings import describe_summary
from assay.curves.variance import (
    WHY_THE_RULE_MISLEADS,
    SummaryVariance,
    VarianceSettings,
)
from assay.report.comparison.origin import versions
from assay.stats.intervals import Interval
from assay.stats.planning import Needed

__all__ = ["analysis_json", "known", "variance_json"]


def variance_json(
    gathered: Gathered, found: Sequence[SummaryVariance], settings: VarianceSettings
) -> dict[str, Any]:
    """The result of `assay variance`."""
    return {
        "metric": gathered.metric,
        "threshold": settings.threshold,
        "runs": [_run(one) for one in gathered.runs],
        "left_out": [asdict(one) for one in gathered.unusable],
        "summaries": {one.name.lower(): _summary(one) for one in found},
        "power": settings.power,
        "alpha": settings.alpha,
        "supposed_correlation": settings.correlation,
        "why_the_rule_misleads": WHY_THE_RULE_MISLEADS,
        "notes": list(gathered.notes),
        "versions": versions(),
    }


def analysis_json(found: Analysis, deviations: Sequence[str] | None = None) -> dict[str, Any]:
    """The result of `assay analysis`; deviations are None where there is no plan."""
    design, settings = found.design, found.settings
    return {
        "metric": settings.metric,
        "summary": describe_summary(settings.summary),
        "paired": design.paired,
        "n": {"control": len(design.control), "candidate": len(design.candidate)},
        "verdict": {"word": found.verdict.value, "sentence": found.sentence},
        "control": _arm(design.control, found.control_R.tolist(), found.control),
        "candidate": _arm(design.candidate, found.candidate_R.tolist(), found.candidate),
        "seeds": list(design.seeds) if design.paired else None,
        "difference": _interval(found.difference),
        "relative_change": _interval(found.relative),
        "tests": [{**one._asdict(), "statistic": known(one.statistic)} for one in found.tests],
        "effects": {name: _interval(one) for name, one in found.effects},
        "pairing": _pairing(found),
        "normality": {
            name: {name_: known(value) for name_, value in one._asdict().items()}
            for name, one in found.normality
        },
        "power": _planning(found),
        "radial": [asdict(axis) for axis in found.radial],
        "left_out": [asdict(one) for one in design.unusable],
        "warnings": list(design.warnings),
        "notes": [*design.notes, *found.notes],
        "plan_deviations": None if deviations is None else list(deviations),
        "settings": settings.as_dict(),
        "generator_seed": settings.seed,
        "versions": versions(),
    }


def known(value: float | int | None) -> float | int | None:
    """A number as JSON has it: None where it is NaN or infinite."""
    return None if value is None or not math.isfinite(value) else value


def _interval(interval: Interval) -> dict[str, float | None]:
    return {name: known(value) for name, value in interval._asdict().items()}


def _needed(needed: Needed | None) -> dict[str, Any] | None:
    if needed is None:
        return None
    return {"n": needed.trials, "low": needed.low, "high": needed.high, "level": needed.level}


def _summary(one: SummaryVariance) -> dict[str, Any]:
    return {
        "summary": describe_summary(one.summary),
        "values": one.values_R.tolist(),
        "mean": one.mean,
        "sd": one.sd,
        "plain_rule_n": one.rule_n,
        "relative_standard_error": _interval(one.error),
        "n_for_precision": _needed(one.precision),
        "n_two_arms": _needed(one.two_arms),
        "n_paired": _needed(one.paired),
        "note": one.note,
    }


def _run(one: FoundRun) -> dict[str, Any]:
    run = one.run
    return {
        "name": one.name,
        "id": run.id,
        "seed": run.seed,
        "subject": run.subject,
        "source": run.source,
        "commit": run.commit,
        "configuration": dict(run.configuration),
        "provenance": dict(run.provenance),
        "points": len(one.curve),
        "dropped": one.curve.dropped,
        "repeated": one.curve.repeated,
    }


def _arm(runs: Sequence[FoundRun], values: Sequence[float], mean: Interval) -> dict[str, Any]:
    rows = [{**_run(one), "value": value} for one, value in zip(runs, values, strict=True)]
    return {"mean": _interval(mean), "runs": rows}


def _pairing(found: Analysis) -> dict[str, Any] | None:
    if found.pairing is None:
        return None
    return {**asdict(found.pairing), "correlation": _interval(found.pairing.correlation)}


def _planning(found: Analysis) -> dict[str, Any] | None:
    if found.planning is None:
        return None
    return {**asdict(found.planning), "needed": _needed(found.planning.needed)}
