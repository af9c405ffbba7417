"""Looks of `assay analysis` at the difference of two sets of training runs.

The same metric and summary of the same runs is one look, however often it is repeated: the
first time is the one that is kept.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from duckdb import DuckDBPyConnection

from assay._util.canonical import canonical_json, content_hash
from assay.judge.looks import RecordedLook
from assay.traces.ingest import transaction

__all__ = ["looks_at", "record_look"]

_COLUMNS = (
    *("control", "candidate", "look", "alpha", "estimate", "low", "high", "verdict", "plan"),
    "looked_at",
)


def looks_at(
    connection: DuckDBPyConnection, metric: str, summary: Mapping[str, Any]
) -> list[RecordedLook]:
    """All looks at a summary of a metric, the first one first."""
    rows = connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM analysis_looks"
        " WHERE metric = ? AND summary::VARCHAR = ? ORDER BY looked_at, id",
        [metric, _json(summary)],
    ).fetchall()
    return [_look(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _look(row: dict[str, Any]) -> RecordedLook:
    runs = {arm: tuple(row[arm]) for arm in ("control", "candidate")}
    numbers = {
        name: math.nan if row[name] is None else row[name]
        for name in ("estimate", "low", "high")
    }
    return RecordedLook(**{**row, **runs, **numbers})


def record_look(
    connection: DuckDBPyConnection, metric: str, summary: Mapping[str, Any], look: RecordedLook
) -> None:
    """Keep a look, unless the same runs were looked at before."""
    name = content_hash(canonical_json([metric, _json(summary), *map(list, look.runs)]))
    with transaction(connection):
        connection.execute(
            "INSERT INTO analysis_looks BY NAME SELECT ? AS id, ? AS metric, ? AS summary,"
            " ?::VARCHAR[] AS control, ?::VARCHAR[] AS candidate, ? AS look, ? AS alpha,"
            " ? AS estimate, ? AS low, ? AS high, ? AS verdict, ? AS plan, ? AS looked_at"
            " ON CONFLICT DO NOTHING",
            [
                *(name, metric, _json(summary), list(look.control), list(look.candidate)),
                *(look.look, look.alpha, *map(_known, (look.estimate, look.low, look.high))),
                *(look.verdict, look.plan, datetime.now(UTC).replace(tzinfo=None)),
            ],
        )


def _json(summary: Mapping[str, Any]) -> str:
    """What is set in it, so that a setting that is added later changes nothing."""
    kept = {name: value for name, value in summary.items() if value is not None}
    return canonical_json(kept).decode()


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
