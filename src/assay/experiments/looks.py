"""The looks of a run that went on until it was decided, as rows of the table `looks`.

They follow from the outcomes of the run alone, so that storing them again replaces them.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from duckdb import DuckDBPyConnection

from assay._util.canonical import canonical_json
from assay.judge.subjects import Look
from assay.traces.ingest import transaction

__all__ = ["load_looks", "store_looks"]

_COLUMNS = (
    "experiment_id, baseline_id, metric, look, pairs, estimate, low, high, decision, design"
)


def store_looks(connection: DuckDBPyConnection, run_id: str, looks: Sequence[Look]) -> None:
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


def load_looks(
    connection: DuckDBPyConnection, experiment_ids: Sequence[str]
) -> dict[str, list[Look]]:
    """The looks at each of these candidates that was looked at, in order."""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, epoch_us(looked_at) FROM looks WHERE experiment_id IN "
        "(SELECT unnest(?::VARCHAR[])) ORDER BY experiment_id, metric, look",
        [list(experiment_ids)],
    ).fetchall()
    found: dict[str, list[Look]] = {}
    for look in map(_look, rows):
        found.setdefault(look.experiment_id, []).append(look)
    return found


def _look(row: tuple[Any, ...]) -> Look:
    candidate, baseline, metric, look, pairs, estimate, low, high, decision, design, at = row
    return Look(
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
