"""The experiments of a store and their versions, listed and named by hand.

The store gives every experiment a version when its run starts: the one of the last run of the
series if nothing changed that decides how it plays, else the next. What changed from one to
the next is told by `changelog`. Takes an open connection.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from duckdb import DuckDBPyConnection

from assay._util.canonical import canonical_json
from assay._util.names import unknown_name
from assay._util.text import printable
from assay.errors import UsageError
from assay.experiments.outcomes import series_experiments
from assay.traces.columns import json_object, moment
from assay.traces.ingest import free_name, transaction

__all__ = [
    "ListedExperiment",
    "Tagged",
    "check_metric",
    "list_experiments",
    "set_tag",
    "tag_experiment",
]

_VERSION = re.compile(r"v(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})")
_LONGEST_NOTE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExperiment:
    """One experiment, in brief."""

    id: str
    name: str
    series: str
    version: str
    model: str
    run_id: str
    created_at: datetime
    trials: int
    results: int
    """Trials that completed."""
    mean: float | None
    """Of the metric asked for, over its results; None if none has it."""
    baseline: bool
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """What a tag changed."""

    id: str
    name: str
    old_name: str
    version: str
    old_version: str
    note: str | None
    old_note: str | None
    others: tuple[str, ...]
    """Experiments of the series with the same version that played otherwise."""


def list_experiments(
    connection: DuckDBPyConnection,
    *,
    series: str | None = None,
    metric: str = "achievements",
) -> list[ListedExperiment]:
    """All experiments, or those of a series, the oldest first.

    Raises:
        UsageError: There is no such series.
    """
    chosen = None if series is None else series_experiments(connection, series)
    rows = connection.execute(
        f"""
        SELECT e.id, e.name, e.series, e.version, e.model, e.run_id, epoch_us(e.created_at),
               coalesce(s.trials, 0), coalesce(s.results, 0), s.mean, e.tags, e.note
        FROM experiments e LEFT JOIN ({_TOTALS}) s ON s.experiment_id = e.id
        WHERE $ids IS NULL OR list_contains($ids::VARCHAR[], e.id)
        ORDER BY e.created_at, e.run_id, e.position, e.id
        """,
        {"metric": metric, "ids": chosen},
    ).fetchall()
    return [
        ListedExperiment(
            id=row[0],
            name=row[1] or row[0],
            series=row[2] or "",
            version=row[3] or "",
            model=row[4] or "",
            run_id=row[5] or "",
            created_at=moment(row[6]),
            trials=row[7],
            results=row[8],
            mean=row[9],
            baseline=json_object(row[10]).get("baseline") is True,
            note=row[11],
        )
        for row in rows
    ]


def check_metric(connection: DuckDBPyConnection, metric: str) -> None:
    """Refuse a metric that no trial of a store has; one without outcomes has none to refuse.

    Raises:
        UsageError: It is in no outcome; the message names some that are.
    """
    rows = connection.execute("SELECT DISTINCT metric FROM outcomes ORDER BY metric").fetchall()
    names = [printable(row[0]) for row in rows if row[0] and "/" not in row[0]]
    if rows and (metric,) not in rows:
        raise UsageError(unknown_name("metric", metric, names))


_TOTALS = """
    SELECT t.experiment_id, count(*) AS trials,
           count(*) FILTER (t.state = 'result') AS results,
           avg(o.value) FILTER (t.state = 'result' AND isfinite(o.value)) AS mean
    FROM (
        SELECT id AS trial_id, experiment_id, state FROM trials WHERE state IS NOT NULL
        UNION ALL
        SELECT DISTINCT trial_id, experiment_id, 'result' FROM outcomes o
        WHERE trial_id <> experiment_id
              AND NOT EXISTS (FROM trials t WHERE t.id = o.trial_id)
    ) t
    LEFT JOIN (FROM outcomes WHERE metric = $metric) o USING (trial_id)
    GROUP BY t.experiment_id
"""


def set_tag(connection: DuckDBPyConnection, experiment_id: str, name: str, value: str) -> None:
    """Set one of the tags of an experiment, if it is stored."""
    connection.execute(
        "UPDATE experiments SET tags = json_merge_patch(coalesce(tags, '{}'), ?::JSON) "
        "WHERE id = ?",
        [canonical_json({name: value}).decode(), experiment_id],
    )


def tag_experiment(
    connection: DuckDBPyConnection,
    experiment_id: str,
    *,
    version: str | None = None,
    note: str | None = None,
) -> Tagged:
    """Give an experiment a version, a note, or both; an empty note takes the old one away.

    Its name follows the version. Versions that the store gives later go on from the highest.

    Raises:
        UsageError: There is no such experiment, or the version or the note is not allowed.
    """
    _check_tag(version, note)
    rows = connection.execute(
        "SELECT name, series, version, note, fingerprint FROM experiments WHERE id = ?",
        [experiment_id],
    ).fetchall()
    if not rows:
        raise UsageError(
            f"there is no experiment {printable(experiment_id)!r} in this database; "
            "see 'assay experiments list'"
        )
    old_name, series, old_version, old_note, fingerprint = rows[0]
    wanted = old_version if version is None else version
    name = old_name
    new_note = old_note if note is None else note.strip() or None
    with transaction(connection):
        if wanted != old_version:
            name = free_name(connection, f"{series} {wanted}")
        connection.execute(
            "UPDATE experiments SET name = ?, version = ?, note = ?, "
            "updated_at = now() AT TIME ZONE 'UTC' WHERE id = ?",
            [name, wanted, new_note, experiment_id],
        )
    others = connection.execute(
        "SELECT name FROM experiments WHERE series = ? AND version = ? AND id <> ? "
        "AND fingerprint IS DISTINCT FROM ? ORDER BY created_at, name",
        [series, wanted, experiment_id, fingerprint],
    ).fetchall()
    return Tagged(
        id=experiment_id,
        name=name,
        old_name=old_name,
        version=wanted,
        old_version=old_version,
        note=new_note,
        old_note=old_note,
        others=tuple(other for (other,) in others) if version is not None else (),
    )


def _check_tag(version: str | None, note: str | None) -> None:
    if version is None and note is None:
        raise UsageError("nothing to change; give --version such as v2.0, --note, or both")
    if version is not None and not _VERSION.fullmatch(version):
        raise UsageError(
            f"version {version!r} is not allowed; give v<major>.<minor>, such as v2.0"
        )
    if note is not None and len(note) > _LONGEST_NOTE:
        raise UsageError(
            f"the note has {len(note):,} letters; give at most {_LONGEST_NOTE:,}, and keep the "
            "rest in a file"
        )
