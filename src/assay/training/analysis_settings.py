"""Settings of an analysis, resolved from user options, a plan file and defaults.

User options override the plan, and the plan overrides the defaults. A difference from the plan
is reported as a deviation. Only `read_plan` reads a file, and nothing here uses data.

A plan is a TOML or JSON file with `metric`, `[summary]`, `[test]`, `alpha`, `n` and `looks`.
Its hash covers the resolved values, defaults included, so that whitespace and the order of keys
do not change it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from assay.core.text import check_unicode, unknown_name
from assay.errors import UsageError
from assay.judge.plans import AnalysisPlan, check_plan_keys, read_plan_file
from assay.stats.intervals import Method, Side
from assay.stats.learning_curves import DEFAULT_PERCENT, PercentWindow, Summary, SummarySpec
from assay.stats.look_bounds import EXACT_TO, LARGEST_ALPHA, Spending

DEFAULT_METRIC = "overview/reward"
"""The metric that is analysed by default."""
_LEAST_ALPHA = 1e-12
"""Smallest alpha; below it, 1 - alpha rounds to 1."""
_MOST_RESAMPLES = 10_000_000


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """Settings that determine the result of an analysis of given runs."""

    metric: str = DEFAULT_METRIC
    summary: SummarySpec = field(default_factory=lambda: make_summary({}))
    method: Method = Method.AUTO
    """Method for the interval of the difference."""
    side: Side = Side.TWO_SIDED
    alpha: float = 0.05
    """One minus the confidence level."""
    n_resamples: int = 10_000
    seed: int = 0
    """Seed of the generator of all resamples."""
    ttest: bool = False
    """Whether to report t tests in addition to the exact test."""
    power: bool = False
    """Whether to compute the runs needed and the smallest detectable difference."""
    target_effect_size: float = 0.2
    """Difference to detect, in the unit of the summary."""
    target_power: float = 0.8
    """Probability of detecting it."""

    @property
    def level(self) -> float:
        """Confidence level of the intervals."""
        return 1 - self.alpha

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as plain values, for records."""
        return asdict(self)


def make_settings(
    given: Mapping[str, Any], summary: Mapping[str, Any], plan: Mapping[str, Any] | None = None
) -> AnalysisSettings:
    """Resolve the settings from user options, a plan and defaults.

    Args:
        given: User options by the field names of `AnalysisSettings`; None means not given.
        summary: User options by the field names of `SummarySpec`; None means not given.
        plan: Settings of a plan by field name, with its summary under `summary`.

    Raises:
        UsageError: A value is not allowed.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    own = {name: value for name, value in summary.items() if value is not None}
    if plan is not None:
        names = {each.name for each in fields(AnalysisSettings)} - {"summary"}
        planned = {k: v for k, v in plan.items() if k in names and v is not None}
        chosen = {**planned, **chosen}
        own = merge_summaries(plan["summary"], own)
    chosen["method"] = _one_of(Method, "bootstrap.method", chosen.get("method", "auto"))
    chosen["side"] = _one_of(Side, "bootstrap.side", chosen.get("side", "two-sided"))
    settled = AnalysisSettings(**chosen, summary=make_summary(own))
    _check(settled)
    return settled


def make_summary(given: Mapping[str, Any]) -> SummarySpec:
    """Create a summary from given settings; an AUC defaults to the last quarter."""
    chosen = {name: value for name, value in given.items() if value is not None}
    kind = _one_of(Summary, "summary.type", chosen.get("type", "auc"))
    windowed = any(name in chosen for name in ("percent", "step_min", "step_max"))
    if kind is Summary.AUC and not windowed:
        chosen["percent"] = DEFAULT_PERCENT
    if "percent_window" in chosen and "percent" not in chosen:
        raise UsageError(
            f"summary.percent_window {chosen['percent_window']} says from which end a share of "
            "the steps is taken, and there is no share; give summary.percent, or leave it out"
        )
    where = _one_of(
        PercentWindow, "summary.percent_window", chosen.get("percent_window", "last")
    )
    if kind is Summary.TIME_TO_THRESHOLD and chosen.get("threshold") is None:
        raise UsageError(
            "summary.type time_to_threshold waits for a value; give --summary.threshold"
        )
    return SummarySpec(**{**chosen, "type": kind, "percent_window": where})


def merge_summaries(planned: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary settings of a plan, overridden by the given ones."""
    kept = {name: value for name, value in planned.items() if value is not None}
    if given.get("type", kept.get("type")) != kept.get("type"):
        # The window of one kind of summary does not apply to another.
        kept = {}
    bounds = {"step_min", "step_max"}
    if "percent" in given:
        kept = {name: value for name, value in kept.items() if name not in bounds}
    if bounds & given.keys():
        kept.pop("percent", None)
    if "percent" not in kept and "percent" not in given:
        kept.pop("percent_window", None)
    return {**kept, **given}


def describe_summary(spec: SummarySpec) -> str:
    """Describe a summary and its window in words."""
    match spec.type:
        case Summary.AUC:
            what = "mean by step" if spec.normalize_steps else "area below the curve"
            what = f"AUC ({what})"
        case Summary.LAST_N:
            what = f"mean of the last {spec.n} points"
        case Summary.FINAL:
            what = "final value"
        case Summary.SLOPE:
            what = "slope per step"
        case Summary.TIME_TO_THRESHOLD:
            beyond = "down to" if spec.falling else "to"
            what = f"steps {beyond} {spec.threshold:g}"
    if spec.percent is not None:
        return f"{what} over the {spec.percent_window} {spec.percent:.4g} of the steps"
    if spec.step_min is not None or spec.step_max is not None:
        low = "the start" if spec.step_min is None else f"step {spec.step_min:.12g}"
        high = "the end" if spec.step_max is None else f"step {spec.step_max:.12g}"
        return f"{what} from {low} to {high}"
    return f"{what} of the whole curve"


def _one_of(kind: Any, what: str, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(unknown_name(what, str(value), kind)) from None


def _check(settings: AnalysisSettings) -> None:
    if not _LEAST_ALPHA <= settings.alpha < 1:
        raise UsageError(
            f"alpha {settings.alpha!r} is not between {_LEAST_ALPHA:g} and 1; 0.05 is usual"
        )
    if not 0 < settings.target_power < 1:
        raise UsageError(
            f"power {settings.target_power!r} is not between 0 and 1; 0.8 is usual"
        )
    if not (math.isfinite(settings.target_effect_size) and settings.target_effect_size > 0):
        raise UsageError(
            f"power.target_effect_size {settings.target_effect_size!r} is no difference; give "
            "a number above 0 in the unit of the summary"
        )
    if settings.seed < 0:
        raise UsageError(f"bootstrap.seed {settings.seed} is negative; give 0 or more")
    if not 100 <= settings.n_resamples <= _MOST_RESAMPLES:
        few = "few" if settings.n_resamples < 100 else "many"
        raise UsageError(
            f"bootstrap.n_resamples {settings.n_resamples} is too {few}; give 100 to "
            f"{_MOST_RESAMPLES}, 10000 is usual"
        )
    if not settings.metric:
        raise UsageError("the metric has no name; give --metric, such as overview/reward")


_TOP = ("metric", "summary", "test", "alpha", "n", "looks", "paired", "note")
_TEST = ("method", "side", "boundary")
_FIRST_LOOK = EXACT_TO // 2
"""Largest first look; two groups of this size are within the range of the exact bounds."""
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
    """Read a plan from a file.

    Raises:
        UsageError: The file cannot be read, or is not a valid plan.
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
        boundary=_one_of(Spending, "test.boundary", boundary).value,
    )


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
