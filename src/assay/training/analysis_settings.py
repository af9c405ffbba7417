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
_MIN_ALPHA = 1e-12
"""Smallest alpha; below it, 1 - alpha rounds to 1."""
_MAX_RESAMPLES = 10_000_000


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
    options: Mapping[str, Any],
    summary: Mapping[str, Any],
    plan: Mapping[str, Any] | None = None,
) -> AnalysisSettings:
    """Resolve the settings from user options, a plan and defaults.

    Args:
        options: User options by the field names of `AnalysisSettings`; None means not given.
        summary: User options by the field names of `SummarySpec`; None means not given.
        plan: Settings of a plan by field name, with its summary under `summary`.

    Raises:
        UsageError: A value is not allowed.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    summary_options = {name: value for name, value in summary.items() if value is not None}
    if plan is not None:
        names = {setting.name for setting in fields(AnalysisSettings)} - {"summary"}
        planned = {k: v for k, v in plan.items() if k in names and v is not None}
        chosen = {**planned, **chosen}
        summary_options = merge_summaries(plan["summary"], summary_options)
    chosen["method"] = _parse_choice(Method, "bootstrap.method", chosen.get("method", "auto"))
    chosen["side"] = _parse_choice(Side, "bootstrap.side", chosen.get("side", "two-sided"))
    settings = AnalysisSettings(**chosen, summary=make_summary(summary_options))
    _check_settings(settings)
    return settings


def make_summary(options: Mapping[str, Any]) -> SummarySpec:
    """Create a summary from options; an AUC defaults to the last quarter."""
    chosen = {name: value for name, value in options.items() if value is not None}
    kind = _parse_choice(Summary, "summary.type", chosen.get("type", "auc"))
    windowed = any(name in chosen for name in ("percent", "step_min", "step_max"))
    if kind is Summary.AUC and not windowed:
        chosen["percent"] = DEFAULT_PERCENT
    if "percent_window" in chosen and "percent" not in chosen:
        raise UsageError(
            f"summary.percent_window {chosen['percent_window']} has no effect without "
            "summary.percent; give summary.percent, or leave percent_window out"
        )
    window = _parse_choice(
        PercentWindow, "summary.percent_window", chosen.get("percent_window", "last")
    )
    if kind is Summary.TIME_TO_THRESHOLD and chosen.get("threshold") is None:
        raise UsageError(
            "summary.type time_to_threshold needs a threshold; give --summary.threshold"
        )
    return SummarySpec(**{**chosen, "type": kind, "percent_window": window})


def merge_summaries(planned: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary settings of a plan, overridden by user options."""
    kept = {name: value for name, value in planned.items() if value is not None}
    if options.get("type", kept.get("type")) != kept.get("type"):
        # The window of one kind of summary does not apply to another.
        kept = {}
    bounds = {"step_min", "step_max"}
    if "percent" in options:
        kept = {name: value for name, value in kept.items() if name not in bounds}
    if bounds & options.keys():
        kept.pop("percent", None)
    if "percent" not in kept and "percent" not in options:
        kept.pop("percent_window", None)
    return {**kept, **options}


def describe_summary(spec: SummarySpec) -> str:
    """Describe a summary and its window in words."""
    match spec.type:
        case Summary.AUC:
            name = "mean by step" if spec.normalize_steps else "area below the curve"
            name = f"AUC ({name})"
        case Summary.LAST_N:
            name = f"mean of the last {spec.n} points"
        case Summary.FINAL:
            name = "final value"
        case Summary.SLOPE:
            name = "slope per step"
        case Summary.TIME_TO_THRESHOLD:
            direction = "down to" if spec.falling else "to"
            name = f"steps {direction} {spec.threshold:g}"
    if spec.percent is not None:
        return f"{name} over the {spec.percent_window} {spec.percent:.4g} of the steps"
    if spec.step_min is not None or spec.step_max is not None:
        low = "the start" if spec.step_min is None else f"step {spec.step_min:.12g}"
        high = "the end" if spec.step_max is None else f"step {spec.step_max:.12g}"
        return f"{name} from {low} to {high}"
    return f"{name} of the whole curve"


def _parse_choice(choices: Any, name: str, value: Any) -> Any:
    try:
        return choices(value)
    except ValueError:
        raise UsageError(unknown_name(name, str(value), choices)) from None


def _check_settings(settings: AnalysisSettings) -> None:
    if not _MIN_ALPHA <= settings.alpha < 1:
        raise UsageError(
            f"alpha {settings.alpha!r} is not between {_MIN_ALPHA:g} and 1; 0.05 is usual"
        )
    if not 0 < settings.target_power < 1:
        raise UsageError(
            f"power {settings.target_power!r} is not between 0 and 1; 0.8 is usual"
        )
    if not (math.isfinite(settings.target_effect_size) and settings.target_effect_size > 0):
        raise UsageError(
            f"power.target_effect_size must be greater than 0 (got "
            f"{settings.target_effect_size!r}); use the unit of the summary"
        )
    if settings.seed < 0:
        raise UsageError(f"bootstrap.seed {settings.seed} is negative; give 0 or more")
    if not 100 <= settings.n_resamples <= _MAX_RESAMPLES:
        excess = "few" if settings.n_resamples < 100 else "many"
        raise UsageError(
            f"bootstrap.n_resamples {settings.n_resamples} is too {excess}; give 100 to "
            f"{_MAX_RESAMPLES}, 10000 is usual"
        )
    if not settings.metric:
        raise UsageError("the metric has no name; give --metric, such as overview/reward")


_PLAN_KEYS = ("metric", "summary", "test", "alpha", "n", "looks", "paired", "note")
_TEST_KEYS = ("method", "side", "boundary")
_MAX_FIRST_LOOK = EXACT_TO // 2
"""Largest first look; two groups of this size are within the range of the exact bounds."""
_SUMMARY_KEYS = tuple(SummarySpec.__dataclass_fields__)
_NUMBER_TYPES = (int, float)
_KEY_TYPES: Mapping[str, tuple[type, ...]] = {
    "metric": (str,),
    "summary": (dict,),
    "test": (dict,),
    "alpha": _NUMBER_TYPES,
    "n": (int,),
    "looks": (list,),
    "boundary": (str,),
    "paired": (bool,),
    "note": (str,),
    "method": (str,),
    "side": (str,),
    "type": (str,),
    "percent": _NUMBER_TYPES,
    "percent_window": (str,),
    "step_min": _NUMBER_TYPES,
    "step_max": _NUMBER_TYPES,
    "normalize_steps": (bool,),
    "threshold": _NUMBER_TYPES,
    "falling": (bool,),
}


def read_plan(path: Path) -> AnalysisPlan:
    """Read a plan from a file.

    Raises:
        UsageError: The file cannot be read, or is not a valid plan.
    """

    def parse(content: Any) -> AnalysisPlan:
        check_unicode("text", json.dumps(content, ensure_ascii=False, default=str))
        return _parse_plan(content)

    return read_plan_file(path, parse)


def _parse_plan(content: Any) -> AnalysisPlan:
    for prefix, names in (("", _PLAN_KEYS), ("summary.", _SUMMARY_KEYS), ("test.", _TEST_KEYS)):
        table = content.get(prefix[:-1], {}) if prefix else content
        check_plan_keys(prefix, table, {name: _KEY_TYPES[name] for name in names})
    for name in ("metric", "n"):
        if name not in content:
            raise UsageError(f"{name} is missing; a plan needs at least metric and n")
    if content["n"] < 2:
        raise UsageError(f"n is {content['n']}; an analysis needs at least 2 runs")
    test = dict(content.get("test", {}))
    boundary = test.pop("boundary", Spending.OBRIEN_FLEMING.value)
    settings = make_settings(
        {"metric": content["metric"], "alpha": content.get("alpha"), **test},
        content.get("summary", {}),
    )
    return AnalysisPlan(
        metric=settings.metric,
        summary=settings.summary,
        method=str(settings.method),
        side=str(settings.side),
        alpha=float(settings.alpha),
        n=content["n"],
        paired=content.get("paired"),
        note=content.get("note"),
        looks=_parse_looks(content, settings),
        boundary=_parse_choice(Spending, "test.boundary", boundary).value,
    )


def _parse_looks(content: Mapping[str, Any], settings: AnalysisSettings) -> tuple[int, ...]:
    looks = content.get("looks", [])
    if not looks:
        return ()
    increasing = all(type(look) is int for look in looks) and looks == sorted(set(looks))
    if not (increasing and 3 <= looks[0] <= _MAX_FIRST_LOOK and looks[-1] == content["n"]):
        raise UsageError(
            f"looks is {looks}; give the numbers of pairs at which you look, such as "
            f"[15, {content['n']}]: increasing, the first from 3 to {_MAX_FIRST_LOOK}, the "
            f"last equal to n ({content['n']})"
        )
    max_alpha = LARGEST_ALPHA if settings.side is Side.TWO_SIDED else LARGEST_ALPHA / 2
    if settings.alpha > max_alpha:
        raise UsageError(
            f"alpha {settings.alpha:g} is too large to divide among looks; give at most "
            f"{max_alpha:g}"
        )
    return tuple(looks)
