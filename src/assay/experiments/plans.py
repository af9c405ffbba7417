"""Plans of analyses and comparisons, written down before the data was seen.

A plan is known by the hash of its content and stored once: storing it again changes neither
the time nor what had been seen by then. Its file is TOML or JSON.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from assay._util.canonical import canonical_json
from assay._util.names import unknown_name
from assay._util.text import printable
from assay.errors import UsageError
from assay.traces.ingest import transaction

__all__ = [
    "StoredPlan",
    "check_plan_keys",
    "experiments_with_trials",
    "find_plan",
    "history_of",
    "read_plan_file",
    "store_plan",
]

_Plan = TypeVar("_Plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan as it was registered."""

    hash: str
    plan: Mapping[str, Any]
    created_at: datetime
    """When it was stored first, in UTC."""
    seen: tuple[str, ...]
    """Training runs with the metric that were in the store by then."""


def store_plan(
    connection: duckdb.DuckDBPyConnection,
    hash: str,
    plan: Mapping[str, Any],
    seen: Sequence[str],
) -> tuple[StoredPlan, bool]:
    """Store a plan unless it is there; the plan as stored, and whether it is a first time."""
    with transaction(connection):
        if (found := find_plan(connection, hash)) is not None:
            return found, False
        kept = StoredPlan(
            hash=hash,
            plan=dict(plan),
            created_at=datetime.now(UTC).replace(tzinfo=None),
            seen=tuple(seen),
        )
        connection.execute(
            "INSERT INTO analysis_plans (hash, plan, created_at, seen) VALUES (?, ?, ?, ?)",
            [
                hash,
                canonical_json(kept.plan).decode(),
                kept.created_at,
                canonical_json(list(kept.seen)).decode(),
            ],
        )
    return kept, True


def find_plan(connection: duckdb.DuckDBPyConnection, hash: str) -> StoredPlan | None:
    """The plan with this hash, if it was registered."""
    row = connection.execute(
        "SELECT plan, created_at, seen FROM analysis_plans WHERE hash = ?", [hash]
    ).fetchone()
    if row is None:
        return None
    plan, created_at, seen = row
    return StoredPlan(
        hash=hash,
        plan=json.loads(plan),
        created_at=created_at,
        seen=tuple(json.loads(seen or "[]")),
    )


def experiments_with_trials(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The ids of the experiments of a store that have a trial by now."""
    rows = connection.execute(
        "SELECT DISTINCT experiment_id FROM session_traces WHERE experiment_id IS NOT NULL "
        "UNION SELECT DISTINCT experiment_id FROM outcomes WHERE experiment_id IS NOT NULL "
        "ORDER BY 1"
    ).fetchall()
    return [row[0] for row in rows]


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


_WORDS = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}
