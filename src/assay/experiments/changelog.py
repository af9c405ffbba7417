"""What changed from one experiment of a series to the next, and what came of each.

Changes are read off the configurations that runs recorded. Takes an open connection. Nothing
here computes an interval.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from duckdb import DuckDBPyConnection

from assay._util.text import printable
from assay.errors import UsageError
from assay.experiments.metric_outcomes import METRICS_TAG
from assay.experiments.outcomes import recorded_commit, series_experiments
from assay.judge.changes import Change, changes_between, short_value
from assay.traces.columns import json_object, moment

__all__ = ["LogEntry", "experiment_log", "series_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One experiment of a series: where it came from and what came of it."""

    id: str
    name: str
    version: str
    model: str
    run_id: str
    created_at: datetime
    commit: str | None
    dirty: bool
    """Whether the checkout had changes that are not in the commit."""
    project: str | None
    """The commit of the user's own repository, with `+` if it had other changes."""
    note: str | None
    previous: str | None
    """The name of the experiment it is compared with: the one before it in the series."""
    same: bool
    """Whether all that makes a version is as it was."""
    changes: tuple[Change, ...]
    """Since the one before it; episodes and seed are named too, though they make no version."""
    trials: int
    values: tuple[float, ...]
    """Of the metric asked for, one for each result that has it."""
    arm: Mapping[str, Any] = field(default_factory=dict)
    """What its run says of it alone: an agent of the user's own, its model, its settings."""
    worlds: tuple[str, ...] = ()
    """The world of each of `values`; those of one world are not independent."""


def series_log(
    connection: DuckDBPyConnection,
    series: str,
    *,
    unlogged: Collection[str],
    metric: str = "achievements",
) -> list[LogEntry]:
    """The experiments of a series, the oldest first, each with what changed before it.

    Keys of a configuration that are `unlogged` are passed over: who declares the settings
    knows which of them say where, beside whom and how fast, and not what is played.

    Raises:
        UsageError: There is no such series.
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
    counts, values, worlds = _earned(connection, ids, metric)
    entries: list[LogEntry] = []
    before: tuple[Any, ...] | None = None
    for name in ids:
        row = rows[name]
        earned = values.get(name, []), worlds.get(name, [])
        entries.append(_entry(row, before, counts.get(name, 0), *earned, unlogged))
        before = row
    return entries


def experiment_log(
    connection: DuckDBPyConnection,
    experiment_id: str,
    *,
    unlogged: Collection[str],
    metric: str = "achievements",
) -> LogEntry:
    """One experiment as the log of its series has it.

    Raises:
        UsageError: There is no such experiment, or it has no series.
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


def _earned(
    connection: DuckDBPyConnection, ids: Sequence[str], metric: str
) -> tuple[dict[str, int], dict[str, list[float]], dict[str, list[str]]]:
    """For each experiment its number of trials, the values of a metric, and their worlds."""
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
    earned = {name: found for name, found, _, _ in values}
    return counts, earned, {name: worlds for name, _, worlds, _ in values}


def _entry(
    row: tuple[Any, ...],
    before: tuple[Any, ...] | None,
    trials: int,
    values: Sequence[float],
    worlds: Sequence[str],
    unlogged: Collection[str],
) -> LogEntry:
    key, name, version, model, run_id, at, note, fingerprint, *_ = row
    origin = json_object(row[10])
    commit = origin.get("commit")
    return LogEntry(
        id=key,
        name=name or key,
        version=version or "",
        model=model or "",
        run_id=run_id or "",
        created_at=moment(at),
        commit=commit if isinstance(commit, str) else None,
        dirty=origin.get("dirty") is True,
        project=recorded_commit(origin, "project_"),
        note=note,
        previous=None if before is None else before[1],
        same=before is not None and before[7] == fingerprint,
        changes=() if before is None else _changes(before, row, unlogged),
        trials=trials,
        values=tuple(values),
        worlds=tuple(worlds),
        arm=_tags(row),
    )


def _changes(
    before: tuple[Any, ...], after: tuple[Any, ...], unlogged: Collection[str]
) -> tuple[Change, ...]:
    found: list[Change] = []
    if before[3] != after[3]:
        found.append(Change("model", short_value(before[3]), short_value(after[3])))
    found += changes_between(json_object(before[9]), json_object(after[9]), unlogged)
    return (*found, *changes_between(_tags(before), _tags(after)))


def _tags(row: tuple[Any, ...]) -> dict[str, Any]:
    others = ("baseline", METRICS_TAG)
    return {key: value for key, value in json_object(row[8]).items() if key not in others}
