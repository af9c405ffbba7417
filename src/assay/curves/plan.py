"""A plan of an analysis, written before the data is seen, and how an analysis kept to it.

A plan is a TOML or JSON file with `metric`, `[summary]`, `[test]`, `alpha` and `n`; its hash is
of what it means, defaults included, so that neither spaces nor the order of keys change it.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay._util.canonical import canonical_json, content_hash
from assay._util.names import unknown_name
from assay._util.text import printable
from assay.curves.fields import check_unicode
from assay.curves.settings import AnalysisSettings, make_settings
from assay.errors import UsageError
from assay.experiments.plans import StoredPlan
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
    name = repr(printable(str(path)))
    try:
        text = path.read_bytes().decode()
        found = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"plan {name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"plan {name} cannot be read: {error}") from error
    try:
        check_unicode("text", json.dumps(found, ensure_ascii=False, default=str))
        return _plan(found)
    except UsageError as error:
        raise UsageError(f"plan {name}: {error}") from error


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
    return found + _history(stored, run_ids, from_files)


def _said(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _history(stored: StoredPlan | None, run_ids: Iterable[str], from_files: int) -> list[str]:
    if stored is None:
        return [
            "the plan was never registered as it is, so nothing says that it came before the "
            "data; 'assay analysis --plan FILE --register' does that, and a plan that is "
            "changed later is another"
        ]
    found = []
    if early := sorted(set(run_ids) & set(stored.seen)):
        found.append(
            f"{len(early)} of the runs were in the store when the plan was registered: "
            + _some(early)
        )
    if from_files:
        found.append(
            f"{from_files} runs come from files, of which nobody knows when they were seen; "
            "import runs into the store after registering"
        )
    return found


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
    _check_keys("", found, _TOP)
    for name, allowed in (("summary", _SUMMARY), ("test", _TEST)):
        _check_keys(f"{name}.", found.get(name, {}), allowed)
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


def _check_keys(above: str, found: Any, allowed: Sequence[str]) -> None:
    if not isinstance(found, dict):
        raise UsageError(f"{above or 'the plan'} is a table of settings")
    for name, value in found.items():
        if name not in allowed:
            raise UsageError(unknown_name("setting", f"{above}{name}", allowed))
        kinds = (int,) if name == "n" else _KINDS[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            words = _WORDS[kinds[-1]]
            raise UsageError(f"{above}{name} is {value!r}; give {words}")


_WORDS = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
