"""The looks of a run that went on until it was decided, as rows of the table `looks`.

They follow from the outcomes of the run alone, so that storing them again replaces them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from assay._util.canonical import canonical_json

from .ingest import transaction

__all__ = ["LookRecord", "load_looks", "store_looks"]

_COLUMNS = (
    "experiment_id, baseline_id, metric, look, pairs, estimate, low, high, decision, design"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRecord:
    """One look at a candidate beside the baseline."""

    experiment_id: str
    """The candidate."""
    baseline_id: str
    metric: str
    look: int
    """Counted from 1."""
    pairs: int
    estimate: float
    """Mean of candidate minus baseline; NaN if there was no pair."""
    low: float
    """Of the interval that holds at every look; NaN where it could not say yet."""
    high: float
    decision: str | None
    """None: it went on."""
    design: Mapping[str, Any]
    """How the pairs were looked at; `assay.stats.sequential.Design.of` reads it."""
    looked_at: float = 0.0
    """Seconds since 1970."""


def store_looks(
    connection: DuckDBPyConnection, run_id: str, looks: Sequence[LookRecord]
) -> None:
    """Store the looks of a run, in place of those it had."""
    rows = [
        [
            run_id,
            look.experiment_id,
            look.baseline_id,
            look.metric,
            look.look,
            look.pairs,
            *map(_known, (look.estimate, look.low, look.high)),
            look.decision,
            canonical_json(dict(look.design)).decode(),
            round(look.looked_at * 1_000_000),
        ]
        for look in looks
    ]
    with transaction(connection):
        connection.execute("DELETE FROM looks WHERE run_id = ?", [run_id])
        if rows:
            marks = ", ".join("?" * (len(rows[0]) - 1))
            connection.executemany(
                f"INSERT INTO looks (run_id, {_COLUMNS}, looked_at) "
                f"VALUES ({marks}, make_timestamp(?))",
                rows,
            )


def load_looks(connection: DuckDBPyConnection, run_id: str) -> list[LookRecord]:
    """The looks of a run, candidate by candidate in the order of the run."""
    found = connection.execute(
        f"SELECT {_COLUMNS}, epoch_us(looked_at) FROM "
        "(SELECT l.*, e.position FROM looks l LEFT JOIN experiments e ON e.id = experiment_id) "
        "WHERE run_id = ? ORDER BY position, experiment_id, metric, look",
        [run_id],
    ).fetchall()
    return [_record(row) for row in found]


def _record(row: tuple[Any, ...]) -> LookRecord:
    candidate, baseline, metric, look, pairs, estimate, low, high, decision, design, at = row
    return LookRecord(
        experiment_id=candidate,
        baseline_id=baseline,
        metric=metric,
        look=look,
        pairs=pairs,
        estimate=_number(estimate),
        low=_number(low),
        high=_number(high),
        decision=decision,
        design=json.loads(design),
        looked_at=0.0 if at is None else at / 1_000_000,
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
