"""Plans of comparisons and analyses, written before the data, and deviations from them.

The plan of a comparison is a TOML or JSON file with `metric` and `n`, and where they matter
`level`, `min_effect` and `note`. Only what kept to a registered plan is called settled.
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
    """A plan as it was registered."""

    hash: str
    plan: Mapping[str, Any]
    created_at: datetime
    """When it was stored first, in UTC."""
    seen: tuple[str, ...]
    """Training runs with the metric that were in the store by then."""


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


def history_of(
    stored: StoredPlan | None, used: Sequence[str], from_files: int, *, what: str, command: str
) -> list[str]:
    """What speaks against a plan having come before its data, in sentences.

    Args:
        stored: The plan as it was registered, if it was.
        used: What of the store was used, by id.
        from_files: How much came from files.
        what: What these are, such as `runs`.
        command: What registers a plan.
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
    """What `make` makes of the content of a file.

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
        return make(found)
    except UsageError as error:
        raise UsageError(f"plan {name}: {error}") from error


def check_plan_keys(above: str, found: Any, kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Refuse a table that is none, has other keys, or values of other types."""
    if not isinstance(found, dict):
        raise UsageError(f"{above or 'the plan'} is a table of settings")
    for name, value in found.items():
        if name not in kinds:
            raise UsageError(unknown_name("setting", f"{above}{name}", list(kinds)))
        if not isinstance(value, kinds[name]) or (
            isinstance(value, bool) and bool not in kinds[name]
        ):
            raise UsageError(f"{above}{name} is {value!r}; give {_WORDS[kinds[name][-1]]}")
