"""Metrics of a task's own script: numbers by name, in two groups."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from assay._util.text import cut, shown
from assay.bench.sandboxes.base import TrialFinding

__all__ = ["Metrics", "read_metrics"]

_GROUPS = ("standard_metrics", "custom_metrics")
_MOST = 200
_LONGEST_NAME = 100


class Metrics(NamedTuple):
    """What a script reported, and what of it was refused."""

    standard: Mapping[str, float]
    custom: Mapping[str, float]
    findings: tuple[TrialFinding, ...] = ()


def read_metrics(path: str, end: Mapping[str, Any]) -> Metrics:
    """Read the result file of a metrics script that ended this way."""
    if end["timed_out"]:
        return _failed(path, "its time was over")
    if end["exit_code"] != 0:
        last = cut(end["output"].strip().rpartition("\n")[2], 200)
        return _failed(path, f"it ended with exit code {end['exit_code']}: {last}")
    if end["result"] is None:
        return _failed(path, "it wrote no file at $ASSAY_RESULT")
    try:
        result = json.loads(end["result"])
    except (ValueError, RecursionError) as error:
        return _failed(
            path, f"what it wrote to $ASSAY_RESULT is not JSON: {cut(str(error), 100)}"
        )
    if not isinstance(result, dict) or not set(result) <= set(_GROUPS):
        return _failed(path, f"it must write an object of {' and '.join(_GROUPS)}")
    findings: list[TrialFinding] = []
    standard, custom = (_numbers(path, group, result.get(group), findings) for group in _GROUPS)
    return Metrics(standard, custom, tuple(findings))


def _numbers(
    path: str, group: str, values: Any, findings: list[TrialFinding]
) -> dict[str, float]:
    if values is None:
        return {}
    if not isinstance(values, dict) or len(values) > _MOST:
        findings.append(
            TrialFinding(
                "metric_refused", f"{path}: {group} is no object of at most {_MOST} numbers"
            )
        )
        return {}
    numbers = {}
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and len(name) <= _LONGEST_NAME and _is_finite(value):
            numbers[name] = float(value)
            continue
        findings.append(
            TrialFinding(
                "metric_refused",
                f"{path}: {group}: {shown(name, 50)} is {shown(value, 60)}, no finite number",
            )
        )
    return numbers


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _failed(path: str, why: str) -> Metrics:
    return Metrics({}, {}, (TrialFinding("metrics_failed", f"{path}: {why}"),))
