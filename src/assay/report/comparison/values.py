"""A comparison as plain values, for JSON. What is not known is null."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from assay.judge.facts import Comparison, Contrast, SubjectFacts
from assay.report.comparison.origin import configuration, versions
from assay.report.comparison.words import answers
from assay.stats.intervals import Interval

__all__ = [
    "COMPARISON_FORMAT",
    "as_values",
    "contrast_values",
    "interval_columns",
    "jsonable",
]

COMPARISON_FORMAT: Final = "assay-comparison/1"
"""What the field `format` of every comparison says."""


def as_values(comparison: Comparison) -> dict[str, Any]:
    """Everything a comparison found, for a program to read."""
    return {
        "format": COMPARISON_FORMAT,
        "made": versions(),
        "configuration": configuration(comparison.setup),
        "answers": [_answers(comparison, one) for one in comparison.decisive],
        "subjects": [_subject(one) for one in comparison.subjects],
        "contrasts": [contrast_values(contrast) for contrast in comparison.contrasts],
        "standings": comparison.standings
        and {
            "pairs": [contrast_values(pair) for pair in comparison.standings.pairs],
            "order": jsonable(comparison.standings.order),
        },
        "instances": jsonable(comparison.instances),
        "scores": jsonable(comparison.scores),
        "notes": list(comparison.notes),
        "left_out": dict(comparison.left_out),
    }


def interval_columns(name: str, interval: Interval) -> dict[str, float]:
    """An interval as three columns."""
    return {
        name: interval.point,
        f"{name}_low": interval.low,
        f"{name}_high": interval.high,
    }


def jsonable(value: Any) -> Any:
    """A value of ours as JSON has it: fields by name, what is not finite as null."""
    if isinstance(value, Interval):
        return {"point": _finite(value[0]), "low": _finite(value[1]), "high": _finite(value[2])}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, Mapping):
        return {str(name): jsonable(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: jsonable(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _answers(comparison: Comparison, one: Contrast) -> dict[str, Any]:
    return {
        "candidate": one.candidate,
        "verdict": one.verdict.value,
        "lines": [each._asdict() for each in answers(comparison, one)],
    }


def _subject(facts: SubjectFacts) -> dict[str, Any]:
    subject = facts.subject
    kept = ("id", "name", "model", "series", "version", "run_id", "created_at", "commit")
    return {
        **{name: jsonable(getattr(subject, name)) for name in kept},
        "note": subject.note,
        "source": subject.source,
        "judged": facts.judged,
        "results": facts.results,
        "failures": facts.failures,
        "infrastructure": facts.infrastructure,
        "metrics": jsonable(facts.metrics),
        "whole": jsonable(facts.whole),
    }


def contrast_values(contrast: Contrast) -> dict[str, Any]:
    """One comparison; with several tasks, `units` says what it rests on."""
    found: dict[str, Any] = jsonable(contrast)
    found["pairs"] = [{**row._asdict(), "difference": row.difference} for row in contrast.pairs]
    if contrast.units.tasks < 2:
        del found["units"]
    return found
