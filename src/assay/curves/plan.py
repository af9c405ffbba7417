"""A plan of an analysis, written before the data is seen, and how an analysis kept to it.

A plan is a TOML or JSON file with `metric`, `[summary]`, `[test]`, `alpha`, `n` and `looks`;
its hash is of what it means, defaults included, so that neither spaces nor the order of keys
change it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay._util.canonical import canonical_json, content_hash
from assay._util.names import unknown_name
from assay._util.text import counted
from assay.curves.fields import check_unicode
from assay.curves.settings import AnalysisSettings, make_settings
from assay.errors import UsageError
from assay.judge.looks import RecordedLook
from assay.judge.plans import StoredPlan, check_plan_keys, history_of, read_plan_file
from assay.stats.learning import SummarySpec
from assay.stats.means import Side
from assay.stats.spending import Spending
from assay.stats.t_bounds import EXACT_TO, LARGEST_ALPHA

__all__ = ["AnalysisPlan", "deviations", "read_plan"]

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
    looks: tuple[int, ...] = ()
    """After how many pairs, or runs of each arm, it is analysed, `n` last; none: once."""
    boundary: str = Spending.OBRIEN_FLEMING.value
    """How its looks share alpha."""

    @property
    def content(self) -> dict[str, Any]:
        """What it means, as plain values; what is about looks only where it has some."""
        found = asdict(self)
        looks, boundary = list(found.pop("looks")), found.pop("boundary")
        return {**found, "looks": looks, "boundary": boundary} if looks else found

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
    earlier: Sequence[RecordedLook] = (),
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
        earlier: Looks at the same comparison before this one.
    """
    found = [
        f"{what}: the plan says {_said(planned)}, the analysis did {_said(done)}"
        for what, planned, done in _compared(plan, settings)
        if planned != done
    ]
    if plan.paired is not None and plan.paired != paired:
        words = {True: "paired", False: "unpaired"}
        found.append(f"design: the plan says {words[plan.paired]}, this is {words[paired]}")
    allowed = plan.looks or (plan.n,)
    if n[0] != n[1] or n[0] not in allowed:
        unit = "pairs" if paired else "runs per arm"
        done = str(n[0]) if n[0] == n[1] else f"{n[0]} and {n[1]}"
        said = " or ".join(map(str, allowed))
        found.append(f"n: the plan says {said} {unit}, there are {done}")
    if outside := [look for look in earlier if plan.looks and look.plan != plan.hash]:
        found.append(
            f"looks: {counted(len(outside), 'look')} at these runs before this one did not go"
            " by the plan, so that this one cannot either"
        )
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
