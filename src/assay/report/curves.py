"""What the reports of training runs share: runs and numbers as text and for programs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from assay.curves.gather import FoundRun, Unusable
from assay.report.document import Items, Section
from assay.report.numbers import DASH
from assay.stats.intervals import Interval
from assay.stats.planning import Needed

__all__ = [
    "left_out",
    "needed_values",
    "number",
    "run_sources",
    "run_values",
    "span",
]


def number(value: float, sign: str = "") -> str:
    """A number with four digits that count."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    # Adding zero takes the sign from a zero.
    return f"{value + 0.0:{sign}.4g}"


def span(interval: Interval) -> str:
    """The bounds of an interval."""
    if not interval.known:
        return "not known"
    return f"{number(interval.low)} to {number(interval.high)}"


def left_out(unusable: Sequence[Unusable]) -> Iterator[Section]:
    """The runs that were named and not used, where there are some."""
    if unusable:
        reasons = [f"{run.name}: {run.reason}" for run in unusable]
        yield Section("Not used", [Items(reasons, f"Left out: {len(unusable)} runs")])


def run_sources(runs: Iterable[FoundRun]) -> Iterator[tuple[str, str]]:
    """Where each run comes from."""
    for found in runs:
        run = found.run
        parts = [run.source, f"id {run.id}"]
        parts += [f"seed {run.seed}"] if run.seed is not None else []
        parts += [f"commit {run.commit}"] if run.commit else []
        yield found.name, ", ".join(filter(None, parts))


def run_values(used: FoundRun) -> dict[str, Any]:
    """A run for a program to read."""
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
    """A number of runs and its range for a program to read."""
    if needed is None:
        return None
    return {"n": needed.trials, "low": needed.low, "high": needed.high, "level": needed.level}
