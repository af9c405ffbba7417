"""Plans of comparisons and analyses (pre-registration), and deviations from them.

The plan of a comparison is a TOML or JSON file with `metric` and `n`, and optionally `level`,
`min_effect` and `note`. Only a result that followed a registered plan is called settled.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from assay.core.canonical_json import canonical_json, content_hash
from assay.core.text import printable, unknown_name
from assay.errors import UsageError
from assay.judge.results import Comparison
from assay.stats.learning_curves import SummarySpec
from assay.stats.look_bounds import Spending

_Plan = TypeVar("_Plan")
_KINDS: dict[str, tuple[type, ...]] = {
    "metric": (str,),
    "n": (int,),
    "level": (int, float),
    "min_effect": (int, float),
    "note": (str,),
}
_WORDS = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A registered plan."""

    hash: str
    plan: Mapping[str, Any]
    created_at: datetime
    """Time of its first registration, in UTC."""
    seen: tuple[str, ...]
    """Training runs with the metric that were in the database at that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisPlan:
    """A pre-registered analysis of training runs."""

    metric: str
    summary: SummarySpec
    method: str
    side: str
    alpha: float
    n: int
    """Number of pairs, or of runs of each arm."""
    paired: bool | None
    """Whether runs are compared in pairs; None if the plan does not specify it."""
    note: str | None = None
    looks: tuple[int, ...] = ()
    """Numbers of pairs, or of runs of each arm, at which it is analysed, `n` last; empty: once.
    """
    boundary: str = Spending.OBRIEN_FLEMING.value
    """Spending function that divides alpha among the looks."""

    @property
    def content(self) -> dict[str, Any]:
        """Content of the plan as plain values; keys about looks only if it has looks."""
        found = asdict(self)
        looks, boundary = list(found.pop("looks")), found.pop("boundary")
        return {**found, "looks": looks, "boundary": boundary} if looks else found

    @property
    def hash(self) -> str:
        """Hash of the content, used as the name of the plan."""
        return content_hash(canonical_json(self.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """A pre-registered comparison."""

    metric: str
    """The primary metric."""
    n: int
    """Number of pairs, or of trials of each subject."""
    level: float = 0.95
    min_effect: float | None = None
    note: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        """Content of the plan as plain values."""
        return {"kind": "comparison", **asdict(self)}

    @property
    def hash(self) -> str:
        """Hash of the content, used as the name of the plan."""
        return content_hash(canonical_json(self.content))


def read_comparison_plan(path: Path) -> ComparisonPlan:
    """Read the plan of a comparison from a file.

    Raises:
        UsageError: The file cannot be read, or is not a plan.
    """
    return read_plan_file(path, _plan)


def plan_deviations(
    plan: ComparisonPlan, comparison: Comparison, stored: StoredPlan | None
) -> list[str]:
    """Return the deviations of a comparison from its plan, as sentences."""
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


def history_of(
    stored: StoredPlan | None, used: Sequence[str], from_files: int, *, what: str, command: str
) -> list[str]:
    """Return reasons to doubt that a plan preceded its data, as sentences.

    Args:
        stored: The registered plan, or None if it was not registered.
        used: Ids of the data used from the database.
        from_files: Number of items read from files.
        what: Plural noun for the items, such as `runs`.
        command: The command that registers a plan.
    """
    if stored is None:
        return [
            "the plan was never registered as it is, so nothing says that it came before the "
            f"data; '{command} --plan FILE --register' does that, and a plan that is changed "
            "later is another"
        ]
    found = []
    if early := sorted(set(used) & set(stored.seen)):
        more = ", …" if len(early) > 6 else ""
        found.append(
            f"{len(early)} of the {what} were in the store when the plan was registered: "
            + ", ".join(early[:6])
            + more
        )
    if from_files:
        found.append(
            f"{from_files} {what} come from files, of which nobody knows when they were seen; "
            f"import {what} into the store after registering"
        )
    return found


def read_plan_file(path: Path, make: Callable[[Any], _Plan]) -> _Plan:
    """Read a TOML or JSON file and return `make` of its content.

    Raises:
        UsageError: The file cannot be read, or is not a plan.
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
        return make(found)
    except UsageError as error:
        raise UsageError(f"plan {name}: {error}") from error


def check_plan_keys(above: str, found: Any, kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Raise UsageError if a plan table is not a table, or has unknown keys or wrong types."""
    if not isinstance(found, dict):
        raise UsageError(f"{above or 'the plan'} is a table of settings")
    for name, value in found.items():
        if name not in kinds:
            raise UsageError(unknown_name("setting", f"{above}{name}", list(kinds)))
        if not isinstance(value, kinds[name]) or (
            isinstance(value, bool) and bool not in kinds[name]
        ):
            raise UsageError(f"{above}{name} is {value!r}; give {_WORDS[kinds[name][-1]]}")
