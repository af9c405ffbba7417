"""Experiments and their versions: lists, manual versions and notes, and the log of a series.

An experiment gets its version when it is stored: that of the last run of the series if the
fingerprint is unchanged, else the next. The log of a series has the changes from one experiment
to the next, computed from the recorded configurations, and the values of each. Functions take
an open connection. Nothing here computes an interval.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from duckdb import DuckDBPyConnection

from assay.core.canonical_json import canonical_json
from assay.core.text import printable, unknown_name
from assay.errors import UsageError
from assay.judge.design import Change, changes_between, short_value
from assay.store.ingest import free_name, transaction
from assay.store.metric_outcomes import METRICS_TAG
from assay.store.rows import parse_json_object, to_datetime
from assay.store.subjects import recorded_commit, series_experiments

_VERSION = re.compile(r"v(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})")
_LONGEST_NOTE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExperiment:
    """Summary of one experiment."""

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
    """Mean of the requested metric over its results; None if no result has it."""
    baseline: bool
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """Version and note of an experiment, before and after a change."""

    id: str
    name: str
    old_name: str
    version: str
    old_version: str
    note: str | None
    old_note: str | None
    others: tuple[str, ...]
    """Names of experiments with the same version but another fingerprint."""


def list_experiments(
    connection: DuckDBPyConnection,
    *,
    series: str | None = None,
    metric: str = "achievements",
) -> list[ListedExperiment]:
    """List all experiments, or those of a series, the oldest first.

    Raises:
        UsageError: The series is unknown.
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
            created_at=to_datetime(row[6]),
            trials=row[7],
            results=row[8],
            mean=row[9],
            baseline=parse_json_object(row[10]).get("baseline") is True,
            note=row[11],
        )
        for row in rows
    ]


def check_metric(connection: DuckDBPyConnection, metric: str) -> None:
    """Raise UsageError, with known metrics, if there are outcomes but none of this metric."""
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
    """Set a tag of an experiment, if it is stored."""
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
    """Set the version, the note, or both of an experiment; an empty note deletes the old one.

    The name changes with the version. Later versions continue from the highest one.

    Raises:
        UsageError: The experiment is unknown, or the version or the note is invalid.
    """
    _check_tag(version, note)
    rows = connection.execute(
        "SELECT name, series, version, note, fingerprint FROM experiments WHERE id = ?",
        [experiment_id],
    ).fetchall()
    if not rows:
        raise UsageError(
            f"experiment {printable(experiment_id)!r} not found in this database; "
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
        raise UsageError(f"invalid version {version!r}; give v<major>.<minor>, such as v2.0")
    if note is not None and len(note) > _LONGEST_NOTE:
        raise UsageError(
            f"the note has {len(note):,} characters, but at most {_LONGEST_NOTE:,} are allowed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One experiment of a series: its origin, its changes and its values."""

    id: str
    name: str
    version: str
    model: str
    run_id: str
    created_at: datetime
    commit: str | None
    dirty: bool
    """Whether the checkout had uncommitted changes."""
    project: str | None
    """Commit of the user's repository, with `+` if it had uncommitted changes."""
    note: str | None
    previous: str | None
    """Name of the previous experiment of the series, with which it is compared."""
    same: bool
    """Whether its fingerprint equals the previous one."""
    changes: tuple[Change, ...]
    """Changes since the previous experiment, including episodes and seed."""
    trials: int
    values: tuple[float, ...]
    """Values of the requested metric, one per result that has it."""
    arm: Mapping[str, Any] = field(default_factory=dict)
    """Its own settings in the run: user agent, model, agent settings."""
    worlds: tuple[str, ...] = ()
    """World of each of `values`; values from one world are not independent."""


def series_log(
    connection: DuckDBPyConnection,
    series: str,
    *,
    unlogged: Collection[str],
    metric: str = "achievements",
) -> list[LogEntry]:
    """Return the experiments of a series, the oldest first, each with its changes.

    Settings in `unlogged` are ignored: those that affect where and how fast a run is executed,
    but not its results.

    Raises:
        UsageError: The series is unknown.
    """
    ids = series_experiments(connection, series)
    rows = {
        row[0]: row
        for row in connection.execute(
            "SELECT e.id, e.name, e.version, e.model, e.run_id, epoch_us(e.created_at), "
            "e.note, e.fingerprint, e.tags, r.configuration, r.provenance "
            "FROM experiments e LEFT JOIN runs r ON r.id = e.run_id "
            "WHERE e.id IN (SELECT unnest(?::VARCHAR[]))",
            [ids],
        ).fetchall()
    }
    counts, values, worlds = _load_values(connection, ids, metric)
    entries: list[LogEntry] = []
    before: tuple[Any, ...] | None = None
    for name in ids:
        row = rows[name]
        numbers = values.get(name, []), worlds.get(name, [])
        entries.append(_make_entry(row, before, counts.get(name, 0), *numbers, unlogged))
        before = row
    return entries


def experiment_log(
    connection: DuckDBPyConnection,
    experiment_id: str,
    *,
    unlogged: Collection[str],
    metric: str = "achievements",
) -> LogEntry:
    """Return the entry of one experiment in the log of its series.

    Raises:
        UsageError: The experiment is unknown, or it has no series.
    """
    rows = connection.execute(
        "SELECT series FROM experiments WHERE id = ? AND series IS NOT NULL", [experiment_id]
    ).fetchall()
    if not rows:
        raise UsageError(
            f"experiment {printable(experiment_id)!r} has no series; "
            "see 'assay experiments list'"
        )
    entries = series_log(connection, rows[0][0], unlogged=unlogged, metric=metric)
    return next(entry for entry in entries if entry.id == experiment_id)


def _load_values(
    connection: DuckDBPyConnection, ids: Sequence[str], metric: str
) -> tuple[dict[str, int], dict[str, list[float]], dict[str, list[str]]]:
    """Load the number of trials, the values of a metric and their worlds, by experiment."""
    rows = connection.execute(
        "SELECT experiment_id, count(*) FROM trials WHERE state IS NOT NULL "
        "AND experiment_id IN (SELECT unnest(?::VARCHAR[])) GROUP BY experiment_id",
        [list(ids)],
    ).fetchall()
    values = connection.execute(
        "SELECT o.experiment_id, list(o.value ORDER BY o.seed, o.replicate, o.trial_id), "
        "list(coalesce(o.task || ' ' || o.seed::VARCHAR, o.trial_id) "
        "ORDER BY o.seed, o.replicate, o.trial_id), "
        "count(*) FILTER (t.id IS NULL) "
        "FROM outcomes o LEFT JOIN trials t ON t.id = o.trial_id "
        "WHERE o.experiment_id IN (SELECT unnest(?::VARCHAR[])) AND o.metric = ? "
        "AND o.trial_id <> o.experiment_id AND isfinite(o.value) "
        "AND (t.id IS NULL OR t.state = 'result') GROUP BY o.experiment_id",
        [list(ids), metric],
    ).fetchall()
    counts = dict(rows)
    for name, _, _, without_trial in values:
        counts[name] = counts.get(name, 0) + without_trial
    by_name = {name: numbers for name, numbers, _, _ in values}
    return counts, by_name, {name: worlds for name, _, worlds, _ in values}


def _make_entry(
    row: tuple[Any, ...],
    before: tuple[Any, ...] | None,
    trials: int,
    values: Sequence[float],
    worlds: Sequence[str],
    unlogged: Collection[str],
) -> LogEntry:
    key, name, version, model, run_id, at, note, fingerprint, *_ = row
    origin = parse_json_object(row[10])
    commit = origin.get("commit")
    return LogEntry(
        id=key,
        name=name or key,
        version=version or "",
        model=model or "",
        run_id=run_id or "",
        created_at=to_datetime(at),
        commit=commit if isinstance(commit, str) else None,
        dirty=origin.get("dirty") is True,
        project=recorded_commit(origin, "project_"),
        note=note,
        previous=None if before is None else before[1],
        same=before is not None and before[7] == fingerprint,
        changes=() if before is None else _find_changes(before, row, unlogged),
        trials=trials,
        values=tuple(values),
        worlds=tuple(worlds),
        arm=_get_tags(row),
    )


def _find_changes(
    before: tuple[Any, ...], after: tuple[Any, ...], unlogged: Collection[str]
) -> tuple[Change, ...]:
    found: list[Change] = []
    if before[3] != after[3]:
        found.append(Change("model", short_value(before[3]), short_value(after[3])))
    found += changes_between(
        parse_json_object(before[9]), parse_json_object(after[9]), unlogged
    )
    return (*found, *changes_between(_get_tags(before), _get_tags(after)))


def _get_tags(row: tuple[Any, ...]) -> dict[str, Any]:
    others = ("baseline", METRICS_TAG)
    return {key: value for key, value in parse_json_object(row[8]).items() if key not in others}
