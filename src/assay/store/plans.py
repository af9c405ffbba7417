"""Pre-registered plans of analyses and comparisons, in the table `analysis_plans`.

A plan is identified by the hash of its content and stored once: storing it again changes
neither its time nor its list of experiments that already had trials (`seen`).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb

from assay.core.canonical_json import canonical_json
from assay.judge.plans import StoredPlan
from assay.store.ingest import transaction


def store_plan(
    connection: duckdb.DuckDBPyConnection,
    hash: str,
    plan: Mapping[str, Any],
    seen: Sequence[str],
) -> tuple[StoredPlan, bool]:
    """Store a plan unless it exists; return the stored plan and whether it is new."""
    with transaction(connection):
        if (found := find_plan(connection, hash)) is not None:
            return found, False
        stored = StoredPlan(
            hash=hash,
            plan=dict(plan),
            created_at=datetime.now(UTC).replace(tzinfo=None),
            seen=tuple(seen),
        )
        connection.execute(
            "INSERT INTO analysis_plans (hash, plan, created_at, seen) VALUES (?, ?, ?, ?)",
            [
                hash,
                canonical_json(stored.plan).decode(),
                stored.created_at,
                canonical_json(list(stored.seen)).decode(),
            ],
        )
    return stored, True


def find_plan(connection: duckdb.DuckDBPyConnection, hash: str) -> StoredPlan | None:
    """Return the plan with this hash, if it was registered."""
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
    """Return the ids of the experiments that have trials."""
    rows = connection.execute(
        "SELECT DISTINCT experiment_id FROM session_traces WHERE experiment_id IS NOT NULL "
        "UNION SELECT DISTINCT experiment_id FROM outcomes WHERE experiment_id IS NOT NULL "
        "ORDER BY 1"
    ).fetchall()
    return [row[0] for row in rows]
