"""A plan of a comparison, written before its trials, and how a comparison kept to it.

A plan is a TOML or JSON file with `metric` and `n`, and where they matter `level`, `min_effect`
and `note`. Only what kept to a registered plan is called settled.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay._util.canonical import canonical_json, content_hash
from assay.errors import UsageError
from assay.experiments.plans import StoredPlan, check_plan_keys, history_of, read_plan_file
from assay.judge.facts import Comparison

__all__ = ["ComparisonPlan", "plan_deviations", "read_comparison_plan"]

_KINDS: dict[str, tuple[type, ...]] = {
    "metric": (str,),
    "n": (int,),
    "level": (int, float),
    "min_effect": (int, float),
    "note": (str,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """What somebody will compare, and how."""

    metric: str
    """The one that decides."""
    n: int
    """Pairs, or trials of each subject."""
    level: float = 0.95
    min_effect: float | None = None
    note: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        """What it means, as plain values."""
        return {"kind": "comparison", **asdict(self)}

    @property
    def hash(self) -> str:
        """The name of the plan: a hash of what it means."""
        return content_hash(canonical_json(self.content))


def read_comparison_plan(path: Path) -> ComparisonPlan:
    """The plan in a file.

    Raises:
        UsageError: The file cannot be read, or is no plan.
    """
    return read_plan_file(path, _plan)


def plan_deviations(
    plan: ComparisonPlan, comparison: Comparison, stored: StoredPlan | None
) -> list[str]:
    """In what a comparison differs from its plan, in sentences."""
    setup = comparison.setup
    done = (
        ("metric", plan.metric, setup.primary),
        ("level", plan.level, setup.level),
        ("min_effect", plan.min_effect, setup.min_effect),
    )
    found = [
        f"{what}: the plan says {planned}, the comparison did {did}"
        for what, planned, did in done
        if planned != did
    ]
    for contrast in comparison.decisive:
        counts = {contrast.n_baseline, contrast.n_candidate}
        if counts != {plan.n}:
            said = " and ".join(map(str, sorted(counts)))
            found.append(f"n: the plan says {plan.n}, there are {said}")
    return [*dict.fromkeys(found), *_history(comparison, stored)]


def _history(comparison: Comparison, stored: StoredPlan | None) -> Sequence[str]:
    judged = [facts.subject for facts in comparison.subjects if facts.judged]
    return history_of(
        stored,
        [subject.id for subject in judged if subject.source == "store"],
        sum(subject.source != "store" for subject in judged),
        what="experiments",
        command="assay compare",
    )


def _plan(found: Any) -> ComparisonPlan:
    check_plan_keys("", found, _KINDS)
    for name in ("metric", "n"):
        if name not in found:
            raise UsageError(f"{name} is missing; a plan has metric and n at least")
    if found["n"] < 2:
        raise UsageError(f"n is {found['n']}; a comparison takes 2 trials of each or more")
    return ComparisonPlan(**found)
