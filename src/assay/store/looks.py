"""Interim analyses ("looks") in the database.

The table `looks` has those of `--until-decided` runs. They are computed from the outcomes of
the run alone, so storing them again replaces them.

The table `analysis_looks` has those of `assay analysis`, at the difference of two sets of
training runs. Repeating an analysis (same metric, summary and runs) is not another look: only
the first is stored.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from duckdb import DuckDBPyConnection

from assay.core.canonical_json import canonical_json, content_hash
from assay.judge.looks import RecordedLook
from assay.judge.subjects import Look
from assay.store.ingest import transaction

_COLUMNS = (
    "experiment_id, baseline_id, metric, look, pairs, estimate, low, high, decision, design"
)


def store_looks(connection: DuckDBPyConnection, run_id: str, looks: Sequence[Look]) -> None:
    """Store the looks of a run, replacing the stored ones."""
    rows = [
        [
            run_id,
            look.experiment_id,
            look.baseline_id,
            look.metric,
            look.look,
            look.pairs,
            *map(_nan_to_null, (look.estimate, look.low, look.high)),
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
    """Load the looks by candidate, in order; candidates without looks are absent."""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, epoch_us(looked_at) FROM looks WHERE experiment_id IN "
        "(SELECT unnest(?::VARCHAR[])) ORDER BY experiment_id, metric, look",
        [list(experiment_ids)],
    ).fetchall()
    found: dict[str, list[Look]] = {}
    for look in map(_make_look, rows):
        found.setdefault(look.experiment_id, []).append(look)
    return found


def _make_look(row: tuple[Any, ...]) -> Look:
    candidate, baseline, metric, look, pairs, estimate, low, high, decision, design, at = row
    return Look(
        experiment_id=candidate,
        baseline_id=baseline,
        metric=metric,
        look=look,
        pairs=pairs,
        estimate=_null_to_nan(estimate),
        low=_null_to_nan(low),
        high=_null_to_nan(high),
        decision=decision,
        design=json.loads(design),
        looked_at=0.0 if at is None else at / 1_000_000,
    )


def _nan_to_null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _null_to_nan(value: float | None) -> float:
    return math.nan if value is None else value


_ANALYSIS_COLUMNS = (
    *("control", "candidate", "look", "alpha", "estimate", "low", "high", "verdict", "plan"),
    "looked_at",
)


def load_analysis_looks(
    connection: DuckDBPyConnection, metric: str, summary: Mapping[str, Any]
) -> list[RecordedLook]:
    """Load all looks at a summary of a metric, the oldest first."""
    rows = connection.execute(
        f"SELECT {', '.join(_ANALYSIS_COLUMNS)} FROM analysis_looks"
        " WHERE metric = ? AND summary::VARCHAR = ? ORDER BY looked_at, id",
        [metric, _encode_summary(summary)],
    ).fetchall()
    return [_make_recorded_look(dict(zip(_ANALYSIS_COLUMNS, row, strict=True))) for row in rows]


def _make_recorded_look(row: dict[str, Any]) -> RecordedLook:
    runs = {arm: tuple(row[arm]) for arm in ("control", "candidate")}
    numbers = {
        name: math.nan if row[name] is None else row[name]
        for name in ("estimate", "low", "high")
    }
    return RecordedLook(**{**row, **runs, **numbers})


def record_look(
    connection: DuckDBPyConnection, metric: str, summary: Mapping[str, Any], look: RecordedLook
) -> None:
    """Store a look, unless there is one at the same runs."""
    name = content_hash(
        canonical_json([metric, _encode_summary(summary), *map(list, look.runs)])
    )
    with transaction(connection):
        connection.execute(
            "INSERT INTO analysis_looks BY NAME SELECT ? AS id, ? AS metric, ? AS summary,"
            " ?::VARCHAR[] AS control, ?::VARCHAR[] AS candidate, ? AS look, ? AS alpha,"
            " ? AS estimate, ? AS low, ? AS high, ? AS verdict, ? AS plan, ? AS looked_at"
            " ON CONFLICT DO NOTHING",
            [
                *(
                    name,
                    metric,
                    _encode_summary(summary),
                    list(look.control),
                    list(look.candidate),
                ),
                *(
                    look.look,
                    look.alpha,
                    *map(_nan_to_null, (look.estimate, look.low, look.high)),
                ),
                *(look.verdict, look.plan, datetime.now(UTC).replace(tzinfo=None)),
            ],
        )


def _encode_summary(summary: Mapping[str, Any]) -> str:
    """Encode the settings that are not None, so that settings added later change nothing."""
    kept = {name: value for name, value in summary.items() if value is not None}
    return canonical_json(kept).decode()
