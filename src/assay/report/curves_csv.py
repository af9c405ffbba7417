"""An analysis of training runs as CSV: a row per run and per result.

There is one head. Every row says what made it, so that a row taken out of its file can still
be traced; no cell is a formula to a spreadsheet.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from assay.curves.analysis import Analysis
from assay.curves.gather import FoundRun
from assay.curves.settings import describe_summary
from assay.report.comparison.origin import versions
from assay.report.comparison.tabular import safe
from assay.stats.intervals import Interval

__all__ = ["analysis_csv"]

_Row = dict[str, Any]


def analysis_csv(found: Analysis, deviations: Sequence[str] | None = None) -> str:
    """Runs first, then results, then what was left out and what should be known."""
    common = _common(found)
    rows = [{**_EMPTY, **row, **common} for row in _rows(found, deviations)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([safe(cell) for cell in row.values()] for row in rows)
    return stream.getvalue()


_EMPTY: _Row = dict.fromkeys(
    (
        *("kind", "name", "arm", "pair", "run", "run_id", "seed", "value", "low", "high"),
        *("p_value", "n", "note", "run_source", "run_commit", "run_configuration"),
        "run_provenance",
    )
)


def _rows(found: Analysis, deviations: Sequence[str] | None) -> Iterator[_Row]:
    design = found.design
    for arm, runs, values in (
        ("control", design.control, found.control_R),
        ("candidate", design.candidate, found.candidate_R),
    ):
        for at, (one, value) in enumerate(zip(runs, values.tolist(), strict=True)):
            pair = at + 1 if design.paired else None
            yield {"kind": "run", "name": "summary", "pair": pair, "value": value} | _of(
                one, arm
            )
    n = len(design.control) if design.paired else len(design.control) + len(design.candidate)
    yield _result("mean", "control", found.control, len(design.control))
    yield _result("mean", "candidate", found.candidate, len(design.candidate))
    yield _result("difference", "candidate - control", found.difference, n)
    yield _result("difference", "relative change", found.relative, n) | {
        "note": found.relative_note
    }
    for test in found.tests:
        exact = "exact" if test.exact else "not exact"
        yield {
            "kind": "test",
            "name": test.name,
            "value": test.statistic,
            "p_value": test.p_value,
            "n": test.n,
            "note": f"{exact}; {test.note}" if test.note else exact,
        }
    for name, interval in found.effects:
        yield _result("effect", name, interval, n)
    if found.pairing is not None:
        yield _result("pairing", "seed correlation", found.pairing.correlation, n)
        yield {
            "kind": "pairing",
            "name": "variance saved",
            "value": found.pairing.saved,
            "n": n,
            "note": found.pairing.sentence,
        }
    for name, shape in found.normality:
        row = {"kind": "normality", "n": shape.n}
        yield row | {"name": f"Shapiro-Wilk of {name}", "p_value": shape.p_value}
        yield row | {"name": f"skewness of {name}", "value": shape.skewness}
    yield from _planning(found)
    yield from _words(found, deviations)


def _planning(found: Analysis) -> Iterator[_Row]:
    if found.planning is None:
        return
    plan, unit = found.planning, "pairs" if found.paired else "runs per arm"
    note = f"for a difference of {plan.target:g} with power {plan.power:g}"
    yield {
        "kind": "power",
        "name": f"{unit} needed",
        "value": plan.needed.trials,
        "low": plan.needed.low,
        "high": plan.needed.high,
        "note": note,
    }
    yield {"kind": "power", "name": "smallest difference found", "value": plan.detectable}
    yield {"kind": "power", "name": "power at this n", "value": plan.achieved, "note": note}


def _words(found: Analysis, deviations: Sequence[str] | None) -> Iterator[_Row]:
    yield {"kind": "verdict", "name": found.verdict.value, "note": found.sentence}
    for one in found.design.unusable:
        yield {
            "kind": "left out",
            "name": "run",
            "run": one.name,
            "seed": one.seed,
            "note": one.reason,
        }
    for text in (*found.design.warnings, *found.design.notes, *found.notes):
        yield {"kind": "note", "note": text}
    for text in deviations or ():
        yield {"kind": "deviation", "name": "from the plan", "note": text}


def _of(one: FoundRun, arm: str) -> _Row:
    return {
        "arm": arm,
        "run": one.name,
        "run_id": one.run.id,
        "seed": one.run.seed,
        "run_source": one.run.source,
        "run_commit": one.run.commit,
        "run_configuration": _json(one.run.configuration),
        "run_provenance": _json(one.run.provenance),
    }


def _result(kind: str, name: str, interval: Interval, n: int) -> _Row:
    row = {"kind": kind, "name": name, "n": n}
    return row | {"value": interval.point, "low": interval.low, "high": interval.high}


def _common(found: Analysis) -> _Row:
    settings = found.settings
    return {
        "metric": settings.metric,
        "summary": describe_summary(settings.summary),
        "paired": found.paired,
        "method": str(settings.method),
        "side": str(settings.side),
        "alpha": settings.alpha,
        "n_resamples": settings.n_resamples,
        "generator_seed": settings.seed,
        **{f"analysed_by_{name}": value for name, value in versions().items()},
        "settings": _json(settings.as_dict()),
    }


def _json(value: Any) -> str | None:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else None
