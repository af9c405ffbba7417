"""A plan of an analysis, written before the data is seen, and how an analysis kept to it.

A plan is a TOML or JSON file with `metric`, `[summary]`, `[test]`, `alpha` and `n`; its hash is
of what it means, defaults included, so that neither spaces nor the order of keys change it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay._util.canonical import canonical_json, content_hash
from assay.curves.fields import check_unicode
from assay.curves.settings import AnalysisSettings, make_settings
from assay.errors import UsageError
from assay.experiments.plans import (
    StoredPlan,
    check_plan_keys,
    history_of,
    read_plan_file,
)
from assay.stats.learning import SummarySpec

__all__ = ["AnalysisPlan", "deviations", "read_plan"]

_TOP = ("metric", "summary", "test", "alpha", "n", "paired", "note")
_TEST = ("method", "side")
_SUMMARY = tuple(SummarySpec.__dataclass_fields__)
_NUMBER = (int, float)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "metric": (str,),
    "summary": (dict,),
    "test": (dict,),
    "alpha": _NUMBER,
    "n": (int,),
    "paired": (bool,),
    "note": (str,),
    "method": (str,),
    "side": (str,),
    "type": (str,),
    "percent": _NUMBER,
    "percent_window": (str,),
    "step_min": _NUMBER,
    "step_max": _NUMBER,
    "normalize_steps": (bool,),
    "threshold": _NUMBER,
    "falling": (bool,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisPlan:
    """What somebody will test, and how."""

    metric: str
    summary: SummarySpec
    method: str
    side: str
    alpha: float
    n: int
    """Pairs, or runs of each arm."""
    paired: bool | None
    """Whether runs are compared pair by pair; None if the plan does not say."""
    note: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        """What it means, as plain values."""
        return asdict(self)

    @property
    def hash(self) -> str:
        """The name of the plan: a hash of what it means."""
        return content_hash(canonical_json(self.content))


def read_plan(path: Path) -> AnalysisPlan:
    """The plan in a file.

    Raises:
        UsageError: The file cannot be read, or is no plan.
    """

    def make(found: Any) -> AnalysisPlan:
        check_unicode("text", json.dumps(found, ensure_ascii=False, default=str))
        return _plan(found)

    return read_plan_file(path, make)


def deviations(
    plan: AnalysisPlan,
    settings: AnalysisSettings,
    *,
    paired: bool,
    n: tuple[int, int],
    run_ids: Iterable[str],
    from_files: int,
    stored: StoredPlan | None,
) -> list[str]:
    """In what an analysis differs from its plan, in sentences.

    Args:
        plan: The plan.
        settings: What was done.
        paired: Whether runs were compared pair by pair.
        n: Runs of the control and the candidate that were used.
        run_ids: The runs of the store that were used.
        from_files: How many runs came from files.
        stored: The plan as it was registered, if it was.
    """
    found = [
        f"{what}: the plan says {_said(planned)}, the analysis did {_said(done)}"
        for what, planned, done in _compared(plan, settings)
        if planned != done
    ]
    if plan.paired is not None and plan.paired != paired:
        words = {True: "paired", False: "unpaired"}
        found.append(f"design: the plan says {words[plan.paired]}, this is {words[paired]}")
    if set(n) != {plan.n}:
        unit = "pairs" if paired else "runs per arm"
        done = str(n[0]) if n[0] == n[1] else f"{n[0]} and {n[1]}"
        found.append(f"n: the plan says {plan.n} {unit}, there are {done}")
    return found + history_of(
        stored, list(run_ids), from_files, what="runs", command="assay analysis"
    )


def _said(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _compared(plan: AnalysisPlan, settings: AnalysisSettings) -> list[tuple[str, Any, Any]]:
    planned, done = asdict(plan.summary), asdict(settings.summary)
    return [
        ("metric", plan.metric, settings.metric),
        *((f"summary.{name}", planned[name], done[name]) for name in _SUMMARY),
        ("method", plan.method, str(settings.method)),
        ("side", plan.side, str(settings.side)),
        ("alpha", plan.alpha, settings.alpha),
    ]


def _plan(found: Any) -> AnalysisPlan:
    for above, names in (("", _TOP), ("summary.", _SUMMARY), ("test.", _TEST)):
        table = found.get(above[:-1], {}) if above else found
        check_plan_keys(above, table, {name: _KINDS[name] for name in names})
    for name in ("metric", "n"):
        if name not in found:
            raise UsageError(f"{name} is missing; a plan has metric and n at least")
    if found["n"] < 2:
        raise UsageError(f"n is {found['n']}; an analysis takes 2 runs or more")
    test = found.get("test", {})
    settled = make_settings(
        {"metric": found["metric"], "alpha": found.get("alpha"), **test},
        found.get("summary", {}),
    )
    return AnalysisPlan(
        metric=settled.metric,
        summary=settled.summary,
        method=str(settled.method),
        side=str(settled.side),
        alpha=float(settled.alpha),
        n=found["n"],
        paired=found.get("paired"),
        note=found.get("note"),
    )
