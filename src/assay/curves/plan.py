"""The file with the plan of an analysis.

A plan is a TOML or JSON file with `metric`, `[summary]`, `[test]`, `alpha`, `n` and `looks`;
its hash is of what it means, defaults included, so that neither spaces nor the order of keys
change it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay._util.names import unknown_name
from assay._util.text import check_unicode
from assay.curves.settings import AnalysisSettings, make_settings
from assay.errors import UsageError
from assay.judge.plans import AnalysisPlan, check_plan_keys, read_plan_file
from assay.stats.learning import SummarySpec
from assay.stats.means import Side
from assay.stats.spending import Spending
from assay.stats.t_bounds import EXACT_TO, LARGEST_ALPHA

__all__ = ["read_plan"]

_TOP = ("metric", "summary", "test", "alpha", "n", "looks", "paired", "note")
_TEST = ("method", "side", "boundary")
_FIRST_LOOK = EXACT_TO // 2
"""The latest; two groups of so many can still be followed."""
_SUMMARY = tuple(SummarySpec.__dataclass_fields__)
_NUMBER = (int, float)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "metric": (str,),
    "summary": (dict,),
    "test": (dict,),
    "alpha": _NUMBER,
    "n": (int,),
    "looks": (list,),
    "boundary": (str,),
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


def read_plan(path: Path) -> AnalysisPlan:
    """The plan in a file.

    Raises:
        UsageError: The file cannot be read, or is no plan.
    """

    def make(found: Any) -> AnalysisPlan:
        check_unicode("text", json.dumps(found, ensure_ascii=False, default=str))
        return _plan(found)

    return read_plan_file(path, make)


def _plan(found: Any) -> AnalysisPlan:
    for above, names in (("", _TOP), ("summary.", _SUMMARY), ("test.", _TEST)):
        table = found.get(above[:-1], {}) if above else found
        check_plan_keys(above, table, {name: _KINDS[name] for name in names})
    for name in ("metric", "n"):
        if name not in found:
            raise UsageError(f"{name} is missing; a plan has metric and n at least")
    if found["n"] < 2:
        raise UsageError(f"n is {found['n']}; an analysis takes 2 runs or more")
    test = dict(found.get("test", {}))
    boundary = test.pop("boundary", Spending.OBRIEN_FLEMING.value)
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
        looks=_looks(found, settled),
        boundary=_boundary(boundary),
    )


def _boundary(name: str) -> str:
    try:
        return Spending(name).value
    except ValueError:
        raise UsageError(unknown_name("test.boundary", name, list(Spending))) from None


def _looks(found: Mapping[str, Any], settings: AnalysisSettings) -> tuple[int, ...]:
    looks = found.get("looks", [])
    if not looks:
        return ()
    rising = all(type(look) is int for look in looks) and looks == sorted(set(looks))
    if not (rising and 3 <= looks[0] <= _FIRST_LOOK and looks[-1] == found["n"]):
        raise UsageError(
            f"looks is {looks}; give after how many pairs you look, such as [15, {found['n']}]:"
            f" rising, from 3 to {_FIRST_LOOK} at first, and n, which is {found['n']}, last"
        )
    most = LARGEST_ALPHA if settings.side is Side.TWO_SIDED else LARGEST_ALPHA / 2
    if settings.alpha > most:
        raise UsageError(
            f"alpha {settings.alpha:g} is too much to share among looks; give {most:g} at most"
        )
    return tuple(looks)
